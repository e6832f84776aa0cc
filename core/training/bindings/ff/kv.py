# Keys and values in the store of `ff serve-kv`, over libff.so: reads in this process, into memory
# of the caller, and changes through the gateways of the store.
"""A store of keys and values, such as a cache of KV blocks that many processes share:

    kv = ff.KV("ff:///cache")                  # the FOLDER of `ff serve-kv`
    kv.put_many({key: block for ...}, ttl=3600)
    there = kv.exists_many(keys)               # no gateway is asked, and no value read
    kv.get_many(keys, into=blocks)             # bytearrays, arrays of numpy, tensors
"""
import array
import ctypes
import os

from ff._library import Error, KvOptions, check, lib

NONE = 2**64 - 1  # FF_KV_NONE
_SIZE = ctypes.c_size_t


def _key(key):
    return key.encode() if isinstance(key, str) else bytes(key)


class _Keys:
    """Keys one behind the other, and their sizes."""

    def __init__(self, keys):
        keys = keys if isinstance(keys, (list, tuple)) else list(keys)
        try:
            self.joined = b"".join(keys)
            self.lengths = array.array("Q", map(len, keys))
            plain = len(self.joined) == sum(self.lengths)
        except TypeError:
            plain = False
        if not plain:  # some are text, or not of single bytes
            keys = [_key(key) for key in keys]
            self.joined = b"".join(keys)
            self.lengths = array.array("Q", map(len, keys))
        self.count = len(keys)
        self.arguments = (self.joined, self.lengths.buffer_info()[0])


def _numbers(count):
    """Room for so many sizes."""
    numbers = array.array("Q", bytes(8 * count))
    return numbers, numbers.buffer_info()[0]


def _memory(data, writes=False):
    """The address and the bytes of something in memory, and what keeps them."""
    if hasattr(data, "data_ptr"):  # a tensor
        if data.device.type != "cpu" or not data.is_contiguous():
            raise Error(2, "a tensor that is contiguous, in the memory of the host (it may be "
                           "pinned), is wanted")
        return data.data_ptr(), data.numel() * data.element_size(), data
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes) and not writes:
        return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), data
    view = memoryview(data)
    if not view.c_contiguous or (writes and view.readonly):
        raise Error(2, "memory that is contiguous" + (" and may be written" if writes else "") +
                    " is wanted")
    if view.nbytes == 0:
        return None, 0, data
    flat = view.cast("B") if view.format != "B" or view.ndim != 1 else view
    if flat.readonly:
        return _memory(bytes(flat))
    kept = (ctypes.c_char * view.nbytes).from_buffer(flat)
    return ctypes.addressof(kept), view.nbytes, kept


def _memories(many, writes=False):
    parts = [_memory(data, writes) for data in many]
    count = len(parts)
    return ((ctypes.c_void_p * count)(*[part[0] for part in parts]),
            (_SIZE * count)(*[part[1] for part in parts]), parts)


