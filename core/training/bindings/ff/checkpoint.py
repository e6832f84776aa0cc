# Checkpoints: states saved while the program goes on, every so often if it likes, and loaded again
# in the structure that they had.
import atexit
import ctypes
import importlib
import os
import sys
import time
import typing
import warnings

from ff import _library
from ff._device import stream_of
from ff._library import (Error, File, LoadOptions, SaveOptions, Tensor, Text, check, lib,
                         number_of)
from ff._state import Builder, Document, Flattener, LoadedArray
from ff.collective import Comm

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
    store = os.fsdecode(store) if store is not None else os.environ.get("FF_STORE", "")
    if not store:
        raise Error(2, "no store is named: give store=, or set FF_STORE")
    return _bytes_of(store if "://" in store else os.path.abspath(store), "store")


def _bytes_of(value, what):
    """A text for C, which ends it at a zero. None is null."""
    if value is None:
        return None
    text = os.fsencode(value) if what == "store" else str(value).encode(errors="surrogatepass")
    if b"\0" in text:
        raise Error(2, f"{what}={value!r} contains a zero")
    return text


def _is_number(text):
    return text.isascii() and text.isdigit()


def _ranks_of(rank, world):
    if rank == "env":
        names = ("RANK", "WORLD_SIZE")
        missing = [name for name in names if not _is_number(os.environ.get(name, ""))]
        if missing:
            raise Error(2, f"{' and '.join(missing)} of the environment is no number: start it "
                           "with torchrun, or give rank= and world=")
        rank, world = (int(os.environ[name]) for name in names)
    return number_of(rank, "rank", 2**32 - 1), number_of(world, "number of ranks", 2**32 - 1)


