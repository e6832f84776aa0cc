#!/usr/bin/env python3
# Measures ff checkpoint beside fio, dd and torch.save, and prints the table of bars.
"""The bars of `ff checkpoint` on a directory store, beside fio, dd and torch.save; and of one in a
cluster on the same disk (two replicas, three storage nodes).

    tests/bench/checkpoint.py FF DIR [--gib 4] [--rounds 5] [--tensors 1000000] [--only cluster]

DIR is a directory on the disk to measure; about 4 times --gib of it are used. Everything is
measured in turn, round by round, and quoted as the median of the rounds; bars are ratios of
medians of one run. Needs root (dropping the page cache), fio, dd and Debian's python3-torch.
Prints a table in Markdown.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time

from cluster import Cluster

HERE = os.path.dirname(os.path.abspath(__file__))
MAKE = os.path.join(HERE, "..", "e2e", "make_safetensors.py")

TORCH = """
import os, sys, time, torch
size, out = int(sys.argv[1]), sys.argv[2]
count = size // (64 << 20)
shape = (32 << 20,)
state = {f"layer.{i}": torch.full(shape, float(i), dtype=torch.bfloat16) for i in range(count)}
start = time.perf_counter()
with open(out, "wb") as file:
    torch.save(state, file)
    file.flush()
    os.fsync(file.fileno())
