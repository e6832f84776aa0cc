#!/usr/bin/env python3
# The bars of files: how fast `ff fs cp` moves one into a cluster and out of it.
"""Measures ff fs cp beside fio, on a cluster of its own.

usage: fs.py FF DIR [--rounds N] [--size BYTES]

FF is build/ff of a release build, DIR a folder on the disk to use: a manager and three storage
nodes with a folder each are started there, and stopped at the end. fio must be installed. A file is
copied in (two replicas, on the disk that it is read from as well) and out again, into a file of the
same disk; and in once more, from the page cache. What is compared runs in turn, round by round;
medians are printed.
"""
import argparse
import collections
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import chain
import cluster

NODES = (1, 2, 3)
BARS = [
    ("cp in from memory, 2 replicas / raw write", "in, cached", "raw write", 0.35),
    ("cp in from that disk / raw write", "in", "raw write", None),
    ("cp out / raw write", "out", "raw write", 0.6),
    ("cp out / raw read", "out", "raw read", None),
    ("cp out / raw reader and writer together", "out", "raw copy", None),
    ("cp in --verify / raw write", "in, verified", "raw write", None),
]


class Cluster(chain.Cluster):
    """A manager and three nodes."""

    def __init__(self, ff, folder):  # pylint: disable=super-init-not-called
        self.ff = ff
        self.folder = folder
        self.meta = f"127.0.0.1:{chain.free_port()}"
        self.ports = {node: chain.free_port() for node in NODES}
        self.daemons = {}
        cluster.use_key(folder)
        self.start("meta", "serve-meta", "--dir", f"{folder}/meta", "--listen", self.meta,
                   "--collect-after", "1s")  # fmt: skip
        self.run("admin", "init")
        for node in NODES:
            self.start_node(node)
        self.until(lambda: len(self.status()["nodes"]) == len(NODES))
        self.run("admin", "plan", "--replicas", "2", "--targets-per-disk", "4", "--apply")
        self.until(self.whole)

    def used(self):
        """Bytes that the nodes' folders take."""
        files = pathlib.Path(self.folder).glob("disk*/*")
        return sum(512 * path.stat().st_blocks for path in files)

    def close(self):
        for name in (*NODES, "meta"):
            if name in self.daemons and self.daemons[name].poll() is None:
                self.end(name)


def raw(folder, size, figures):
    depth8 = ["--bs=1M", "--iodepth=8", "--fallocate=posix"]
    figures["raw write"].append(chain.fio(folder, size, ["a", "--rw=write", *depth8])[1])
    figures["raw read"].append(chain.fio(folder, size, ["a", "--rw=read", *depth8])[0])
    # A copy: what one reads another writes, at the same time.
    both = chain.fio(folder, size, ["a", "--rw=read", *depth8], ["b", "--rw=write", *depth8])
    figures["raw copy"].append(min(both))
    for path in pathlib.Path(folder).glob("[ab].*"):
        path.unlink()


def timed(cluster, size, *words):
    began = time.monotonic()
    cluster.run("fs", "cp", *words)
    return size / (time.monotonic() - began)


def drop_cache(path):
    """The file is read from the disk next time."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def copies(cluster, source, size, figures):
    back = f"{cluster.folder}/back"
    for name, flags in (("in", []), ("in, cached", []), ("in, verified", ["--verify"])):
        drop_cache(source)
        if name == "in, cached":
            subprocess.run(["cat", source], stdout=subprocess.DEVNULL, check=True)
        figures[name].append(timed(cluster, size, *flags, source, "ff:///file"))
        if name == "in":
            figures["out"].append(timed(cluster, size, "ff:///file", back))
            subprocess.run(["cmp", source, back], check=True)
            os.unlink(back)
        # The nodes give its room back, which is work for the disk, before anything else is timed.
        cluster.run("fs", "rm", "/file")
        cluster.until(lambda: cluster.used() < size // 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=4 << 30)
    args = parser.parse_args()
    folder = f"{args.dir}/ff-bench-fs-{os.getpid()}"
    os.makedirs(f"{folder}/raw")
    figures = collections.defaultdict(list)
    cluster = None
    try:
        cluster = Cluster(os.path.abspath(args.ff), folder)
        source = f"{folder}/source"
        subprocess.run(
            ["dd", "if=/dev/urandom", f"of={source}", "bs=1M", f"count={args.size >> 20}",
             "conv=fsync", "status=none"], check=True,
        )  # fmt: skip
        for number in range(args.rounds):
            steps = [
                lambda: raw(f"{folder}/raw", args.size, figures),
                lambda: copies(cluster, source, args.size, figures),
            ]
            for step in steps if number % 2 == 0 else reversed(steps):
                step()
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(folder)
    print("| work | bar | measured | | figures (medians) |\n|---|---|---|---|---|")
    for name, ours, theirs, bar in BARS:
        ratio = statistics.median(a / b for a, b in zip(figures[ours], figures[theirs]))
        fast, slow = (statistics.median(figures[key]) / 1e9 for key in (ours, theirs))
        verdict = "" if bar is None else "met" if ratio >= bar else "MISSED"
        wanted = "" if bar is None else f">= {bar} x"
        print(f"| {name} | {wanted} | {ratio:.2f} | {verdict} | {fast:.2f} of {slow:.2f} GB/s |")


if __name__ == "__main__":
    main()
