# libff.so for the modules of this package: where it is, its structures and functions (ff.h), and
# how its errors become exceptions.
import ctypes
import os


class Error(RuntimeError):
    """What a call that failed says; `code` is 2 for wrong arguments, 3 for damaged data, 5 where it
    was refused, 6 past a deadline, else 1 (a rank is gone, a disk is full, no such checkpoint)."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code

    def __reduce__(self):  # torch.distributed sends errors to other ranks
        return type(self), (self.code, str(self))


Error.__module__ = "ff"  # as programs name it, and tracebacks


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rank", ctypes.c_uint32), ("ranks", ctypes.c_uint32),
                ("job", ctypes.c_char_p), ("join_seconds", ctypes.c_double),
                ("operation_seconds", ctypes.c_double), ("local_rank", ctypes.c_uint32),
                ("local_ranks", ctypes.c_uint32), ("master", ctypes.c_char_p),
                ("key_file", ctypes.c_char_p), ("zone", ctypes.c_uint32),
                ("wire", ctypes.c_char_p), ("algorithm", ctypes.c_char_p),
                ("deterministic", ctypes.c_int)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_uint64)), ("dimensions", ctypes.c_size_t),
                ("bytes", ctypes.c_uint64), ("data", ctypes.c_void_p)]


class Text(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class SaveOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("store", ctypes.c_char_p), ("run", ctypes.c_char_p),
                ("step", ctypes.c_uint64), ("file", ctypes.c_char_p), ("rank", ctypes.c_uint32),
                ("world", ctypes.c_uint32), ("attempt", ctypes.c_char_p),
                ("threads", ctypes.c_uint32), ("replace", ctypes.c_int),
                ("compress", ctypes.c_int)]


class Saved(ctypes.Structure):
    _fields_ = [("step", ctypes.c_uint64), ("missing_ranks", ctypes.c_uint64),
                ("bytes", ctypes.c_uint64), ("bytes_written", ctypes.c_uint64),
                ("seconds", ctypes.c_double), ("outcome", ctypes.c_int)]


class Stop(ctypes.Structure):
    _fields_ = [("reason", ctypes.c_char * 32), ("deadline", ctypes.c_int64)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("store", ctypes.c_char_p), ("run", ctypes.c_char_p),
                ("step", ctypes.c_uint64), ("tensors", ctypes.POINTER(ctypes.c_char_p)),
                ("globs", ctypes.c_size_t), ("rank", ctypes.c_uint32),
                ("threads", ctypes.c_uint32)]


class File(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("rank", ctypes.c_uint32), ("first", ctypes.c_size_t),
                ("tensors", ctypes.c_size_t), ("texts", ctypes.c_size_t)]


class KvOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("store", ctypes.c_char_p),
                ("max_age_seconds", ctypes.c_double), ("write_seconds", ctypes.c_double)]


def _near_files():
    """Where libff.so may be: beside the package, and in build/ of the source tree it belongs to."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, in_tree = [os.path.join(folder, "libff.so")], "/core/training/bindings"
    if folder.endswith(in_tree):
        files.append(folder.removesuffix(in_tree) + "/build/libff.so")
    return files


def _open_library():
    named = os.environ.get("FF_LIBRARY")
    if named:
        try:
            return ctypes.CDLL(named)
        except OSError as error:
            raise ImportError(f"FF_LIBRARY={named} cannot be loaded: {error}. Let it name the file "
                              "libff.so, or unset it.") from None
    files = _near_files()
    found = next(filter(os.path.exists, files), None)
    try:
        return ctypes.CDLL(found or "libff.so")
    except OSError as error:
        nor = "" if found else f"; nor is there {' or '.join(files)}"
        raise ImportError(f"libff.so cannot be loaded: {error}{nor}. Build it with `./bootstrap "
                          "build`, or name the file in FF_LIBRARY.") from None


