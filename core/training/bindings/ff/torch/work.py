# Operations in flight, as torch.distributed has them: what wait() and get_future() return, and the
# thread that completes operations whose future somebody has.
import ctypes
import queue
import threading
import weakref

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from ff._device import in_stream, order_behind
from ff._library import Error, check, lib


class _Future(torch.futures.Future):
    """Completes its operation in the thread that waits."""

    def __init__(self, work, devices):
        super().__init__(**devices)
        self._work = work

    def wait(self):
        self._work.wait()
        return super().wait()


def future_devices(stream):
    """What a future of results on the device of a stream is made with."""
    return {} if stream is None else {"devices": [stream.device]}


class Work(_TorchWork):
    """One call of the program: the operations of ff that it consists of, and what to do after them.
    Any thread may wait for it, several times. On a device, `stream` is where they are ordered."""

    def __init__(self, group, numbers, outputs, after=None, keeps=None, source=None, stream=None):
        super().__init__()
        self._group, self._numbers, self._outputs = weakref.ref(group), numbers, outputs
        self._after, self._keeps, self._source = after, keeps, source
        self._stream = stream
        self._lock = threading.Lock()
        self._error = self._future = None
        self._done = False

    def _complete(self):
        """Waits for the operations; an error of one is kept for wait()."""
        if self._done:
            return
        with self._lock:
            if self._done:
                return
            group = self._group()
            try:
                for number in self._numbers:
                    check(lib.ff_wait(group._comm._of(), number))
                if self._after is not None:
                    with torch.no_grad(), in_stream(self._stream):
                        self._after()
            except Exception as error:
                self._error = error
            self._after = self._keeps = None
            self._done = True
            if group is not None:
                group._forget(self)
            future = self._future
        if future is not None:
            self._settle(future)

    def _settle(self, future):
        if self._error is None:
            with in_stream(self._stream):  # for what the future records
                future.set_result(self._outputs)
        else:
            future.set_exception(self._error)

    def wait(self, timeout=None):
        """`timeout` is that of the group. On a device, the current stream waits for the result."""
        self._complete()
        if self._error is not None:
            raise self._error
        if self._stream is not None:
            order_behind(self._stream)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._done

    def is_success(self):
        return self._done and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._outputs

    def source_rank(self):
        if self._source is None:
            raise Error(2, "this operation has no source rank")
        return self._source.value

    _source_rank = source_rank

    def get_future(self):
        with self._lock:
            first = self._future is None
            if first:
                self._future = _Future(self, future_devices(self._stream))
            future, done = self._future, self._done
        if first and done:
            self._settle(future)
        elif first:
            # In backward() the error is raised at its end, with the name of the rank.
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self.wait)
            except RuntimeError:
                pass
            self._complete_later()
        return future

    def _complete_later(self):
        self._group()._completer.add(self)


class MessageWork(Work):
    """A message: messages complete in any order, so each whose future somebody has gets a
    thread."""

    def _complete_later(self):
        threading.Thread(target=self._complete, name="ff-message", daemon=True).start()


class Completer:
    """A thread that completes operations in order, once there is one whose future somebody has."""

    def __init__(self):
        self._works = queue.SimpleQueue()
        self._thread = None

    def add(self, work):
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ff-completer", daemon=True)
            self._thread.start()
        self._works.put(work)

    def _run(self):
        while True:
            work = self._works.get()
            if work is None:
                return
            work._complete()
            del work

    def close(self):
        """True once the thread waits for nothing any more."""
        if self._thread is None:
            return True
        self._works.put(None)
        self._thread.join(0.1)
        return not self._thread.is_alive()


def number_of(call, *arguments):
    """Starts an operation, and returns its number."""
    number = ctypes.c_uint64()
    check(call(*arguments, ctypes.byref(number)))
    return number.value
