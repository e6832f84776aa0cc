#!/usr/bin/env python3
# Rings as a program sees them that knows the layouts of their structs by heart.
"""Rings as a program sees them that knows the layouts by heart: structs are spelled out for ctypes,
and every call goes to the shared library. Usage: layouts.py LIBRARY MOUNT; prints "all is well"."""
import ctypes
import errno
import os
import sys
import time
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int, c_int32, c_int64
from ctypes import c_long, c_size_t, c_uint64, c_uint8, c_void_p


class Iov(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("iovh", c_void_p), ("id", c_uint8 * 16),
                ("mount_point", c_char * 256), ("size", c_size_t), ("block_size", c_size_t),
                ("numa", c_int)]


class Ior(ctypes.Structure):
    _fields_ = [("iov", Iov), ("iorh", c_void_p), ("mount_point", c_char * 256),
                ("for_read", c_bool), ("io_depth", c_int), ("priority", c_int),
                ("timeout", c_int), ("flags", c_uint64)]


class Cqe(ctypes.Structure):
    _fields_ = [("index", c_int32), ("reserved", c_int32), ("result", c_int64),
                ("userdata", c_void_p)]


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", c_long), ("ns", c_long)]


FORBID_READ_HOLES = 2
KIB = 1024
MIB = 1024 * KIB

assert (ctypes.sizeof(Iov), ctypes.sizeof(Ior), ctypes.sizeof(Cqe)) == (312, 600, 24)


def load(path):
    lib = ctypes.CDLL(path)
    lib.hf3fs_iovcreate.argtypes = [POINTER(Iov), c_char_p, c_size_t, c_size_t, c_int]
    lib.hf3fs_iovopen.argtypes = [POINTER(Iov), c_uint8 * 16, c_char_p, c_size_t, c_size_t, c_int]
    lib.hf3fs_iorcreate4.argtypes = [POINTER(Ior), c_char_p, c_int, c_bool, c_int, c_int, c_int,
                                     c_uint64]
    lib.hf3fs_reg_fd.argtypes = [c_int, c_uint64]
    lib.hf3fs_prep_io.argtypes = [POINTER(Ior), POINTER(Iov), c_bool, c_void_p, c_int, c_size_t,
                                  c_uint64, c_void_p]
    lib.hf3fs_wait_for_ios.argtypes = [POINTER(Ior), POINTER(Cqe), c_int, c_int,
                                       POINTER(Timespec)]
    lib.hf3fs_punchhole.argtypes = [c_int, c_int, POINTER(c_size_t), POINTER(c_size_t), c_size_t]
    return lib


def same(what, got, options):
    if got != options:
        sys.exit(f"{what}: {got!r}, not {options!r}")


class Program:
    def __init__(self, lib, mount):
        self.lib = lib
        self.mount = mount.encode()
        self.iov = Iov()
        same("iovcreate", lib.hf3fs_iovcreate(byref(self.iov), self.mount, 16 * MIB, 0, -1), 0)

    def ring(self, read, entries=64, depth=0, timeout=0, flags=0):
        ior = Ior()
        same("iorcreate4", self.lib.hf3fs_iorcreate4(byref(ior), self.mount, entries, read, depth,
                                                     timeout, -1, flags), 0)
        same("entries", self.lib.hf3fs_io_entries(byref(ior)), entries)
        return ior

    def prepare(self, ior, fd, at, offset, size, userdata=None):
        return self.lib.hf3fs_prep_io(byref(ior), byref(self.iov), ior.for_read,
                                      self.iov.base + at, fd, offset, size, userdata)

    def wait(self, ior, least, until=None, room=64):
        cqes = (Cqe * room)()
        got = self.lib.hf3fs_wait_for_ios(byref(ior), cqes, room, least, until)
        return got if got < 0 else [(c.index, c.result, c.userdata) for c in cqes[:got]]

    def one(self, ior, fd, at, offset, size):
        slot = self.prepare(ior, fd, at, offset, size)
        if slot < 0:
            return slot
        same("submit", self.lib.hf3fs_submit_ios(byref(ior)), 0)
        (index, result, _), = self.wait(ior, 1)
        same("slot", index, slot)
        return result

    def bytes_at(self, at, size):
        return ctypes.string_at(self.iov.base + at, size)

    def put(self, at, data):
        ctypes.memmove(self.iov.base + at, data, len(data))


def reads_and_writes(program, path):
    data = os.urandom(5 * MIB + 123)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    own = program.lib.hf3fs_reg_fd(fd, 0)
    if own > 0:
        sys.exit(f"reg_fd: {own}")
    same("reg_fd again", program.lib.hf3fs_reg_fd(fd, 0), errno.EINVAL)
    write, read = program.ring(False), program.ring(True)
    program.put(0, data)
    same("a write", program.one(write, fd, 0, 0, len(data)), len(data))
    same("length", os.fstat(fd).st_size, len(data))
    same("what was written", open(path, "rb").read(), data)
    same("a read", program.one(read, own, 8 * MIB, 0, len(data)), len(data))
    same("what was read", program.bytes_at(8 * MIB, len(data)), data)
    same("at the end", program.one(read, fd, 0, len(data) - 10, 4096), 10)
    same("behind the end", program.one(read, fd, 0, 10 * MIB, 4096), 0)
    same("past the memory", program.one(read, fd, 16 * MIB - 10, 0, 4096), -errno.EINVAL)
    for i in range(64):
        slot = program.prepare(read, fd, i * 4096, i * 7777, 4096, 1000 + i)
        same("a slot", slot >= 0, True)
    same("a full ring", program.prepare(read, fd, 0, 0, 1), -errno.EAGAIN)
    same("submit", program.lib.hf3fs_submit_ios(byref(read)), 0)
    got = []
    while len(got) < 64:
        got += program.wait(read, 1)
    for _, result, userdata in got:
        i = userdata - 1000
        same("a result", result, 4096)
        same("its bytes", program.bytes_at(i * 4096, 4096), data[i * 7777:i * 7777 + 4096])
    return fd, read


