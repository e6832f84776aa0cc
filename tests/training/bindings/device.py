#!/usr/bin/env python3
# The Python package with tensors on a device: a driver without a device (tests/training/cuda), and
# objects in the place of PyTorch's tensors.
"""usage: device.py FOLDER LIBCUDA: where the package ff is, and the library of the fake driver"""
import array
import ctypes
import multiprocessing
import os
import sys
import traceback
import types

RANKS = 2
COUNT = 1000


class Device:
    """As torch.device, of CUDA."""
    type = "cuda"

    def __init__(self, index):
        self.index = index

    def __eq__(self, other):
        return isinstance(other, Device) and self.index == other.index

    def __str__(self):
        return f"cuda:{self.index}"


class FakeTorch(types.ModuleType):
    """The part of PyTorch that ff calls: the device that is current, and its stream."""

    def __init__(self, fake):
        super().__init__("torch")
        self.cuda = self
        self.fake, self.context = fake, fake.fake_cuda_context()
        self.stream = fake.fake_cuda_stream(self.context)
        self.entered = 0
        fake.fake_cuda_make_current(None)

    def current_stream(self, device):
        assert device == Device(0)
        return types.SimpleNamespace(cuda_stream=self.stream)

    def device(self, device):
        assert device == Device(0)
        return self

    def __enter__(self):
        self.entered += 1
        self.fake.fake_cuda_make_current(self.context)

    def __exit__(self, *error):
        self.fake.fake_cuda_make_current(None)


class Tensor:
    """`count` floats on the device."""
    dtype = "torch.float32"

    def __init__(self, torch, values, index=0):
        self.torch, self.count, self.device = torch, len(values), Device(index)
        self.address = torch.fake.fake_cuda_alloc(torch.context, 4 * self.count)
        torch.fake.fake_cuda_store(self.address, array.array("f", values).tobytes(), 4 * self.count)

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return True

    def element_size(self):
        return 4

    def numel(self):
        return self.count

    def values(self):
        """When the stream is done."""
        assert self.torch.fake.fake_cuda_synchronize(self.torch.stream) == 0
        memory = ctypes.create_string_buffer(4 * self.count)
        self.torch.fake.fake_cuda_load(self.address, memory, 4 * self.count)
        return array.array("f", memory.raw).tolist()


def load_fake(path):
    fake, data, size = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
            ("context", data, []), ("stream", data, [data]), ("make_current", None, [data]),
            ("alloc", data, [data, size]), ("store", None, [data, ctypes.c_char_p, size]),
            ("load", None, [data, data, size]), ("synchronize", ctypes.c_int, [data]),
            ("reports", size, [ctypes.c_char_p, size]), ("leaks", size, [])):
        function = getattr(fake, "fake_cuda_" + name)
        function.restype, function.argtypes = result, arguments
    return fake


def says(text, call, *arguments, **named):
    import ff
    try:
        call(*arguments, **named)
    except ff.Error as error:
        assert text in str(error), f"'{text}' in '{error}'"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def rank_body(comm, torch):
    rank = comm.rank
    one = Tensor(torch, [rank + 1.0] * COUNT)
    assert comm.allreduce(one) is one and one.values() == [3.0] * COUNT
    out = Tensor(torch, [0.0] * COUNT)
    works = [comm.allreduce_async(one, op="max", out=out), comm.allreduce_async(one)]
    for work in works:
        work.wait()
    assert out.values() == [3.0] * COUNT and one.values() == [6.0] * COUNT
    mine = Tensor(torch, [float(rank)] * COUNT)
    assert comm.broadcast(mine, root=1).values() == [1.0] * COUNT
    comm.reduce(mine, root=0, out=out)
    assert out.values() == ([2.0] if rank == 0 else [3.0]) * COUNT
    both = Tensor(torch, [0.0] * (2 * COUNT))
    mine = Tensor(torch, [float(rank)] * COUNT)
    assert comm.allgather(mine, both).values() == [0.0] * COUNT + [1.0] * COUNT
    assert comm.reduce_scatter(both, out).values() == [2.0 * rank] * COUNT
    assert torch.entered == 7, torch.entered
    says("both arrays must be on one device", comm.allreduce, one, out=array.array("f", [0] * COUNT))
    host = array.array("f", [1.0] * COUNT)
    assert comm.allreduce(host)[5] == 2
    comm.barrier()


def run_rank(rank, job, folder, path):
    try:
        sys.path.insert(0, folder)
        fake = load_fake(path)
        torch = sys.modules["torch"] = FakeTorch(fake)
        import ff
        with ff.Comm(rank, RANKS, job) as comm:
            rank_body(comm, torch)
        reports = ctypes.create_string_buffer(4096)
        assert fake.fake_cuda_reports(reports, 4096) == 0, reports.value.decode()
        assert fake.fake_cuda_leaks() == 0, fake.fake_cuda_leaks()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main():
    job = f"device-{os.getpid()}-{os.urandom(4).hex()}"
    ranks = [multiprocessing.get_context("fork").Process(target=run_rank,
                                                         args=(rank, job, *sys.argv[1:3]))
             for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert all(process.exitcode == 0 for process in ranks), [one.exitcode for one in ranks]


if __name__ == "__main__":
    main()
