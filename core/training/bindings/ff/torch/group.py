# The process group of the backend "ff": each operation of torch.distributed as one of libff.so.
import collections
import ctypes
import datetime
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist

from ff._device import current_stream, stream_of
from ff._library import Error, lib
from ff.collective import Comm
from ff.torch import elements, hosts
from ff.torch.work import Completer, MessageWork, Work, number_of

_ANY = 2**32 - 1
_UNFINISHED_MAX = 48  # operations; ff allows 64
_KEPT = 256  # works that C++ code may still refer to
_DEFAULT = datetime.timedelta(minutes=30)
_JOIN_SECONDS = 60  # at least, for the ranks of a group to join, however short its timeout is


def _one(tensors, what="tensor"):
    if len(tensors) != 1:
        raise Error(2, f"the backend ff takes one {what} per call, not {len(tensors)}")
    return tensors[0]


def _counts(values):
    return (ctypes.c_size_t * len(values))(*values)


class Group(dist.ProcessGroup):
    """A process group of ranks that reach each other through ff."""

    def __init__(self, store, rank, size, timeout=_DEFAULT):
        super().__init__(rank, size)
        seconds = timeout.total_seconds()
        join_seconds = max(seconds, _JOIN_SECONDS)
        place = hosts.find(store, rank, size, datetime.timedelta(seconds=join_seconds))
        self._open(store, Comm(
            rank, size, place.pop("job"), join_seconds=join_seconds, operation_seconds=seconds,
            key_file=os.environ.get("FF_KEY_FILE") or None, wire=os.environ.get("FF_WIRE") or None,
            algorithm=os.environ.get("FF_ALGO") or None,
            deterministic=os.environ.get("FF_DETERMINISTIC") == "1", **place))

    def _open(self, store, comm):
        self._store, self._comm = store, comm
        self._rank, self._size = comm.rank, comm.ranks
        self._lock = threading.Lock()
        self._unfinished = collections.OrderedDict()  # works by id, oldest first
        self._messages = {}  # the same, of messages
        # C++ code calls wait() of a Work whose Python object nothing else refers to.
        self._kept = collections.deque(maxlen=_KEPT)
        self._completer = Completer()
        self._sequence = self._barriers = 0
        self._finalizer = weakref.finalize(self, _close, self._comm, self._completer)

    def shrink(self):
        """After an Error: a group of the ranks that live, which all of them call (Comm.shrink());
        and the ranks that they have in this group. This group is closed."""
        made = Group.__new__(Group)
        comm = self._comm.shrink()
        dist.ProcessGroup.__init__(made, comm.rank, comm.ranks)
        made._open(dist.PrefixStore("ff/shrunk", self._store), comm)
        ranks = torch.empty(comm.ranks, dtype=torch.int64)
        comm.allgather(torch.tensor([self._rank]), ranks)
        self._finalizer()
        # Errors refer to frames of the program, and so to models whose hooks must go.
        for work in (*self._kept, *self._unfinished.values(), *self._messages.values()):
            if work._error is not None:
                work._error.__traceback__ = None
        self._kept.clear()
        return made, ranks.tolist()

    def getBackendName(self):
        return "ff"

    name = _get_backend_name = getBackendName

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    setSequenceNumberForGroup = _set_sequence_number_for_group
    getSequenceNumberForGroup = _get_sequence_number_for_group

    def _start_coalescing(self):
        pass

    def _end_coalescing(self, works):
        pass

    # ---- operations in flight

    def _forget(self, work):
        with self._lock:
            self._unfinished.pop(id(work), None)
            self._messages.pop(id(work), None)

    def _begin(self, outputs, calls, after=None, keeps=None, device=None):
        """A Work of operations: of each, the name and the arguments of its function of libff.so.
        On a device they come in the order of its current stream."""
        while len(self._unfinished) + len(calls) > _UNFINISHED_MAX and self._unfinished:
            with self._lock:
                oldest = next(iter(self._unfinished.values()), None)
            if oldest is not None:
                oldest._complete()
        handle, stream = self._comm._of(), None
        if device is None:
            numbers = [number_of(getattr(lib, f"ff_{name}_async"), handle, *arguments)
                       for name, *arguments in calls]
        else:
            stream = current_stream(device)
            with stream_of(device) as address:
                numbers = [number_of(getattr(lib, f"ff_{name}_on_async"), handle, *arguments,
                                     address) for name, *arguments in calls]
        work = Work(self, numbers, outputs, after, keeps, stream=stream)
        with self._lock:
            self._unfinished[id(work)] = work
        self._kept.append(work)
        self._sequence += 1
        return work

    def _reduce(self, name, tensor, output, op, *root, then=None):
        """An arithmetic operation from `tensor` into `output`, which may be the same, and what to
        do after it."""
        device = elements.device_of(tensor, output)
        wire, kind = elements.to_wire(tensor, op)
        if output is tensor:
            out = wire
        elif output.dtype == wire.dtype and output.is_contiguous():
            out = output
        else:
            out = wire.new_empty(wire.numel() // self._size)

        def after():
            if out is not output:
                elements.from_wire(out, output)
            if then is not None:
                then()
        return self._begin([output], [(name, wire.data_ptr(), out.data_ptr(), out.numel(), kind,
                                       elements.op_number(op), *root)],
                           after if then or out is not output else None, (wire, out), device)

    def _bitwise(self, tensor, op, store):
        """The tensors of all ranks, combined here; `store` gets the result."""
        device = elements.device_of(tensor)
        wire = tensor.contiguous()
        if wire.dtype.is_floating_point or wire.dtype.is_complex:
            raise Error(2, f"the backend ff reduces {wire.dtype} by arithmetic operations only")
        every = wire.new_empty((self._size, *wire.shape))

        def after():
            result = every[0]
            for one in every[1:]:
                result = elements.bitwise(op)(result, one)
            store(result)
        return self._begin([tensor], [self._gather_call(wire, every)], after, (wire, every), device)

    def _gather_call(self, wire, out):
        return ("allgather", wire.data_ptr(), out.data_ptr(), elements.size_of(wire),
                elements.BYTES)

    # ---- reductions

    def allreduce(self, tensors, opts=None):
        return self._allreduce(_one(tensors), opts)

    def _allreduce(self, tensor, opts, then=None):
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        if elements.bitwise(op):
            def store(result):
                tensor.copy_(result)
                if then is not None:
                    then()
            return self._bitwise(tensor, op, store)
        return self._reduce("allreduce", tensor, tensor, op, then=then)

    def allreduce_coalesced(self, tensors, opts=None):
        elements.device_of(*tensors)
        flat = torch.cat([one.reshape(-1) for one in tensors])

        def spread():
            for one, part in zip(tensors, flat.split([one.numel() for one in tensors])):
                one.copy_(part.view(one.shape))
        work = self._allreduce(flat, opts, spread)
        work._outputs = list(tensors)
        return work

    def reduce(self, tensors, opts):
        tensor, op, root = _one(tensors), opts.reduceOp, opts.rootRank
        if elements.bitwise(op):
            return self._bitwise(tensor, op,
                                 tensor.copy_ if root == self._rank else lambda result: None)
        device = elements.device_of(tensor)
        wire, kind = elements.to_wire(tensor, op)
        stores = root == self._rank and wire is not tensor
        after = (lambda: elements.from_wire(wire, tensor)) if stores else None
        return self._begin([tensor], [("reduce", wire.data_ptr(), wire.data_ptr(), wire.numel(),
                                       kind, elements.op_number(op), root)], after, wire, device)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        if tensor.numel() != output.numel() * self._size:
            raise Error(2, f"reduce_scatter of {tensor.numel()} elements into {output.numel()} on "
                           f"each of {self._size} ranks")
        if elements.bitwise(op):
            def store(result):
                output.copy_(result.reshape(self._size, -1)[self._rank].view(output.shape))
            return self._bitwise(tensor, op, store)
        return self._reduce("reduce_scatter", tensor, output, op)

    def reduce_scatter(self, outputs, inputs, opts=None):
        output, parts = _one(outputs), _one(inputs, "list of tensors")
        if len(parts) != self._size or any(one.numel() != output.numel() for one in parts):
            raise Error(2, f"reduce_scatter needs {self._size} tensors of {output.numel()} "
                           "elements, as many as the output has")
        elements.device_of(output, *parts)
        flat = torch.cat([one.reshape(-1) for one in parts])
        return self._reduce_scatter_base(output, flat, opts)

    # ---- copies

    def broadcast(self, tensors, opts):
        tensor = _one(tensors)
        device = elements.device_of(tensor)
        wire = tensor.contiguous()
        stores = wire is not tensor and opts.rootRank != self._rank
        return self._begin([tensor], [("broadcast", wire.data_ptr(), wire.data_ptr(),
                                       elements.size_of(wire), elements.BYTES, opts.rootRank)],
                           (lambda: tensor.copy_(wire)) if stores else None, wire, device)

    def _allgather_base(self, output, tensor, opts=None):
        device = elements.device_of(tensor, output)
        wire, out = tensor.contiguous(), output
        if output.dtype != tensor.dtype or output.numel() != tensor.numel() * self._size:
            raise Error(2, f"all_gather of {tensor.numel()} {tensor.dtype} of each of {self._size} "
                           f"ranks into {output.numel()} {output.dtype}")
        if not out.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [self._gather_call(wire, out)],
                           None if out is output else lambda: output.copy_(out), (wire, out),
                           device)

    def _check_list(self, parts, tensor, what):
        if len(parts) != self._size or any(one.dtype != tensor.dtype or
                                           one.numel() != tensor.numel() for one in parts):
            raise Error(2, f"{what} needs a list of {self._size} tensors like the other one: "
                           f"{tensor.numel()} {tensor.dtype}")

    def allgather(self, outputs, inputs, opts=None):
        tensor, parts = _one(inputs), _one(outputs, "list of tensors")
        self._check_list(parts, tensor, "all_gather")
        device = elements.device_of(tensor, *parts)
        wire = tensor.contiguous()
        flat = wire.new_empty((self._size, *tensor.shape))
        return self._begin([list(parts)], [self._gather_call(wire, flat)],
                           lambda: _store_all(flat, parts), (wire, flat), device)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        if any(len(parts) != len(inputs) for parts in outputs) or len(outputs) != self._size:
            raise Error(2, f"all_gather_coalesced needs {self._size} lists of {len(inputs)} "
                           "tensors")
        device = elements.device_of(*inputs, *(one for parts in outputs for one in parts))
        wires = [one.contiguous() for one in inputs]
        flats = [one.new_empty((self._size, *one.shape)) for one in wires]

        def after():
            for number, flat in enumerate(flats):
                _store_all(flat, [parts[number] for parts in outputs])
        return self._begin(outputs, [self._gather_call(wire, flat)
                                     for wire, flat in zip(wires, flats)], after, (wires, flats),
                           device)

    def gather(self, outputs, inputs, opts):
        tensor, root = elements.on_host(_one(inputs), "gather"), opts.rootRank
        wire = tensor.contiguous()
        parts, flat, after = [], None, None
        if root == self._rank:
            parts = _one(outputs, "list of tensors")
            self._check_list(parts, tensor, "gather")
            flat = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)
            after = lambda: _store_all(flat, parts)  # noqa: E731
        return self._begin(list(parts), [
            ("gather", wire.data_ptr(), None if flat is None else flat.data_ptr(),
             elements.size_of(wire), elements.BYTES, root)], after, (wire, flat))

    def scatter(self, outputs, inputs, opts):
        output, root = elements.on_host(_one(outputs), "scatter"), opts.rootRank
        flat, out = None, output
        if root == self._rank:
            parts = _one(inputs, "list of tensors")
            self._check_list(parts, output, "scatter")
            flat = torch.cat([elements.on_host(one, "scatter").reshape(-1) for one in parts])
        if not output.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [
            ("scatter", None if flat is None else flat.data_ptr(), out.data_ptr(),
             elements.size_of(out), elements.BYTES, root)],
            None if out is output else lambda: output.copy_(out), (flat, out))

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        wire = elements.on_host(tensor, "all_to_all").contiguous()
        out = elements.on_host(output, "all_to_all")
        if output.dtype != tensor.dtype:
            raise Error(2, f"all_to_all of {tensor.dtype} into {output.dtype}")
        if not out.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [
            ("alltoallv", wire.data_ptr(), self._splits(tensor, input_splits),
             out.data_ptr(), self._splits(output, output_splits), elements.BYTES)],
            None if out is output else lambda: output.copy_(out), (wire, out))

    def _splits(self, tensor, splits):
        """Bytes for each rank, of rows of the tensor."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 0
        row = elements.size_of(tensor) // max(rows, 1)
        if not splits:
            if rows % self._size != 0:
                raise Error(2, f"all_to_all of {rows} rows, which {self._size} ranks do not divide")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise Error(2, f"all_to_all of {rows} rows: the splits {list(splits)} are not those of "
                           f"{self._size} ranks")
        return _counts([row * one for one in splits])

    def alltoall(self, outputs, inputs, opts=None):
        if len(outputs) != self._size or len(inputs) != self._size:
            raise Error(2, f"all_to_all needs {self._size} tensors to send, and as many to receive")
        dtype, counts = inputs[0].dtype, [one.numel() for one in outputs]
        if any(one.dtype != dtype for one in (*inputs, *outputs)):
            raise Error(2, "all_to_all needs tensors of one type")
        for one in outputs:
            elements.on_host(one, "all_to_all")
        wire = torch.cat([elements.on_host(one, "all_to_all").reshape(-1) for one in inputs])
        out = torch.empty(sum(counts), dtype=dtype)
        return self._begin(list(outputs), [
            ("alltoallv", wire.data_ptr(),
             _counts([elements.size_of(one) for one in inputs]), out.data_ptr(),
             _counts([elements.size_of(one) for one in outputs]), elements.BYTES)],
            lambda: _store_all(out.split(counts), outputs), (wire, out))

    # ---- messages

    def _message(self, tensor, call, arguments, after, keeps, source=None):
        number = number_of(call, self._comm._of(), *arguments)
        work = MessageWork(self, [number], [tensor], after, keeps, source)
        self._kept.append(work)
        with self._lock:
            self._messages[id(work)] = work
        return work

    def send(self, tensors, to, tag=0):
        tensor = elements.on_host(_one(tensors), "send")
        wire = tensor.contiguous()
        return self._message(tensor, lib.ff_send_async, (wire.data_ptr(), elements.size_of(wire),
                                                         elements.BYTES, to, tag), None, wire)

    def recv(self, tensors, source, tag=0):
        tensor = elements.on_host(_one(tensors), "recv")
        out = tensor if tensor.is_contiguous() else torch.empty_like(
            tensor, memory_format=torch.contiguous_format)
        rank = ctypes.c_uint32(_ANY)
        return self._message(
            tensor, lib.ff_recv_async,
            (out.data_ptr(), elements.size_of(out), elements.BYTES, source, tag,
             ctypes.byref(rank)),
            None if out is tensor else lambda: tensor.copy_(out), out, rank)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, _ANY, tag)

    # ---- barriers

    def barrier(self, opts=None):
        return self._begin([], [("barrier",)])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Rank 0 raises an error that names ranks which do not come in time, the first or all; then
        the others raise it too. The group stays usable."""
        timeout = timeout or _DEFAULT
        self._barriers += 1
        prefix = f"ff/barrier/{self._barriers}/"
        until = time.monotonic() + timeout.total_seconds()
        if self._rank > 0:
            self._store.add(prefix + str(self._rank), 1)
            if not self._has_come(prefix + "over", until + 10):
                raise Error(6, f"monitored_barrier: rank 0 did not come within {timeout}")
            said = self._store.get(prefix + "outcome").decode()
            if said:
                raise Error(6, said)
            return
        missing = []
        for rank in range(1, self._size):
            if not self._has_come(prefix + str(rank), until):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        said = ""
        if missing:
            names = ", ".join(map(str, missing))
            ranks = "rank" if len(missing) == 1 else "ranks"
            said = f"monitored_barrier: {ranks} {names} did not come within {timeout}"
        self._store.set(prefix + "outcome", said)
        self._store.add(prefix + "over", 1)
        if said:
            raise Error(6, said)

    def _has_come(self, key, until):
        """Whether a rank adds to this key in time. No wait() of the store: after one that ends with
        its timeout, the store of PyTorch 1.13 takes the late answer for that of the next call."""
        pause = 0.001
        while self._store.add(key, 0) == 0:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.1)
        return True


def _store_all(flat, parts):
    for part, one in zip(parts, flat):
        part.copy_(one.view(part.shape))


def _close(comm, completer):
    """Leaves the group, unless a thread still waits in it: then the end of the process does."""
    if completer.close():
        comm.close()
