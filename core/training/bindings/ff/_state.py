# What a checkpoint holds: a state of nested containers as arrays, each with a name, and a structure
# that JSON can say: null, true, false, numbers, texts and lists as they are; anything else is an
# object of one key, which tells its kind: {"dict": {...}}, {"tuple": [...]}, {"tensor": NAME}, ...
import collections
import ctypes
import math
import struct
import sys

from ff._library import Error

# Types of safetensors: what torch, numpy and memoryview (its format) call them.
_DTYPES = {"F64": ("float64", "float64", "d"), "F32": ("float32", "float32", "f"),
           "F16": ("float16", "float16", "e"), "BF16": ("bfloat16", "bfloat16", None),
           "F8_E4M3": ("float8_e4m3fn", "float8_e4m3fn", None),
           "F8_E5M2": ("float8_e5m2", "float8_e5m2", None),
           "F8_E8M0": ("float8_e8m0fnu", "float8_e8m0fnu", None),
           "F8_E4M3FNUZ": ("float8_e4m3fnuz", "float8_e4m3fnuz", None),
           "F8_E5M2FNUZ": ("float8_e5m2fnuz", "float8_e5m2fnuz", None),
           "I64": ("int64", "int64", "q"), "I32": ("int32", "int32", "i"),
           "I16": ("int16", "int16", "h"), "I8": ("int8", "int8", "b"),
           "U64": ("uint64", "uint64", "Q"), "U32": ("uint32", "uint32", "I"),
           "U16": ("uint16", "uint16", "H"), "U8": ("uint8", "uint8", "B"),
           "BOOL": ("bool", "bool", "?"), "C64": ("complex64", "complex64", None),
           "C128": ("complex128", "complex128", None)}
_OF_TORCH = {names[0]: dtype for dtype, names in _DTYPES.items()}
_OF_NUMPY = {names[1]: dtype for dtype, names in _DTYPES.items()}
_OF_FORMAT = {names[2]: dtype for dtype, names in _DTYPES.items() if names[2]}
_OF_FORMAT.update(l="I64", L="U64", c="U8")


class _Piece:
    """Bytes of a state that are stored as a tensor: where they are, or who fills a place."""

    def __init__(self, dtype, shape, size, address=None, kept=None, fill=None):
        self.dtype, self.shape, self.size = dtype, shape, size
        self.address, self.kept, self.fill = address, kept, fill


def _known(known, name, path, what):
    if name not in known:
        raise Error(2, f"{path}: {what} of {name} cannot be stored in a checkpoint")
    return known[name]


def _torch_piece(torch, tensor, path):
    spread = type(tensor) is not torch.Tensor and hasattr(tensor, "_local_tensor")  # a DTensor
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or spread:
        raise Error(2, f"{path}: a {type(tensor).__name__} ({tensor.layout}, {tensor.device}) "
                       "cannot be stored in a checkpoint: save a plain tensor, or its local part")
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    tensor = tensor.resolve_neg()
    dtype = _known(_OF_TORCH, str(tensor.dtype).replace("torch.", ""), path, "a tensor")
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        return _Piece(dtype, tensor.shape, size, tensor.data_ptr(), tensor)

    def fill(place):  # from a device, or of another order: in one copy
        memory = torch.frombuffer((ctypes.c_char * size).from_address(place), dtype=torch.uint8)
        memory.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return _Piece(dtype, tensor.shape, size, fill=fill)


def _numpy_piece(numpy, values, path):
    values = numpy.asarray(values)
    if not values.dtype.isnative:
        raise Error(2, f"{path}: an array of {values.dtype} (of the other byte order) cannot be "
                       "stored in a checkpoint")
    dtype = _known(_OF_NUMPY, values.dtype.name, path, "an array")
    if not values.flags.c_contiguous:
        values = values.copy(order="C")
    return _Piece(dtype, values.shape, values.nbytes, values.ctypes.data, values)


def _buffer_piece(data, path):
    view = memoryview(data)
    dtype = _known(_OF_FORMAT, view.format, path, "an array")
    if not view.c_contiguous or view.readonly:
        flat = view.tobytes()
        address = ctypes.cast(ctypes.c_char_p(flat), ctypes.c_void_p).value
        return _Piece(dtype, view.shape, view.nbytes, address, flat)
    flat = (ctypes.c_char * view.nbytes).from_buffer(view if view.nbytes else bytearray(1))
    return _Piece(dtype, view.shape, view.nbytes, ctypes.addressof(flat), flat)


