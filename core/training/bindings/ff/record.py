# Training data in FFRecord files: a reader and a writer over libff.so, and a dataset, a sampler and
# a loader for torch, which is imported only where it is used.
"""Records: samples of training data in FFRecord files (*.ffr), read in batches.

    writer = ff.record.FileWriter("train.ffr", 1000)      # the number of samples is fixed
    for sample in samples:
        writer.write_one(sample)                          # bytes, or any buffer
    writer.close()                                        # now the file is there

    reader = ff.record.FileReader("train/")               # a file, a directory, or a list of them
    images = reader.read([5, 17, 2])                      # one call, all reads at once

    dataset = ff.record.Dataset("train/", decode)
    for epoch in range(90):
        loader = ff.record.DataLoader(dataset, 64, shuffle=True, epoch=epoch, rank=rank, ranks=8)
        for batch in loader:
            ...

Paths may be in a cluster: ff://HOST:PORT[,HOST:PORT]/PATH, ff:///PATH.
"""
import ctypes
import os

from ff._library import Error, check, lib, number_of

__all__ = ("Batches", "DataLoader", "Dataset", "FileReader", "FileWriter")


def _path(value):
    path = os.fspath(value)
    path = path if isinstance(path, bytes) else os.fsencode(path)
    if b"\0" in path:
        raise Error(2, f"{value!r} contains a zero")
    return path


def _numbers(values, total):
    numbers = [number_of(value, f"sample: there are {total}, from 0", total - 1)
               for value in values]
    return (ctypes.c_uint64 * len(numbers))(*numbers), len(numbers)


class FileReader:
    """Reads samples of FFRecord files, which count as one list. Several threads may use it; a
    forked child opens the files again for itself."""

    def __init__(self, files, check_data=True):
        """`files`: a file, a directory (its *.ffr, sorted), or a list of them. `check_data`: an
        Error with code 3 if a sample does not match its CRC-32."""
        one = isinstance(files, (str, bytes, os.PathLike))
        self._files = [_path(file) for file in ([files] if one else files)]
        self._check = bool(check_data)
        self._open()

    def _open(self):
        paths = (ctypes.c_char_p * len(self._files))(*self._files)
        self._reader = ctypes.c_void_p()
        check(lib.ff_record_open(ctypes.byref(self._reader), paths, len(self._files), self._check))
        self._process = os.getpid()
        self.n = lib.ff_record_samples(self._reader)

    def _handle(self):
        if self._reader is None:
            raise Error(2, "the reader is closed")
        if self._process != os.getpid():
            self._open()
        return self._reader

    def __len__(self):
        """The number of samples, as `n`."""
        return self.n

    def read(self, indices):
        """The samples with these numbers, each a bytearray."""
        reader = self._handle()
        samples, count = _numbers(indices, self.n)
        sizes = (ctypes.c_uint64 * count)()
        check(lib.ff_record_sizes(reader, samples, count, sizes))
        data = [bytearray(size) for size in sizes]
        views = [(ctypes.c_char * len(one)).from_buffer(one) if one else None for one in data]
        places = (ctypes.c_void_p * count)(
            *[ctypes.addressof(view) if view is not None else None for view in views])
        check(lib.ff_record_read(reader, samples, count, places))
        return data

    def read_one(self, index):
        return self.read([index])[0]

    def validate(self):
        """Reads all samples. Error with code 3: one is damaged."""
        step = 64
        for first in range(0, self.n, step):
            self.read(range(first, min(first + step, self.n)))

    def close(self):
        if self._reader is not None:
            lib.ff_record_close(self._reader)
            self._reader = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        if getattr(self, "_reader", None) is not None:
            self.close()

    def __getstate__(self):  # for the workers of a DataLoader that are not forked
        return {"files": self._files, "check": self._check}

    def __setstate__(self, state):
        self._files, self._check = state["files"], state["check"]
        self._open()


