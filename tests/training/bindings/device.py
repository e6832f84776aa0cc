#!/usr/bin/env python3
# The Python package with tensors on a device, summed and saved: a driver without a device
# (tests/training/cuda), and objects in the place of PyTorch's tensors.
"""usage: device.py FOLDER LIBCUDA: where the package ff is, and the library of the fake driver, or
"real" for that of this machine (tests/gpu)"""
import array
import ctypes
import multiprocessing
import os
import sys
import tempfile
import traceback
import types
import warnings

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


def load_driver(path):
    if path == "real":
        tests = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        sys.path.insert(0, os.path.join(tests, "gpu"))
        import real_driver
        return real_driver.RealDriver()
    fake, data, size = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
            ("context", data, []), ("stream", data, [data]), ("make_current", None, [data]),
            ("alloc", data, [data, size]), ("free", None, [data]),
            ("store", None, [data, ctypes.c_char_p, size]),
            ("load", None, [data, data, size]), ("hold", None, [data]), ("release", None, [data]),
            ("write", None, [data, data, ctypes.c_char_p, size]),
            ("read", None, [data, data, data, size]),
            ("fail", None, [data, ctypes.c_char_p, ctypes.c_uint, ctypes.c_int]),
            ("synchronize", ctypes.c_int, [data]), ("synchronize_all", ctypes.c_int, [data]),
            ("reports", size, [ctypes.c_char_p, size]), ("leaks", size, [])):
        function = getattr(fake, "fake_cuda_" + name)
        function.restype, function.argtypes = result, arguments
    fake.is_fake = True
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
    host = array.array("f", [1.0] * COUNT)
    says("both arrays must be on one device", comm.allreduce, one, out=host)
    assert comm.allreduce(host)[5] == 2
    comm.barrier()


def device_flattener(torch, stands_in):
    """A class for ff.checkpoint.Flattener: the arrays of its states are on the device. `stands_in`
    counts how often the host had to fill a place."""
    from ff.checkpoint import Flattener

    class DeviceFlattener(Flattener):
        def document(self, state):
            made = super().document(state)
            for piece in self.pieces.values():
                values = ctypes.string_at(piece.address, piece.size)
                address = torch.fake.fake_cuda_alloc(torch.context, piece.size)
                torch.fake.fake_cuda_store(address, values, piece.size)
                piece.address, piece.device_address = None, address
                piece.kept = types.SimpleNamespace(device=Device(0))

                def fill(place, values=values):
                    stands_in.append(place)
                    ctypes.memmove(place, values, len(values))
                piece.fill = fill
            torch.addresses = [piece.device_address for piece in self.pieces.values()]
            sys.modules["torch"] = torch  # not before: it has no tensors that a state may have
            return made
    return DeviceFlattener


def save_body(torch, store):
    import ff
    from ff import checkpoint
    fake, stands_in, real = torch.fake, [], checkpoint.Flattener
    del sys.modules["torch"]
    checkpoint.Flattener = device_flattener(torch, stands_in)
    saver = ff.Saver()
    for step in (1, 2, 3):  # the second state is larger
        count = 1000 if step == 1 else 3000
        state = {"a": array.array("f", [step] * count), "b": array.array("q", [7, 8]), "n": step}
        fake.fake_cuda_hold(torch.stream)
        save = saver.save_async(state, store=store, step=step)
        del sys.modules["torch"]
        # The program goes on at once, and its stream changes the state after the copy.
        for address, size in zip(torch.addresses, (4 * count, 16)):
            fake.fake_cuda_write(torch.stream, address, bytes(size), size)
        fake.fake_cuda_release(torch.stream)
        assert save.wait().outcome == "committed"
        assert fake.fake_cuda_synchronize(torch.stream) == 0
    assert not stands_in
    saver.wait()
    if fake.is_fake:
        save_without_pinned_memory(fake, saver, store, stands_in)
    saver.close()
    checkpoint.Flattener = real
    for step in (1, 2, 3):
        state = ff.load(store, step=step)
        assert list(state["a"]) == [step] * (1000 if step == 1 else 3000), state["a"][:3]
        assert list(state["b"]) == [7, 8] and state["n"] == step


def save_without_pinned_memory(fake, saver, store, stands_in):
    """The host copies."""
    import ff
    fake.fake_cuda_fail(None, b"cuMemcpyDtoHAsync", 1, 1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        saver.save_async({"a": array.array("f", [4] * 10)}, store=store, step=4).wait()
    del sys.modules["torch"]
    assert len(stands_in) == 1 and "cuMemcpyDtoHAsync" in str(heard[0].message), heard
    assert list(ff.load(store, step=4)["a"]) == [4.0] * 10


def run(body, folder, path):
    try:
        sys.path.insert(0, folder)
        fake = load_driver(path)
        torch = sys.modules["torch"] = FakeTorch(fake)
        body(torch)
        sys.modules.pop("torch", None)
        reports = ctypes.create_string_buffer(4096)
        assert fake.fake_cuda_reports(reports, 4096) == 0, reports.value.decode()
        assert fake.fake_cuda_leaks() == 0, fake.fake_cuda_leaks()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def run_rank(rank, job, *paths):
    def body(torch):
        import ff
        with ff.Comm(rank, RANKS, job) as comm:
            rank_body(comm, torch)
    run(body, *paths)


def run_save(*paths):
    with tempfile.TemporaryDirectory() as folder:
        run(lambda torch: save_body(torch, folder + "/store"), *paths)


def main():
    job = f"device-{os.getpid()}-{os.urandom(4).hex()}"
    process_of = multiprocessing.get_context("fork").Process
    ranks = [process_of(target=run_rank, args=(rank, job, *sys.argv[1:3])) for rank in range(RANKS)]
    ranks.append(process_of(target=run_save, args=sys.argv[1:3]))
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert all(process.exitcode == 0 for process in ranks), [one.exitcode for one in ranks]


if __name__ == "__main__":
    main()
