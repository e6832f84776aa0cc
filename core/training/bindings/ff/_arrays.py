# The arrays of a checkpoint: where the bytes of tensors and arrays lie that are saved, and memory
# for those that are loaded, as torch, numpy or memoryview have it.
import ctypes
import math

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


class Piece:
    """Bytes of a state that are stored as a tensor: where they are, or who fills a place. On a CUDA
    device they may be in row-major order at `device_address`."""

    def __init__(self, dtype, shape, size, address=None, kept=None, fill=None, device_address=None):
        self.dtype, self.shape, self.size = dtype, shape, size
        self.address, self.kept, self.fill = address, kept, fill
        self.device_address = device_address


def _known(known, name, path, what):
    if name not in known:
        raise Error(2, f"{path}: {what} of {name} cannot be stored in a checkpoint")
    return known[name]


# ---- torch


def check_tensor(torch, tensor, path):
    """Error: a tensor that is more, or less, than its values."""
    kind, advice = type(tensor), "save a plain tensor"
    if kind not in (torch.Tensor, torch.nn.Parameter):
        local = "its local part (to_local()), or " if hasattr(tensor, "_local_tensor") else ""
        raise Error(2, f"{path}: a {kind.__module__}.{kind.__qualname__}, a subclass of "
                       f"torch.Tensor, cannot be stored in a checkpoint: {local}{advice}, or "
                       f"register it with ff.register_type({kind.__qualname__}, flatten, "
                       "unflatten)")
    what = None
    if tensor.is_meta:
        what = "a tensor on the device meta, which has no values,"
    elif tensor.is_quantized:
        what = "a quantized tensor"
    elif getattr(tensor, "is_nested", False):
        what, advice = "a nested tensor", "save the list of unbind()"
    elif tensor.has_names():
        what, advice = "a tensor with named dimensions", "save rename(None) and the names"
    elif tensor.layout is not torch.strided and layout_parts(tensor) is None:
        what = f"a tensor of the layout {tensor.layout}"
    if what is not None:
        raise Error(2, f"{path}: {what} cannot be stored in a checkpoint: {advice}")


def layout_parts(tensor):
    """The names of the index tensors of a sparse tensor; None: it is none."""
    return {"torch.sparse_coo": ("_indices",),
            "torch.sparse_csr": ("crow_indices", "col_indices"),
            "torch.sparse_bsr": ("crow_indices", "col_indices"),
            "torch.sparse_csc": ("ccol_indices", "row_indices"),
            "torch.sparse_bsc": ("ccol_indices", "row_indices")}.get(str(tensor.layout))


def tensor_flags(torch, tensor):
    """What a tensor is beside its values."""
    flags = ["parameter"] if type(tensor) is torch.nn.Parameter else []
    return flags + (["requires_grad"] if tensor.requires_grad else [])


def with_flags(torch, data, flags):
    grad = "requires_grad" in flags and (data.is_floating_point() or data.is_complex())
    if "parameter" in flags and (grad or "requires_grad" not in flags):
        return torch.nn.Parameter(data, requires_grad=grad)
    return data.requires_grad_(grad)


def torch_piece(torch, tensor, path):
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    tensor = tensor.resolve_neg()
    dtype = _known(_OF_TORCH, str(tensor.dtype).replace("torch.", ""), path, "a tensor")
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        return Piece(dtype, tensor.shape, size, tensor.data_ptr(), tensor)

    def fill(place):  # from a device, or of another order: in one copy
        memory = torch.frombuffer((ctypes.c_char * size).from_address(place), dtype=torch.uint8)
        memory.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    in_order = is_cuda(torch, tensor) and tensor.is_contiguous()
    return Piece(dtype, tensor.shape, size, kept=tensor, fill=fill,
                 device_address=tensor.data_ptr() if in_order else None)


def is_cuda(torch, tensor):
    """Whether it is on a device of NVIDIA: PyTorch for ROCm calls its devices cuda, too."""
    return tensor.device.type == "cuda" and getattr(torch.version, "cuda", None) is not None


def dtype_name(dtype):
    """What safetensors calls a torch.dtype; None: it has no such type."""
    return _OF_TORCH.get(str(dtype).replace("torch.", ""))


