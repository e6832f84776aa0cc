#!/usr/bin/env python3
# The Python package of rings, used as serving engines use it, and wrongly.
"""Rings in Python. Usage: python_rings.py FOLDER MOUNT, where FOLDER has the package and MOUNT is
a mounted directory; prints "all is well"."""
import errno
import gc
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from multiprocessing.shared_memory import SharedMemory

sys.path.insert(0, sys.argv[1])
from hf3fs_fuse import io  # noqa: E402

MOUNT = sys.argv[2]
FOLDER = f"{MOUNT}/rings.{os.getpid()}"
PAGE = 64 << 10
TIB = 1 << 40


def refused(number, call, *arguments, **words):
    """The errno that a call must fail with."""
    try:
        call(*arguments, **words)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"{call} did not fail")


def wrong(kind, call, *arguments, **words):
    """The exception that a call must raise."""
    try:
        call(*arguments, **words)
    except kind:
        return
    raise AssertionError(f"{call} did not raise {kind}")


class Client:
    """Pages of a sparse file, as the KV caches of serving engines keep them."""

    def __init__(self, path, entries):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.file, TIB)
        io.register_fd(self.file)
        self.mount = io.extract_mount_point(path)
        self.shm = [SharedMemory(size=PAGE * entries, create=True) for _ in range(2)]
        self.rings = [io.make_ioring(self.mount, entries, for_read=read, timeout=1, numa=-1)
                      for read in (True, False)]  # fmt: skip
        self.iovs = [io.make_iovec(shm, self.mount) for shm in self.shm]
        for shm in self.shm:
            shm.unlink()

    def write(self, offsets, pages):
        for i, (offset, page) in enumerate(zip(offsets, pages)):
            self.iovs[1][i * PAGE:(i + 1) * PAGE] = page
            self.rings[1].prepare(self.iovs[1][i * PAGE:(i + 1) * PAGE], False, self.file, offset)
        done = self.rings[1].submit().wait(min_results=len(pages), timeout=timedelta(seconds=60))
        return [one.result for one in done]

    def read(self, offsets):
        for i, offset in enumerate(offsets):
            part = self.iovs[0][i * PAGE:(i + 1) * PAGE]
            self.rings[0].prepare(part, True, self.file, offset, userdata=(i, part))
        done = self.rings[0].submit().wait(min_results=len(offsets), timeout=timedelta(seconds=60))
        assert all(one.result == PAGE for one in done), [one.result for one in done]
        assert all(one.base_off == one.userdata[0] * PAGE for one in done)
        assert all(one is one.userdata[1] for one in done)
        return {one.userdata[0]: bytes(one) for one in done}

    def close(self):
        io.deregister_fd(self.file)
        os.close(self.file)
        links = [iov.link for iov in self.iovs]
        assert all(os.path.islink(link) for link in links)
        for shm in self.shm:
            shm.close()
        del self.rings, self.iovs
        gc.collect()  # userdata contains its iovec
        assert not any(os.path.islink(link) for link in links)


def check_pages():
    path = f"{FOLDER}/pages.bin"
    client = Client(path, 16)
    assert client.mount == MOUNT and os.path.getsize(path) == TIB
    offsets = [(i * 7919 % 1000) * PAGE + (i << 30) for i in range(16)]
    pages = [os.urandom(PAGE) for _ in offsets]
    assert client.write(offsets, pages) == [PAGE] * 16
    assert list(dict(sorted(client.read(offsets).items())).values()) == pages
    os.fsync(client.file)
    assert io.force_fsync(client.file) == 0
    with open(path, "rb") as file:
        for offset, page in zip(offsets, pages):
            file.seek(offset)
            assert file.read(PAGE) == page
    io.punch_hole(path, [offsets[0]], [offsets[0] + PAGE])
    io.punch_hole(client.file, [offsets[1], offsets[2]], [offsets[1] + PAGE, offsets[2] + 1])
    after = client.read(offsets[:3])
    assert after == {0: bytes(PAGE), 1: bytes(PAGE), 2: b"\0" + pages[2][1:]}
    io.hardlink(path, f"{FOLDER}/other")
    assert os.stat(f"{FOLDER}/other").st_nlink == 2
    client.close()