class KV:
    """A store of keys and values in a folder, or in a cluster (ff://HOST:PORT[,HOST:PORT]/PATH,
    ff:///PATH). Keys are bytes or text, at most 32,767 bytes; values are bytes, at most 64 MiB.

    Reads and look-ups need no gateway. They see the store as it was at most `max_age` seconds
    before the call (0: as it is), with all that this object has changed. Changes go to the gateway
    that owns the key, and wait up to `write_seconds` for one if it has died. Several threads may
    use one object; a forked child opens the store for itself."""

    def __init__(self, path, max_age=0.1, write_seconds=20):
        path = os.fspath(path)
        self._path = path if isinstance(path, bytes) else os.fsencode(path)
        if b"\0" in self._path:
            raise Error(2, f"{path!r} contains a zero")
        self._max_age, self._write_seconds = float(max_age), float(write_seconds)
        self._open()

    def _open(self):
        self._kv = ctypes.c_void_p()
        options = KvOptions(ctypes.sizeof(KvOptions), self._path, self._max_age,
                            self._write_seconds)
        check(lib.ff_kv_open(ctypes.byref(self._kv), ctypes.byref(options)))
        self._process = os.getpid()

    def _handle(self):
        if self._kv is None:
            raise Error(2, "the store is closed")
        if self._process != os.getpid():
            self._open()
        return self._kv

    def refresh(self):
        """The next call sees every change that was acknowledged before this one."""
        check(lib.ff_kv_refresh(self._handle()))

    def _sizes(self, keys):
        names = _Keys(keys)
        sizes, place = _numbers(names.count)
        check(lib.ff_kv_exists_many(self._handle(), *names.arguments, names.count, place))
        return sizes

    def exists(self, key):
        return self.exists_many([key])[0]

    def exists_many(self, keys):
        """A bool for each key."""
        return [size != NONE for size in self._sizes(keys)]

    def get(self, key):
        """The value, a bytearray; None: there is no such key."""
        return self.get_many([key])[0]

    def get_many(self, keys, into=None):
        """The values, each a bytearray, or None where there is no such key. With `into`, they are
        read into these buffers (anything in memory that may be written: bytearray, numpy, tensors
        of the host), and the result is how many bytes each has, or None. Error with code 2: a value
        is larger than its buffer; with code 3: it is damaged."""
        keys = list(keys)
        if into is not None:
            return self._get_into(keys, list(into))
        values = [None] * len(keys)
        wanted, sizes = range(len(keys)), self._sizes(keys)
        while wanted:  # again if a value has grown meanwhile
            there = [i for i in wanted if sizes[i] != NONE]
            data = [bytearray(sizes[i]) for i in there]
            found = self._read([keys[i] for i in there], data)
            wanted = []
            for i, one, size in zip(there, data, found):
                sizes[i] = size
                if size != NONE and size > len(one):
                    wanted.append(i)
                elif size != NONE:
                    values[i] = one if size == len(one) else one[:size]
        return values

    def _get_into(self, keys, buffers):
        if len(keys) != len(buffers):
            raise Error(2, f"{len(keys)} keys, and {len(buffers)} buffers")
        sizes = self._read(keys, buffers)
        for key, buffer, size in zip(keys, buffers, sizes):
            room = _memory(buffer, True)[1]
            if size != NONE and size > room:
                raise Error(2, f"the value of {key!r} has {size} bytes, and its buffer {room}")
        return [None if size == NONE else size for size in sizes]

    def _read(self, keys, buffers):
        names = _Keys(keys)
        places, rooms, kept = _memories(buffers, True)
        sizes, place = _numbers(names.count)
        check(lib.ff_kv_get_many(self._handle(), *names.arguments, names.count, places, rooms,
                                 place))
        del kept
        return sizes

    def put(self, key, value, ttl=0):
        """Sets the key. It expires after `ttl` seconds; 0: never."""
        self.put_many([(key, value)], ttl)

    def put_many(self, items, ttl=0):
        """Sets keys: a dict, or pairs of a key and a value (bytes, or anything in memory). Each by
        itself is atomic. After an Error, some may be set."""
        items = list(items.items() if hasattr(items, "items") else items)
        names = _Keys([key for key, _ in items])
        values, sizes, kept = _memories([value for _, value in items])
        check(lib.ff_kv_put_many(self._handle(), *names.arguments, values, sizes, names.count,
                                 float(ttl)))
        del kept

    def delete(self, key):
        """Whether there was such a key."""
        return self.delete_many([key]) == 1

    def delete_many(self, keys):
        """How many of them there were."""
        names = _Keys(keys)
        deleted = ctypes.c_uint64()
        check(lib.ff_kv_delete_many(self._handle(), *names.arguments, names.count,
                                    ctypes.byref(deleted)))
        return deleted.value

    def close(self):
        if self._kv is not None:
            lib.ff_kv_close(self._kv)
            self._kv = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        if getattr(self, "_kv", None) is not None:
            self.close()

    def __getstate__(self):
        return {"path": self._path, "max_age": self._max_age, "seconds": self._write_seconds}

    def __setstate__(self, state):
        self._path, self._max_age = state["path"], state["max_age"]
        self._write_seconds = state["seconds"]
        self._open()
