#!/usr/bin/env python3
# The bars of chains: writes, reads, copies and failures of ff beside the disk under it.
"""Measures ff bench chain beside fio, on a cluster of its own.

usage: chain.py FF DIR [--rounds N] [--size BYTES]

FF is build/ff of a release build, DIR a folder on the disk to use: a manager and two storage nodes
with a folder each are started there, and stopped at the end. fio must be installed. What is
compared runs in turn, round by round; medians are printed.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import cluster

BARS = [
    ("write 1 MiB, 2 replicas / raw write", "write", "raw write", 0.35),
    ("read 1 MiB / raw read", "read", "raw read", 0.95),
    ("4 KiB random read / raw", "random read", "raw random read", 0.75),
    ("resync / reader and writer together", "resync", "raw copy", 0.5),
]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Cluster:
    """A manager and two nodes, and what is asked of them."""

    def __init__(self, ff, folder):
        self.ff = ff
        self.folder = folder
        self.meta = f"127.0.0.1:{free_port()}"
        self.ports = {node: free_port() for node in (1, 2)}
        self.daemons = {}
        cluster.use_key(folder)
        self.start("meta", "serve-meta", "--dir", f"{folder}/meta", "--listen", self.meta)
        self.run("admin", "init")
        for node in (1, 2):
            self.start_node(node)
        self.until(lambda: len(self.status()["nodes"]) == 2)
        self.run("admin", "plan", "--replicas", "2", "--targets-per-disk", "2", "--apply")
        self.until(self.whole)

    def start(self, name, *words):
        with open(f"{self.folder}/{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(
                [self.ff, *words], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.daemons[name].stdout.readline()

    def start_node(self, node):
        self.start(
            node, "serve-storage", "--disk", f"{self.folder}/disk{node}", "--node", str(node),
            "--failure-domain", f"d{node}", "--listen", f"127.0.0.1:{self.ports[node]}",
            "--meta", self.meta,
        )  # fmt: skip

    def end(self, name, number=signal.SIGTERM):
        self.daemons[name].send_signal(number)
        self.daemons[name].wait()

    def run(self, *words, check=True):
        environment = dict(os.environ, FF_META=self.meta)
        ran = subprocess.run(
            [self.ff, *words, "--json"], capture_output=True, text=True, check=False,
            env=environment,
        )  # fmt: skip
        if check and ran.returncode != 0:
            sys.exit(f"ff {' '.join(words)}: exit {ran.returncode}\n{ran.stderr}{ran.stdout}")
        return json.loads(ran.stdout)["data"]

    def status(self):
        return self.run("admin", "status", check=False)

    def whole(self):
        chains = self.status().get("chains", {})
        return chains.get("all", 0) > 0 and chains["all"] == chains["whole"]

    @staticmethod
    def until(condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                sys.exit("it does not come to that")

    def close(self):
        for name in (1, 2, "meta"):
            if name in self.daemons and self.daemons[name].poll() is None:
                self.daemons[name].send_signal(signal.SIGCONT)
                self.end(name)


def fio(folder, size, *jobs):
    """Bytes a second that were read and written."""
    words = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", f"--size={size}",
             f"--directory={folder}", "--end_fsync=1"]  # fmt: skip
    for job in jobs:
        words += [f"--name={job[0]}", *job[1:]]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    report = json.loads(ran.stdout)
    read = sum(job["read"]["bw_bytes"] for job in report["jobs"])
    write = sum(job["write"]["bw_bytes"] for job in report["jobs"])
    return read, write


def raw(folder, size, figures):
    depth8 = ["--bs=1M", "--iodepth=8", "--fallocate=posix"]
    figures["raw write"].append(fio(folder, size, ["a", "--rw=write", *depth8])[1])
    figures["raw read"].append(fio(folder, size, ["a", "--rw=read", *depth8])[0])
    small = ["--bs=4k", "--iodepth=64", "--rw=randread", "--runtime=2", "--time_based"]
    figures["raw random read"].append(fio(folder, size, ["a", *small])[0])
    # A copy: what one reads another writes, at the same time.
    both = fio(folder, size, ["a", "--rw=read", *depth8], ["b", "--rw=write", *depth8])
    figures["raw copy"].append(min(both))
    for name in ("a", "b"):
        for path in pathlib.Path(folder).glob(f"{name}.*"):
            path.unlink()


def chains(cluster, size, figures):
    for row in cluster.run("bench", "chain", "--rounds", "1", "--size", str(size))["rows"]:
        figures[row["test"]].append(row["chain_bytes_per_second"])


def resync(cluster, size, figures):
    """Node 2 is away while all is written; then its copy is caught up."""
    cluster.end(2)
    cluster.run("bench", "chain", "--rounds", "1", "--size", str(size), "--keep")
    cluster.start_node(2)
    began = time.monotonic()
    cluster.until(cluster.whole)
    figures["resync"].append(size / (time.monotonic() - began))


def failures(cluster):
    """Under load: node 2 killed and started again, then silent for a while."""

    def kill():
        cluster.end(2, signal.SIGKILL)
        cluster.start_node(2)

    def silence():
        cluster.daemons[2].send_signal(signal.SIGSTOP)
        time.sleep(15)
        cluster.daemons[2].send_signal(signal.SIGCONT)

    rows = []
    for name, bar, befall in (("killed and restarted", 3, kill), ("silent for 15 s", 13, silence)):
        environment = dict(os.environ, FF_META=cluster.meta)
        load = subprocess.Popen(
            [cluster.ff, "bench", "chain", "--hold", "25s", "--size", "64MiB", "--json"],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        time.sleep(4)
        befall()
        data = json.loads(load.communicate()[0])["data"]
        cluster.until(cluster.whole)
        rows.append((name, bar, data["longest_seconds"], data["errors"]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1 << 30)
    args = parser.parse_args()
    folder = f"{args.dir}/ff-bench-chain-{os.getpid()}"
    os.makedirs(f"{folder}/raw")
    figures = collections.defaultdict(list)
    cluster = None
    try:
        cluster = Cluster(os.path.abspath(args.ff), folder)
        for number in range(args.rounds):
            steps = [
                lambda: raw(f"{folder}/raw", args.size, figures),
                lambda: chains(cluster, args.size, figures),
                lambda: resync(cluster, 4 * args.size, figures),
            ]
            for step in steps if number % 2 == 0 else reversed(steps):
                step()
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        rows = failures(cluster)
    finally:
        if cluster is not None:
            cluster.close()
        shutil.rmtree(folder)
    print("| work | bar | measured | | figures (medians) |\n|---|---|---|---|---|")
    for name, ours, theirs, bar in BARS:
        ratio = statistics.median(a / b for a, b in zip(figures[ours], figures[theirs]))
        fast, slow = (statistics.median(figures[key]) / 1e9 for key in (ours, theirs))
        verdict = "met" if ratio >= bar else "MISSED"
        print(f"| {name} | >= {bar} x | {ratio:.2f} | {verdict} | {fast:.2f} of {slow:.2f} GB/s |")
    for name, bar, longest, errors in rows:
        verdict = "met" if longest <= bar and errors == 0 else "MISSED"
        print(f"| node {name} | no error, <= {bar} s | {errors}, {longest:.1f} s | {verdict} | |")


if __name__ == "__main__":
    main()
