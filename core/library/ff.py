# ff for Python: collective operations between processes of a host, and checkpoints that are written
# while the program goes on, through libff.so.
"""Sums arrays of many processes in host memory; saves and loads training state.

    import ff
    with ff.Comm() as comm:              # torchrun's environment; or Comm(rank, ranks, job)
        comm.allreduce(gradients, op="avg")          # a tensor, an array, anything in memory
        work = comm.allreduce_async(more)
        ...
        work.wait()

Arrays are CPU tensors of PyTorch, or objects with the buffer protocol (array, bytearray, numpy).
Every rank calls the same operations in the same order. Memory of Comm.buffer() is reached by all
ranks and costs no copy.

    save = ff.save_async({"model": model.state_dict(), "epoch": 3}, run="llama", store="/data/ckpt")
    ...
    save.wait()                          # its step, or its error
    state = ff.load("/data/ckpt", "llama")

A checkpoint is one of `ff checkpoint`, which lists, verifies, prunes and restores it.

libff.so is looked for as FF_LIBRARY says, beside this file, and where the system has its libraries;
ff_state.py is to be beside this file, too.
"""
import atexit
import ctypes
import json
import os
import sys
import time
import typing

import ff_state
from ff_state import Error

Error.__module__ = __name__  # as programs know it
TYPES = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32",
         "int64", "uint8")
OPS = ("sum", "prod", "max", "min", "avg")
_FORMATS = {"f": "float32", "d": "float64", "e": "float16", "i": "int32", "q": "int64",
            "l": "int64", "B": "uint8", "c": "uint8"}


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rank", ctypes.c_uint32), ("ranks", ctypes.c_uint32),
                ("job", ctypes.c_char_p), ("join_seconds", ctypes.c_double),
                ("operation_seconds", ctypes.c_double), ("local_rank", ctypes.c_uint32),
                ("local_ranks", ctypes.c_uint32), ("master", ctypes.c_char_p),
                ("key_file", ctypes.c_char_p), ("zone", ctypes.c_uint32),
                ("wire", ctypes.c_char_p), ("algorithm", ctypes.c_char_p),
                ("deterministic", ctypes.c_int)]


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_uint64)), ("dimensions", ctypes.c_size_t),
                ("bytes", ctypes.c_uint64), ("data", ctypes.c_void_p)]


class _Text(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _SaveOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("store", ctypes.c_char_p), ("run", ctypes.c_char_p),
                ("step", ctypes.c_uint64), ("file", ctypes.c_char_p), ("rank", ctypes.c_uint32),
                ("world", ctypes.c_uint32), ("attempt", ctypes.c_char_p),
                ("threads", ctypes.c_uint32), ("replace", ctypes.c_int),
                ("compress", ctypes.c_int)]


class _Saved(ctypes.Structure):
    _fields_ = [("step", ctypes.c_uint64), ("missing_ranks", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64), ("bytes_written", ctypes.c_uint64),
                ("seconds", ctypes.c_double), ("outcome", ctypes.c_int)]


class _LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("store", ctypes.c_char_p), ("run", ctypes.c_char_p),
                ("step", ctypes.c_uint64), ("tensors", ctypes.POINTER(ctypes.c_char_p)),
                ("globs", ctypes.c_size_t), ("rank", ctypes.c_uint32),
                ("threads", ctypes.c_uint32)]


class _File(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("rank", ctypes.c_uint32), ("first", ctypes.c_size_t),
                ("tensors", ctypes.c_size_t), ("texts", ctypes.c_size_t)]


