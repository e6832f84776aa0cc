# Collective operations between the processes of a job: a communicator, its operations, and what
# they take for an array.
import ctypes
import os
import weakref

from ff._device import stream_of
from ff._library import Error, Options, check, lib

TYPES = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32",
         "int64", "uint8")
OPS = ("sum", "prod", "max", "min", "avg")
_FORMATS = {"f": "float32", "d": "float64", "e": "float16", "i": "int32", "q": "int64",
            "l": "int64", "B": "uint8", "c": "uint8"}


def _index(known, name, what):
    if name not in known:
        raise Error(2, f"'{name}' is no {what}: one of {', '.join(known)}")
    return known.index(name)


class _Array:
    """Where an array stands, and what it is of."""

    def __init__(self, data, dtype, writes):
        self.kept = data
        self.device = None  # of CUDA
        if hasattr(data, "data_ptr"):  # a tensor
            if data.device.type not in ("cpu", "cuda") or not data.is_contiguous():
                raise Error(2, "a tensor that is contiguous, in the memory of the host or of a "
                               "CUDA device, is wanted")
            if data.device.type == "cuda":
                self.device = data.device
            self.address, size = data.data_ptr(), data.element_size()
            self.bytes = data.numel() * size
            name = str(data.dtype).removeprefix("torch.")
        else:
            view = memoryview(data)
            if not view.c_contiguous or (writes and view.readonly):
                raise Error(2, "an array that is contiguous and may be written is wanted")
            name, size, self.bytes = _FORMATS.get(view.format), view.itemsize, view.nbytes
            if view.readonly:
                self.kept = ctypes.create_string_buffer(bytes(view), max(self.bytes, 1))
                self.address = ctypes.addressof(self.kept)
            else:
                flat = view.cast("B") if view.format != "B" or view.ndim != 1 else view
                self.kept = (ctypes.c_char * self.bytes).from_buffer(flat)
                self.address = ctypes.addressof(self.kept)
        self.type = _index(TYPES, dtype or name, "type of elements")
        size = (4, 8, 2, 2, 1, 1, 4, 8, 1)[self.type]
        self.count = self.bytes // size
        if self.bytes % size:
            raise Error(2, f"{self.bytes} bytes are not a whole number of elements of type "
                           f"{TYPES[self.type]}, which have {size} bytes each")


class Work:
    """An operation under way."""

    def __init__(self, comm, number, out):
        self._comm, self._number, self._out = comm, number, out

    def wait(self):
        """Until it has ended; gives the result."""
        if self._number is not None:
            number, self._number = self._number, None
            check(lib.ff_wait(self._comm._of(), number))
            self._comm._started.pop(number, None)
        return self._out


def _text(value):
    return None if value is None else os.fspath(value).encode()


