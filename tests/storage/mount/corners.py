#!/usr/bin/env python3
# The corners of POSIX on a mounted file system: errors and their order, times, modes, links, holes.
"""Usage: corners.py DIR. Works in a new folder of DIR, as root; tells what is wrong there."""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import socket
import stat
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
        print("wrong:", what)


def refused(code, call, *args):
    try:
        call(*args)
        got = 0
    except OSError as error:
        got = error.errno
    names = errno.errorcode
    check(got == code, f"{call.__name__}{args}: {names.get(got, got)}, not {names.get(code, code)}")


def call(function, *args):
    if function(*args) < 0:
        raise OSError(ctypes.get_errno(), function.__name__)


def rename2(old, new, flags):
    call(LIBC.renameat2, -100, old.encode(), -100, new.encode(), flags)


def fallocate(fd, mode, offset, size):
    call(LIBC.fallocate64, fd, mode, ctypes.c_long(offset), ctypes.c_long(size))


def reserve(path, mode):
    file = os.open(path, os.O_RDWR)
    fallocate(file, mode, 0, 4096)
    os.close(file)


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(2)


def copy_range(source, target):
    with open(source, "rb") as data, open(target, "r+b") as out:
        os.copy_file_range(data.fileno(), out.fileno(), 4)


def touch(path, text=""):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def as_user(uid, gid, groups, work):
    """What it returns, or the negative errno; in a process of that user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            result = work()
        except OSError as error:
            result = -error.errno
        os.write(writer, repr(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return eval(result)  # pylint: disable=eval-used


def times(path):
    info = os.stat(path)
    return info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns


def later():
    """Returns once the clock of the file system has moved on."""
    began = time.monotonic_ns()
    while time.monotonic_ns() - began < 5_000_000:
        pass


def names_and_errors():
    refused(errno.ENAMETOOLONG, touch, "x" * 256)
    touch("y" * 255)
    os.unlink("y" * 255)
    for gone in (os.stat, os.unlink, os.rmdir, os.listdir):
        refused(errno.ENOENT, gone, "none")
    os.mkdir("d")
    touch("f")
    touch("h")
    touch("d/g")
    refused(errno.EEXIST, os.mkdir, "d")
    refused(errno.EISDIR, os.unlink, "d")
    refused(errno.EISDIR, os.open, "d", os.O_WRONLY)
    refused(errno.ENOTDIR, os.rmdir, "f")
    refused(errno.ENOTDIR, os.stat, "f/x")
    refused(errno.ENOTDIR, os.mkdir, "f/x")
    refused(errno.ENOTDIR, os.open, "f", os.O_DIRECTORY | os.O_RDONLY)
    refused(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    refused(errno.EEXIST, os.symlink, "a", "f")
    refused(errno.EEXIST, os.link, "f", "d")
    refused(errno.EPERM, os.link, "d", "dl")
    refused(errno.ENOTEMPTY, os.rmdir, "d")
    refused(errno.EINVAL, os.rmdir, "d/.")
    refused(errno.ENOTEMPTY, os.rmdir, "d/..")


def renames():
    refused(errno.EINVAL, os.rename, "d", "d/below")
    refused(errno.EISDIR, os.rename, "f", "d")
    refused(errno.ENOTDIR, os.rename, "d", "f")
    os.mkdir("e")
    refused(errno.ENOTEMPTY, os.rename, "e", "d")
    os.rename("d", "e")
    check(os.listdir("e") == ["g"], "a directory over an empty one")
    os.rename("e", "d")
    refused(errno.EEXIST, rename2, "f", "d", NOREPLACE)
    refused(errno.EEXIST, rename2, "f", "h", NOREPLACE)
    refused(errno.ENOENT, rename2, "f", "none", EXCHANGE)
    touch("f", "F")
    touch("h", "H")
    rename2("f", "h", EXCHANGE)
    check(text_of("f") + text_of("h") == "HF", "exchanged")
    os.link("f", "f2")
    os.rename("f", "f2")
    check(os.path.exists("f") and os.path.exists("f2"), "two names of one file both stay")
    os.unlink("f2")
    # Whoever has it open goes on with what was replaced.
    touch("new", "new")
    touch("old", "old")
    with open("old", encoding="utf-8") as file:
        os.rename("new", "old")
        check(file.read() == "old", "the open file is the old one")
        check(os.fstat(file.fileno()).st_nlink == 0, "which has no name")
    check(text_of("old") == "new", "the name is the new one's")


def links():
    os.symlink("loop", "loop")
    refused(errno.ELOOP, os.stat, "loop")
    refused(errno.ELOOP, os.open, "loop", os.O_NOFOLLOW | os.O_RDONLY)
    refused(errno.ENAMETOOLONG, os.symlink, "x" * 4096, "long")
    os.symlink("x" * 4095, "long")
    check(os.readlink("long") == "x" * 4095, "a target of 4095 bytes")
    check(os.lstat("long").st_size == 4095, "is as long as its target")
    refused(errno.EINVAL, os.readlink, "f")
    os.link("f", "f2")
    check(os.stat("f").st_nlink == 2, "two names")
    os.unlink("f2")
    check(os.stat("f").st_nlink == 1, "one name")
    before = os.stat(".").st_nlink
    os.mkdir("sub")
    check(os.stat(".").st_nlink == before + 1, "a subdirectory is a link")
    check(os.stat("sub").st_nlink == 2, "and has two")
    os.rmdir("sub")
    check(os.stat(".").st_nlink == before, "until it goes")


def moved(path, work, data, change):
    """Which of the times `work` moves."""
    before = times(path)
    later()
    work()
    after = times(path)
    check((after[1] > before[1]) == data, f"{path}: mtime {before[1]} to {after[1]}")
    check((after[2] > before[2]) == change, f"{path}: ctime {before[2]} to {after[2]}")


def append(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def the_times():
    moved(".", lambda: touch("t"), True, True)
    moved("t", lambda: append("t", "x"), True, True)
    moved("t", lambda: os.chmod("t", 0o600), False, True)
    moved("t", lambda: os.link("t", "t2"), False, True)
    moved("t", lambda: os.rename("t2", "t3"), False, True)
    moved("t", lambda: os.unlink("t3"), False, True)
    moved("t", lambda: os.truncate("t", 5), True, True)
    moved("t", lambda: os.truncate("t", 0), True, True)
    moved("t", lambda: text_of("t"), False, False)
    os.utime("t", ns=(123456789012345678, 987654321012345678))
    check(times("t")[:2] == (123456789012345678, 987654321012345678), "to the nanosecond")
    os.utime("t", ns=(-5_500_000_000, -1))
    check(times("t")[:2] == (-5_500_000_000, -1), "before 1970")
    # What is set stays, though what was written before is told at the end.
    file = os.open("t", os.O_RDWR)
    os.write(file, b"x" * 100)
    os.utime(file, ns=(10**18, 10**18))
    os.close(file)
    check(times("t")[1] == 10**18, "set before the end")
    file = os.open("t", os.O_RDWR)
    os.write(file, b"y" * 100)
    shown = os.fstat(file).st_mtime_ns
    later()
    os.close(file)
    check(times("t")[1] == shown, "as it was shown before the end")


def modes():
    os.umask(0o077)
    touch("m")
    os.umask(0o022)
    check(stat.S_IMODE(os.stat("m").st_mode) == 0o600, "umask")
    os.mkdir("group")
    os.chown("group", -1, 1234)
    os.chmod("group", 0o2775)
    os.mkdir("group/dir")
    touch("group/file")
    info = os.stat("group/dir")
    check(info.st_gid == 1234 and info.st_mode & 0o2000 != 0, "a directory in one with setgid")
    check(os.stat("group/file").st_gid == 1234, "a file in one")
    touch("data", "text")
    touch("su", "more text")
    os.chown("su", 1000, 1000)

    def mode_after(work):
        os.chmod("su", 0o6755)
        work()
        return os.stat("su").st_mode & 0o7777

    check(mode_after(lambda: as_user(1000, 1000, [], lambda: append("su", "x"))) == 0o755,
          "who writes loses set-user-ID")
    check(mode_after(lambda: as_user(1000, 1000, [], lambda: os.truncate("su", 0))) == 0o755,
          "who truncates loses it")
    check(mode_after(lambda: as_user(1000, 1000, [], lambda: cut("su"))) == 0o755,
          "who truncates an open file loses it")
    for mode, what in ((0, "reserves room"), (PUNCH_HOLE | KEEP_SIZE, "frees room")):
        check(mode_after(lambda: as_user(1000, 1000, [], lambda: reserve("su", mode))) == 0o755,
              f"who {what} loses it")
    check(mode_after(lambda: as_user(1000, 1000, [], lambda: copy_range("data", "su"))) == 0o755,
          "who copies into it loses it")
    check(mode_after(lambda: append("su", "x")) == 0o6755, "but root keeps it")
    check(mode_after(lambda: os.chown("su", 1001, 1001)) == 0o755, "a new owner loses it")
    os.mkfifo("su.fifo")
    os.mknod("su.device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("su.socket")
    for name in ("su", "su.fifo", "su.device", "su.socket"):
        os.chown(name, 1000, 1000)
        for group in (1000, 50, -1):
            os.chmod(name, 0o6555)
            as_user(1000, 1000, [50], lambda: os.chown(name, -1, group))
            check(os.stat(name).st_mode & 0o7777 == 0o555, f"chown(-1, {group}) of {name}")
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    as_user(1000, 1000, [], lambda: touch("sticky/a"))
    check(as_user(1001, 1001, [], lambda: os.unlink("sticky/a")) == -errno.EPERM, "sticky")
    check(as_user(1001, 1001, [], lambda: os.rename("sticky/a", "sticky/b")) == -errno.EPERM,
          "sticky, to rename")
    check(as_user(1000, 1000, [], lambda: os.unlink("sticky/a")) is None, "one's own")


def rights():
    touch("p", "s")
    os.chmod("p", 0o640)
    os.chown("p", 2000, 3000)
    check(as_user(2001, 2001, [], lambda: text_of("p")) == -errno.EACCES, "others read")
    check(as_user(2001, 2001, [3000], lambda: text_of("p")) == "s", "a further group reads")
    check(as_user(2001, 3000, [], lambda: touch("p")) == -errno.EACCES, "the group writes")
    check(as_user(2001, 2001, [], lambda: os.chmod("p", 0o777)) == -errno.EPERM, "chmod")
    check(as_user(2000, 2000, [], lambda: os.chown("p", 2001, -1)) == -errno.EPERM, "given away")
    check(as_user(2000, 2000, [77], lambda: os.chown("p", -1, 77)) is None, "to an own group")
    check(os.stat("p").st_gid == 77, "which it has")
    check(as_user(1000, 1000, [], lambda: os.mkdir("nope")) == -errno.EACCES, "mkdir")
    check(as_user(1000, 1000, [], lambda: os.utime("p")) == -errno.EACCES, "touch")
    check(as_user(1000, 1000, [], lambda: os.utime("p", (1, 1))) == -errno.EPERM, "utime")
    os.mkdir("nx")
    touch("nx/f")
    os.chmod("nx", 0o644)
    check(as_user(1000, 1000, [], lambda: os.stat("nx/f")) == -errno.EACCES, "no search")
    check(as_user(1000, 1000, [], lambda: os.listdir("nx")) == ["f"], "but read")
    os.chmod("nx", 0o711)
    check(as_user(1000, 1000, [], lambda: os.listdir("nx")) == -errno.EACCES, "no read")
    check(as_user(1000, 1000, [], lambda: os.stat("nx/f").st_size) == 0, "but search")


def without_a_name():
    with open("ou", "w+b") as file:
        file.write(b"abc" * 1000)
        file.flush()
        os.unlink("ou")
        check(os.fstat(file.fileno()).st_nlink == 0, "no name")
        file.seek(0)
        check(file.read() == b"abc" * 1000, "its bytes are there")
        file.write(b"more")
        file.flush()
        with open(f"/proc/self/fd/{file.fileno()}", "rb") as again:
            check(again.read() == b"abc" * 1000 + b"more", "opened once more")
    check(not os.path.exists("ou"), "it is gone")


def lengths_and_holes():
    file = os.open("sp", os.O_RDWR | os.O_CREAT)
    far = (1 << 62) + 12345
    os.pwrite(file, b"end", far)
    check(os.fstat(file).st_size == far + 3, "64 bits")
    check(os.pread(file, 10, far - 3) == b"\0\0\0end", "the end of it")
    check(os.pread(file, 5, 10**12) == b"\0" * 5, "a hole")
    os.ftruncate(file, 10)
    check(os.fstat(file).st_size == 10, "shorter, while it is open")
    size = 5 * MIB + 7
    os.ftruncate(file, size)
    check(os.pread(file, 100, 0) == b"\0" * 100 and os.fstat(file).st_size == size, "longer")
    os.pwrite(file, b"A" * 4096, 3 * MIB)
    check(os.lseek(file, 0, os.SEEK_DATA) == 3 * MIB, "the first data")
    check(os.lseek(file, 3 * MIB, os.SEEK_HOLE) == 4 * MIB, "the hole behind")
    check(os.lseek(file, 0, os.SEEK_HOLE) == 0, "the hole before")
    refused(errno.ENXIO, os.lseek, file, size, os.SEEK_DATA)
    refused(errno.ENXIO, os.lseek, file, 4 * MIB, os.SEEK_DATA)
    os.pwrite(file, b"B" * 100, 50)
    os.ftruncate(file, 60)
    os.ftruncate(file, 200)
    check(os.pread(file, 200, 0) == b"\0" * 50 + b"B" * 10 + b"\0" * 140, "cut, and grown again")
    os.close(file)
    refused(errno.EINVAL, os.truncate, "sp", -1)
    os.truncate("sp", (1 << 63) - 1)
    os.truncate("sp", 0)


def reserved_space():
    file = os.open("fa", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, 100000)
    check(os.fstat(file).st_size == 100000, "reserved")
    data = bytearray(os.urandom(3 * MIB))
    os.pwrite(file, data, 0)
    fallocate(file, PUNCH_HOLE | KEEP_SIZE, MIB - 10, MIB + 20)
    data[MIB - 10:2 * MIB + 10] = bytes(MIB + 20)
    check(os.pread(file, 3 * MIB, 0) == data, "a hole punched")
    fallocate(file, KEEP_SIZE, 0, 10 * MIB)
    check(os.fstat(file).st_size == 3 * MIB, "which keeps the size")
    fallocate(file, ZERO_RANGE, 2 * MIB + 100, 2 * MIB)
    check(os.fstat(file).st_size == 4 * MIB + 100, "zeros beyond the end")
    check(os.pread(file, 100, 2 * MIB + 200) == bytes(100), "are zeros")
    refused(errno.EOPNOTSUPP, fallocate, file, 8, 0, MIB)  # FALLOC_FL_COLLAPSE_RANGE
    for size, offset in ((5000, 4000), (MIB + 5000, MIB - 5), (MIB + 5000, MIB), (MIB + 5000, 0)):
        os.ftruncate(file, 0)
        os.pwrite(file, b"x" * size, 0)
        fallocate(file, PUNCH_HOLE | KEEP_SIZE, offset, 3 * MIB)
        check(os.fstat(file).st_size == size, f"a hole at {offset} to behind the end of {size}")
        check(os.pread(file, 2 * MIB, 0) == b"x" * offset + bytes(size - offset), "is zeros")
    os.close(file)


def mappings():
    file = os.open("mm", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, MIB)
    memory = mmap.mmap(file, MIB)
    memory[1000:1010] = b"0123456789"
    memory.flush()
    check(os.pread(file, 10, 1000) == b"0123456789", "written by a mapping")
    os.pwrite(file, b"zz", 1000)
    check(memory[1000:1003] == b"zz2", "seen in a mapping")
    memory[5000:5003] = b"abc"
    os.close(file)
    memory.close()
    with open("mm", "rb") as again:
        check(again.read()[5000:5003] == b"abc", "after the file was closed")


def direct():
    file = os.open("di", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    page = mmap.mmap(-1, 8192)
    with open("di", "rb", buffering=0) as cached:
        for letter in (b"d", b"e"):
            page[:] = letter * 8192
            os.pwritev(file, [page], 0)
            check(os.pread(cached.fileno(), 8192, 0) == letter * 8192, "direct, seen by others")
    os.close(file)


def together():
    """Programs of one machine that use one file."""
    with open("co", "wb", buffering=0) as first, open("co", "rb", buffering=0) as reader:
        first.write(b"12345")
        check(reader.read() == b"12345", "seen at once")
        first.write(b"678")
        check(reader.read() == b"678", "and what comes next")
        with open("co", "r+b", buffering=0) as second:
            second.write(b"XX")
        check(os.pread(reader.fileno(), 8, 0) == b"XX345678", "and what another writes")
    ends = [os.open("ap", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2)]
    for i in range(20):
        os.write(ends[i % 2], b"%02d" % i)
    check(text_of("ap") == "".join(f"{i:02}" for i in range(20)), "appended in turn")
    check(os.fstat(ends[0]).st_size == 40, "and so long")
    for end in ends:
        os.close(end)
    locked = os.open("lk", os.O_RDWR | os.O_CREAT)
    other = os.open("lk", os.O_RDWR)
    fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    refused(errno.EWOULDBLOCK, fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(locked)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    touch("tr", "long content")
    os.close(os.open("tr", os.O_WRONLY | os.O_TRUNC))
    check(os.stat("tr").st_size == 0, "O_TRUNC")


def directories():
    os.mkdir("many")
    for i in range(3000):
        touch(f"many/{i:05}")
    entries = os.scandir("many")
    seen = [next(entries).name for _ in range(500)]
    for i in range(0, 3000, 2):
        os.unlink(f"many/{i:05}")
    for i in range(100):
        touch(f"many/x{i:05}")
    seen += [entry.name for entry in entries]
    check(len(seen) == len(set(seen)), "no name twice")
    check({f"{i:05}" for i in range(1, 3000, 2)} <= set(seen), "those that stay are there")
    check(subprocess.run(["rm", "-r", "many"], check=False).returncode == 0, "rm -r")
    refused(errno.ENOENT, os.stat, "many")


def attributes():
    os.setxattr("f", "user.a", b"1")
    check(os.getxattr("f", "user.a") == b"1" and os.listxattr("f") == ["user.a"], "set")
    refused(errno.EEXIST, os.setxattr, "f", "user.a", b"2", os.XATTR_CREATE)
    refused(errno.ENODATA, os.setxattr, "f", "user.b", b"2", os.XATTR_REPLACE)
    os.removexattr("f", "user.a")
    refused(errno.ENODATA, os.getxattr, "f", "user.a")
    refused(errno.ENODATA, os.removexattr, "f", "user.a")
    refused(errno.EOPNOTSUPP, os.setxattr, "f", "system.some", b"")
    for value in (b"", os.urandom(65536)):
        os.setxattr("f", "user.v", value)
        check(os.getxattr("f", "user.v") == value, f"{len(value)} bytes")


def special_files():
    os.mkfifo("fifo")
    check(stat.S_ISFIFO(os.stat("fifo").st_mode), "a pipe")
    os.mknod("null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    check(os.stat("null").st_rdev == os.makedev(1, 3), "a device")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket")
    check(stat.S_ISSOCK(os.stat("socket").st_mode), "a socket")


def durable():
    file = os.open("du", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"x")
    os.fsync(file)
    os.fdatasync(file)
    os.close(file)
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


SECTIONS = (names_and_errors, renames, links, the_times, modes, rights, without_a_name,
            lengths_and_holes, reserved_space, mappings, direct, together, directories,
            attributes, special_files, durable)


def main():
    folder = os.path.join(sys.argv[1], f"corners{os.getpid()}")
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    os.chdir(folder)
    os.umask(0o022)
    for section in SECTIONS:
        try:
            section()
        except OSError as error:
            check(False, f"{section.__name__}: {error}")
    os.chdir("/")
    shutil.rmtree(folder)
    refused(errno.ENOENT, os.stat, folder)
    print(f"{len(SECTIONS)} sections, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


main()
