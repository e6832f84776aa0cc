# Tensors in memory of a CUDA device: the stream in which PyTorch works on them.
import contextlib
import sys


@contextlib.contextmanager
def stream_of(device):
    """The current stream of a device, which is the current device meanwhile."""
    cuda = _cuda()
    with cuda.device(device):
        yield cuda.current_stream(device).cuda_stream


def current_stream(device):
    """The same as an object of PyTorch."""
    return _cuda().current_stream(device)


def in_stream(stream):
    """What PyTorch does in this context comes in the order of `stream`; None: on the host."""
    return contextlib.nullcontext() if stream is None else _cuda().stream(stream)


def order_behind(stream):
    """Later work of the current stream of the device comes after what is in `stream` now."""
    current = current_stream(stream.device)
    if current != stream:
        current.wait_stream(stream)


def _cuda():
    return sys.modules["torch"].cuda  # that of the tensors