class Comm:
    """The ranks of a job: all on this host, or local_ranks of them. Then `master`, "HOST:PORT", is
    where the host of rank 0 listens, and key_file has the job's key (64 hex digits); zone (a
    number; FF_ZONE without one), wire ("bf16", "fp8"), algorithm ("tree", "ring") and deterministic
    are as in `ff allreduce`. Without a rank all of that is as torchrun's environment and
    FF_KEY_FILE, FF_WIRE, ... have it. float("inf") seconds are no time limit."""

    def __init__(self, rank=None, ranks=None, job=None, join_seconds=60.0, operation_seconds=60.0,
                 *, local_rank=0, local_ranks=0, master=None, key_file=None, zone=0, wire=None,
                 algorithm=None, deterministic=False):
        self._handle = ctypes.c_void_p()
        options = None
        if rank is not None:
            options = ctypes.byref(Options(ctypes.sizeof(Options), rank, ranks,
                                           str(job).encode(), join_seconds, operation_seconds,
                                           local_rank, local_ranks, _text(master),
                                           _text(key_file), zone, _text(wire), _text(algorithm),
                                           deterministic))
        check(lib.ff_comm_init(ctypes.byref(self._handle), options))
        self._begin()

    def _begin(self):
        self.rank = lib.ff_comm_rank(self._handle)
        self.ranks = lib.ff_comm_ranks(self._handle)
        self._unused = []  # addresses of buffers that nothing refers to any more
        self._started = {}  # arrays of operations that may be unfinished, by number
        self._hooks = weakref.WeakSet()

    def _of(self):
        if not self._handle:
            raise Error(2, "the communicator was closed")
        while self._unused:
            check(lib.ff_free(self._handle, self._unused.pop()))
        return self._handle

    def split(self, color, key=0):
        """Every rank calls it, like an operation: ranks with the same color (a number) form a
        communicator of their own, in the order of `key`, then of their ranks. None where `color` is
        None."""
        return self._make(lib.ff_comm_split, 2**32 - 1 if color is None else color, key)

    def shrink(self):
        """After an Error, goes on without lost ranks: every rank that lives calls it, and gets a
        new communicator of those that do, in the order of their ranks. All operations of this one
        fail on all ranks. A rank that lives and does not call it within operation_seconds is left
        behind, and gets an Error with code 6 when it does (ff_comm_shrink() in ff.h)."""
        return self._make(lib.ff_comm_shrink)

    def _make(self, call, *arguments):
        made = Comm.__new__(Comm)
        made._handle = ctypes.c_void_p()
        check(call(self._of(), *arguments, ctypes.byref(made._handle)))
        if not made._handle:
            return None
        made._begin()
        return made

    def close(self):
        for hook in self._hooks:
            hook._leave()
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.ff_comm_destroy(handle)
        self._started.clear()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def buffer(self, count):
        """`count` bytes that all ranks reach, in zeros: while anything refers to them, and until
        the communicator is closed."""
        memory = ctypes.c_void_p()
        check(lib.ff_alloc(self._of(), count, ctypes.byref(memory)))
        array = (ctypes.c_char * count).from_address(memory.value)
        weakref.finalize(array, self._unused.append, memory.value).atexit = False
        return memoryview(array).cast("B")

    def allreduce(self, data, op="sum", out=None, dtype=None):
        """`data` of all ranks into `out` (without one, into `data`) of each."""
        return self.allreduce_async(data, op, out, dtype).wait()

    def allreduce_async(self, data, op="sum", out=None, dtype=None):
        """The same, at once: gives a Work. Until its wait() the arrays are not to be touched. The
        operation of a Work that is dropped finishes too, unless it is on a device. At most 64 may
        be unfinished."""
        source, sink, result = self._arrays(data, out, dtype, 1, 1)
        number = ctypes.c_uint64()
        arguments = (self._of(), source.address, sink.address, source.count, source.type,
                     _index(OPS, op, "operation"))
        if source.device is None:
            check(lib.ff_allreduce_async(*arguments, ctypes.byref(number)))
            # ff stores the result of one that was not awaited before it starts 64 more (ff.h).
            for old in [one for one in self._started if one + 64 <= number.value]:
                del self._started[old]
        else:
            with stream_of(source.device) as stream:
                check(lib.ff_allreduce_on_async(*arguments, stream, ctypes.byref(number)))
        self._started[number.value] = (source, sink)
        return Work(self, number.value, result)

    def _run(self, name, source, sink, count, *arguments):
        """An operation of the host, or on a device."""
        arguments = (self._of(), source.address, sink.address, count, source.type, *arguments)
        if source.device is None:
            check(getattr(lib, f"ff_{name}")(*arguments))
        else:
            with stream_of(source.device) as stream:
                check(getattr(lib, f"ff_{name}_on")(*arguments, stream))

    def reduce(self, data, root=0, op="sum", out=None, dtype=None):
        """Into `out` of one rank."""
        source, sink, result = self._arrays(data, out, dtype, 1, 1)
        self._run("reduce", source, sink, source.count, _index(OPS, op, "operation"), root)
        return result

    def broadcast(self, data, root=0, dtype=None):
        """From one rank into `data` of all."""
        one = _Array(data, dtype, True)
        self._run("broadcast", one, one, one.count, root)
        return data

    def allgather(self, data, out, dtype=None):
        """`data` of all ranks, one behind the other, into `out`."""
        source, sink, result = self._arrays(data, out, dtype, 1, self.ranks)
        self._run("allgather", source, sink, source.count)
        return result

    def reduce_scatter(self, data, out, op="sum", dtype=None):
        """The sum of all `data`, of which each rank gets its part into `out`."""
        source, sink, result = self._arrays(data, out, dtype, self.ranks, 1)
        self._run("reduce_scatter", source, sink, sink.count, _index(OPS, op, "operation"))
        return result

    def barrier(self):
        """Until all ranks are here."""
        check(lib.ff_barrier(self._of()))

    def _arrays(self, data, out, dtype, in_blocks, out_blocks):
        source = _Array(data, dtype, out is None)
        if out is None:
            return source, source, data
        sink = _Array(out, dtype, True)
        if source.type != sink.type or source.bytes * out_blocks != sink.bytes * in_blocks:
            raise Error(2, f"{source.bytes} bytes of {TYPES[source.type]} into {sink.bytes} bytes "
                           f"of {TYPES[sink.type]}: they do not fit")
        if source.device != sink.device:
            raise Error(2, f"an operation from {source.device or 'the host'} into "
                           f"{sink.device or 'the host'}: both arrays must be on one device")
        return source, sink, out
