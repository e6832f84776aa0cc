# What a checkpoint holds: a state of nested containers as arrays, each with a name, and a structure
# that JSON can say: null, true, false, numbers, texts and lists as they are; anything else is an
# object of one key, which tells its kind: {"dict": {...}}, {"tuple": [...]}, {"tensor": NAME}, ...
# The document around it, {"state": ...}, has two lists besides, which earlier versions ignore:
# "tensors", what a tensor is beside its values, and "attributes", of OrderedDicts and Counters by
# their number. A kind that a version does not know is an Error there. kinds_in() of any version
# walks all of it, so contents of kinds are lists.
import collections
import json
import math
import struct
import sys

from ff import _arrays, _types
from ff._arrays import LoadedArray
from ff._library import Error

_DEPTH = 200  # of containers; a walk has up to four Python calls for each
_INT_BITS = 2000  # Python may refuse to write or read longer ones as decimal digits
_FACTORIES = {None: None, **{kind.__name__: kind for kind in
                             (bool, bytearray, bytes, collections.Counter, collections.OrderedDict,
                              complex, dict, float, frozenset, int, list, set, str, tuple)}}
_NAME_OF_FACTORY = {made: name for name, made in _FACTORIES.items()}
_PATH_SHOWN = 200


def _text_of(said):
    return json.dumps(said, sort_keys=True)


