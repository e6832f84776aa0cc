# USRBIO for Python programs, with the names of 3FS's package: memory and rings on a mount.
"""Reads and writes of files on a mount in batches, without a system call for each.

    from multiprocessing.shared_memory import SharedMemory
    from hf3fs_fuse.io import extract_mount_point, make_ioring, make_iovec, register_fd

    fd = os.open(path, os.O_RDONLY)
    register_fd(fd)
    mount = extract_mount_point(path)
    shm = SharedMemory(size=1 << 20, create=True)
    iov = make_iovec(shm, mount)
    shm.unlink()                          # the mount has it open
    ring = make_ioring(mount, 64)
    for i in range(64):
        ring.prepare(iov[i << 14:(i + 1) << 14], True, fd, i << 20)
    for done in ring.submit().wait(min_results=64):
        print(done.base_off, done.result)  # bytes, or -errno

After deregister_fd(fd), close the descriptor; a ring and memory end with their last reference.
"""
import os
import uuid
import weakref

import hf3fs_py_usrbio as h3fio
from hf3fs_py_usrbio import (HF3FS_SUPER_MAGIC, deregister_fd, extract_mount_point, force_fsync,
                             hardlink, punch_hole, register_fd)

__all__ = ("HF3FS_SUPER_MAGIC", "IorPriority", "deregister_fd", "extract_mount_point",
           "force_fsync", "h3fio", "hardlink", "ioring", "iovec", "make_ioring", "make_iovec",
           "punch_hole", "register_fd")


class IorPriority:
    """Priorities of rings."""

    HIGH = -1
    NORMAL = 0
    LOW = 1


def _unlink(link):
    try:
        os.unlink(link)
    except OSError:
        pass  # the mount has ended, and with it the registration


class iovec:
    """Memory that make_iovec() has registered; the registration ends with the object. iov[a:b] is
    a part for prepare(), iov[a:b] = data copies into it, `iov` is its buffer."""

    def __init__(self, iov, link):
        self.iov = iov
        self.link = link
        self._end = weakref.finalize(self, _unlink, link)

    def __len__(self):
        return len(self.iov)

    def __getitem__(self, part):
        return self.iov[part]

    def __setitem__(self, part, data):
        self.iov[part] = data

    def slice_by(self, buf):
        """The part that a buffer in this memory, such as a tensor, lies in."""
        return self.iov.slice_by(buf)


class ioring:
    """A ring that make_ioring() has made. prepare() and submit() return a ring, so that calls can
    follow each other: ring.submit().wait(min_results=n)."""

    def __init__(self, ior):
        self.ior = ior

    @staticmethod
    def size_for_entries(entries):
        """The bytes of a ring."""
        return h3fio.ioring.size_for_entries(entries)

    def prepare(self, iov, *args, **kwargs):
        """prepare(iov, read, fd, off, userdata=None)"""
        return self.ior.prepare(iov.iov if isinstance(iov, iovec) else iov, *args, **kwargs)

    def submit(self):
        """Starts what was prepared."""
        return self.ior.submit()

    def wait(self, *args, **kwargs):
        """wait(*, max_results=0, min_results=0, timeout=None): a list of parts with .result and
        .userdata; fewer than min_results after `timeout` (timedelta or seconds)."""
        return self.ior.wait(*args, **kwargs)


def make_iovec(shm, hf3fs_mount_point, block_size=0, numa=-1):
    """Registers a multiprocessing.shared_memory.SharedMemory, which may be unlinked afterwards.
    Operations must not cross a multiple of block_size; 0: no limit. numa: the node of its pages."""
    name = str(uuid.uuid4())
    block = f".b{block_size}" if block_size > 0 else ""
    link = os.path.join(hf3fs_mount_point, "3fs-virt", "iovs", name + block)
    os.symlink("/dev/shm/" + shm.name.lstrip("/"), link)
    try:
        return iovec(h3fio.iovec(shm.buf, name, hf3fs_mount_point, block_size, numa), link)
    except BaseException:
        _unlink(link)
        raise


def make_ioring(hf3fs_mount_point, entries, for_read=True, io_depth=0, priority=None, timeout=None,
                numa=-1, flags=0):
    """A ring for reads, or for writes, with `entries` operations under way at most. io_depth > 0:
    the mount starts batches of this size; < 0: at most of this size, fewer after `timeout` ms."""
    return ioring(h3fio.ioring(hf3fs_mount_point, entries, for_read, io_depth, priority, timeout,
                               numa, flags))