def check_polling(shm, iov, file):
    """A writer that submits once and asks for results now and then."""
    ring = io.make_ioring(MOUNT, 1000, for_read=False, io_depth=-1, numa=-1)
    assert ring.ior.entries == 1000 and ring.size_for_entries(1000) > 0
    memory = memoryview(iov.iov)
    memory[:PAGE] = os.urandom(PAGE)
    wanted = {}
    for i in range(1000):
        operation = [i, 64]
        ring.prepare(iov[i * 64:(i + 1) * 64], False, file, i * 64, operation)
        wanted[i] = operation
    ring.submit()
    end = time.monotonic() + 60
    while wanted and time.monotonic() < end:
        for done in ring.wait(max_results=100, min_results=0, timeout=timedelta(seconds=0)):
            assert wanted.pop(done.userdata[0]) is done.userdata and done.result == 64
    assert not wanted
    assert os.pread(file, 64000, 0) == shm.buf[:64000]
    memory.release()


def check_waits(iov, file):
    ring = io.make_ioring(MOUNT, 4)
    assert ring.wait(max_results=4) == [] and ring.wait(min_results=1, timeout=0.01) == []
    # A signal ends a wait, and loses no result.
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, interrupt)
    ring.prepare(iov[:64], True, file, 0, "kept").submit()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    wrong(KeyboardInterrupt, ring.wait, min_results=2)
    (kept,) = ring.wait(min_results=1)
    assert kept.result == 64 and kept.userdata == "kept"
    # Another thread prepares meanwhile.
    def later():
        ring.prepare(iov[:64], True, file, 64)
        ring.submit()
    thread = threading.Thread(target=later)
    thread.start()
    assert [one.result for one in ring.wait(min_results=1, timeout=60)] == [64]
    thread.join()
    # Past the end, and a full ring.
    length = os.fstat(file).st_size
    ring.prepare(iov[:64], True, file, length - 10).submit()
    assert [one.result for one in ring.wait(min_results=1)] == [10]
    for i in range(4):
        ring.prepare(iov[:64], True, file, i)
    refused(errno.EAGAIN, ring.prepare, iov[:64], True, file, 0)
    assert len(ring.submit().wait(min_results=4)) == 4
    ring.ior.destroy()
    wrong(ValueError, ring.submit)


def check_errors(iov, file):
    ring = io.make_ioring(MOUNT, 4)
    refused(errno.EINVAL, io.register_fd, file)  # it is
    refused(errno.EBADF, io.register_fd, 999)
    refused(errno.EBADF, ring.prepare, iov[:64], True, 999, 0)
    refused(errno.EINVAL, ring.prepare, iov[:64], False, file, 0)
    refused(errno.EINVAL, ring.prepare, iov[:64], True, file, -1)
    wrong(TypeError, ring.prepare, bytearray(64), True, file, 0)
    wrong(TypeError, lambda: iov[3])
    wrong(ValueError, lambda: iov[::2])
    wrong(ValueError, iov.__setitem__, slice(0, 4), b"12345")
    wrong(ValueError, io.make_ioring, MOUNT, 4, priority=1, flags=2)
    refused(errno.EINVAL, io.make_ioring, MOUNT, 0)
    assert io.extract_mount_point("/proc") is None
    shm = SharedMemory(size=4096, create=True)
    wrong(OSError, io.make_iovec, shm, "/tmp")
    wrong(ValueError, io.h3fio.iovec, shm.buf, "no uuid", MOUNT)
    wrong(BufferError, io.h3fio.iovec, b"constant", "0" * 32, MOUNT)
    # Operations stay within a block.
    block = io.make_iovec(shm, MOUNT, 1024)
    refused(errno.EINVAL, ring.prepare, block[1000:1100], True, file, 0)
    link = block.link
    del block
    assert not os.path.islink(link)
    shm.unlink()
    shm.close()


def check_slices(shm, iov):
    part = iov[100:200][10:20]
    assert len(part) == 10 and part.base_off == 110 and len(iov) == len(shm.buf)
    part[:] = b"0123456789"
    assert bytes(shm.buf[110:120]) == b"0123456789" == bytes(part)
    inside = iov.slice_by(shm.buf[300:400])
    assert inside.base_off == 300 and len(inside) == 100
    wrong(IndexError, iov[:200].slice_by, shm.buf[150:300])


def main():
    os.mkdir(FOLDER)
    check_pages()
    shm = SharedMemory(size=1 << 20, create=True)
    iov = io.make_iovec(shm, MOUNT)
    shm.unlink()
    file = os.open(f"{FOLDER}/small", os.O_RDWR | os.O_CREAT)
    io.register_fd(file)
    check_polling(shm, iov, file)
    check_waits(iov, file)
    check_errors(iov, file)
    check_slices(shm, iov)
    io.deregister_fd(file)
    os.close(file)
    shm.close()  # the iovec keeps its memory
    iov[:5] = b"after"
    assert bytes(iov[:5]) == b"after"
    print("all is well")


main()
