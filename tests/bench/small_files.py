#!/usr/bin/env python3
# Names and small files on a mount, each way in which requests arrive, beside another file system.
"""Measures creates, small files and trees of files on mounts of a cluster of its own.

usage: small_files.py FF DIR [--beside DIR] [--rounds N] [--files N]

FF is build/ff of a release build, run as root; DIR a folder on the disk to use, where `ff up` makes
three storage daemons with two replicas. ff mounts the cluster four times: with requests over
io_uring and through /dev/fuse, each without and with --delegations. --beside names a folder of a
mounted peer (MooseFS with goal 2, three chunkservers on the same disk). All places are measured in
turn, round by round; medians of operations per second are printed, and the CPU time of the whole
machine for one operation. `ff bench files` makes the first rows; cp, tar, rm and plain reads the
others.
"""
import argparse
import collections
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time

SMALL = 8192
IO_URING = "/sys/module/fuse/parameters/enable_uring"
MOUNTS = {  # name: (io_uring, words of `ff mount`)
    "fuse": ("N", []),
    "uring": ("Y", []),
    "fuse +d": ("N", ["--delegations"]),
    "uring +d": ("Y", ["--delegations"]),
}


def busy_seconds():
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def settle():
    """Waits, for half a minute at most, until processors are idle."""
    for _ in range(30):
        before, began = busy_seconds(), time.monotonic()
        time.sleep(1)
        if busy_seconds() - before < 0.2 * (time.monotonic() - began):
            return


class Figures:
    """Operations per second, and CPU seconds of an operation, of each work at each place."""

    def __init__(self):
        self.rates = collections.defaultdict(list)
        self.costs = collections.defaultdict(list)

    def note(self, work, place, rate, cost):
        self.rates[work, place].append(rate)
        self.costs[work, place].append(cost)

    def measure(self, work, place, count, call):
        busy, began = busy_seconds(), time.monotonic()
        call()
        seconds = time.monotonic() - began
        self.note(work, place, count / seconds, (busy_seconds() - busy) / count)

    def print_table(self, places):
        works = list(dict.fromkeys(work for work, _ in self.rates))
        print("| work | " + " | ".join(places) + " |")
        print("|---" * (len(places) + 1) + "|")
        for work in works:
            cells = []
            for place in places:
                rate = statistics.median(self.rates[work, place])
                cost = statistics.median(self.costs[work, place]) * 1e6
                cells.append(f"{rate:,.0f}/s, {cost:,.0f} µs")
                if place != "peer" and "peer" in places:
                    pairs = zip(self.rates[work, place], self.rates[work, "peer"])
                    cells[-1] += f", {statistics.median(a / b for a, b in pairs):.2f} ×"
            print(f"| {work} | " + " | ".join(cells) + " |")


def bench_files(figures, ff, folder, place, files):
    for processes, own in ((1, False), (8, False), (8, True)):
        count = files if processes == 1 else files // 2
        words = [ff, "bench", "files", folder, "--rounds", "1", "--json", "--files", str(count),
                 "--processes", str(processes)]  # fmt: skip
        words += ["--own-directories"] if own else []
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        suffix = f", {processes} at once" if processes > 1 else ""
        suffix += ", own directories" if own else ""
        for phase in json.loads(done.stdout)["data"]["rows"]:
            if own and phase["phase"] not in ("create", "rename", "remove"):
                continue
            figures.note(phase["phase"] + suffix, place, phase["per_second"],
                         phase["cpu_seconds_per_operation"])  # fmt: skip
        settle()


def read_all(names):
    for name in names:
        with open(name, "rb", buffering=0) as file:
            assert len(file.read()) == SMALL


def read_files(names, processes):
    readers = [multiprocessing.Process(target=read_all, args=(names[k::processes],))
               for k in range(processes)]  # fmt: skip
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
        assert reader.exitcode == 0