def save_options(run, step, store, rank, world, attempt, replace, compress, threads, file=None):
    """What ff_save_begin() is told. `file` None: state.safetensors."""
    rank, world = _ranks_of(rank, world)
    if world > 1 and step is None:
        raise Error(2, "several ranks save together under one step: give step=")
    number = _STEP_OPEN if step is None else number_of(step, "step")
    return SaveOptions(ctypes.sizeof(SaveOptions), _store_of(store), _bytes_of(run, "run"), number,
                       _bytes_of(file, "file"), rank, world, _bytes_of(attempt, "attempt"),
                       number_of(threads, "number of threads", 1024), bool(replace), bool(compress))


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
        saved = _library.Saved()
        code = lib.ff_save_wait(self._saver._of(), ctypes.byref(saved))
        if code != 0:
            self._error = (code, lib.ff_error().decode(errors="replace"))
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
        check(lib.ff_saver_open(ctypes.byref(self._handle)))
        self._last = None
        self._process = os.getpid()
        _open_savers.add(self)

    def _of(self):
        if not self._handle:
            raise Error(2, "the saver was closed")
        return self._handle

    def is_of_this_process(self):
        """Whether it can be used: a fork leaves it to the parent."""
        return self._process == os.getpid()

    def busy(self):
        """Whether a save is being written."""
        busy = ctypes.c_int()
        check(lib.ff_save_busy(self._of(), ctypes.byref(busy)))
        return busy.value != 0

    def save_async(self, state, run="default", step=None, store=None, rank=0, world=1, attempt=None,
                   when_busy="wait", replace=False, compress=False, threads=0):
        """As ff.save_async()."""
        if when_busy not in ("wait", "skip"):
            raise Error(2, f"when_busy='{when_busy}' is neither 'wait' nor 'skip'")
        if self.busy() and when_busy == "skip":
            return None
        self.raise_earlier()
        options = save_options(run, step, store, rank, world, attempt, replace, compress, threads)
        flattener = Flattener()
        structure = flattener.document(state)
        return self.start(options, str(run), flattener.pieces, {_STATE_KEY: structure})

    def start(self, options, run, pieces, texts):
        """Saves arrays (_arrays.Piece) by name, in one file whose metadata is `texts`, once they
        are copied and an earlier save has ended; gives a Save."""
        tensors = (Tensor * max(len(pieces), 1))()
        shapes = []  # kept until the call
        for tensor, (name, piece) in zip(tensors, pieces.items()):
            shapes.append((ctypes.c_uint64 * len(piece.shape))(*piece.shape))
            tensor.name, tensor.dtype = name.encode(), piece.dtype.encode()
            tensor.shape, tensor.dimensions = shapes[-1], len(piece.shape)
            tensor.bytes, tensor.data = piece.size, piece.address
        pairs = (Text * max(len(texts), 1))(
            *(Text(key.encode(), text.encode()) for key, text in texts.items()))
        places = (ctypes.c_void_p * max(len(pieces), 1))()
        check(lib.ff_save_begin(self._of(), ctypes.byref(options), tensors, len(pieces), pairs,
                                len(texts), places))
        pins = True
        for place, piece in zip(places, pieces.values()):
            if piece.fill is None or piece.size == 0:
                continue
            if piece.device_address is None or not (pins := pins and self._copy_on(place, piece)):
                piece.fill(place)
        check(lib.ff_save_start(self._of()))
        self._last = Save(self, run)
        return self._last

    def _copy_on(self, place, piece):
        """Has the device copy the piece while the program goes on. False: it cannot."""
        try:
            with stream_of(piece.kept.device) as stream:
                check(lib.ff_save_copy_on(self._of(), place, piece.device_address, piece.size,
                                          stream))
        except Error as error:
            warnings.warn(f"the state is not copied through pinned memory, which takes longer: "
                          f"{error}", RuntimeWarning, stacklevel=2)
            return False
        return True

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
        if not self._handle or not self.is_of_this_process():
            return
        if self._last is not None and not give_up:
            self._last._collect()
        handle, self._handle = self._handle, ctypes.c_void_p()
        _open_savers.discard(self)
        lib.ff_saver_close(handle, give_up)
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

    `state` becomes one safetensors file, state.safetensors; nothing is pickled. `step` None is the
    run's last plus one, `store` None is FF_STORE: a directory, or ff://HOST:PORT/PATH in a cluster,
    whose key or token the environment or ff.toml gives, as to `ff checkpoint`.

    These come back from load() equal and of the same type, and in containers of any depth to 200:

        Python    None, bool, int, float, complex, str, bytes, bytearray, range, slice; list, tuple,
                  dict, set, frozenset, OrderedDict and Counter (with their attributes, as a
                  state_dict() has), deque, defaultdict of a built-in type or None. Keys and
                  elements of sets: what has no tensor or array in it
        PyTorch   Tensor and nn.Parameter with requires_grad, also sparse (COO, CSR, CSC, BSR, BSC);
                  no quantized, nested, named, meta or complex32 one; Size, dtype, device
        numpy     arrays and scalars of any dtype without objects (structured, datetime64, of the
                  other byte order, ...), matrix, MaskedArray
        others    values of classes that the program gives to register_type(): an Enum, a
                  dataclass, a namedtuple; with two functions any class, also subclasses of Tensor
                  and of numpy's arrays

    Anything else is an Error that names its path. Not stored are: where a tensor lies (it comes
    back on the CPU, row by row, in memory of its own, so what shares memory is stored once for
    each, and no channels_last), its grad, its graph and attributes set on it; whether an array may
    be written (it may); that one object is in two places (it becomes two). Other objects with the
    buffer protocol (array.array, memoryview, mmap, ctypes) come back as numpy's arrays, or as
    memoryviews without numpy.

    When a save is still being written, when_busy="wait" waits for it, "skip" returns None. If an
    earlier save failed and nobody has waited for it, its error is raised here, and nothing is
    saved. `threads` write; 0: one a processor, at most 8.

    Several ranks save shards of one checkpoint with equal run, step, world and attempt (None:
    FF_ATTEMPT, else that of the task, and torchrun's --rdzv-id and restart; it must be new for
    each start of the job); rank="env" takes RANK and WORLD_SIZE.

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
    """Saves every so many seconds, or every so many steps, never two at once:

        with ff.Periodic("/data/ckpt", "llama", seconds=300) as saves:
            for step in range(first, last):
                ...
                saves.step(step, lambda: {"model": model.state_dict(), "step": step})

    The other options are those of save_async(). Ranks that save together must agree on when:
    `agree` is given what one finds and gives what all do, or is a Comm, where rank 0 decides. With
    a Comm all ranks make it together, and have an attempt of their own unless one is given: a job
    that is started again then never completes what an earlier one has left half saved."""

    def __init__(self, store=None, run="default", seconds=300.0, agree=None, steps=None, **options):
        self._options = dict(options, store=store, run=run)
        rank, world = _ranks_of(options.get("rank", 0), options.get("world", 1))
        self._options.update(rank=rank, world=world)
        if world > 1 and agree is None:
            raise Error(2, "several ranks save the same steps: give agree=, a Comm or a function")
        if steps is not None and number_of(steps, "number of steps") == 0:
            raise Error(2, "steps=0 is never")
        if isinstance(agree, Comm) and world > 1 and options.get("attempt") is None:
            self._options["attempt"] = agree.broadcast(bytearray(os.urandom(8))).hex()
        self._agree = agree
        self._saver = Saver()
        self._seconds, self._steps = seconds, steps
        self._next = time.monotonic() + seconds

    def step(self, step, state, now=False):
        """Saves `state` (or what it gives, if it can be called) when it is time; gives its Save,
        else None. Raises the error of an earlier save. By seconds, none is begun while another is
        being written; by steps, and with `now`, the same on all ranks, that is waited for."""
        if not self._saver.busy():
            self._saver.raise_earlier()
        if not (now or self._is_due(step)):
            return None
        self._next = time.monotonic() + self._seconds
        return self._saver.save_async(state() if callable(state) else state, step=step,
                                      **self._options)

    def _is_due(self, step):
        if self._steps is not None:
            return step % self._steps == 0
        due = time.monotonic() >= self._next and not self._saver.busy()
        if isinstance(self._agree, Comm):
            return self._agree.broadcast(bytearray([due]))[0] != 0
        return due if self._agree is None else self._agree(due)

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
    """What save_async() has saved as RUN@STEP (None: the highest step), in the same structure.

    Of a checkpoint of safetensors files that came otherwise: {name: tensor}; of several files, a
    dict of these by file name. With `tensors`, a glob or a list of them: {name: tensor} of those
    that match, as bytes where safetensors has no type for them (datetime64, structured, ...).
    `rank` chooses among what several ranks have saved. Files that are not safetensors are left to
    `ff checkpoint load`.

    Every byte is checked (Error.code 3 names what is damaged), and nothing is unpickled: of classes
    of programs, only those that register_type() has are made, whatever the checkpoint says. Tensors
    are PyTorch's where it is installed, else numpy's arrays, else memoryviews; arrays come back as
    numpy's or memoryviews. A type that the one at hand does not have comes as its bytes, in uint8:
    float8 in PyTorch before 2.1, unsigned integers above 8 bits before 2.3, bfloat16 and float8 in
    numpy without ml_dtypes."""
    globs = [tensors] if isinstance(tensors, str) else list(tensors or [])
    if tensors is not None and not globs:
        raise Error(2, "tensors= chooses nothing")
    with Loading(store, run, step, globs, rank, threads) as loading:
        return _loaded(loading, bool(globs))