print(time.perf_counter() - start)
"""

MANY = """
import json, os, struct, sys
count, out = int(sys.argv[1]), sys.argv[2]
header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
          for i in range(count)}
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(out, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + os.urandom(4 * count))
"""


def run(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True)


def timed(*command):
    start = time.perf_counter()
    run(*command)
    return time.perf_counter() - start


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3\n")


def warm(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(8 << 20):
            pass


class Bench:
    def __init__(self, options):
        self.ff, self.dir = os.path.realpath(options.ff), os.path.realpath(options.dir)
        self.size, self.rounds = options.gib << 30, options.rounds
        self.work = os.path.join(self.dir, f"ff-bench-{os.getpid()}")
        self.memory = f"/dev/shm/ff-bench-{os.getpid()}"
        self.results = {}
        self.dropped = 0
        os.makedirs(self.work)
        os.makedirs(self.memory)
        self.store = os.path.join(self.work, "store")
        os.environ["FF_STATE"] = os.path.join(self.work, "state")

    def path(self, name):
        return os.path.join(self.work, name)

    def note(self, name, value):
        self.results.setdefault(name, []).append(value)
        print(f"  {name}: {value:.3f}", file=sys.stderr, flush=True)

    def median(self, name):
        return statistics.median(self.results[name])

    def checkpoint(self, *words, store=None):
        start = time.perf_counter()
        done = run(self.ff, "checkpoint", *words, "--store", store or self.store, "--json")
        return time.perf_counter() - start, json.loads(done.stdout)["data"]

    def fio(self, *jobs):
        """GB/s of each job: [(name, read|write, file)]."""
        command = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--bs=1M",
                   "--iodepth=8", "--mem=malloc", f"--size={self.size}"]
        for name, way, file in jobs:
            command += [f"--name={name}", f"--rw={way}", f"--filename={self.path(file)}"]
            if way == "write":
                command += ["--end_fsync=1"]
        report = json.loads(run(*command).stdout)
        return [job[way]["bw_bytes"] / 1e9 for job, (_, way, _) in zip(report["jobs"], jobs)]

    def rate(self, seconds):
        return self.size / 1e9 / seconds

    def prepare(self):
        for name, share in (("step1.safetensors", []), ("step2.safetensors", ["0.1"])):
            run(sys.executable, MAKE, self.path(name), str(self.size >> 20), "1", *share)
        os.makedirs(self.path("now"))
        self.size = os.path.getsize(self.path("step1.safetensors"))

    def input(self, step):
        """Both steps are saved under one file name, as a trainer does."""
        now = self.path("now/model.safetensors")
        if os.path.exists(now):
            os.unlink(now)
        os.link(self.path(f"step{step}.safetensors"), now)
        return now

    def drop(self, folder):
        """Gives the space of a folder back at once, but its inodes only at the end: ext4 looks past
        inodes freed in the last minutes one by one, which would slow what comes next."""
        for parent, _, names in os.walk(folder):
            for name in names:
                os.truncate(os.path.join(parent, name), 0)
        self.dropped += 1
        os.rename(folder, self.path(f"dropped{self.dropped}"))

    def cluster_round(self):
        """A cluster of its own each time: new blocks, as the raw file has."""
        self.note("raw write", self.fio(("w", "write", "raw1"))[0])
        os.unlink(self.path("raw1"))
        now = self.input(1)
        cluster = Cluster(self.ff, self.path("cluster"))
        try:
            store = f"ff://{cluster.meta}/store"
            warm(now)
            os.sync()
            before, children = cluster.seconds(), os.times()
            self.note("save to cluster", self.rate(
                self.checkpoint("save", "--step", "1", now, store=store)[0]))
            after = os.times()
            self.note("cluster save, processor s", sum(cluster.seconds()) - sum(before) +
                      after.children_user - children.children_user +
                      after.children_system - children.children_system)
            drop_caches()
            self.note("verify in cluster", self.rate(
                self.checkpoint("verify", "@1", store=store)[0]))
            self.note("load from cluster", self.rate(
                self.checkpoint("load", "@1", os.path.join(self.memory, "out"), store=store)[0]))
            run("cmp", now, os.path.join(self.memory, "out/model.safetensors"))
            shutil.rmtree(os.path.join(self.memory, "out"))
        finally:
            cluster.stop()
        self.drop(self.path("cluster"))

    def cluster_rows(self):
        m = self.median
        return [("save to a cluster, 2 replicas on this disk", "≥ 0.35 × raw write",
                 m("save to cluster") / m("raw write"), lambda x: x >= 0.35,
                 f"{m('save to cluster'):.2f} of {m('raw write'):.2f} GB/s, "
                 f"{m('cluster save, processor s'):.1f} s of processors; verify "
                 f"{m('verify in cluster'):.2f}, load to tmpfs {m('load from cluster'):.2f} GB/s")]

    def round(self):
        self.note("raw write", self.fio(("w", "write", "raw1"))[0])
        self.note("raw read", self.fio(("r", "read", "raw1"))[0])
        self.note("raw both", min(self.fio(("r", "read", "raw1"), ("w", "write", "raw2"))))
        seconds = timed("dd", "if=/dev/zero", f"of={self.path('raw2')}", "bs=4M", "oflag=direct",
                        "conv=fsync", f"count={self.size >> 22}")
        self.note("dd write", self.rate(seconds))
        for name in ("raw1", "raw2"):
            os.unlink(self.path(name))

        out = self.path("torch.pt")
        self.note("torch.save", self.rate(float(
            run("/usr/bin/python3", "-c", TORCH, str(self.size), out).stdout)))
        os.unlink(out)

        now = self.input(1)
        warm(now)
        os.sync()
        first, _ = self.checkpoint("save", "--step", "1", now)
        self.note("save cached", self.rate(first))
        now = self.input(2)
        warm(now)
        second, report = self.checkpoint("save", "--step", "2", now)
        self.note("second time share", second / first)
        self.note("second byte share", report["bytes_written"] / report["bytes"])
        drop_caches()
        self.note("verify", self.rate(self.checkpoint("verify", "@1")[0]))
        drop_caches()
        self.note("load to tmpfs", self.rate(
            self.checkpoint("load", "@1", os.path.join(self.memory, "out"))[0]))
        run("cmp", self.path("step1.safetensors"),
            os.path.join(self.memory, "out/model.safetensors"))
        shutil.rmtree(os.path.join(self.memory, "out"))
        drop_caches()
        self.note("load to disk", self.rate(self.checkpoint("load", "@1", self.path("out"))[0]))
        self.drop(self.path("out"))
        self.drop(self.store)
        now = self.input(1)
        drop_caches()
        self.note("save cold", self.rate(self.checkpoint("save", "--step", "1", now)[0]))
        self.drop(self.store)

    def million(self, count):
        """Seconds and peak MiB of ls, show and loading one tensor of `count` tensors."""
        many = self.path("many.safetensors")
        # In a process of its own: a child's peak begins with what its parent held.
        run(sys.executable, "-c", MANY, str(count), many)
        for number in range(self.rounds):
            out = os.path.join(self.memory, f"one{number}")
            for name, words in (
                    ("save", ["save", "--run", f"many{number}", many]),
                    ("ls", ["ls"]),
                    ("show", ["show", f"many{number}"]),
                    ("load one", ["load", f"many{number}", out, "--tensor",
                                  f"layers.{count // 2}.weight"])):
                start = time.perf_counter()
                with subprocess.Popen([self.ff, "checkpoint", *words, "--store", self.store],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
                    _, status, usage = os.wait4(child.pid, 0)
                    child.returncode = os.waitstatus_to_exitcode(status)
                    if child.returncode != 0:
                        sys.exit(f"{name}: {child.stderr.read().decode()}")
                self.note(f"million {name} s", time.perf_counter() - start)
                self.note(f"million {name} MiB", usage.ru_maxrss / 1024)
        os.unlink(many)
        self.drop(self.store)

    @staticmethod
    def print_rows(rows):
        print("| work | bar | measured | | figures (medians) |\n|---|---|---|---|---|")
        for work, bar, value, good, figures in rows:
            print(f"| {work} | {bar} | {value:.2f} | {'met' if good(value) else '**missed**'} "
                  f"| {figures} |")

    def table(self, tensors):
        m = self.median
        rows = [
            ("save, input in the page cache", "≥ 0.8 × raw write",
             m("save cached") / m("raw write"), lambda x: x >= 0.8,
             f"{m('save cached'):.2f} of {m('raw write'):.2f} GB/s"),
            ("the same", "≥ 2 × torch.save + fsync", m("save cached") / m("torch.save"),
             lambda x: x >= 2, f"{m('save cached'):.2f} of {m('torch.save'):.2f} GB/s"),
            ("save, input cold", "≥ 0.8 × raw-both", m("save cold") / m("raw both"),
             lambda x: x >= 0.8, f"{m('save cold'):.2f} of {m('raw both'):.2f} GB/s"),
            ("load to tmpfs, store cold", "≥ 0.8 × raw read", m("load to tmpfs") / m("raw read"),
             lambda x: x >= 0.8, f"{m('load to tmpfs'):.2f} of {m('raw read'):.2f} GB/s"),
            ("load to the same disk, with fsync", "≥ 0.8 × raw-both",
             m("load to disk") / m("raw both"), lambda x: x >= 0.8,
             f"{m('load to disk'):.2f} of {m('raw both'):.2f} GB/s"),
            ("verify", "≥ 0.9 × raw read", m("verify") / m("raw read"), lambda x: x >= 0.9,
             f"{m('verify'):.2f} of {m('raw read'):.2f} GB/s"),
            ("second save, 10 % changed: bytes", "≤ 0.13", m("second byte share"),
             lambda x: x <= 0.13, ""),
            ("second save, 10 % changed: time", "≤ 0.35", m("second time share"),
             lambda x: x <= 0.35, ""),
        ]
        for name in ("ls", "show", "load one"):
            rows.append((f"{tensors:,} tensors: {name}", "≤ 3 s", m(f"million {name} s"),
                         lambda x: x <= 3, ""))
            rows.append((f"{tensors:,} tensors: {name}", "≤ 512 MiB", m(f"million {name} MiB"),
                         lambda x: x <= 512, ""))
        self.print_rows(rows + self.cluster_rows())
        print(f"\ndd, 4 MiB direct with fsync: {m('dd write'):.2f} GB/s. "
              f"Saving {tensors:,} tensors: {m('million save s'):.1f} s, "
              f"{m('million save MiB'):.0f} MiB resident.")

    def clean(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensors", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["cluster"])
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bench = Bench(options)
    try:
        bench.prepare()
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            if not options.only:
                bench.round()
            bench.cluster_round()
        if options.only:
            return bench.print_rows(bench.cluster_rows())
        bench.million(options.tensors)
        bench.table(options.tensors)
    finally:
        bench.clean()


main()
