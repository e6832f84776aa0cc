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

    def _begin(self, outputs, calls, after=None, keeps=None):
        """A Work of operations: of each, the function of libff.so and its arguments."""
        while len(self._unfinished) + len(calls) > _UNFINISHED_MAX and self._unfinished:
            with self._lock:
                oldest = next(iter(self._unfinished.values()), None)
            if oldest is not None:
                oldest._complete()
        handle = self._comm._of()
        numbers = [number_of(call, handle, *arguments) for call, *arguments in calls]
        work = Work(self, numbers, outputs, after, keeps)
        with self._lock:
            self._unfinished[id(work)] = work
        self._kept.append(work)
        self._sequence += 1
        return work

    def _reduce(self, call, tensor, output, op, *root, then=None):
        """An arithmetic operation from `tensor` into `output`, which may be the same, and what to
        do after it."""
        wire, kind = elements.to_wire(elements.dense(tensor), op)
        if output is tensor:
            out = wire
        elif output.dtype == wire.dtype and output.is_contiguous():
            out = output
        else:
            out = torch.empty(wire.numel() // self._size, dtype=wire.dtype)

        def after():
            if out is not output:
                elements.from_wire(out, output)
            if then is not None:
                then()
        return self._begin([output], [(call, wire.data_ptr(), out.data_ptr(), out.numel(), kind,
                                       elements.op_number(op), *root)],
                           after if then or out is not output else None, (wire, out))

    def _bitwise(self, tensor, op, store):
        """The tensors of all ranks, combined here; `store` gets the result."""
        wire = elements.dense(tensor).contiguous()
        if wire.dtype.is_floating_point or wire.dtype.is_complex:
            raise Error(2, f"the backend ff reduces {wire.dtype} by arithmetic operations only")
        every = torch.empty((self._size, *wire.shape), dtype=wire.dtype)

        def after():
            result = every[0]
            for one in every[1:]:
                result = elements.bitwise(op)(result, one)
            store(result)
        return self._begin([tensor], [self._gather_call(wire, every)], after, (wire, every))

    def _gather_call(self, wire, out):
        return (lib.ff_allgather_async, wire.data_ptr(), out.data_ptr(), elements.size_of(wire),
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
        return self._reduce(lib.ff_allreduce_async, tensor, tensor, op, then=then)

    def allreduce_coalesced(self, tensors, opts=None):
        flat = torch.cat([elements.dense(one).reshape(-1) for one in tensors])

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
        wire, kind = elements.to_wire(elements.dense(tensor), op)
        stores = root == self._rank and wire is not tensor
        after = (lambda: elements.from_wire(wire, tensor)) if stores else None
        return self._begin([tensor], [(lib.ff_reduce_async, wire.data_ptr(), wire.data_ptr(),
                                       wire.numel(), kind, elements.op_number(op), root)],
                           after, wire)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        if tensor.numel() != output.numel() * self._size:
            raise Error(2, f"reduce_scatter of {tensor.numel()} elements into {output.numel()} on "
                           f"each of {self._size} ranks")
        if elements.bitwise(op):
            def store(result):
                output.copy_(result.reshape(self._size, -1)[self._rank].view(output.shape))
            return self._bitwise(tensor, op, store)
        return self._reduce(lib.ff_reduce_scatter_async, tensor, elements.dense(output), op)

    def reduce_scatter(self, outputs, inputs, opts=None):
        output, parts = _one(outputs), _one(inputs, "list of tensors")
        if len(parts) != self._size or any(one.numel() != output.numel() for one in parts):
            raise Error(2, f"reduce_scatter needs {self._size} tensors of {output.numel()} "
                           "elements, as many as the output has")
        flat = torch.cat([elements.dense(one).reshape(-1) for one in parts])
        return self._reduce_scatter_base(output, flat, opts)

    # ---- copies

    def broadcast(self, tensors, opts):
        tensor = elements.dense(_one(tensors))
        wire = tensor.contiguous()
        stores = wire is not tensor and opts.rootRank != self._rank
        return self._begin([tensor], [(lib.ff_broadcast_async, wire.data_ptr(), wire.data_ptr(),
                                       elements.size_of(wire), elements.BYTES, opts.rootRank)],
                           (lambda: tensor.copy_(wire)) if stores else None, wire)

    def _allgather_base(self, output, tensor, opts=None):
        wire = elements.dense(tensor).contiguous()
        if output.dtype != tensor.dtype or output.numel() != tensor.numel() * self._size:
            raise Error(2, f"all_gather of {tensor.numel()} {tensor.dtype} of each of {self._size} "
                           f"ranks into {output.numel()} {output.dtype}")
        out = elements.dense(output)
        if not out.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [self._gather_call(wire, out)],
                           None if out is output else lambda: output.copy_(out), (wire, out))

    def _check_list(self, parts, tensor, what):
        if len(parts) != self._size or any(one.dtype != tensor.dtype or
                                           one.numel() != tensor.numel() for one in parts):
            raise Error(2, f"{what} needs a list of {self._size} tensors like the other one: "
                           f"{tensor.numel()} {tensor.dtype}")

    def allgather(self, outputs, inputs, opts=None):
        tensor, parts = elements.dense(_one(inputs)), _one(outputs, "list of tensors")
        self._check_list(parts, tensor, "all_gather")
        wire = tensor.contiguous()
        flat = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)
        return self._begin([list(parts)], [self._gather_call(wire, flat)],
                           lambda: _store_all(flat, parts), (wire, flat))

    def allgather_coalesced(self, outputs, inputs, opts=None):
        if any(len(parts) != len(inputs) for parts in outputs) or len(outputs) != self._size:
            raise Error(2, f"all_gather_coalesced needs {self._size} lists of {len(inputs)} "
                           "tensors")
        wires = [elements.dense(one).contiguous() for one in inputs]
        flats = [torch.empty((self._size, *one.shape), dtype=one.dtype) for one in wires]

        def after():
            for number, flat in enumerate(flats):
                _store_all(flat, [parts[number] for parts in outputs])
        return self._begin(outputs, [self._gather_call(wire, flat)
                                     for wire, flat in zip(wires, flats)], after, (wires, flats))

    def gather(self, outputs, inputs, opts):
        tensor, root = elements.dense(_one(inputs)), opts.rootRank
        wire = tensor.contiguous()
        parts, flat, after = [], None, None
        if root == self._rank:
            parts = _one(outputs, "list of tensors")
            self._check_list(parts, tensor, "gather")
            flat = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)
            after = lambda: _store_all(flat, parts)  # noqa: E731
        return self._begin(list(parts), [
            (lib.ff_gather_async, wire.data_ptr(), None if flat is None else flat.data_ptr(),
             elements.size_of(wire), elements.BYTES, root)], after, (wire, flat))

    def scatter(self, outputs, inputs, opts):
        output, root = elements.dense(_one(outputs)), opts.rootRank
        flat, out = None, output
        if root == self._rank:
            parts = _one(inputs, "list of tensors")
            self._check_list(parts, output, "scatter")
            flat = torch.cat([elements.dense(one).reshape(-1) for one in parts])
        if not output.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [
            (lib.ff_scatter_async, None if flat is None else flat.data_ptr(), out.data_ptr(),
             elements.size_of(out), elements.BYTES, root)],
            None if out is output else lambda: output.copy_(out), (flat, out))

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        wire, out = elements.dense(tensor).contiguous(), elements.dense(output)
        if output.dtype != tensor.dtype:
            raise Error(2, f"all_to_all of {tensor.dtype} into {output.dtype}")
        if not out.is_contiguous():
            out = torch.empty_like(output, memory_format=torch.contiguous_format)
        return self._begin([output], [
            (lib.ff_alltoallv_async, wire.data_ptr(), self._splits(tensor, input_splits),
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
        wire = torch.cat([elements.dense(one).reshape(-1) for one in inputs])
        out = torch.empty(sum(counts), dtype=dtype)
        return self._begin(list(outputs), [
            (lib.ff_alltoallv_async, wire.data_ptr(),
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
        tensor = elements.dense(_one(tensors))
        wire = tensor.contiguous()
        return self._message(tensor, lib.ff_send_async, (wire.data_ptr(), elements.size_of(wire),
                                                         elements.BYTES, to, tag), None, wire)

    def recv(self, tensors, source, tag=0):
        tensor = elements.dense(_one(tensors))
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
        return self._begin([], [(lib.ff_barrier_async,)])

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