class Flattener:
    """Takes a state apart: its tensors, each under the name of its path, and the rest as what
    JSON can say. A container or a kind that JSON has not becomes {"kind": content}."""

    def __init__(self):
        self.pieces = {}
        self.torch, self.numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self._tensors = []  # [name, what it is beside its values]
        self._attributes = []  # [number of the OrderedDict or Counter, its attributes]
        self._mappings = 0  # OrderedDicts and Counters so far
        self._around = set()  # the containers around the value, by id
        self._in_key = False

    def document(self, state):
        """The structure as JSON; fills `pieces`. Error: names the path of what cannot be stored."""
        try:
            said = {"state": self.flatten(state)}
            if self._tensors:
                said["tensors"] = self._tensors
            if self._attributes:
                said["attributes"] = self._attributes
            return json.dumps(said)
        except RecursionError:
            raise _too_deep() from None

    def flatten(self, value, path=""):
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind in _PLAIN:
            return _PLAIN[kind](self, value)
        registered = _types.of_class(kind)
        if registered is None and kind not in _CONTAINERS:
            return self._array(value, kind, path)
        if id(value) in self._around:
            raise Error(2, f"{_shown(path)}: it holds itself, which a checkpoint cannot store")
        if len(self._around) >= _DEPTH:
            raise Error(2, f"{_shown(path)}: the state nests deeper than {_DEPTH} levels")
        self._around.add(id(value))
        try:
            if registered is not None:
                return self._registered(registered, value, path)
            return _CONTAINERS[kind](self, value, path)
        finally:
            self._around.discard(id(value))

    def _float(self, value):
        if math.isfinite(value):
            return value  # JSON has its shortest digits, which give the same bits
        return {"float": struct.pack(">d", value).hex()}

    def _int(self, value):
        return value if value.bit_length() <= _INT_BITS else {"int": hex(value)}

    def _complex(self, value):
        return {"complex": [self._float(value.real), self._float(value.imag)]}

    def _range(self, value):
        return {"range": [self._int(one) for one in (value.start, value.stop, value.step)]}

    def _list(self, values, path):
        return [self.flatten(one, self._below(path, index)) for index, one in enumerate(values)]

    def _tuple(self, values, path):
        return {"tuple": self._list(values, path)}

    def _slice(self, value, path):
        return {"slice": self._list((value.start, value.stop, value.step), path)}

    def _deque(self, values, path):
        return {"deque": [values.maxlen, self._list(values, path)]}

    def _dict(self, value, path):
        if all(type(key) is str for key in value):
            return {"dict": {key: self.flatten(one, self._below(path, key))
                             for key, one in value.items()}}
        return {"pairs": self._pairs(value, path)}

    def _pairs(self, value, path):
        return [[self._key(key, path), self.flatten(one, self._below(path, key))]
                for key, one in value.items()]

    def _defaultdict(self, value, path):
        factory = value.default_factory
        if not isinstance(factory, (type, type(None))) or factory not in _NAME_OF_FACTORY:
            names = ", ".join(filter(None, _FACTORIES))
            raise Error(2, f"{_shown(path)}: a defaultdict of {factory!r} cannot be stored in a "
                           f"checkpoint, whose defaults are one of {names}: save dict(...) of it")
        return {"defaultdict": [_NAME_OF_FACTORY[factory], self._pairs(value, path)]}

    def _ordered(self, value, path):
        if self._in_key:
            raise self._no_key(type(value), path)
        hiding = [one for one in vars(value) if hasattr(type(value), one)]
        if hiding:
            raise Error(2, f"{_shown(path)}: its attribute {hiding[0]} hides that of its class, "
                           "which a checkpoint does not restore: delete it")
        number, self._mappings = self._mappings, self._mappings + 1
        name = "counter" if type(value) is collections.Counter else "ordered"
        said = {name: self._pairs(value, path)}
        hiding = [one for one in vars(value) if hasattr(type(value), one)]
        if hiding:
            raise Error(2, f"{_shown(path)}: its attribute {hiding[0]} hides that of its class, "
                           "which a checkpoint does not restore: delete it")
        if vars(value):  # as the _metadata of PyTorch's state_dict()
            attributes = self.flatten(dict(vars(value)), self._below(path, "__dict__"))
            self._attributes.append([number, attributes])
        return said

    def _set(self, values, path):
        # In an order that is the same in each process, as texts are hashed with a random seed.
        name = "set" if type(values) is set else "frozenset"
        return {name: sorted((self._key(one, path) for one in values), key=_text_of)}

    def _registered(self, registered, value, path):
        if self._in_key and registered.cls.__hash__ is object.__hash__:
            raise self._no_key(registered.cls, path)
        try:
            content = registered.flatten(value)
        except Exception as error:
            why = error if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            raise Error(2, f"{_shown(path)}: flatten of '{registered.name}' has failed: "
                           f"{why}") from error
        return {"type": [registered.name, self.flatten(content, path)]}

    def _key(self, key, path):
        """Of a mapping or a set: nothing that is stored as an array, and equal when it is loaded,
        so nothing that is only equal to itself."""
        outside, self._in_key = self._in_key, True
        try:
            return self.flatten(key, path)
        finally:
            self._in_key = outside

    @staticmethod
    def _no_key(kind, path):
        return Error(2, f"{_shown(path)}: a key of type {kind.__qualname__} cannot be stored in a "
                        "checkpoint: save a list of pairs, or give another key")

    def _array(self, value, kind, path):
        torch, numpy = self.torch, self.numpy
        if torch is not None:
            if kind is torch.Size:
                return {"torch.Size": [int(one) for one in value]}
            if kind in (torch.dtype, torch.device):
                return {f"torch.{kind.__name__}": str(value).replace("torch.", "")}
        if self._in_key:
            if kind is bytes:
                return {"hex": value.hex()}
            raise self._no_key(kind, path)
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._numpy(value, kind, path)
        name = {bytes: "bytes", bytearray: "bytearray"}.get(kind, "array")
        try:
            memoryview(value).release()
        except (BufferError, TypeError, ValueError):
            raise Error(2, _cannot(kind, path)) from None
        if name == "array" and isinstance(value, (bytes, bytearray)):
            raise Error(2, _cannot(kind, path))
        return {name: self._add(path, _arrays.buffer_piece(value, _shown(path)))}

    def _tensor(self, tensor, path):
        torch = self.torch
        _arrays.check_tensor(torch, tensor, _shown(path))
        flags = _arrays.tensor_flags(torch, tensor)
        parts = _arrays.layout_parts(tensor)
        if parts is None:
            name = self._add(path, _arrays.torch_piece(torch, tensor, _shown(path)))
            if flags:
                self._tensors.append([name, flags])
            return {"tensor": name}
        plain = tensor.detach()
        coo = parts == ("_indices",)
        said = [self._tensor(getattr(plain, part)(), self._below(path, part.strip("_")))
                for part in parts]
        said.append(self._tensor(plain._values() if coo else plain.values(),
                                 self._below(path, "values")))
        return {"sparse": [str(tensor.layout).replace("torch.", ""), said, list(tensor.shape),
                           coo and tensor.is_coalesced(), flags]}

    def _numpy(self, value, kind, path):
        numpy = self.numpy
        if kind is numpy.matrix:
            return {"matrix": self._numpy(numpy.asarray(value), numpy.ndarray, path)}
        if kind is numpy.ma.MaskedArray:
            mask = numpy.ma.getmask(value)
            mask = None if mask is numpy.ma.nomask else mask
            fill = value.fill_value
            if fill == numpy.ma.default_fill_value(value.dtype):
                fill = None
            return {"masked": [self._numpy(value.data, type(value.data), path),
                               self.flatten(mask, self._below(path, "mask")),
                               self.flatten(fill, self._below(path, "fill_value")),
                               bool(value.hardmask)]}
        values = numpy.asarray(value)
        what = "array" if isinstance(value, numpy.ndarray) else "scalar"
        if kind is not (numpy.ndarray if what == "array" else values.dtype.type):
            raise Error(2, f"{_shown(path)}: a {kind.__module__}.{kind.__qualname__}, a subclass "
                           "of what numpy has, cannot be stored in a checkpoint: save "
                           "numpy.array(...) of it, or register it with "
                           f"ff.register_type({kind.__qualname__}, flatten, unflatten)")
        if what == "scalar" and values.dtype.kind in "SU" and values[()] != value:
            raise Error(2, f"{_shown(path)}: numpy loses the zeros at the end of {value!r}: save "
                           "it as Python's str or bytes")
        dtype = _arrays.numpy_dtype(numpy, values)
        if dtype is not None:
            return {what: self._add(path, _arrays.numpy_piece(values, dtype))}
        said = _arrays.dtype_text(numpy, values.dtype, _shown(path))
        name = self._add(path, _arrays.numpy_piece(values, None))
        return {"view": [what, said, list(values.shape), {"array": name}]}

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