class Loading:
    """A checkpoint, or what `globs` and `rank` choose of it, from its index until its bytes are
    read."""

    def __init__(self, store, run, step, globs=(), rank=None, threads=0):
        texts = (ctypes.c_char_p * max(len(globs), 1))(
            *(_bytes_of(glob, "tensors") for glob in globs))
        options = LoadOptions(ctypes.sizeof(LoadOptions), _store_of(store), _bytes_of(run, "run"),
                              _STEP_OPEN if step is None else number_of(step, "step"), texts,
                              len(globs), _ANY_RANK if rank is None else number_of(rank, "rank"),
                              number_of(threads, "number of threads", 1024))
        self._handle = ctypes.c_void_p()
        check(lib.ff_load_begin(ctypes.byref(self._handle), ctypes.byref(options)))
        self.step = lib.ff_load_step(self._handle)

    def files(self):
        """(name, rank, numbers of its tensors) of each safetensors file."""
        found = []
        for index in range(lib.ff_load_files(self._handle)):
            file = self._file(index)
            numbers = range(file.first, file.first + file.tensors)
            found.append((file.name.decode(), file.rank, numbers))
        return found

    def text(self, index, key):
        """Of the metadata of a file; None: it has none of that key."""
        text = Text()
        for number in range(self._file(index).texts):
            check(lib.ff_load_text(self._handle, index, number, ctypes.byref(text)))
            if text.key.decode() == key:
                return text.value
        return None

    def tensor(self, number):
        """(name, type of safetensors, shape, bytes)"""
        tensor = Tensor()
        check(lib.ff_load_tensor(self._handle, number, ctypes.byref(tensor)))
        return (tensor.name.decode(), tensor.dtype.decode(), tensor.shape[:tensor.dimensions],
                tensor.bytes)

    def read(self, addresses):
        """Reads each tensor, in their order, to its address."""
        places = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        check(lib.ff_load_read(self._handle, places))

    def _file(self, index):
        file = File()
        check(lib.ff_load_file(self._handle, index, ctypes.byref(file)))
        return file

    def __enter__(self):
        return self

    def __exit__(self, *error):
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.ff_load_end(handle)


def _imported(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _loaded(loading, chosen):
    """The states of all files, or the one there is."""
    files = loading.files()
    ranks = {rank for _, rank, _ in files}
    if len(ranks) > 1:
        raise Error(2, f"ranks {', '.join(map(str, sorted(ranks)))} have saved it: choose one with "
                       "rank=")
    modules = _imported("torch"), _imported("numpy")
    arrays, states = [], {}
    for index, (name, _, numbers) in enumerate(files):
        text = None if chosen else loading.text(index, _STATE_KEY)
        document = None if text is None else Document(text)
        kinds = {} if document is None else document.kinds
        here = [_array_of(loading, number, kinds, modules) for number in numbers]
        arrays += here
        states[name] = here, document
    loading.read([array.address for array in arrays])
    made = {}
    for name, (here, document) in states.items():
        by_name = {array.name: array for array in here}
        if document is None:
            made[name] = {key: array.data for key, array in by_name.items()}
        else:
            made[name] = Builder(document, by_name).state()
    if not chosen:
        return made.popitem()[1] if len(made) == 1 else made
    return {name: data for one in made.values() for name, data in one.items()}


def _array_of(loading, number, kinds, modules):
    name, dtype, shape, size = loading.tensor(number)
    return LoadedArray(name, dtype, shape, size, kinds.get(name, "tensor"), modules)


def latest(store=None, run="default"):
    """The highest step of a run; None when there is none, or no such store."""
    step = ctypes.c_uint64()
    check(lib.ff_latest_step(_store_of(store), _bytes_of(run, "run"), ctypes.byref(step)))
    return None if step.value == _STEP_OPEN else step.value
