# Tensors in memory of a CUDA device: the stream in which PyTorch works on them.
import contextlib
import sys


@contextlib.contextmanager
def stream_of(device):
    """The current stream of a device, which is the current device meanwhile."""
    cuda = sys.modules["torch"].cuda  # that of the tensors
    with cuda.device(device):
        yield cuda.current_stream(device).cuda_stream
