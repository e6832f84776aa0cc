# What a task and the agent of its node tell one another: that it is to save and exit, how far it
# is, what it has saved.
import ctypes
import os
import typing

from ff._library import Error, Stop, check, lib, number_of

_STOP_BYTES = 8 + 32  # the deadline, and the longest reason


class StopRequest(typing.NamedTuple):
    """That the task is to save and exit: why, and by when (Unix seconds) it must have."""
    reason: str  # "preempted", "drained", "stopped", ...
    deadline: int


def should_stop(agree=None):
    """A StopRequest once the agent of this node asks the task to save and exit, else None: in the
    file `stop` of $FF_TASK_DIR. Cheap enough for every step. The agent is told that it was seen.

    Nodes hear of it one after the other. With `agree`, a Comm, all its ranks call this after the
    same step, and all get what rank 0 does."""
    stop = Stop()
    asked = lib.ff_task_should_stop(ctypes.byref(stop)) != 0
    if agree is not None:
        word = bytearray(_STOP_BYTES)
        if asked:
            word[:8] = stop.deadline.to_bytes(8, "little")
            word[8:8 + len(stop.reason)] = stop.reason
        word = bytes(agree.broadcast(word))
        asked = any(word)
        if asked:
            return StopRequest(word[8:].rstrip(b"\0").decode(), int.from_bytes(word[:8], "little"))
    return StopRequest(stop.reason.decode(), stop.deadline) if asked else None


def saved(step):
    """Tells the agent that the whole task can go on from `step`. save_async() does so itself once
    a checkpoint is complete; this is for other ways to save. Not in a task: nothing."""
    check(lib.ff_task_saved(number_of(step, "step")))


def heartbeat(step, rank=None):
    """Tells the agent that this rank (None: RANK of the environment, else 0) is at `step`. Not in
    a task: nothing."""
    if rank is None:
        rank = os.environ.get("RANK") or "0"
        if not rank.isdecimal():
            raise Error(2, f"RANK={rank!r} of the environment is no number")
        rank = int(rank)
    check(lib.ff_task_heartbeat(number_of(rank, "rank", 2**32 - 1), number_of(step, "step")))


def life_state():
    """The word of 32 bits that an earlier attempt of the task has left, or this one; 0 before it
    is set, and where there is no task."""
    word = ctypes.c_uint32()
    check(lib.ff_task_life_state(ctypes.byref(word)))
    return word.value


def set_life_state(word):
    """Sets it. Not in a task: nothing."""
    check(lib.ff_task_set_life_state(number_of(word, "word of 32 bits", 2**32 - 1)))