def times(program, fd, read):
    # Nothing is under way: each of these is over at once.
    for until in (Timespec(0, 0), Timespec(1, 0),
                  Timespec(*divmod(time.clock_gettime_ns(time.CLOCK_MONOTONIC), 10**9))):
        same("a poll", program.wait(read, 1, byref(until)), [])
    exact = program.ring(True, entries=8, depth=4)
    for _ in range(3):
        program.prepare(exact, fd, 0, 0, 100)
    program.lib.hf3fs_submit_ios(byref(exact))
    soon = Timespec(*divmod(time.time_ns() + 200_000_000, 10**9))
    same("three of a batch of four", program.wait(exact, 1, byref(soon)), [])
    program.prepare(exact, fd, 0, 0, 100)
    program.lib.hf3fs_submit_ios(byref(exact))
    same("four", len(program.wait(exact, 4)), 4)
    some = program.ring(True, entries=8, depth=-4, timeout=20)
    program.prepare(some, fd, 0, 0, 100)
    program.lib.hf3fs_submit_ios(byref(some))
    same("after a time", len(program.wait(some, 1)), 1)


def holes(program, path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    program.lib.hf3fs_reg_fd(fd, 0)
    os.ftruncate(fd, 8 * MIB)
    program.put(0, b"x" * MIB)
    same("zeros", program.one(program.ring(True), fd, 0, MIB, MIB), MIB)
    same("their bytes", program.bytes_at(0, MIB), bytes(MIB))
    strict = program.ring(True, flags=FORBID_READ_HOLES)
    same("a hole", program.one(strict, fd, 0, MIB, MIB), -errno.ENODATA)
    program.put(0, b"y" * (2 * MIB))
    same("a write", program.one(program.ring(False), fd, 0, 0, 2 * MIB), 2 * MIB)
    same("no hole", program.one(strict, fd, 0, MIB, MIB), MIB)
    one = c_size_t * 1
    same("punchhole", program.lib.hf3fs_punchhole(fd, 1, one(MIB), one(2 * MIB), 0), 0)
    only_read = os.open(path, os.O_RDONLY)
    same("by who only reads", program.lib.hf3fs_punchhole(only_read, 1, one(0), one(MIB), 0),
         errno.EBADF)
    os.fsync(fd)
    same("punched", open(path, "rb").read(2 * MIB), b"y" * MIB + bytes(MIB))


def errors(program, mount, path):
    same("no file", program.lib.hf3fs_reg_fd(999, 0), errno.EBADF)
    plain = os.open("/etc/passwd", os.O_RDONLY)
    same("a file elsewhere", program.lib.hf3fs_reg_fd(plain, 0), errno.EBADF)
    same("a ring nowhere", program.lib.hf3fs_iorcreate4(byref(Ior()), b"/tmp", 8, True, 0, 0, -1,
                                                        0), -errno.ENOENT)
    fd = os.open(path, os.O_RDONLY)
    read, write = program.ring(True), program.ring(False)
    same("not registered", program.prepare(read, fd, 0, 0, 1), -errno.EBADF)
    program.lib.hf3fs_reg_fd(fd, 0)
    same("not for writing", program.prepare(write, fd, 0, 0, 1), -errno.EACCES)
    program.lib.hf3fs_dereg_fd(fd)
    same("not any more", program.prepare(read, fd, 0, 0, 1), -errno.EBADF)
    buffer = ctypes.create_string_buffer(256)
    same("mount point", program.lib.hf3fs_extract_mount_point(buffer, 256, path.encode()),
         len(mount) + 1)
    same("its name", buffer.value.decode(), mount)
    same("no mount point", program.lib.hf3fs_extract_mount_point(buffer, 256, b"/proc"), -1)
    blocks = Iov()
    same("iovcreate", program.lib.hf3fs_iovcreate(byref(blocks), mount.encode(), MIB, 4096, -1), 0)
    fd = os.open(path, os.O_RDONLY)
    program.lib.hf3fs_reg_fd(fd, 0)
    same("across blocks", program.lib.hf3fs_prep_io(byref(read), byref(blocks), True,
                                                    blocks.base + 4000, fd, 0, 200, None),
         -errno.EINVAL)
    again = Iov()
    same("iovopen", program.lib.hf3fs_iovopen(byref(again), blocks.id, mount.encode(), MIB, 4096,
                                              -1), 0)
    ctypes.memmove(blocks.base, b"seen", 4)
    same("one memory", ctypes.string_at(again.base, 4), b"seen")
    program.lib.hf3fs_iovdestroy(byref(again))
    program.lib.hf3fs_iovdestroy(byref(blocks))
    same("gone", program.lib.hf3fs_iovopen(byref(again), blocks.id, mount.encode(), MIB, 4096,
                                           -1), -errno.ENOENT)


def main():
    library, mount = sys.argv[1:]
    lib = load(library)
    program = Program(lib, mount)
    path = os.path.join(mount, f"layouts.{os.getpid()}")
    fd, read = reads_and_writes(program, path)
    times(program, fd, read)
    holes(program, path + ".holes")
    errors(program, mount, path)
    lib.hf3fs_iordestroy(byref(read))
    lib.hf3fs_iovdestroy(byref(program.iov))
    print("all is well")


main()