def _load_library():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libff.so")
    named = os.environ.get("FF_LIBRARY")
    library = ctypes.CDLL(named or (beside if os.path.exists(beside) else "libff.so"))
    comm, data, size = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    kind, number, rank = ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32
    for name, result, arguments in (
            ("version", ctypes.c_char_p, []), ("error", ctypes.c_char_p, []),
            ("comm_init", kind, [ctypes.POINTER(comm), ctypes.POINTER(_Options)]),
            ("comm_destroy", None, [comm]),
            ("comm_rank", rank, [comm]), ("comm_ranks", rank, [comm]),
            ("alloc", kind, [comm, size, ctypes.POINTER(data)]), ("free", kind, [comm, data]),
            ("allreduce_async", kind, [comm, data, data, size, kind, kind, number]),
            ("reduce", kind, [comm, data, data, size, kind, kind, rank]),
            ("broadcast", kind, [comm, data, data, size, kind, rank]),
            ("allgather", kind, [comm, data, data, size, kind]),
            ("reduce_scatter", kind, [comm, data, data, size, kind, kind]),
            ("barrier", kind, [comm]), ("wait", kind, [comm, ctypes.c_uint64]),
            ("saver_open", kind, [ctypes.POINTER(data)]), ("saver_close", None, [data, kind]),
            ("save_begin", kind, [data, ctypes.POINTER(_SaveOptions), ctypes.POINTER(_Tensor), size,
                                  ctypes.POINTER(_Text), size, ctypes.POINTER(data)]),
            ("save_start", kind, [data]), ("save_busy", kind, [data, ctypes.POINTER(kind)]),
            ("save_wait", kind, [data, ctypes.POINTER(_Saved)]),
            ("load_begin", kind, [ctypes.POINTER(data), ctypes.POINTER(_LoadOptions)]),
            ("load_end", None, [data]), ("load_files", size, [data]),
            ("load_file", kind, [data, size, ctypes.POINTER(_File)]),
            ("load_text", kind, [data, size, size, ctypes.POINTER(_Text)]),
            ("load_tensor", kind, [data, size, ctypes.POINTER(_Tensor)]),
            ("load_read", kind, [data, ctypes.POINTER(data)]),
            ("latest_step", kind, [ctypes.c_char_p, ctypes.c_char_p, number])):
        function = getattr(library, "ff_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_ff = _load_library()
__version__ = _ff.ff_version().decode()


def _check(code):
    if code != 0:
        raise Error(code, _ff.ff_error().decode(errors="replace"))


def _index(known, name, what):
    if name not in known:
        raise Error(2, f"'{name}' is no {what}: one of {', '.join(known)}")
    return known.index(name)


class _Array:
    """Where an array stands, and what it is of."""

    def __init__(self, data, dtype, writes):
        self.kept = data
        if hasattr(data, "data_ptr"):  # a tensor
            if data.device.type != "cpu" or not data.is_contiguous():
                raise Error(2, "a tensor that is contiguous, in the memory of the host, is wanted")
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
        self.count = self.bytes // (1, 2, 4, 8)[(2, 3, 1, 1, 0, 0, 2, 3, 0)[self.type]]


class Work:
    """An operation under way."""

    def __init__(self, comm, number, arrays, out):
        self._comm, self._number, self._arrays, self._out = comm, number, arrays, out

    def wait(self):
        """Until it has ended; gives the result."""
        if self._number is not None:
            number, self._number = self._number, None
            _check(_ff.ff_wait(self._comm._of(), number))
            self._arrays = None
        return self._out


def _text(value):
    return None if value is None else os.fspath(value).encode()


class Comm:
    """The ranks of a job: all on this host, or local_ranks of them. Then `master`, "HOST:PORT", is
    where the host of rank 0 listens, and key_file has the job's key (64 hex digits); zone, wire
    ("bf16", "fp8"), algorithm ("tree", "ring") and deterministic are as in `ff allreduce`. Without
    a rank all of that is as torchrun's environment and FF_KEY_FILE, FF_WIRE, ... have it."""

    def __init__(self, rank=None, ranks=None, job=None, join_seconds=60.0, operation_seconds=60.0,
                 *, local_rank=0, local_ranks=0, master=None, key_file=None, zone=0, wire=None,
                 algorithm=None, deterministic=False):
        self._handle = ctypes.c_void_p()
        options = None
        if rank is not None:
            options = ctypes.byref(_Options(ctypes.sizeof(_Options), rank, ranks,
                                            str(job).encode(), join_seconds, operation_seconds,
                                            local_rank, local_ranks, _text(master),
                                            _text(key_file), zone, _text(wire), _text(algorithm),
                                            deterministic))
        _check(_ff.ff_comm_init(ctypes.byref(self._handle), options))
        self.rank = _ff.ff_comm_rank(self._handle)
        self.ranks = _ff.ff_comm_ranks(self._handle)

    def _of(self):
        if not self._handle:
            raise Error(2, "the communicator was closed")
        return self._handle

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        _ff.ff_comm_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def buffer(self, count):
        """`count` bytes that all ranks reach, in zeros, until the communicator is closed."""
        memory = ctypes.c_void_p()
        _check(_ff.ff_alloc(self._of(), count, ctypes.byref(memory)))
        return memoryview((ctypes.c_char * count).from_address(memory.value)).cast("B")

    def allreduce(self, data, op="sum", out=None, dtype=None):
        """`data` of all ranks into `out` (without one, into `data`) of each."""
        return self.allreduce_async(data, op, out, dtype).wait()

    def allreduce_async(self, data, op="sum", out=None, dtype=None):
        """The same, at once: gives a Work. Until its wait() the arrays are not to be touched."""
        source, sink, result = self._arrays(data, out, dtype, 1, 1)
        number = ctypes.c_uint64()
        _check(_ff.ff_allreduce_async(self._of(), source.address, sink.address, source.count,
                                      source.type, _index(OPS, op, "operation"),
                                      ctypes.byref(number)))
        return Work(self, number.value, (source, sink), result)

    def reduce(self, data, root=0, op="sum", out=None, dtype=None):
        """Into `out` of one rank."""
        source, sink, result = self._arrays(data, out, dtype, 1, 1)
        _check(_ff.ff_reduce(self._of(), source.address, sink.address, source.count, source.type,
                             _index(OPS, op, "operation"), root))
        return result

    def broadcast(self, data, root=0, dtype=None):
        """From one rank into `data` of all."""
        one = _Array(data, dtype, True)
        _check(_ff.ff_broadcast(self._of(), one.address, one.address, one.count, one.type, root))
        return data

    def allgather(self, data, out, dtype=None):
        """`data` of all ranks, one behind the other, into `out`."""
        source, sink, result = self._arrays(data, out, dtype, 1, self.ranks)
        _check(_ff.ff_allgather(self._of(), source.address, sink.address, source.count,
                                source.type))
        return result

    def reduce_scatter(self, data, out, op="sum", dtype=None):
        """The sum of all `data`, of which each rank gets its part into `out`."""
        source, sink, result = self._arrays(data, out, dtype, self.ranks, 1)
        _check(_ff.ff_reduce_scatter(self._of(), source.address, sink.address, sink.count,
                                     source.type, _index(OPS, op, "operation")))
        return result

    def barrier(self):
        """Until all ranks are here."""
        _check(_ff.ff_barrier(self._of()))

    def _arrays(self, data, out, dtype, in_blocks, out_blocks):
        source = _Array(data, dtype, out is None)
        if out is None:
            return source, source, data
        sink = _Array(out, dtype, True)
        if source.type != sink.type or source.bytes * out_blocks != sink.bytes * in_blocks:
            raise Error(2, f"{source.bytes} bytes of {TYPES[source.type]} into {sink.bytes} bytes "
                           f"of {TYPES[sink.type]}: they do not fit")
        return source, sink, out


# Checkpoints. -----------------------------------------------------------------------------------

_STATE_KEY = "ff.state"  # of __metadata__: the structure around the tensors, as JSON
_STEP_OPEN = 2**64 - 1
_ANY_RANK = 2**32 - 1
_OUTCOMES = ("committed", "already_there", "waiting")



class Saved(typing.NamedTuple):
    """What became of a save. `outcome` is "committed", "already_there" (the step existed, with the
    same content) or "waiting" (`missing_ranks` others have not saved their shards yet)."""
    run: str
    step: int
    outcome: str
    missing_ranks: int
    bytes: int  # of the state
    bytes_written: int  # of what the store did not have
    seconds: float  # from the end of the copy


def _store_of(store):
    store = os.fspath(store) if store is not None else os.environ.get("FF_STORE", "")
    if not store:
        raise Error(2, "no store is named: give store=, or set FF_STORE")
    return os.fsencode(store if "://" in store else os.path.abspath(store))


def _number(value, what, most=2**64 - 2):
    if not hasattr(value, "__index__") or not 0 <= value.__index__() <= most:
        raise Error(2, f"{value!r} is no {what}")
    return value.__index__()


def _ranks_of(rank, world):
    if rank == "env":
        names = ("RANK", "WORLD_SIZE")
        missing = [name for name in names if not os.environ.get(name, "").isdigit()]
        if missing:
            raise Error(2, f"{' and '.join(missing)} of the environment is no number: start it "
                           "with torchrun, or give rank= and world=")
        rank, world = (int(os.environ[name]) for name in names)
    return _number(rank, "rank", 2**32 - 1), _number(world, "number of ranks", 2**32 - 1)


class Save:
    """A save that was begun. Gives its result as often as it is asked."""

    def __init__(self, saver, run):
        self._saver, self.run = saver, run
        self._result = self._error = None
        self._told = False

    def _collect(self):
        """Fetches what became of it, waiting for it if it must."""
        if self._result is not None or self._error is not None:
            return
        saved = _Saved()
        code = _ff.ff_save_wait(self._saver._of(), ctypes.byref(saved))
        if code != 0:
            self._error = (code, _ff.ff_error().decode(errors="replace"))
            return
        self._result = Saved(self.run, saved.step, _OUTCOMES[saved.outcome], saved.missing_ranks,
                             saved.bytes, saved.bytes_written, saved.seconds)

    def done(self):
        """Whether it has ended, well or not."""
        return self._result is not None or self._error is not None or not self._saver.busy()

    def wait(self):
        """Until it has ended; gives a Saved, or raises its error."""
        self._collect()
        self._told = True
        if self._error is not None:
            raise Error(*self._error)
        return self._result


class Saver:
    """Saves states while the program goes on, one at a time, through a copy in memory that it keeps
    for the next. One thread at a time uses it and its Saves. It does not outlive a fork."""

    def __init__(self):
        self._handle = ctypes.c_void_p()
        _check(_ff.ff_saver_open(ctypes.byref(self._handle)))
        self._last = None
        self._process = os.getpid()
        _open_savers.add(self)

    def _of(self):
        if not self._handle:
            raise Error(2, "the saver was closed")
        return self._handle

    def busy(self):
        """Whether a save is being written."""
        busy = ctypes.c_int()
        _check(_ff.ff_save_busy(self._of(), ctypes.byref(busy)))
        return busy.value != 0

    def save_async(self, state, run="default", step=None, store=None, rank=0, world=1, attempt=None,
                   when_busy="wait", replace=False, compress=False, threads=0):
        """As ff.save_async()."""
        if when_busy not in ("wait", "skip"):
            raise Error(2, f"when_busy='{when_busy}' is neither 'wait' nor 'skip'")
        if self.busy() and when_busy == "skip":
            return None
        self.raise_earlier()
        rank, world = _ranks_of(rank, world)
        if world > 1 and step is None:
            raise Error(2, "several ranks save together under one step: give step=")
        number = _STEP_OPEN if step is None else _number(step, "step")
        options = _SaveOptions(ctypes.sizeof(_SaveOptions), _store_of(store), str(run).encode(),
                               number, None, rank, world,
                               None if attempt is None else str(attempt).encode(),
                               _number(threads, "number of threads", 1024), bool(replace),
                               bool(compress))
        self._stage(state, options)
        _check(_ff.ff_save_start(self._of()))
        self._last = Save(self, str(run))
        return self._last

    def _stage(self, state, options):
        flattener = ff_state.Flattener()
        try:
            rest = flattener.flatten(state)
        except RecursionError:
            raise Error(2, "the state holds itself, or nests too deep") from None
        pieces = flattener.pieces
        tensors = (_Tensor * max(len(pieces), 1))()
        shapes = []  # kept until the call
        for tensor, (name, piece) in zip(tensors, pieces.items()):
            shapes.append((ctypes.c_uint64 * len(piece.shape))(*piece.shape))
            tensor.name, tensor.dtype = name.encode(), piece.dtype.encode()
            tensor.shape, tensor.dimensions = shapes[-1], len(piece.shape)
            tensor.bytes, tensor.data = piece.size, piece.address
        texts = (_Text * 1)(_Text(_STATE_KEY.encode(), json.dumps({"state": rest}).encode()))
        places = (ctypes.c_void_p * max(len(pieces), 1))()
        _check(_ff.ff_save_begin(self._of(), ctypes.byref(options), tensors, len(pieces), texts, 1,
                                 places))
        for place, piece in zip(places, pieces.values()):
            if piece.fill is not None and piece.size > 0:
                piece.fill(place)

    def raise_earlier(self):
        """The error of a save that has ended and that nobody has waited for."""
        last = self._last
        if last is None or last._told:
            return
        last._collect()
        if last._error is not None:
            last.wait()

    def wait(self):
        """Until the save begun last has ended; gives a Saved, or raises its error. None: there was
        none."""
        return None if self._last is None else self._last.wait()

    def close(self, give_up=False):
        """Waits for the save under way, or gives it up, which leaves the store as it was. Raises
        the error of a save that nobody has waited for."""
        if not self._handle or self._process != os.getpid():
            return
        if self._last is not None and not give_up:
            self._last._collect()
        handle, self._handle = self._handle, ctypes.c_void_p()
        _open_savers.discard(self)
        _ff.ff_saver_close(handle, give_up)
        last = self._last
        if last is not None and last._result is None and last._error is None:
            last._error = (1, "the save was given up")
        elif last is not None and not last._told and last._error is not None:
            last.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


_open_savers = set()  # which the end of the program waits for
_default = []  # the saver of ff.save_async(), once there is one


def _close_all():
    for saver in list(_open_savers):
        try:
            saver.close()
        except Error as error:
            print(f"ff: a save has failed: {error}", file=sys.stderr)


atexit.register(_close_all)


def save_async(state, run="default", step=None, store=None, rank=0, world=1, attempt=None,
               when_busy="wait", replace=False, compress=False, threads=0):
    """Saves `state` as RUN@STEP and returns a Save once it is copied; the write goes on behind.

    `state` is made of dicts, lists, tuples, numbers, texts, bytes, None, tensors of PyTorch (of any
    device) and arrays: what state_dict() of a model or an optimizer gives. It becomes one
    safetensors file, state.safetensors; nothing is pickled. Anything else is an Error that names
    its path. `step` None is the run's last plus one, `store` None is FF_STORE.

    When a save is still being written, when_busy="wait" waits for it, "skip" returns None. If an
    earlier save failed and nobody has waited for it, its error is raised here, and nothing is
    saved. `threads` write; 0: one a processor, at most 8.

    Several ranks save shards of one checkpoint with equal run, step, world and attempt (None:
    FF_ATTEMPT, else torchrun's run and restart); rank="env" takes RANK and WORLD_SIZE.

    A program that ends waits for its save; one that is killed leaves the store as it was."""
    if not _default:
        _default.append(Saver())
    return _default[0].save_async(state, run, step, store, rank, world, attempt, when_busy, replace,
                                  compress, threads)


def wait():
    """Until the save begun last by save_async() has ended; gives a Saved, or raises its error.
    None: there was none."""
    return _default[0].wait() if _default else None


class Periodic:
    """Saves every so many seconds, never two at once:

        with ff.Periodic("/data/ckpt", "llama", seconds=300) as saves:
            for step in range(first, last):
                ...
                saves.step(step, lambda: {"model": model.state_dict(), "step": step})

    The other options are those of save_async(). Ranks that save together must agree on when:
    `agree` is given what one finds and gives what all do, or is a Comm, where rank 0 decides."""

    def __init__(self, store=None, run="default", seconds=300.0, agree=None, **options):
        self._options = dict(options, store=store, run=run)
        rank, world = _ranks_of(options.get("rank", 0), options.get("world", 1))
        self._options.update(rank=rank, world=world)
        if world > 1 and agree is None:
            raise Error(2, "several ranks save the same steps: give agree=, a Comm or a function")
        self._agree = agree
        self._saver = Saver()
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def step(self, step, state):
        """Saves `state` (or what it gives, if it can be called) when it is time, and no save is
        being written; gives its Save, else None. Raises the error of an earlier save."""
        if not self._saver.busy():
            self._saver.raise_earlier()
        due = time.monotonic() >= self._next and not self._saver.busy()
        if isinstance(self._agree, Comm):
            due = self._agree.broadcast(bytearray([due]))[0] != 0
        elif self._agree is not None:
            due = self._agree(due)
        if not due:
            return None
        self._next = time.monotonic() + self._seconds
        return self._saver.save_async(state() if callable(state) else state, step=step,
                                      **self._options)

    def wait(self):
        """Until the save begun last has ended; gives a Saved, or raises its error. None: there was
        none."""
        return self._saver.wait()

    def close(self, give_up=False):
        """As Saver.close()."""
        self._saver.close(give_up)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def load(store=None, run="default", step=None, tensors=None, rank=None, threads=0):
    """What save_async() has saved as RUN@STEP (None: the step saved last), in the same structure.

    Of a checkpoint of safetensors files that came otherwise: {name: tensor}; of several files, a
    dict of these by file name. With `tensors`, a glob or a list of them: {name: tensor} of those
    that match. `rank` chooses among what several ranks have saved. Files that are not safetensors
    are left to `ff checkpoint load`.

    Every byte is checked (Error.code 3 names what is damaged), and nothing is unpickled. Tensors
    are PyTorch's where it is installed, else numpy's arrays, else memoryviews; arrays come back as
    numpy's or memoryviews. A type that the one at hand does not have comes as its bytes, in uint8:
    float8 in PyTorch before 2.1, unsigned integers above 8 bits before 2.3, bfloat16 and float8 in
    numpy without ml_dtypes."""
    globs = [tensors] if isinstance(tensors, str) else list(tensors or [])
    if tensors is not None and not globs:
        raise Error(2, "tensors= chooses nothing")
    texts = (ctypes.c_char_p * max(len(globs), 1))(*(glob.encode() for glob in globs))
    options = _LoadOptions(ctypes.sizeof(_LoadOptions), _store_of(store), str(run).encode(),
                           _STEP_OPEN if step is None else _number(step, "step"), texts,
                           len(globs), _ANY_RANK if rank is None else _number(rank, "rank"),
                           _number(threads, "number of threads", 1024))
    handle = ctypes.c_void_p()
    _check(_ff.ff_load_begin(ctypes.byref(handle), ctypes.byref(options)))
    try:
        return _loaded(handle, bool(globs))
    finally:
        _ff.ff_load_end(handle)


def _loaded(handle, chosen):
    """The states of all files, or the one there is."""
    files, ranks = [], set()
    for index in range(_ff.ff_load_files(handle)):
        file = _File()
        _check(_ff.ff_load_file(handle, index, ctypes.byref(file)))
        ranks.add(file.rank)
        files.append((file.name.decode(), range(file.first, file.first + file.tensors),
                      None if chosen else _state_text(handle, index, file.texts)))
    if len(ranks) > 1:
        raise Error(2, f"ranks {', '.join(map(str, sorted(ranks)))} have saved it: choose one with "
                       "rank=")
    modules = ff_state.imported("torch"), ff_state.imported("numpy")
    arrays, states = [], {}
    for name, numbers, text in files:
        state = None if text is None else json.loads(text)
        kinds = dict(ff_state.kinds_in(state))
        here = [_array_of(handle, number, kinds, modules) for number in numbers]
        arrays += here
        states[name] = here, state
    places = (ctypes.c_void_p * max(len(arrays), 1))(*(array.address for array in arrays))
    _check(_ff.ff_load_read(handle, places))
    made = {}
    for name, (here, state) in states.items():
        if state is None:
            made[name] = {array.name: array.data for array in here}
        else:
            builder = ff_state.Builder({array.name: array for array in here})
            made[name] = builder.build(state["state"])
    if not chosen:
        return made.popitem()[1] if len(made) == 1 else made
    return {name: data for one in made.values() for name, data in one.items()}


def _state_text(handle, file, count):
    text = _Text()
    for index in range(count):
        _check(_ff.ff_load_text(handle, file, index, ctypes.byref(text)))
        if text.key.decode() == _STATE_KEY:
            return text.value
    return None


def _array_of(handle, number, kinds, modules):
    tensor = _Tensor()
    _check(_ff.ff_load_tensor(handle, number, ctypes.byref(tensor)))
    name = tensor.name.decode()
    return ff_state.LoadedArray(name, tensor.dtype.decode(), tensor.shape[:tensor.dimensions],
                        tensor.bytes, kinds.get(name, "tensor"), modules)


def latest(store=None, run="default"):
    """The step of a run that was saved last; None when there is none, or no such store."""
    step = ctypes.c_uint64()
    _check(_ff.ff_latest_step(_store_of(store), str(run).encode(), ctypes.byref(step)))
    return None if step.value == _STEP_OPEN else step.value
