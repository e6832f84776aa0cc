# What ff reduces of a tensor: types of elements and reductions that ff does not have become ones
# that it has.
import torch
import torch.distributed as dist

from ff._library import Error
from ff.collective import OPS, TYPES

BYTES = TYPES.index("uint8")
_OF_DTYPE = {getattr(torch, name): number for number, name in enumerate(TYPES)
             if hasattr(torch, name)}
_SMALL = (torch.int8, torch.int16, torch.bool)  # summed as int32
_OPS = [(dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.PRODUCT, "prod"), (dist.ReduceOp.MIN, "min"),
        (dist.ReduceOp.MAX, "max"), (dist.ReduceOp.AVG, "avg")]
_BITWISE = [(dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor)]


def dense(tensor):
    """The tensor, unless ff cannot reach its memory."""
    if tensor.layout != torch.strided:
        raise Error(2, "the backend ff has no operations on sparse tensors: use to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise Error(2, f"the backend ff takes tensors in memory of the host or of a CUDA device, "
                       f"and this one is on {tensor.device}")
    return tensor


def on_host(tensor, what):
    """The tensor, for an operation that ff has in host memory only."""
    if dense(tensor).device.type != "cpu":
        raise Error(2, f"the backend ff has no {what} of tensors on {tensor.device}: use a group "
                       "of the backend nccl for it (new_group(backend=\"nccl\"); of PyTorch 2 also "
                       "init_process_group(\"cpu:ff,cuda:nccl\")), or tensors in host memory")
    return tensor


def device_of(*tensors):
    """The CUDA device that the tensors are on; None: they are in host memory."""
    device = dense(tensors[0]).device
    for one in tensors:
        if dense(one).device != device:
            raise Error(2, f"an operation of the backend ff on tensors on {device} and on "
                           f"{one.device}: all must be in one place")
    return device if device.type == "cuda" else None


def bitwise(op):
    """The function of a bitwise reduction; None: `op` is arithmetic."""
    return next((call for known, call in _BITWISE if known == op), None)


def op_number(op):
    for known, name in _OPS:
        if known == op:
            return OPS.index(name)
    raise Error(2, "the backend ff reduces by SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR")


def to_wire(tensor, op):
    """A contiguous tensor of a type that ff reduces, with the same values: `tensor` itself if it is
    one; and the number of that type."""
    dtype = tensor.dtype
    if dtype.is_complex:
        if op != dist.ReduceOp.SUM and op != dist.ReduceOp.AVG:
            raise Error(2, f"the backend ff reduces {dtype} by SUM and AVG only")
        tensor = torch.view_as_real(tensor.resolve_conj())
    elif dtype in _SMALL:
        tensor = tensor.to(torch.int32)
    if tensor.dtype not in _OF_DTYPE:
        raise Error(2, f"the backend ff does not reduce {dtype}")
    return tensor.contiguous(), _OF_DTYPE[tensor.dtype]


def from_wire(wire, tensor):
    """Stores what to_wire() has made, reduced, in the tensor."""
    if tensor.dtype.is_complex:
        wire = torch.view_as_complex(wire.view(*tensor.shape, 2))
    elif tensor.dtype == torch.bool:
        wire = wire != 0
    tensor.copy_(wire.view(tensor.shape))


def size_of(tensor):
    return tensor.numel() * tensor.element_size()