_PLAIN = {int: Flattener._int, float: Flattener._float, complex: Flattener._complex,
          range: Flattener._range}
_CONTAINERS = {list: Flattener._list, tuple: Flattener._tuple, slice: Flattener._slice,
               dict: Flattener._dict, set: Flattener._set, frozenset: Flattener._set,
               collections.deque: Flattener._deque, collections.OrderedDict: Flattener._ordered,
               collections.Counter: Flattener._ordered,
               collections.defaultdict: Flattener._defaultdict}


def _shown(path):
    path = path or "the state"
    return path if len(path) <= _PATH_SHOWN else path[:_PATH_SHOWN] + "..."


def _cannot(kind, path):
    functions = "" if _types.derives(kind) else ", flatten, unflatten"
    return (f"{_shown(path)}: a {kind.__module__}.{kind.__qualname__} cannot be stored in a "
            "checkpoint, which holds Python's own containers, numbers and texts, tensors and "
            f"arrays: register the class with ff.register_type({kind.__qualname__}{functions}), or "
            "save what it is made of")


class Document:
    """The structure of a checkpoint, out of its JSON. Error 3: it is damaged."""

    def __init__(self, text):
        try:
            document = json.loads(text)
            self.said = document["state"]
            self.flags = {name: flags for name, flags in document.get("tensors", [])}
            self.attributes = {number: said for number, said in document.get("attributes", [])}
            self.kinds = dict(_kinds_in(document))
        except RecursionError:
            raise _too_deep() from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise _damaged(error) from error


def _too_deep():
    return Error(2, "the state nests too deep for the recursion limit of this program "
                    f"({sys.getrecursionlimit()}): raise it with sys.setrecursionlimit()")


def _damaged(error):
    return Error(3, "the checkpoint's structure (ff.state in the metadata of the file) does not "
                    f"make a state: {type(error).__name__}: {error}")