class FileWriter:
    """Writes one FFRecord file. It gets its name in close(), complete and durable; without it, or
    after an error in a `with` block, nothing remains."""

    def __init__(self, fname, n, replace=False):
        """`n`: how many samples it will have. Error with code 5: the file exists, and `replace` is
        not set."""
        self._writer = ctypes.c_void_p()
        check(lib.ff_record_create(ctypes.byref(self._writer), _path(fname),
                                   number_of(n, "number of samples"), bool(replace)))

    def write_one(self, data):
        """The next sample: bytes, or any object with a contiguous buffer."""
        if self._writer is None:
            raise Error(2, "the writer is closed")
        size = memoryview(data).nbytes
        if not isinstance(data, bytes):
            flat = memoryview(data).cast("B") if size else memoryview(b"")
            data = bytes(flat) if flat.readonly else (ctypes.c_char * size).from_buffer(flat)
        check(lib.ff_record_write(self._writer, data, size))

    def close(self):
        """Error with code 2: samples are missing."""
        if self._writer is None:
            return
        try:
            check(lib.ff_record_finish(self._writer))
        finally:
            self._free()

    def _free(self):
        lib.ff_record_free(self._writer)
        self._writer = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._free()

    def __del__(self):
        if getattr(self, "_writer", None) is not None:
            self._free()


class Dataset:
    """Samples by number, for torch's DataLoader or the one below: dataset[3] is a sample,
    dataset[[3, 9, 4]] a list of samples that one call reads. `transform` gets a bytearray."""

    def __init__(self, files, transform=None, check_data=True):
        self.reader = FileReader(files, check_data)
        self.transform = transform

    def __len__(self):
        return self.reader.n

    def __getitem__(self, index):
        if hasattr(index, "__index__"):
            return self.__getitems__([index])[0]
        return self.__getitems__(index)

    def __getitems__(self, indices):
        samples = self.reader.read(indices)
        return samples if self.transform is None else [self.transform(one) for one in samples]


class Batches:
    """The numbers of the samples of each batch of one epoch and one rank, as lists: a sampler for
    torch's DataLoader. In each step the ranks get the batches that follow one another in the order.
    All ranks get equally many samples, so the last `samples` mod `ranks` are left out."""

    def __init__(self, samples, batch_size, shuffle=False, seed=0, epoch=0, rank=0, ranks=1,
                 drop_last=False, first_step=0):
        """`first_step`: skips this many batches, for a training that goes on in an epoch."""
        self.samples = number_of(samples, "number of samples")
        self.batch_size = number_of(batch_size, "size of batches")
        self.ranks, self.rank = number_of(ranks, "number of ranks"), number_of(rank, "rank")
        if self.batch_size == 0 or self.rank >= self.ranks:
            raise Error(2, f"there is no rank {rank} of {ranks} with batches of {batch_size}")
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed, self.epoch = number_of(seed, "seed"), number_of(epoch, "epoch")
        self.first_step = number_of(first_step, "step")

    def _steps(self):
        mine = self.samples // self.ranks
        return mine // self.batch_size if self.drop_last else -(-mine // self.batch_size)

    def __len__(self):
        return max(self._steps() - self.first_step, 0)

    def __iter__(self):
        mine = self.samples // self.ranks
        for step in range(self.first_step, self._steps()):
            done = step * self.batch_size
            count = min(self.batch_size, mine - done)
            first = done * self.ranks + self.rank * count
            if not self.shuffle:
                yield list(range(first, first + count))
                continue
            order = (ctypes.c_uint64 * count)()
            check(lib.ff_record_shuffle(self.samples, self.seed, self.epoch, first, count, order))
            yield list(order)


def DataLoader(dataset, batch_size=1, shuffle=False, seed=0, epoch=0, rank=0, ranks=1,
               drop_last=False, first_step=0, collate_fn=None, **options):
    """A torch.utils.data.DataLoader whose batches are each read by one call. The order depends on
    seed and epoch alone, so all ranks agree on it, and `first_step` goes on where a training has
    stopped. `options` are those of torch (num_workers, prefetch_factor, pin_memory, ...)."""
    from torch.utils import data
    batches = Batches(len(dataset), batch_size, shuffle, seed, epoch, rank, ranks, drop_last,
                      first_step)
    collate = collate_fn if collate_fn is not None else data.default_collate
    return data.DataLoader(dataset, batch_size=None, sampler=batches, collate_fn=collate,
                           **options)