def reads(figures, folder, place, files):
    os.mkdir(folder)
    names = [f"{folder}/f.{i}" for i in range(files)]
    for name in names:
        with open(name, "wb", buffering=0) as file:
            file.write(bytes(SMALL))
    os.sync()
    for processes, suffix in ((1, ""), (8, ", 8 at once")):
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
        for cached in ("not cached", "pages kept"):
            work = f"open, read and close 8 KiB, {cached}{suffix}"
            figures.measure(work, place, files, lambda n=processes: read_files(names, n))
    shutil.rmtree(folder)
    settle()


def make_tree(folder, files):
    for i in range(files):
        if i % 100 == 0:
            os.makedirs(f"{folder}/{i // 100}")
        with open(f"{folder}/{i // 100}/f.{i}", "wb") as file:
            file.write(os.urandom(1024 + i % 7 * 1024))


def trees(figures, source, archive, folder, place, files):
    os.mkdir(folder)
    run = lambda *words: subprocess.run(words, check=True)  # noqa: E731
    figures.measure("cp -a", place, files, lambda: run("cp", "-a", source, f"{folder}/copy"))
    settle()
    figures.measure("tar x", place, files, lambda: run("tar", "xf", archive, "-C", folder))
    settle()
    figures.measure("rm -rf", place, 2 * files, lambda: run("rm", "-rf", folder))
    settle()


class Cluster:
    """`ff up`, and the mounts of MOUNTS."""

    def __init__(self, ff, folder):
        self.ff, self.folder, self.mounted = ff, folder, []
        up = subprocess.run([ff, "up", "--dir", f"{folder}/cluster", "--json"],
                            check=True, capture_output=True, text=True)  # fmt: skip
        data = json.loads(up.stdout)["data"]
        self.env = dict(os.environ, FF_META=data["meta"], FF_KEY=data["key"])

    def mount(self, name):
        io_uring, words = MOUNTS[name]
        with open(IO_URING, "w", encoding="ascii") as file:
            file.write(io_uring)
        at = f"{self.folder}/{name.replace(' ', '')}"
        os.mkdir(at)
        subprocess.run([self.ff, "mount", "ff:///", at, "--detach", "--quiet", *words],
                       check=True, env=self.env, stdout=subprocess.DEVNULL)  # fmt: skip
        self.mounted.append(at)
        return at

    def close(self):
        for at in self.mounted:
            subprocess.run(["umount", at], check=True)
        subprocess.run([self.ff, "down", "--dir", f"{self.folder}/cluster", "--purge", "--yes",
                        "--quiet"], check=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--beside", help="a folder of the peer's mount")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=2000)
    args = parser.parse_args()
    ff = os.path.abspath(args.ff)
    folder = f"{os.path.abspath(args.dir)}/ff-bench-small-{os.getpid()}"
    os.makedirs(folder)
    with open(IO_URING, encoding="ascii") as file:
        io_uring = file.read()
    figures = Figures()
    make_tree(f"{folder}/tree", 2 * args.files)
    subprocess.run(["tar", "cf", f"{folder}/tree.tar", "-C", folder, "tree"], check=True)
    cluster = Cluster(ff, folder)
    try:
        places = {name: cluster.mount(name) for name in MOUNTS}
        if args.beside:
            places["peer"] = args.beside
        for number in range(args.rounds):
            order = list(places.items())
            for place, at in order if number % 2 == 0 else reversed(order):
                here = f"{at}/ff-bench-{os.getpid()}-{place.replace(' ', '')}-{number}"
                os.mkdir(here)
                bench_files(figures, ff, here, place, args.files)
                reads(figures, f"{here}/read", place, args.files)
                trees(figures, f"{folder}/tree", f"{folder}/tree.tar", f"{here}/trees", place,
                      2 * args.files)  # fmt: skip
                os.rmdir(here)
                print(f"round {number + 1} of {args.rounds}: {place}", file=sys.stderr)
    finally:
        with open(IO_URING, "w", encoding="ascii") as file:
            file.write(io_uring)
        cluster.close()
        shutil.rmtree(folder)
    figures.print_table(list(places))


if __name__ == "__main__":
    main()