def sparse_tensor(torch, layout, parts, size, coalesced):
    """Of its index tensors and values, which torch checks. Error: it is not `coalesced`."""
    if layout == "sparse_coo":
        made = _checked(torch.sparse_coo_tensor, *parts, size)
    else:
        made = _checked(torch.sparse_compressed_tensor, *parts, size, layout=getattr(torch, layout))
    if layout != "sparse_coo" or not coalesced:
        return made
    indices = parts[0]
    ones = torch.ones(indices.shape[1], dtype=torch.int64)
    sums = torch.sparse_coo_tensor(indices, ones, size[:indices.shape[0]]).coalesce()
    if not torch.equal(sums._indices(), indices):
        raise Error(3, "a sparse tensor of the checkpoint says that it is coalesced, but is not")
    return made._coalesced_(True)


def _checked(make, *parts, **named):
    try:
        return make(*parts, check_invariants=True, **named)
    except TypeError:  # PyTorch before 2.0, which always checks
        return make(*parts, **named)


# ---- numpy and buffers


def numpy_dtype(numpy, values):
    """The type of safetensors for the values as they are; None: only their bytes can be stored."""
    dtype = values.dtype
    found = _OF_NUMPY.get(dtype.name) if dtype.isnative and dtype.metadata is None else None
    return found if found and numpy.dtype(dtype.name).type is dtype.type else None


def numpy_piece(values, dtype):
    """`dtype` None: their bytes, without a shape."""
    if not values.flags.c_contiguous:
        values = values.copy(order="C")
    shape = values.shape if dtype else (values.nbytes,)
    return Piece(dtype or "U8", shape, values.nbytes, values.ctypes.data, values)


def dtype_text(numpy, dtype, path):
    """A numpy.dtype as lists and texts, from which dtype_of_text() makes it again."""
    said = None if dtype.hasobject or dtype.metadata else _dtype_parts(numpy, dtype)
    if said is not None:
        again = dtype_of_text(numpy, said)
        if again == dtype and again.type is dtype.type:
            return said
    raise Error(2, f"{path}: an array of {dtype} cannot be stored in a checkpoint")


def _dtype_parts(numpy, dtype):
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return ["array", _dtype_parts(numpy, base), list(shape)]
    if dtype.names is None:
        return dtype.str if numpy.dtype(dtype.str).type is dtype.type else dtype.char
    fields = [dtype.fields[name] for name in dtype.names]
    titles = [field[2] if len(field) > 2 else None for field in fields]
    return ["fields", list(dtype.names), [_dtype_parts(numpy, field[0]) for field in fields],
            [field[1] for field in fields], titles, dtype.itemsize, dtype.isalignedstruct]


def dtype_of_text(numpy, said):
    if isinstance(said, str):
        return numpy.dtype(said)
    if said[0] == "array":
        return numpy.dtype((dtype_of_text(numpy, said[1]), tuple(said[2])))
    names, formats, offsets, titles, size, aligned = said[1:]
    fields = {"names": names, "formats": [dtype_of_text(numpy, one) for one in formats],
              "offsets": offsets, "itemsize": size}
    if any(title is not None for title in titles):
        fields["titles"] = titles
    return numpy.dtype(fields, align=aligned)


def numpy_view(numpy, said, shape, data):
    """An array of the type `said` on bytes."""
    dtype = dtype_of_text(numpy, said)
    if dtype.hasobject or dtype.itemsize * math.prod(shape) != data.nbytes:
        raise ValueError(f"{data.nbytes} bytes do not make {shape} of {dtype}")
    return numpy.ndarray(tuple(shape), dtype=dtype, buffer=data)


def buffer_piece(data, path):
    view = memoryview(data)
    dtype = _known(_OF_FORMAT, view.format, path, "an array")
    if not view.c_contiguous or view.readonly:
        flat = view.tobytes()
        address = ctypes.cast(ctypes.c_char_p(flat), ctypes.c_void_p).value
        return Piece(dtype, view.shape, view.nbytes, address, flat)
    flat = (ctypes.c_char * view.nbytes).from_buffer(view if view.nbytes else bytearray(1))
    return Piece(dtype, view.shape, view.nbytes, ctypes.addressof(flat), flat)


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