def _load_library():
    library = _open_library()
    comm, data, size = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    kind, number, rank = ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32
    sizes = ctypes.POINTER(size)
    for name, result, arguments in (
            ("version", ctypes.c_char_p, []), ("error", ctypes.c_char_p, []),
            ("comm_init", kind, [ctypes.POINTER(comm), ctypes.POINTER(Options)]),
            ("comm_destroy", None, [comm]),
            ("comm_split", kind, [comm, rank, rank, ctypes.POINTER(comm)]),
            ("comm_shrink", kind, [comm, ctypes.POINTER(comm)]),
            ("comm_rank", rank, [comm]), ("comm_ranks", rank, [comm]),
            ("alloc", kind, [comm, size, ctypes.POINTER(data)]), ("free", kind, [comm, data]),
            ("allreduce_async", kind, [comm, data, data, size, kind, kind, number]),
            ("allgather_async", kind, [comm, data, data, size, kind, number]),
            ("alltoallv_async", kind, [comm, data, sizes, data, sizes, kind, number]),
            ("barrier_async", kind, [comm, number]),
            ("broadcast_async", kind, [comm, data, data, size, kind, rank, number]),
            ("gather_async", kind, [comm, data, data, size, kind, rank, number]),
            ("recv_async", kind, [comm, data, size, kind, rank, rank, ctypes.POINTER(rank),
                                  number]),
            ("reduce_async", kind, [comm, data, data, size, kind, kind, rank, number]),
            ("reduce_scatter_async", kind, [comm, data, data, size, kind, kind, number]),
            ("scatter_async", kind, [comm, data, data, size, kind, rank, number]),
            ("send_async", kind, [comm, data, size, kind, rank, rank, number]),
            ("reduce", kind, [comm, data, data, size, kind, kind, rank]),
            ("broadcast", kind, [comm, data, data, size, kind, rank]),
            ("allgather", kind, [comm, data, data, size, kind]),
            ("reduce_scatter", kind, [comm, data, data, size, kind, kind]),
            ("allreduce_on_async", kind, [comm, data, data, size, kind, kind, data, number]),
            ("reduce_on_async", kind, [comm, data, data, size, kind, kind, rank, data, number]),
            ("broadcast_on_async", kind, [comm, data, data, size, kind, rank, data, number]),
            ("allgather_on_async", kind, [comm, data, data, size, kind, data, number]),
            ("reduce_scatter_on_async", kind, [comm, data, data, size, kind, kind, data, number]),
            ("reduce_on", kind, [comm, data, data, size, kind, kind, rank, data]),
            ("broadcast_on", kind, [comm, data, data, size, kind, rank, data]),
            ("allgather_on", kind, [comm, data, data, size, kind, data]),
            ("reduce_scatter_on", kind, [comm, data, data, size, kind, kind, data]),
            ("barrier", kind, [comm]), ("wait", kind, [comm, ctypes.c_uint64]),
            ("saver_open", kind, [ctypes.POINTER(data)]), ("saver_close", None, [data, kind]),
            ("save_begin", kind, [data, ctypes.POINTER(SaveOptions), ctypes.POINTER(Tensor), size,
                                  ctypes.POINTER(Text), size, ctypes.POINTER(data)]),
            ("save_copy_on", kind, [data, data, data, ctypes.c_uint64, data]),
            ("save_start", kind, [data]), ("save_busy", kind, [data, ctypes.POINTER(kind)]),
            ("save_wait", kind, [data, ctypes.POINTER(Saved)]),
            ("load_begin", kind, [ctypes.POINTER(data), ctypes.POINTER(LoadOptions)]),
            ("load_end", None, [data]), ("load_step", ctypes.c_uint64, [data]),
            ("load_files", size, [data]),
            ("load_file", kind, [data, size, ctypes.POINTER(File)]),
            ("load_text", kind, [data, size, size, ctypes.POINTER(Text)]),
            ("load_tensor", kind, [data, size, ctypes.POINTER(Tensor)]),
            ("load_read", kind, [data, ctypes.POINTER(data)]),
            ("latest_step", kind, [ctypes.c_char_p, ctypes.c_char_p, number]),
            ("record_open", kind, [ctypes.POINTER(data), ctypes.POINTER(ctypes.c_char_p), size,
                                   kind]),
            ("record_close", None, [data]), ("record_samples", ctypes.c_uint64, [data]),
            ("record_sizes", kind, [data, number, size, number]),
            ("record_read", kind, [data, number, size, ctypes.POINTER(data)]),
            ("record_create", kind, [ctypes.POINTER(data), ctypes.c_char_p, ctypes.c_uint64, kind]),
            ("record_write", kind, [data, data, size]), ("record_finish", kind, [data]),
            ("record_free", None, [data]),
            ("record_shuffle", kind, [ctypes.c_uint64] * 4 + [size, number]),
            ("kv_open", kind, [ctypes.POINTER(data), ctypes.POINTER(KvOptions)]),
            ("kv_close", None, [data]), ("kv_refresh", kind, [data]),
            ("kv_exists_many", kind, [data, data, data, size, data]),
            ("kv_get_many", kind, [data, data, data, size, data, data, data]),
            ("kv_put_many", kind, [data, data, data, data, data, size, ctypes.c_double]),
            ("kv_delete_many", kind, [data, data, data, size, number]),
            ("task_should_stop", kind, [ctypes.POINTER(Stop)]),
            ("task_saved", kind, [ctypes.c_uint64]),
            ("task_heartbeat", kind, [rank, ctypes.c_uint64]),
            ("task_life_state", kind, [ctypes.POINTER(rank)]),
            ("task_set_life_state", kind, [rank])):
        try:
            function = getattr(library, "ff_" + name)
        except AttributeError:
            raise ImportError(f"{library._name} has no function ff_{name}: it is of another "
                              "version than this package. Take both from one build.") from None
        function.restype, function.argtypes = result, arguments
    return library


lib = _load_library()


def check(code):
    """Raises what the call that has given `code` says, unless it went well."""
    if code != 0:
        raise Error(code, lib.ff_error().decode(errors="replace"))


def number_of(value, what, most=2**64 - 2):
    """`value` as an int between 0 and `most`; an Error calls it no `what`."""
    if not hasattr(value, "__index__") or not 0 <= value.__index__() <= most:
        raise Error(2, f"{value!r} is no {what}")
    return value.__index__()
