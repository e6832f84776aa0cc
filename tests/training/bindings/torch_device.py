#!/usr/bin/env python3
# The backend "ff" of torch.distributed with tensors on a device: a driver without a device
# (tests/training/cuda), and tensors of PyTorch whose bytes are in its memory. Without PyTorch:
# skipped.
"""usage: torch_device.py FOLDER LIBCUDA: where the package ff is, and the library of the fake
driver, or "real" for that of this machine (tests/gpu)"""
import ctypes
import datetime
import gc
import os
import sys
import warnings
import weakref

import ddp
from ddp import ends_of, python_with_torch, start
from device import load_driver

RANKS = 2


def be_rank(folder, path):
    import torch
    import torch.distributed as dist
    from torch.utils._pytree import tree_map
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    import ff.torch
    import ff.torch.work

    place = torch.device("cuda", 0)
    fake = load_driver(path)
    context = fake.fake_cuda_context()
    fake.fake_cuda_make_current(None)
    events = []

    class Stream:
        """As torch.cuda.Stream."""
        device = place

        def __init__(self):
            self.cuda_stream = fake.fake_cuda_stream(context)

        def wait_stream(self, other):
            event = ctypes.c_void_p()
            fake.fake_cuda_make_current(context)
            assert fake.cuEventCreate(ctypes.byref(event), 2) == 0
            fake.fake_cuda_make_current(None)
            assert fake.cuEventRecord(event, ctypes.c_void_p(other.cuda_stream)) == 0
            assert fake.cuStreamWaitEvent(ctypes.c_void_p(self.cuda_stream), event, 0) == 0
            events.append(event)

        def synchronize(self):
            assert fake.fake_cuda_synchronize(self.cuda_stream) == 0

    class Entered:
        def __init__(self, enter, leave):
            self.enter, self.leave = enter, leave

        def __enter__(self):
            self.enter()

        def __exit__(self, *error):
            self.leave()

    streams = [Stream()]  # the current one is the last

    def device(one):
        assert one == place
        return Entered(lambda: fake.fake_cuda_make_current(context),
                       lambda: fake.fake_cuda_make_current(None))

    torch.cuda.current_stream = lambda one: streams[-1]
    torch.cuda.stream = lambda one: Entered(lambda: streams.append(one), streams.pop)
    torch.cuda.device = device
    # A PyTorch without CUDA has no futures for its devices.
    ff.torch.work.future_devices = lambda stream: {}

    class Memory:
        """Memory of the device, and of the host for what PyTorch does with it."""

        def __init__(self, shadow):
            storage = shadow.storage()
            self.host, self.bytes = storage.data_ptr(), storage.nbytes()
            self.kept = storage
            self.address = fake.fake_cuda_alloc(context, max(self.bytes, 1))
            weakref.finalize(self, fake.fake_cuda_free, self.address)
            self.store()

        def bytes_of_host(self):
            return ctypes.string_at(self.host, self.bytes)

        def fetch(self):
            fake.fake_cuda_load(self.address, self.host, self.bytes)
            self.before = self.bytes_of_host()

        def store(self):
            self.before = self.bytes_of_host()
            fake.fake_cuda_store(self.address, self.before, self.bytes)

        def store_changes(self):
            if self.bytes_of_host() != self.before:
                self.store()

    class Tensor(torch.Tensor):
        """On the device. What PyTorch does with it waits for the current stream, and happens in
        memory of the host, which it shares with its views: like a kernel in that stream."""

        @staticmethod
        def __new__(cls, shadow, memory=None):
            made = torch.Tensor._make_wrapper_subclass(
                cls, shadow.size(), strides=shadow.stride(),
                storage_offset=shadow.storage_offset(), dtype=shadow.dtype, device="cpu")
            made.shadow, made.memory = shadow, memory or Memory(shadow)
            return made

        device = property(lambda self: place)

        def data_ptr(self):
            return self.memory.address + self.shadow.storage_offset() * self.element_size()

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), named=None):
            memories, same = {}, {}

            def host(one):
                if not isinstance(one, Tensor):
                    return one
                memories[one.memory.host] = one.memory
                same[id(one.shadow)] = one
                return one.shadow
            args = tree_map(host, args)
            named = {key: host(value) for key, value in (named or {}).items()
                     if key not in ("device", "pin_memory")}
            streams[-1].synchronize()
            for memory in memories.values():
                memory.fetch()
            result = function(*args, **named)
            for memory in memories.values():
                memory.store_changes()

            def on_device(one):
                if not isinstance(one, torch.Tensor):
                    return one
                if id(one) in same:
                    return same[id(one)]
                return Tensor(one, memories.get(one.storage().data_ptr()))
            return tree_map(on_device, result)

        def values(self):
            streams[-1].synchronize()
            self.memory.fetch()
            return self.shadow.clone()

    def says(text, call):
        try:
            call()
        except ff.Error as error:
            assert text in str(error), f"'{text}' in '{error}'"
            return
        raise AssertionError(f"no error, where '{text}' was expected")

    def layouts(tensor):
        """The same values, in memory with and without gaps."""
        yield Tensor(tensor.clone())
        wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
        wide[..., 0] = tensor
        whole = Tensor(wide)
        yield Tensor(wide.select(-1, 0), whole.memory)

    def check(tensor, wanted):
        assert torch.equal(tensor.values(), wanted), f"{tensor.values()}, wanted {wanted}"

    dist.init_process_group("ff", timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()

    def numbers(dtype, count=6):
        every = [(torch.arange(count) % 3 + one).to(dtype) for one in range(RANKS)]
        return every, every[rank]

    def reductions():
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8,
                      torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64):
            every, mine = numbers(dtype)
            wanted = every[0] + every[1]
            for tensor in layouts(mine):
                dist.all_reduce(tensor)
                check(tensor, wanted)
            for tensor in layouts(mine):
                dist.reduce(tensor, 1)
                check(tensor, wanted if rank == 1 else mine)
            for output in layouts(torch.zeros(3, dtype=dtype)):
                dist.reduce_scatter(output, [Tensor(one.clone()) for one in mine.split(3)])
                check(output, wanted[3 * rank:3 * rank + 3])
            output = Tensor(torch.zeros(3, dtype=dtype))
            dist._reduce_scatter_base(output, Tensor(mine.clone()))
            check(output, wanted[3 * rank:3 * rank + 3])
        every, mine = numbers(torch.int32)
        for op, call in ((dist.ReduceOp.MAX, torch.maximum), (dist.ReduceOp.BXOR,
                                                              torch.bitwise_xor)):
            tensor = Tensor(mine.clone())
            dist.all_reduce(tensor, op)
            check(tensor, call(*every))
        tensors = [Tensor(mine.clone()), Tensor(mine[:2].clone())]
        dist.all_reduce_coalesced(tensors)
        check(tensors[0], every[0] + every[1])
        check(tensors[1], (every[0] + every[1])[:2])

    def copies():
        for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex128):
            every, mine = numbers(dtype)
            for tensor in layouts(mine):
                dist.broadcast(tensor, 1)
                check(tensor, every[1])
            for tensor, empty in zip(layouts(mine), layouts(torch.zeros(6, dtype=dtype))):
                parts = [empty, Tensor(torch.zeros(6, dtype=dtype))]
                dist.all_gather(parts, tensor)
                for part, one in zip(parts, every):
                    check(part, one)
            for whole in layouts(torch.zeros(12, dtype=dtype)):
                dist._all_gather_base(whole, Tensor(mine.clone()))
                check(whole, torch.cat(every))

    def order():
        """The operation comes behind a kernel of the stream, and what waits comes behind it."""
        every, mine = numbers(torch.float32, 5000)
        tensor, stream = Tensor(torch.zeros(5000)), streams[-1].cuda_stream
        fake.fake_cuda_hold(stream)
        fake.fake_cuda_write(stream, tensor.data_ptr(), bytes(mine.numpy().tobytes()), 20000)
        work = dist.all_reduce(tensor, async_op=True)
        fake.fake_cuda_release(stream)
        other, seen = Stream(), torch.zeros(5000)
        with torch.cuda.stream(other):
            work.wait()
            fake.fake_cuda_read(other.cuda_stream, tensor.data_ptr(), seen.data_ptr(), 20000)
            other.synchronize()
        assert torch.equal(seen, every[0] + every[1])
        # A result that is stored by PyTorch, in the stream of the operation.
        small = Tensor(torch.full((7,), 1 + rank, dtype=torch.int8))
        work = dist.all_reduce(small, async_op=True)
        with torch.cuda.stream(other):
            work.wait()
        check(small, torch.full((7,), 3, dtype=torch.int8))

    def futures():
        every, mine = numbers(torch.float32)
        tensor = Tensor(mine.clone())
        result = dist.all_reduce(tensor, async_op=True).get_future().wait()
        check(tensor, every[0] + every[1])
        assert result[0].data_ptr() == tensor.data_ptr()
        works = [dist.all_reduce(Tensor(mine.clone()), async_op=True) for _ in range(200)]
        host = mine.clone()
        dist.all_reduce(host)  # beside those of the device
        assert torch.equal(host, every[0] + every[1])
        for work in works:
            work.wait()
            check(work.result()[0], every[0] + every[1])

    def mistakes():
        one = Tensor(torch.zeros(4))
        for what, call in (
                ("all_to_all", lambda: dist.all_to_all_single(Tensor(torch.zeros(4)), one)),
                ("all_to_all", lambda: dist.all_to_all([one, one], [one, one])),
                ("gather", lambda: dist.gather(one, [one, one] if rank == 0 else None)),
                ("scatter", lambda: dist.scatter(one, [one, one] if rank == 0 else None)),
                ("send", lambda: dist.send(one, 1 - rank)),
                ("recv", lambda: dist.recv(one, 1 - rank))):
            says(f"the backend ff has no {what} of tensors on cuda:0: use a group of the backend "
                 "nccl", call)
        says("cpu:ff,cuda:nccl", lambda: dist.send(one, 1 - rank))
        says("on cuda:0 and on cpu: all must be in one place",
             lambda: dist._all_gather_base(torch.zeros(8), one))
        says("rank 1 (process", lambda: dist.all_reduce(Tensor(torch.zeros(2 + rank))))
        dist.barrier()
        dist.all_reduce(one)
        check(one, torch.zeros(4))

    def broken():
        """An error of the driver on one rank is that of all."""
        if rank == 1:
            fake.fake_cuda_fail(context, b"cuMemcpyDtoHAsync", 1, 700)
        says("cuMemcpyDtoHAsync: CUDA_ERROR_ILLEGAL_ADDRESS",
             lambda: dist.all_reduce(Tensor(torch.zeros(4))))

    for test in (reductions, copies, order, futures, mistakes):
        test()
    if fake.is_fake:
        broken()
    dist.destroy_process_group()
    gc.collect()  # errors refer to the group
    assert fake.fake_cuda_synchronize_all(context) == 0
    for event in events:
        assert fake.cuEventDestroy_v2(event) == 0
    reports = ctypes.create_string_buffer(4096)
    assert fake.fake_cuda_reports(reports, 4096) == 0, reports.value.decode()
    assert fake.fake_cuda_leaks() == 0, fake.fake_cuda_leaks()


def main():
    warnings.simplefilter("ignore")  # of torch, about names that are to change
    if len(sys.argv) > 3:
        return be_rank(*sys.argv[1:3])
    ddp.PYTHON, ddp.FOLDER = python_with_torch(), sys.argv[1]
    words = [os.path.abspath(__file__), os.path.abspath(sys.argv[1]), sys.argv[2], "rank"]
    codes, said, _ = ends_of(start(RANKS, lambda rank: words))
    assert codes == [0] * RANKS, "\n".join(said)


if __name__ == "__main__":
    main()