class Builder:
    """Puts a state together again. Makes values of the kinds below and of registered classes,
    whatever the checkpoint says."""

    def __init__(self, document, arrays):
        self.document = document
        self.arrays = arrays  # by name
        self._mappings = 0

    def state(self):
        """Error 3: the structure does not fit itself or the arrays; 1: a kind, a class or a module
        that is not there."""
        try:
            return self.build(self.document.said)
        except Error:
            raise
        except RecursionError:
            raise _too_deep() from None
        except Exception as error:  # of whatever the checkpoint may say
            raise _damaged(error) from error

    def build(self, said):
        if isinstance(said, list):
            return [self.build(one) for one in said]
        if not isinstance(said, dict):
            return said
        (kind, content), = said.items()
        if kind in ("tensor", "array", "scalar", "bytes", "bytearray"):
            return self._array(kind, content)
        if kind not in _BUILDERS:
            raise Error(1, f"the checkpoint has a '{kind}', which this version of ff does not "
                           "know: load it with a newer version, or only tensors of it (tensors=)")
        return _BUILDERS[kind](self, content)

    def _array(self, kind, name):
        data = self.arrays[name].made(kind)
        flags = self.document.flags.get(name)
        torch = sys.modules.get("torch")
        if kind != "tensor" or not flags or torch is None or not isinstance(data, torch.Tensor):
            return data
        return _arrays.with_flags(torch, data, flags)

    def _pairs(self, made, content):
        for key, one in content:
            made[self.build(key)] = self.build(one)
        return made

    def _ordered(self, made, content):
        number, self._mappings = self._mappings, self._mappings + 1
        self._pairs(made, content)
        attributes = self.build(self.document.attributes.get(number, {"dict": {}}))
        for name, one in attributes.items():
            if hasattr(type(made), name):
                raise ValueError(f"an attribute {name} of a {type(made).__name__}")
            setattr(made, name, one)
        return made

    def _defaultdict(self, content):
        factory, pairs = content
        return self._pairs(collections.defaultdict(_FACTORIES[factory]), pairs)

    def _deque(self, content):
        most, values = content
        return collections.deque(self.build(values), most)

    def _registered(self, content):
        name, said = content
        registered = _types.of_name(name)
        if registered is None:
            raise Error(1, f"the checkpoint holds a '{name}', which is not registered in this "
                           "program: call ff.register_type(CLASS) before ff.load(), with name="
                           f"{name!r} if the class is in another module now")
        content = self.build(said)
        try:
            return registered.unflatten(content)
        except Exception as error:
            why = error if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            raise Error(1, f"unflatten of '{name}' has failed: {why}") from error

    def _module(self, name, product, what):
        module = sys.modules.get(name)
        if module is None:
            raise Error(1, f"the checkpoint holds {what}: loading it needs {product}; tensors= "
                           "loads without the structure")
        return module

    def _torch(self, what):
        return self._module("torch", "PyTorch", f"a {what}")

    def _size(self, content):
        torch = sys.modules.get("torch")  # without it, the tuple that it is
        return tuple(content) if torch is None else torch.Size(content)

    def _dtype(self, content):
        torch = self._torch("torch.dtype")
        found = getattr(torch, content, None)
        if not isinstance(found, torch.dtype):
            raise Error(1, f"the checkpoint holds a torch.dtype '{content}', which this PyTorch "
                           f"({torch.__version__}) does not have")
        return found

    def _sparse(self, content):
        layout, parts, size, coalesced, flags = content
        torch = self._torch("sparse tensor")
        made = _arrays.sparse_tensor(torch, layout, self.build(parts), size, coalesced)
        return _arrays.with_flags(torch, made, flags)

    def _numpy(self, what):
        return self._module("numpy", "numpy", what)

    def _view(self, content):
        what, dtype, shape, data = content
        numpy = self._numpy("an array of a type that only numpy has")
        made = _arrays.numpy_view(numpy, dtype, shape, self.build(data))
        return made[()] if what == "scalar" else made

    def _matrix(self, content):
        numpy = self._numpy("a numpy.matrix")
        return self.build(content).view(numpy.matrix)

    def _masked(self, content):
        numpy = self._numpy("a numpy.ma.MaskedArray")
        data, mask, fill, hard = content
        data, mask, fill = self.build(data), self.build(mask), self.build(fill)
        if not isinstance(data, numpy.ndarray):
            raise TypeError(f"a masked array of a {type(data).__name__}")
        return numpy.ma.MaskedArray(data, mask=numpy.ma.nomask if mask is None else mask,
                                    fill_value=fill, hard_mask=hard)


_BUILDERS = {
    "dict": lambda builder, said: {key: builder.build(one) for key, one in said.items()},
    "pairs": lambda builder, said: builder._pairs({}, said),
    "ordered": lambda builder, said: builder._ordered(collections.OrderedDict(), said),
    "counter": lambda builder, said: builder._ordered(collections.Counter(), said),
    "defaultdict": Builder._defaultdict,
    "deque": Builder._deque,
    "tuple": lambda builder, said: tuple(builder.build(said)),
    "set": lambda builder, said: set(builder.build(said)),
    "frozenset": lambda builder, said: frozenset(builder.build(said)),
    "range": lambda builder, said: range(*builder.build(said)),
    "slice": lambda builder, said: slice(*builder.build(said)),
    "int": lambda builder, said: int(said, 16),
    "float": lambda builder, said: struct.unpack(">d", bytes.fromhex(said))[0],
    "complex": lambda builder, said: complex(*builder.build(said)),
    "hex": lambda builder, said: bytes.fromhex(said),
    "type": Builder._registered,
    "torch.Size": Builder._size,
    "torch.dtype": Builder._dtype,
    "torch.device": lambda builder, said: builder._torch("torch.device").device(said),
    "sparse": Builder._sparse,
    "view": Builder._view,
    "matrix": Builder._matrix,
    "masked": Builder._masked,
}


def _kinds_in(said):
    """(name, kind) of each tensor that a structure has."""
    if isinstance(said, list):
        for one in said:
            yield from _kinds_in(one)
    elif isinstance(said, dict):
        for kind, content in said.items():
            if kind == "dict":
                yield from _kinds_in(list(content.values()))
            elif kind in ("tensor", "array", "scalar", "bytes", "bytearray"):
                yield content, kind
            else:
                yield from _kinds_in(content)
