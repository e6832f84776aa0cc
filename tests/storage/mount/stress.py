#!/usr/bin/env python3
# Programs that do anything to files of a mount while daemons are killed: all ends as in a model.
"""usage: stress.py FF FOLDER [--seconds N] [--processes N] [--kill-every N] [--seed N]

`ff up` makes a cluster of three storage daemons in the new FOLDER and mounts it. Each process
makes, writes, cuts, maps, links, moves, removes and reads files in a directory of its own at
random, and keeps a model of them in memory; what it is told at any time must be what the model
says, and no call may fail that does not fail there. A daemon, drawn at random, is killed with -9
now and then. At the end everything is compared again, on the same mount and on a new one, and fsck
must be content.
"""
import argparse
import ctypes
import fcntl
import json
import mmap
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import stat
import subprocess
import sys
import time

MIB = 1 << 20
LENGTH = 3 * MIB  # of a file at most: some chunks
FILES = 30  # names of a process
LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE_AND_PUNCH = 3


class Wrong(Exception):
    pass


def check(holds, what):
    if not holds:
        raise Wrong(what)


class File:
    def __init__(self):
        self.data = bytearray()
        self.mode = 0o644
        self.links = 1


class Process:
    """One directory tree, on the mount and in memory; a name is bound to a File, a dict, or the
    text of a symbolic link."""

    def __init__(self, root, seed):
        self.root, self.rng, self.top, self.open, self.steps = root, random.Random(seed), {}, [], 0
        os.mkdir(root)

    def paths(self, kind, top=None, at=""):
        """Of all names of a kind, with the directories they are in."""
        found = []
        for name, node in (self.top if top is None else top).items():
            path = f"{at}/{name}"
            if isinstance(node, kind):
                found.append((self.top if top is None else top, name, path))
            if isinstance(node, dict):
                found += self.paths(kind, node, path)
        return found

    def some(self, kind):
        return self.rng.choice(self.paths(kind) or [None])

    def some_dir(self):
        choices = [(self.top, "")]
        choices += [(within[name], path) for within, name, path in self.paths(dict)]
        return self.rng.choice(choices)

    def some_open(self):
        """(model, descriptor): one that stays open, or one of a name."""
        if self.open and self.rng.random() < 0.4:
            return (*self.rng.choice(self.open), False)
        found = self.some(File)
        if found is None:
            return None
        within, name, path = found
        return within[name], os.open(self.root + path, os.O_RDWR), True

    def bytes(self):
        # What is removed keeps its room for five minutes: seldom much.
        size = self.rng.choices((1, 100, 4096, 65536, MIB, self.rng.randrange(2 * MIB)),
                                (4, 4, 4, 4, 1, 1))[0]
        start = self.rng.randrange(256)
        return (bytes(range(256)) * (size // 256 + 2))[start:start + size]

    # What a process may do. Each leaves the model as the files should be.

    def make(self):
        within, path = self.some_dir()
        if len(self.paths(File)) >= FILES:
            return self.remove()
        name = f"f{self.steps}"
        descriptor = os.open(f"{self.root}{path}/{name}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        within[name] = File()
        if len(self.open) < 4 and self.rng.random() < 0.3:
            self.open.append((within[name], descriptor))
        else:
            os.close(descriptor)

    def on_file(self, work):
        found = self.some_open()
        if found is None:
            return
        node, descriptor, close = found
        try:
            work(node, descriptor)
            size = os.fstat(descriptor).st_size
            check(size == len(node.data), f"length {size}, not {len(node.data)}")
        finally:
            if close:
                os.close(descriptor)

    def write(self):
        def work(node, descriptor):
            data = self.bytes()
            offset = self.rng.randrange(LENGTH - len(data))
            check(os.pwrite(descriptor, data, offset) == len(data), "short write")
            if offset > len(node.data):
                node.data.extend(bytes(offset - len(node.data)))
            node.data[offset:offset + len(data)] = data

        self.on_file(work)

    def append(self):
        found = self.some(File)
        if found is None:
            return
        within, name, path = found
        data = self.bytes()
        if len(within[name].data) + len(data) > LENGTH:
            return
        late = self.rng.random() < 0.5
        descriptor = os.open(self.root + path, os.O_WRONLY | (0 if late else os.O_APPEND))
        if late:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
        check(os.write(descriptor, data) == len(data), "short append")
        os.close(descriptor)
        within[name].data += data

    def read(self):
        def work(node, descriptor):
            offset = self.rng.randrange(LENGTH)
            size = self.rng.randrange(MIB)
            got = os.pread(descriptor, size, offset)
            check(got == node.data[offset:offset + size], f"read of {size} bytes at {offset}")

        self.on_file(work)

    def map(self):
        def work(node, descriptor):
            if not node.data:
                return
            with mmap.mmap(descriptor, len(node.data)) as mapped:
                at = self.rng.randrange(len(node.data))
                check(mapped[at:at + 100] == node.data[at:at + 100], f"mapped bytes at {at}")
                mapped[at] = node.data[at] = self.rng.randrange(256)
                mapped.flush()

        self.on_file(work)

    def cut(self):
        def work(node, descriptor):
            length = self.rng.randrange(LENGTH)
            os.ftruncate(descriptor, length)
            if length > len(node.data):
                node.data.extend(bytes(length - len(node.data)))
            del node.data[length:]

        self.on_file(work)

    def punch(self):
        def work(node, descriptor):
            if not node.data:
                return
            offset = self.rng.randrange(len(node.data))
            size = self.rng.randrange(1, MIB)
            result = LIBC.fallocate64(descriptor, KEEP_SIZE_AND_PUNCH, ctypes.c_long(offset),
                                      ctypes.c_long(size))  # fmt: skip
            check(result == 0, f"punch: {os.strerror(ctypes.get_errno())}")
            end = min(offset + size, len(node.data))
            node.data[offset:end] = bytes(end - offset)

        self.on_file(work)

    def sync(self):
        self.on_file(lambda _, descriptor: os.fsync(descriptor))

    def chmod(self):
        found = self.some(File)
        if found is not None:
            within, name, path = found
            within[name].mode = self.rng.randrange(0o1000)
            os.chmod(self.root + path, within[name].mode)

    def close(self):
        if self.open:
            os.close(self.open.pop(self.rng.randrange(len(self.open)))[1])

    def mkdir(self):
        within, path = self.some_dir()
        if path.count("/") < 3 and len(self.paths(dict)) < 10:
            os.mkdir(f"{self.root}{path}/d{self.steps}")
            within[f"d{self.steps}"] = {}

    def rmdir(self):
        found = self.some(dict)
        if found is not None:
            within, name, path = found
            try:
                os.rmdir(self.root + path)
                check(not within[name], f"rmdir of {path}, which is not empty")
                del within[name]
            except OSError:
                check(within[name], f"rmdir of {path}, which is empty")

    def link(self):
        found = self.some(File)
        if found is not None:
            within, name, path = found
            to, to_path = self.some_dir()
            os.link(self.root + path, f"{self.root}{to_path}/l{self.steps}")
            to[f"l{self.steps}"] = within[name]
            within[name].links += 1

    def symlink(self):
        within, path = self.some_dir()
        text = f"nowhere/{self.steps}"
        os.symlink(text, f"{self.root}{path}/s{self.steps}")
        within[f"s{self.steps}"] = text

    def forget(self, node):
        if isinstance(node, File):
            node.links -= 1

    def rename(self):
        found = self.some((File, str))
        if found is not None:
            within, name, path = found
            to, to_path = self.some_dir()
            taken = [other for other in to if not isinstance(to[other], dict)]
            new = self.rng.choice(taken) if taken and self.rng.random() < 0.5 else f"r{self.steps}"
            os.rename(self.root + path, f"{self.root}{to_path}/{new}")
            if to.get(new) is within[name] and isinstance(within[name], File):
                return  # two names of one file: nothing is done
            self.forget(to.get(new))
            to[new] = within.pop(name)

    def remove(self):
        found = self.some((File, str))
        if found is not None:
            within, name, path = found
            os.unlink(self.root + path)
            self.forget(within.pop(name))

    def look(self):
        within, path = self.some_dir()
        check(sorted(os.listdir(self.root + path)) == sorted(within), f"names in {path}")

    WORK = {make: 1, write: 12, append: 6, read: 12, map: 3, cut: 3, punch: 2, sync: 2, chmod: 2,
            close: 1, mkdir: 1, rmdir: 1, link: 1, symlink: 1, rename: 1, remove: 1, look: 2}

    def step(self):
        self.steps += 1
        work = self.rng.choices(list(self.WORK), list(self.WORK.values()))[0]
        try:
            work(self)
        except (OSError, Wrong) as error:
            raise Wrong(f"step {self.steps} {work.__name__}: {error!r}") from error

    def compare(self):
        """Everything, as a program sees it that begins now."""
        for _, descriptor in self.open:
            os.close(descriptor)
        self.open = []
        self.compare_dir(self.top, self.root)

    def compare_dir(self, within, path):
        check(sorted(os.listdir(path)) == sorted(within), f"names in {path}")
        for name, node in within.items():
            here = f"{path}/{name}"
            if isinstance(node, dict):
                self.compare_dir(node, here)
            elif isinstance(node, str):
                check(os.readlink(here) == node, f"link {here}")
            else:
                info = os.stat(here)
                seen = (info.st_size, info.st_nlink, stat.S_IMODE(info.st_mode))
                model = (len(node.data), node.links, node.mode)
                check(seen == model, f"{here}: length, links, mode {seen}, not {model}")
                with open(here, "rb") as file:
                    check(file.read() == node.data, f"contents of {here}")


def run(root, seed, seconds, ready):
    """A child: works, compares, waits for the new mount, compares again."""
    process = Process(root, seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            process.step()
        process.compare()
        ready.send(process.steps)
        ready.recv()
        process.compare()
        ready.send(process.steps)
    except (OSError, Wrong) as error:
        print(f"seed {seed}, {root}: {error!r}", flush=True)
        os._exit(1)


def daemons(folder):
    """Pids of the storage and metadata daemons that were started for this folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        ours = any(word.startswith(folder.encode() + b"/") for word in words)
        if ours and words[1:2] in ([b"serve-storage"], [b"serve-meta"]):
            found.append(int(pid))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    folder = os.path.abspath(args.folder)
    cluster, mounted = f"{folder}/cluster", f"{folder}/mnt"
    os.makedirs(mounted)
    up = [args.ff, "up", "--dir", cluster, "--mount", mounted, "--json"]
    done = subprocess.run(up, check=True, capture_output=True, text=True)
    meta = ["--meta", json.loads(done.stdout)["data"]["meta"], "--key", f"{cluster}/cluster.key"]
    rng = random.Random(args.seed)
    children, kills = [], 0
    try:
        for number in range(args.processes):
            ours, its = multiprocessing.Pipe()
            child = multiprocessing.Process(
                target=run, args=(f"{mounted}/{number}", args.seed + number, args.seconds, its))
            child.start()
            its.close()
            children.append((child, ours))
        end = time.monotonic() + args.seconds
        next_kill = time.monotonic() + args.kill_every
        waiting = {ours for _, ours in children}
        while waiting:
            told = multiprocessing.connection.wait(waiting, timeout=0.2)
            waiting -= set(told)
            for pipe in told:
                pipe.recv()  # EOFError: the child has ended
            if next_kill < min(time.monotonic(), end):
                next_kill += args.kill_every
                pid = rng.choice(daemons(cluster) or [None])
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
        # A mount that knows nothing yet.
        subprocess.run(["umount", mounted], check=True)
        subprocess.run([args.ff, "down", "--dir", cluster, "--quiet"], check=True)
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        for _, pipe in children:
            pipe.send(None)
        steps = sum(pipe.recv() for _, pipe in children)
        print(f"{steps} steps, {kills} kills, all as in the model")
        fsck = subprocess.run([args.ff, "admin", "fsck", *meta], check=False)
        return fsck.returncode
    except EOFError:
        return 1
    finally:
        for child, _ in children:
            child.kill()
            child.join()
        down = [args.ff, "down", "--dir", cluster, "--purge", "--yes", "--quiet"]
        subprocess.run(down, check=False)


if __name__ == "__main__":
    sys.exit(main())
