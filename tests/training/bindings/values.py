#!/usr/bin/env python3
# Every kind of value that a program may put in a checkpoint: it comes back equal in type and value,
# or ff.Error names its path. And structures that no ff has written: they run nothing.
"""usage: values.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import array
import collections
import ctypes
import dataclasses
import decimal
import enum
import functools
import json
import mmap
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
import typing

from checkpoint_torch import SKIPPED, python_with_torch

NAN = struct.unpack(">d", bytes.fromhex("7ff8000000abcdef"))[0]


# ---- classes of the program


class Color(enum.Enum):
    RED = "r"
    BLUE = ("b", 1)


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3


class Point(typing.NamedTuple):
    x: int
    y: object = None


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Options:
    size: int
    parts: list = dataclasses.field(default_factory=list)
    counted: int = dataclasses.field(default=0, init=False)

    def __post_init__(self):
        self.counted += 1


@dataclasses.dataclass(frozen=True)
class Key:
    name: str


@dataclasses.dataclass
class Slots:
    __slots__ = ("a", "b")
    a: int
    b: str


@dataclasses.dataclass
class OfList(list):
    size: int


class Plain:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Plain and other.value == self.value


class ById:
    pass


class Text(str):
    pass


class Number(int):
    pass


class Row(list):
    pass


class Bytes(bytes):
    pass


# ---- equality that sees what == does not


def bits(number):
    return struct.pack(">d", number)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and type(a) is float:
        return bits(a) == bits(b)
    if type(a) is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (dict, list, tuple, collections.deque)):
        return len(a) == len(b) and same_items(a, b) and same_attributes(a, b)
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name))
                   for field in dataclasses.fields(a))
    if isinstance(a, sys.modules["torch"].Tensor):
        return same_tensors(a, b)
    if isinstance(a, sys.modules["numpy"].ndarray):
        return same_arrays(a, b)
    if isinstance(a, sys.modules["numpy"].generic):
        padded = a.dtype.char in "gG"
        return a.dtype == b.dtype and (a == b if padded else a.tobytes() == b.tobytes())
    return a == b


def same_items(a, b):
    if isinstance(a, dict):
        return all(same(*keys) for keys in zip(a, b)) and all(map(same, a.values(), b.values()))
    return all(map(same, a, b))


def same_attributes(a, b):
    if isinstance(a, collections.defaultdict):
        return a.default_factory is b.default_factory
    if isinstance(a, collections.deque):
        return a.maxlen == b.maxlen
    return same(vars(a), vars(b)) if hasattr(a, "__dict__") else True


def same_tensors(a, b):
    torch = sys.modules["torch"]
    if (a.dtype, a.shape, a.layout, a.requires_grad) != (b.dtype, b.shape, b.layout,
                                                         b.requires_grad):
        return False
    a, b = a.detach(), b.detach()
    if a.layout == torch.sparse_coo:
        return a.is_coalesced() == b.is_coalesced() and \
            same(a._indices(), b._indices()) and same(a._values(), b._values())
    if a.layout != torch.strided:
        names = ("crow_indices", "col_indices") if a.layout in (
            torch.sparse_csr, torch.sparse_bsr) else ("ccol_indices", "row_indices")
        return all(same(getattr(a, name)(), getattr(b, name)()) for name in (*names, "values"))
    flat = [one.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            if one.numel() else one for one in (a, b)]
    return torch.equal(*flat)


def same_arrays(a, b):
    numpy = sys.modules["numpy"]
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.type is not b.dtype.type:
        return False
    if isinstance(a, numpy.ma.MaskedArray):
        masks = numpy.ma.getmask(a), numpy.ma.getmask(b)
        return same_arrays(a.data, b.data) and same(*masks) and a.hardmask == b.hardmask and \
            same(a.fill_value, b.fill_value)
    return a.tobytes() == b.tobytes()


# ---- what comes back


def python_values():
    ordered = collections.OrderedDict(b=1, a=2)
    ordered.noted = {"deep": collections.OrderedDict(c=[bytes(3)])}
    counter = collections.Counter("abca")
    counter.noted = 1
    deep = []
    for _ in range(190):
        deep = [deep]
    return {
        "none": None, "bools": [True, False], "ints": [0, -1, 2**63, -2**64, 2**1999, 2**2000],
        "huge int": -7**20000, "text": "é\n\"\0\ud800", "empty text": "",
        "floats": [0.1, -0.0, 5e-324, 1e308, float("inf"), float("-inf"), float("nan"), NAN],
        "complex": [1 - 2j, complex(-0.0, NAN)], "bytes": [b"", b"\0\xff"],
        "bytearray": [bytearray(), bytearray(b"abc")], "range": [range(5), range(9, -2**70, -3)],
        "slice": [slice(None), slice(1, None, -2), slice("a", [1], 2.5)], "list": [[], [[1], [2]]],
        "tuple": [(), (1, (2, [3])), ((),)], "dict": {"": {}, "a.b": 1, "a": {"b": 2}},
        "keys": {1: 1, True: 2, None: 3, 0.5: 4, (1, ("a", None)): 5, b"k": 6, 2**90: 7, 1j: 8,
                 frozenset([1, (2,)]): 9, range(3): 10, 1.5: 11},
        "one and True": [{1: "a"}, {True: "a"}, {1.0: "a"}], "nan key": {NAN: 1},
        "set": [set(), {1, "a", None, (1, b"2"), frozenset("xyz"), 2.5}],
        "frozenset": frozenset([frozenset([frozenset()])]),
        "ordered": [collections.OrderedDict(), ordered, collections.OrderedDict({1: ordered})],
        "counter": [counter, collections.Counter({(1, 2): 0.5})],
        "defaultdict": [collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None),
                        collections.defaultdict(collections.OrderedDict, {3: ordered})],
        "deque": [collections.deque([1, [2]], 5), collections.deque(), collections.deque("ab")],
        "deep": deep, "same object twice": [ordered, ordered],
        "a kind as key": [{"tensor": "x"}, {"dict": 1}, {"set": [1]}, {"state": {"array": []}}],
        "__metadata__": [b"1", {"__metadata__": b"2"}],
        "enum": [Color.RED, Color.BLUE, Level.LOW, Access.READ, Access.READ | Access.WRITE,
                 Access(0)],
        "enum keys": {Color.RED: 1, Key("a"): 2, Point(1, 2): 3},
        "enum set": {Color.RED, Level.LOW},
        "namedtuple": [Point(1, [2]), Point(x=b"bytes"), Pair({"a": 1}, None)],
        "dataclass": [Options(3, [Options(4)]), Key("k"), Slots(1, "b")],
        "registered": [Plain([1, (2, {3})]), pathlib.PosixPath("/a/b"), decimal.Decimal("0.10")],
    }


def numpy_values(numpy):
    inner = [("d", "S3"), ("e", "<M8[s]")]
    record = numpy.dtype([("a", "<i4"), ("b", ">f8", (2, 3)), ("c", inner)])
    aligned = numpy.dtype([("a", "u1"), ("b", "<f8")], align=True)
    gaps = numpy.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [6, 0],
                        "itemsize": 12})
    titled = numpy.dtype([(("title", "n"), "<i4")])
    values = {f"numpy {name}": numpy.arange(6).astype(name).reshape(2, 3) for name in
              ("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "g", "F", "D",
               "G", ">i4", ">f8", ">c8", "<M8[ns]", ">M8[D]", "<m8[s]", "S3", "<U5", ">U2", "V7")}
    values.update({
        "numpy structured": numpy.zeros((2, 2), record), "numpy aligned": numpy.ones(3, aligned),
        "numpy gaps": numpy.zeros(2, gaps), "numpy titles": numpy.ones(2, titled),
        "numpy empty": [numpy.zeros((0, 3)), numpy.zeros(0, record), numpy.zeros(3, "<U0")],
        "numpy 0-d": [numpy.array(3), numpy.array("x"), numpy.array((1, 2), "i4,i4")],
        "numpy strides": [numpy.arange(24.0).reshape(4, 6)[::-2, ::3], numpy.arange(6)[::-1],
                          numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
                          numpy.broadcast_to(numpy.arange(3), (4, 3)),
                          numpy.arange(6).astype(">i8")[::2], numpy.zeros(4, record)[::2]["a"]],
        "numpy nat": numpy.array(["NaT", "2020-01-01"], "<M8[us]"),
        "numpy scalars": [kind("1") for kind in (numpy.str_, numpy.bytes_)] + [kind(1) for kind in (
            numpy.bool_, numpy.int8, numpy.uint64, numpy.longlong, numpy.ulonglong, numpy.float16,
            numpy.float64, numpy.longdouble, numpy.complex64)],
        "numpy times": [numpy.datetime64("2020-01-01T00:00"), numpy.timedelta64(3, "h"),
                        numpy.datetime64("NaT")],
        "numpy void": [numpy.zeros(1, record)[0], numpy.void(b"abc")],
        "numpy matrix": [numpy.matrix([[1, 2], [3, 4]]), numpy.matrix([[1j]]).T],
        "numpy masked": [numpy.ma.array([1, 2, 3], mask=[0, 1, 0]), numpy.ma.array([1.5]),
                         numpy.ma.array([[1, 2]], mask=True, fill_value=7, hard_mask=True),
                         numpy.ma.array(["a", "b"], mask=[1, 0]), numpy.ma.array(5, mask=True),
                         numpy.ma.array(numpy.zeros(2, record), mask=True)],
        "numpy random": numpy.random.RandomState(3).get_state(legacy=False),
    })
    return values


def torch_values(torch):
    names = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 "
             "complex128 uint16 uint32 uint64 float8_e4m3fn float8_e5m2").split()
    values = {f"torch {name}": torch.arange(6).reshape(2, 3).to(getattr(torch, name))
              for name in names if hasattr(torch, name)}
    image = torch.randn(2, 3, 4, 5)
    whole = torch.arange(60, dtype=torch.float32)
    eye = torch.eye(3)
    uncoalesced = torch.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, -0.0], (4,))
    hybrid = torch.sparse_coo_tensor([[0, 2]], torch.randn(2, 5), (3, 5))
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    bf16 = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    values.update({
        "torch channels_last": image.to(memory_format=torch.channels_last),
        "torch views": [whole[10:20], whole.view(6, 10).t(), whole[::7], eye.expand(2, 3, 3)],
        "torch shared": [whole, whole], "torch 0-d": torch.tensor(7), "torch empty": eye[:0],
        "torch conj": [torch.randn(4, dtype=torch.complex64).conj(),
                       torch.randn(4, dtype=torch.complex64).conj().imag],
        "torch grad": [torch.randn(3, requires_grad=True), torch.ones(2, requires_grad=True) * 2],
        "torch parameter": [torch.nn.Parameter(torch.randn(3)), bf16,
                            torch.nn.Parameter(torch.arange(3), requires_grad=False)],
        "tensor": torch.nn.Parameter(torch.ones(1)),  # named as its kind
        "torch coo": [eye.to_sparse(), uncoalesced, uncoalesced.coalesce(), hybrid,
                      torch.zeros(2, 0).to_sparse(), eye.to_sparse().requires_grad_(),
                      torch.sparse_coo_tensor([[0], [1]], [True], (2, 2))],
        "torch compressed": [eye.to_sparse_csr(), eye.to_sparse_csc(),
                             image[0, 0].to_sparse_bsr((2, 5)), image[0, 0].to_sparse_bsc((4, 1)),
                             eye.to_sparse_csr().requires_grad_()],
        "torch size": [eye.shape, torch.Size([])], "torch device": torch.device("cuda:1"),
        "torch dtype": [torch.float32, {torch.bfloat16: 1}],
        "torch model": model.state_dict(), "torch optimizer": optimizer.state_dict(),
        "torch parameters": list(model.parameters()), "torch rng": torch.get_rng_state(),
    })
    values["torch model kept"] = model.state_dict(keep_vars=True)
    return values


# ---- what is refused, and where its path is


def refused(ff, numpy, torch):
    cycle, around = [], {"a": [1]}
    cycle.append(cycle)
    around["a"].append({"b": around})
    deep = {}
    for _ in range(5000):
        deep = {"d": deep}
    hiding = collections.OrderedDict(a=1)
    hiding.items = [1]
    extra = Options(1)
    extra.surprise = 1
    closed = memoryview(b"1")
    closed.release()
    mapped = mmap.mmap(-1, 8)
    mapped.close()

    class Named(torch.Tensor):
        pass
    table = {
        "thing": (object(), "register_type(object, flatten, unflatten)"),
        "function": (same, "cannot be stored"), "lambda": (lambda: 1, "cannot be stored"),
        "module": (os, "cannot be stored"), "class": (Plain, "cannot be stored"),
        "generator": ((i for i in ()), "cannot be stored"), "ellipsis": (..., "cannot be stored"),
        "text": (Text("a"), "Text"), "number": (Number(1), "Number"), "row": (Row(), "Row"),
        "bytes": (Bytes(b"1"), "Bytes"), "exception": (ValueError(1), "ValueError"),
        "released": (closed, "memoryview"), "mapped": (mapped, "mmap"),
        "unicode": (array.array("u", "a"), "array"), "cycle": (cycle, "it holds itself"),
        "around": (around, "it holds itself"), "deep": (deep, "deeper than 200 levels"),
        "default": (collections.defaultdict(lambda: 1), "save dict(...)"),
        "partial": (collections.defaultdict(functools.partial(int)), "save dict(...)"),
        "other factory": (collections.defaultdict(Plain), "save dict(...)"),
        "hiding": (hiding, "its attribute items hides"), "extra": (extra, "surprise"),
        "tensor key": ({eye_of(torch): 1}, "a key of type Tensor"),
        "numpy key": ({numpy.int64(1): 1}, "a key of type int64"),
        "key by id": ({ById(): 1}, "a key of type ById"), "set by id": ({ById()}, "ById"),
        "objects": (numpy.array([None]), "an array of object"),
        "objects within": (numpy.zeros(1, "i4,O"), "cannot be stored"),
        "metadata": (numpy.zeros(1, numpy.dtype("f4", metadata={"a": 1})), "cannot be stored"),
        "recarray": (numpy.rec.array([(1,)], dtype=[("a", "i4")]), "a numpy.recarray"),
        "chararray": (numpy.char.array(["a"]), "subclass"),
        "masked constant": (numpy.ma.masked, "MaskedConstant"),
        "trailing": (numpy.bytes_(b"a\0"), "zeros at the end"),
        "masked objects": (numpy.ma.array([None], mask=True), "an array of object"),
        "dtype": (numpy.dtype("f4"), "cannot be stored"),
        "meta": (torch.empty(2, device="meta"), "on the device meta"),
        "named": (torch.ones(2, names=("n",)), "named dimensions"),
        "quantized": (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "quantized"),
        "subclass": (torch.ones(2).as_subclass(Named), "register_type"),
        "lazy": (torch.nn.UninitializedParameter(), "subclass of torch.Tensor"),
        "maximum": (torch.max(torch.eye(2), 0), "torch.return_types.max"),
        "module of torch": (torch.nn.Linear(1, 1), "Linear"),
        "layout": (torch.strided, "torch.layout"), "generator of torch": (torch.Generator(), "Gen"),
    }
    saver = ff.Saver()
    for name, (value, text) in table.items():
        for state, path in (({name: value}, name), ({"in": [0, {"this": value}]}, "in.1.this")):
            try:
                saver.save_async(state, store="/nowhere/at/all")
            except ff.Error as error:
                assert error.code == 2 and str(error).startswith(path), f"{name}: {error}"
                assert text in str(error), f"{name}: '{text}' in '{error}'"
            else:
                raise AssertionError(f"{name} is not refused")


def eye_of(torch):
    return torch.eye(2)


# ---- tests


def register(ff):
    for cls in (Color, Level, Access, Point, Pair, Options, Key, Slots):
        assert ff.register_type(cls) is cls
    ff.register_type(Plain, lambda value: {"value": value.value},
                     lambda content: Plain(content["value"]))
    ff.register_type(pathlib.PosixPath, str, pathlib.PosixPath)
    ff.register_type(decimal.Decimal, str, decimal.Decimal, name="decimal")
    ff.register_type(ById, lambda value: None, lambda content: ById())


def comes_back(ff, numpy, torch, store):
    register(ff)
    state = {**python_values(), **numpy_values(numpy), **torch_values(torch)}
    assert len(state) > 100
    ff.save_async(state, store=store).wait()
    loaded = ff.load(store)
    changed = [name for name in state if not same(state[name], loaded[name])]
    assert not changed, "\n".join(f"{name}: {state[name]!r}\n -> {loaded[name]!r}"
                                  for name in changed)
    assert loaded["dataclass"][0].counted == 1  # as it was: no __post_init__ has run
    assert loaded["torch model"]._metadata == state["torch model"]._metadata
    assert list(loaded) == list(state)
    for name, value in state.items():  # as a state of its own; its pieces have other names
        ff.save_async(value, "alone", 1, store, replace=True).wait()
        assert same(ff.load(store, "alone"), value), name


def is_refused(ff, numpy, torch, store):
    refused(ff, numpy, torch)


def is_the_same_bytes_in_each_process(ff, numpy, torch, store):
    body = ("import sys; sys.path.insert(0, sys.argv[1]); import ff\n"
            "state = {'set': set('abcdefgh'), frozenset('xyz'): {(w, b'1') for w in 'klmn'}}\n"
            "print(ff.save_async(state, store=sys.argv[2], step=1).wait().outcome)\n")
    said = [subprocess.run([sys.executable, "-c", body, sys.argv[1], store], check=True,
                           env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
                           text=True).stdout.strip() for seed in "123"]
    assert said == ["committed", "already_there", "already_there"], said


def fails(ff, code, text, call):
    try:
        call()
    except ff.Error as error:
        assert error.code == code and text in str(error), f"{error.code}: '{text}' in '{error}'"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def registered_types(ff, numpy, torch, store):
    save = lambda state: ff.save_async(state, store=store).wait()
    load = lambda: ff.load(store)

    class Early(enum.Enum):
        ONE = 1

    @dataclasses.dataclass
    class Grown:
        a: int
    says = functools.partial(fails, ff, 2)
    says("x: a __main__.registered_types.<locals>.Early cannot be stored in a checkpoint",
         lambda: save({"x": Early.ONE}))
    says("register_type(registered_types.<locals>.Early)", lambda: save({"x": Early.ONE}))
    says("is no class", lambda: ff.register_type(3))
    for native in (dict, torch.Tensor, torch.nn.Parameter, numpy.ma.MaskedArray):
        says("without it", lambda native=native: ff.register_type(native))
    says("give both", lambda: ff.register_type(Plain, str))
    for other in (object, OfList, ValueError):
        says("give flatten and unflatten", lambda other=other: ff.register_type(other))
    ff.register_type(Early, name="early")
    says("has the name 'early'", lambda: ff.register_type(Grown, name="early"))
    ff.register_type(Grown, name="grown")
    save([Early.ONE, Grown(1)])
    assert load() == [Early.ONE, Grown(1)]

    @dataclasses.dataclass
    class Grown:  # a later version of the program
        a: int
        b: list = dataclasses.field(default_factory=lambda: [2])
    ff.register_type(Grown, name="grown")
    assert load()[1] == Grown(1, [2])

    @dataclasses.dataclass
    class Grown:
        b: int
    ff.register_type(Grown, name="grown")
    fails(ff, 1, "has no field 'a' any more", load)

    @dataclasses.dataclass
    class Grown:
        a: int
        b: int
    ff.register_type(Grown, name="grown")
    fails(ff, 1, "has a field 'b' that the checkpoint lacks", load)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import ff; ff.load(sys.argv[2])"
    other = subprocess.run([sys.executable, "-c", program, sys.argv[1], store], text=True,
                           capture_output=True)
    assert "holds a 'early', which is not registered" in other.stderr, other.stderr

    class Scaled(torch.Tensor):
        pass
    ff.register_type(Scaled, lambda value: [value.as_subclass(torch.Tensor), value.scale],
                     scaled_of(torch, Scaled))
    scaled = torch.ones(3).as_subclass(Scaled)
    scaled.scale = 7
    save({"x": scaled})
    back = load()["x"]
    assert type(back) is Scaled and back.scale == 7 and back.tolist() == [1, 1, 1]
    ff.register_type(ValueError, lambda value: 1 / 0, lambda content: 1)
    says("x: flatten of 'builtins.ValueError' has failed: ZeroDivisionError",
         lambda: save({"x": ValueError()}))
    ff.register_type(ValueError, lambda value: value.args, lambda content: 1 / 0)
    save({"x": ValueError(1)})
    fails(ff, 1, "unflatten of 'builtins.ValueError' has failed: ZeroDivisionError", load)


def scaled_of(torch, cls):
    def unflatten(content):
        value = content[0].as_subclass(cls)
        value.scale = content[1]
        return value
    return unflatten


def written(store, document, **tensors):
    """Saves a file of the structure `document` as nothing but this test would write it."""
    header, data = {"__metadata__": {"ff.state": document}}, b""
    for name, (dtype, shape, content) in tensors.items():
        span = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        data += content
    text = json.dumps(header).encode()
    path = store + ".d/state.safetensors"
    os.makedirs(store + ".d", exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    subprocess.run([sys.argv[2], "checkpoint", "save", "--store", store, "--run", "h", "--step",
                    "1", "--replace", path], check=True, capture_output=True)


def hostile(ff, numpy, torch, store):
    """Structures that do not hold together, each with the code of its error."""
    from ff._state import Builder, Document, LoadedArray
    eight = {"array": "n"}
    kinds = {
        3: ["", "[", "1", "[]", "{}", "null", '{"state": {}}', '{"state": {"a": 1, "b": 2}}',
            '{"state": {"dict": 3}}', '{"state": {"tensor": ["t"]}}', '{"state": {"tensor": "no"}}',
            '{"state": 1, "tensors": 7}', '{"state": 1, "attributes": [[{}, 1]]}',
            '{"state": %s}' % ("9" * 5000)],
        1: [{"os.system": "true"}, {"type": ["os.system", "true"]}, {"type": ["__main__.Gone", 1]},
            {"torch.dtype": "load"}, {"torch.dtype": "nn"}]}
    broken = [{"set": [[1]]}, {"set": 5}, {"pairs": [[1]]}, {"pairs": [[[], 1]]}, {"float": "zz"},
              {"float": ""}, {"int": "print"}, {"complex": [1, 2, 3]}, {"range": [1, 2, 0]},
              {"hex": "x"}, {"range": ["a", 2, 1]}, {"defaultdict": ["eval", []]},
              {"defaultdict": [["list"], []]},
              {"deque": [-1, []]}, {"matrix": {"int": "1"}}, {"matrix": [1]}, {"masked": [1, 2]},
              {"masked": [eight, {"array": "w"}, 1, False]}, {"torch.Size": "ab"},
              {"torch.device": "evil"}, {"torch.device": [1]}, {"type": [[], 1]}, {"type": 1},
              {"sparse": ["sparse_coo", [{"tensor": "t"}], [8], True, []]},
              {"sparse": ["load", [eight, eight, eight], [8], True, []]},
              {"sparse": ["sparse_coo", [{"tensor": "i"}, {"tensor": "v"}], [2], False, []]},
              {"view": ["array", "O", [1], eight]}, {"view": ["array", "<f8", [2], eight]},
              {"view": ["array", "<f8", [-1], eight]}, {"view": ["array", "zzz", [1], eight]},
              {"view": ["array", ["fields", ["a"], ["O"], [0], [None], 8, False], [1], eight]},
              {"view": ["array", ["fields", ["a"], ["<f8"], [4], [None], 8, False], [1], eight]},
              {"view": ["array", ["array", "<f8", [2**40]], [1], eight]}, {"view": []}]
    kinds[3] += [one if isinstance(one, str) else json.dumps({"state": one}) for one in broken]
    kinds[3].append(json.dumps({"state": {"ordered": []}, "attributes": [[0, {"dict": {
        "__class__": 1}}]]}))
    kinds[3].append(json.dumps({"state": {"sparse": ["sparse_coo", [{"tensor": "j"}, {
        "tensor": "w"}], [9], True, []]}}))
    kinds[2] = ['{"state": %s1%s}' % ('{"tuple": [' * 40000, "]}" * 40000)]

    contents = {"n": ("U8", [8], bytes(range(8))), "t": ("U8", [8], bytes(8)),
                "i": ("I64", [1, 1], struct.pack("<q", 9)), "v": ("F32", [1], bytes(4)),
                "j": ("I64", [1, 2], struct.pack("<qq", 1, 0)), "w": ("F32", [2], bytes(8))}

    def build(text):
        document = Document(text)
        arrays = {}
        for name, (dtype, shape, content) in contents.items():
            arrays[name] = LoadedArray(name, dtype, shape, len(content),
                                       document.kinds.get(name, "array"), (torch, numpy))
            ctypes.memmove(arrays[name].address, content, len(content))
        return Builder(document, arrays).state()
    for code, documents in kinds.items():
        for document in documents:
            text = document if isinstance(document, str) else json.dumps({"state": document})
            try:
                made = build(text)
            except ff.Error as error:
                assert error.code == code, f"{text[:200]}: {error.code}: {error}"
            else:
                raise AssertionError(f"{text[:200]} became {made!r}")
    written(store, json.dumps({"state": {"type": ["os.system", "touch " + store + ".run"]}}))
    fails(ff, 1, "'os.system', which is not registered", lambda: ff.load(store, "h"))
    written(store, json.dumps({"state": {"tuple": [{"tensor": "gone"}]}}), n=("U8", [1], b"1"))
    fails(ff, 3, "does not make a state: KeyError", lambda: ff.load(store, "h"))
    assert ff.load(store, "h", tensors="*")["n"].tolist() == [ord("1")]
    assert not os.path.exists(store + ".run")


def earlier_kinds_in(said):
    """As the first version of ff walks a structure before it builds what it knows."""
    if isinstance(said, list):
        for one in said:
            yield from earlier_kinds_in(one)
    elif isinstance(said, dict):
        for kind, content in said.items():
            if kind == "dict":
                yield from earlier_kinds_in(list(content.values()))
            elif kind in ("tensor", "array", "scalar", "bytes", "bytearray"):
                yield content, kind
            elif kind not in ("float",):
                yield from earlier_kinds_in(content)


def earlier_versions(ff, numpy, torch, store):
    """What they wrote is read; what they can read stays as they know it; the rest they name."""
    from ff._state import Document, Flattener
    written(store, json.dumps({"state": {"ordered": [["w", {"tensor": "w"}], [
        "n", {"pairs": [[{"tuple": [1, 2]}, {"float": "7ff0000000000000"}]]}]]}}),
            w=("F32", [2], struct.pack("<ff", 1, 2)))
    loaded = ff.load(store, "h")
    assert list(loaded) == ["w", "n"] and loaded["n"] == {(1, 2): float("inf")}
    assert type(loaded["w"]) is torch.Tensor and loaded["w"].tolist() == [1, 2]
    state = {**python_values(), **numpy_values(numpy), **torch_values(torch)}
    text = Flattener().document(state)
    assert dict(earlier_kinds_in(json.loads(text))) == Document(text).kinds
    model = torch.nn.Linear(1, 1)
    document = json.loads(Flattener().document([model.state_dict(keep_vars=True)]))
    assert document["state"] == [{"ordered": [["weight", {"tensor": "0.weight"}],
                                              ["bias", {"tensor": "0.bias"}]]}]
    assert document["tensors"] == [[f"0.{name}", ["parameter", "requires_grad"]]
                                   for name in ("weight", "bias")]


def without_the_modules(ff, numpy, torch, store):
    ff.save_async({"size": torch.Size([1]), "parameter": torch.nn.Parameter(torch.ones(1)),
                   "dtype": torch.float32}, "torch", store=store).wait()
    ff.save_async({"x": numpy.matrix([[1]])}, "numpy", store=store).wait()
    ff.save_async({"size": torch.Size([1]), "parameter": torch.nn.Parameter(torch.ones(1))},
                  "plain", store=store).wait()
    sys.modules["torch"] = None
    try:
        plain = ff.load(store, "plain")
        assert plain["size"] == (1,) and type(plain["parameter"]) is numpy.ndarray
        fails(ff, 1, "torch.dtype: loading it needs PyTorch", lambda: ff.load(store, "torch"))
        sys.modules["numpy"] = None
        fails(ff, 1, "numpy.matrix: loading it needs numpy", lambda: ff.load(store, "numpy"))
    finally:
        sys.modules["torch"], sys.modules["numpy"] = torch, numpy


def main():
    try:
        import numpy
        import torch
    except ImportError:
        python = python_with_torch()
        if python is None:
            print("skipped: no Python here has PyTorch and numpy (Debian: python3-torch)")
            return SKIPPED
        return subprocess.run([python, *sys.argv], check=False).returncode
    sys.path.insert(0, sys.argv[1])
    import ff
    failed = []
    for test in (comes_back, is_refused, is_the_same_bytes_in_each_process, registered_types,
                 hostile, earlier_versions, without_the_modules):
        root = tempfile.mkdtemp(prefix="ff-values-")
        try:
            test(ff, numpy, torch, os.path.join(root, "store"))
            print(f"{test.__name__}: well", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(test.__name__)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