class Flattener:
    """Takes a state apart: its tensors, each under the name of its path, and the rest as what
    JSON can say. A container or a kind that JSON has not becomes {"kind": content}."""

    def __init__(self):
        self.pieces = {}
        self.torch, self.numpy = sys.modules.get("torch"), sys.modules.get("numpy")

    def flatten(self, value, path=""):
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            if math.isfinite(value):
                return value  # JSON has its shortest digits, which give the same bits
            return {"float": struct.pack(">d", value).hex()}
        if kind is complex:
            return {"complex": [self.flatten(value.real), self.flatten(value.imag)]}
        if kind is list:
            return self._items(value, path)
        if kind is tuple:
            return {"tuple": self._items(value, path)}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": {key: self.flatten(one, self._below(path, key))
                             for key, one in value.items()}}
        if kind in (dict, collections.OrderedDict, collections.Counter):
            name = {dict: "pairs", collections.OrderedDict: "ordered"}.get(kind, "counter")
            return {name: [[self._key(key, path), self.flatten(one, self._below(path, key))]
                           for key, one in value.items()]}
        return self._array(value, kind, path)

    def _array(self, value, kind, path):
        said = path or "the state"
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            return {"tensor": self._add(path, _torch_piece(self.torch, value, said))}
        if self.numpy is not None and isinstance(value, self.numpy.ndarray):
            return {"array": self._add(path, _numpy_piece(self.numpy, value, said))}
        if self.numpy is not None and isinstance(value, self.numpy.generic):
            return {"scalar": self._add(path, _numpy_piece(self.numpy, value, said))}
        name = {bytes: "bytes", bytearray: "bytearray"}.get(kind, "array")
        try:
            memoryview(value).release()
        except TypeError:
            raise Error(2, f"{said}: a {kind.__module__}.{kind.__qualname__} cannot be stored in a "
                           "checkpoint: dicts, lists, tuples, tensors, arrays, numbers, texts, "
                           "bytes and None can") from None
        return {name: self._add(path, _buffer_piece(value, said))}

    def _items(self, values, path):
        return [self.flatten(one, self._below(path, index)) for index, one in enumerate(values)]

    def _key(self, key, path):
        if key is None or type(key) in (bool, int, str, float) or \
                (type(key) is tuple and all(type(one) in (bool, int, str) for one in key)):
            return self.flatten(key)
        raise Error(2, f"{path or 'the state'}: a key of type {type(key).__qualname__} cannot be "
                       "stored in a checkpoint")

    @staticmethod
    def _below(path, key):
        return f"{path}.{key}" if path else str(key)

    def _add(self, path, piece):
        wanted = (path or "state").encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        name, again = wanted, 1
        while name in self.pieces or name == "__metadata__":  # "a.b" is also {"a": {"b": ...}}
            again += 1
            name = f"{wanted}~{again}"
        self.pieces[name] = piece
        return name


class Builder:
    """Puts a state together again."""

    def __init__(self, arrays):
        self.arrays = arrays  # by name

    def build(self, said):
        if isinstance(said, list):
            return [self.build(one) for one in said]
        if not isinstance(said, dict):
            return said
        (kind, content), = said.items()
        if kind == "dict":
            return {key: self.build(one) for key, one in content.items()}
        if kind in ("pairs", "ordered", "counter"):
            made = {"pairs": dict, "ordered": collections.OrderedDict,
                    "counter": collections.Counter}[kind]()
            for key, one in content:
                made[self.build(key)] = self.build(one)
            return made
        if kind == "tuple":
            return tuple(self.build(one) for one in content)
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        if kind == "complex":
            return complex(*(self.build(one) for one in content))
        if kind in ("tensor", "array", "scalar", "bytes", "bytearray"):
            return self.arrays[content].made(kind)
        raise Error(1, f"the checkpoint has a '{kind}', which this version of ff does not know")


class LoadedArray:
    """Memory for one tensor of a checkpoint, as torch, numpy or memoryview have it."""

    def __init__(self, name, dtype, shape, size, kind, modules):
        self.name, self.dtype, self.shape, self.size = name, dtype, shape, size
        torch, numpy = modules
        names = _DTYPES.get(dtype, (None, None, None))
        self.data = None
        if kind == "tensor" and torch is not None:
            self._torch(torch, getattr(torch, names[0] or "", None))
        elif kind in ("bytes", "bytearray") or numpy is None:
            self._plain(names[2])
        else:
            self._numpy(numpy, names[1])

    def _torch(self, torch, dtype):
        self.data = torch.empty(self.shape if dtype else self._bytes_shape(),
                                dtype=dtype or torch.uint8)
        self._at(self.data.data_ptr(), self.data.numel() * self.data.element_size())

    def _numpy(self, numpy, name):
        try:
            dtype = numpy.dtype(name)
        except TypeError:  # numpy has none of its own, and ml_dtypes is not there
            dtype = None
        self.data = numpy.empty(self.shape if dtype else self._bytes_shape(),
                                dtype=dtype or numpy.uint8)
        self._at(self.data.ctypes.data, self.data.nbytes)

    def _plain(self, code):
        memory = bytearray(self.size)
        flat = (ctypes.c_char * max(self.size, 1)).from_buffer(memory or bytearray(1))
        self.kept = flat
        self._at(ctypes.addressof(flat), self.size)
        self.data = memoryview(memory)
        if code is None:
            self.shape = self._bytes_shape()
        if self.size > 0:
            self.data = self.data.cast("B").cast(code or "B", self.shape)

    def _bytes_shape(self):
        # Of a type that is not known here: its bytes, in the last dimension.
        count = math.prod(self.shape)
        if count == 0 or self.size % count != 0:
            return [self.size]
        if self.size == count:
            return self.shape
        return [*self.shape[:-1], (self.shape[-1] if self.shape else 1) * (self.size // count)]

    def _at(self, address, size):
        if size != self.size:
            raise Error(3, f"tensor '{self.name}': {self.size} bytes of {self.dtype} do not make a "
                           f"shape of {self.shape}")
        self.address = address

    def made(self, kind):
        if kind == "bytes":
            return bytes(self.data)
        if kind == "bytearray":
            return self.data.obj
        if kind == "scalar":  # of numpy; without it, Python's own
            return self.data[()]
        return self.data


def kinds_in(said):
    """(name, kind) of each tensor that a structure has."""
    if isinstance(said, list):
        for one in said:
            yield from kinds_in(one)
    elif isinstance(said, dict):
        for kind, content in said.items():
            if kind == "dict":
                yield from kinds_in(list(content.values()))
            elif kind in ("tensor", "array", "scalar", "bytes", "bytearray"):
                yield content, kind
            elif kind not in ("float",):
                yield from kinds_in(content)
