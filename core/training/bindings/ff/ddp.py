# DistributedDataParallel of PyTorch, whose gradients ff averages: the communication hook, and the
# memory that all ranks reach, in which gradients then live.
import collections

from ff._library import Error


def register_comm_hook(model, comm):
    """Has `comm` average the gradients of a DistributedDataParallel model on CPUs, instead of the
    model's process group. Each bucket is begun as soon as it is full, and awaited at the end of
    backward(), which raises an Error if it fails. To be called before the first backward().

    With gradient_as_bucket_view=True nothing is copied: gradients then live in memory that all
    ranks reach. close() takes them out of it; what else still refers to them is void."""
    hook = Hook(comm, model)
    comm._hooks.add(hook)
    model.register_comm_hook(hook, allreduce_hook)


def allreduce_hook(hook, bucket):
    """The communication hook itself, as DistributedDataParallel calls it."""
    return hook._begin(bucket)


class Hook:
    """The buckets of one model: where they live, and which of them are under way.

    All is done by the thread of backward(), since a communicator is one thread's at a time. The
    model waits for its futures in a callback at the end of backward(), which it queues when the
    last bucket has been begun; one that was queued before that completes them."""

    _FLIGHTS = 32  # at most; the program may have others

    def __init__(self, comm, model):
        self._comm = comm
        self._in_place = model.gradient_as_bucket_view
        # The first backward() then begins all buckets in its last callback, and waits right there.
        self._at_once = model.static_graph
        self._flights = collections.deque()  # of future and work
        self._error = None  # for the end of backward()
        self._homes = {}  # the memory of a bucket, by its number
        self._moved = {}  # tensors that live in it instead of being copied, by the same

    def _begin(self, bucket):
        import torch
        future = torch.futures.Future()
        later = not self._at_once
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        except RuntimeError:  # outside of backward(): a rank that has joined the others early
            later = False
        try:
            if len(self._flights) == self._FLIGHTS:
                self._end(1)
            with torch.no_grad():
                home = self._fill_home(bucket)
            self._flights.append((future, self._comm.allreduce_async(home, op="avg")))
            if not later:
                self._end()
        except Error as error:
            if not later:
                raise
            self._error = self._error or error  # who raises it here, PyTorch says in its own words
        return future

    def _end_backward(self):
        self._at_once = False
        self._end()

    def _end(self, count=None):
        """The first operations, or all; in spite of errors, of which it raises the first."""
        for _ in range(len(self._flights) if count is None else count):
            future, work = self._flights.popleft()
            try:
                future.set_result(work.wait())
            except Error as error:
                self._error = self._error or error
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _fill_home(self, bucket):
        """Where all ranks reach the bucket, with its gradients in it."""
        import torch
        buffer, number = bucket.buffer(), bucket.index()
        home = self._homes.get(number)
        if home is None or home.shape != buffer.shape or home.dtype != buffer.dtype:
            size = buffer.numel() * buffer.element_size()
            home = torch.frombuffer(self._comm.buffer(size), dtype=buffer.dtype)
            self._homes[number] = home
            self._moved.pop(number, None)
        if buffer.data_ptr() != home.data_ptr():
            home.copy_(buffer)
            if self._in_place:
                self._move(bucket, buffer, home)
        if bucket.is_last():  # the model has made new buckets, and fewer
            for stale in [other for other in self._homes if other > number]:
                del self._homes[stale]
                self._moved.pop(stale, None)
        return home

    def _move(self, bucket, buffer, home):
        """Has the bucket and its gradients live in the home: by changing the tensors themselves,
        which the model holds on to. (It checks at the end of backward() that it has each.)"""
        grads, size = [parameter.grad for parameter in bucket.parameters()], home.element_size()
        start, end = buffer.data_ptr(), buffer.data_ptr() + buffer.numel() * size
        if any(grad is None or not start <= grad.data_ptr() < end for grad in grads):
            return  # no views of it yet
        for grad in grads:
            at = (grad.data_ptr() - start) // size
            grad.set_(home.as_strided(grad.size(), grad.stride(), at))
        buffer.set_(home)
        self._moved[bucket.index()] = [buffer, *grads]

    def _leave(self):
        """Before the memory of homes goes away."""
        import torch
        with torch.no_grad():
            for number, tensors in self._moved.items():
                own = self._homes[number].clone()
                for one in tensors:
                    one.set_(own.as_strided(one.size(), one.stride(), one.storage_offset()))
        self._moved.clear()
        self._homes.clear()
