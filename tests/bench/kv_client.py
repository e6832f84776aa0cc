#!/usr/bin/env python3
# Keys and values in a process (ff.KV) beside rings in C++, on the same cluster.
"""Measures ff.KV beside `ff bench ring`, round by round; prints medians.

usage: kv_client.py FF FOLDER MOUNT STORE [--rounds N]

FOLDER has the Python package (build/python), MOUNT is a directory of an ff mount, STORE a folder
for a store in the same cluster (ff:///bench-kv); FF_META and FF_KEY as for `ff serve-kv`, which the
script starts. Values of 1 MiB, 64 in a call, are written and read in this process; look-ups are of
100,000 keys, in batches of 128.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

VALUE, AT_ONCE, VALUES, DEPTH = 1 << 20, 64, 256, 16
KEYS, BATCH, LOOKUPS = 100_000, 128, 10_000  # batches


def seconds(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


def batches(items, size):
    return [items[at:at + size] for at in range(0, len(items), size)]


class Client:
    def __init__(self, ff, store):
        self.kv = ff.KV(store, max_age=1)
        self.memory = [bytearray(os.urandom(VALUE)) for _ in range(AT_ONCE)]
        self.large = batches([b"value:%d" % i for i in range(VALUES)], AT_ONCE)
        names = [b"a key as long as a hash:%08d" % i for i in range(KEYS)]
        for some in batches(names, 1000):
            self.kv.put_many([(name, b"x") for name in some])
        self.lookups = [random.sample(names, BATCH) for _ in range(LOOKUPS // 10)] * 10

    def write(self):
        for names in self.large:
            self.kv.put_many(zip(names, self.memory))

    def read(self):
        for names in self.large:
            if self.kv.get_many(names, into=self.memory) != [VALUE] * AT_ONCE:
                raise RuntimeError("a value is missing")

    def look_up(self):
        for names in self.lookups:
            if not all(self.kv.exists_many(names)):
                raise RuntimeError("a key is missing")

    def measure(self):
        """Bytes a second of writes and reads, and keys a second."""
        wrote = VALUES * VALUE / seconds(self.write)
        self.kv.refresh()
        read = VALUES * VALUE / seconds(self.read)
        return wrote, read, LOOKUPS * BATCH / seconds(self.look_up)


def ring(args):
    words = [args.ff, "bench", "ring", args.mount, "--size", str(VALUES * VALUE), "--depth",
             str(DEPTH), "--rounds", "1", "--json"]  # fmt: skip
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return {row["test"]: row["ring_bytes_per_second"]
            for row in json.loads(done.stdout)["data"]["rows"]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("ff", "folder", "mount", "store"):
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sys.path.insert(0, args.folder)
    import ff

    gateway = subprocess.Popen([args.ff, "serve-kv", args.store, "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        gateway.stdout.readline()
        client = Client(ff, args.store)
        rounds = [(*client.measure(), ring(args)) for _ in range(args.rounds)]
    finally:
        gateway.terminate()
        gateway.wait()
    print("| work | ff.KV | ring | ratio (bar 0.8) |\n|---|---|---|---|")
    for i, name in enumerate(("write", "read")):
        mine = statistics.median(one[i] for one in rounds) / 1e6
        others = statistics.median(one[3][name] for one in rounds) / 1e6
        ratio = statistics.median(one[i] / one[3][name] for one in rounds)
        print(f"| {name}s of 1 MiB | {mine:,.0f} MB/s | {others:,.0f} MB/s | {ratio:.2f} |")
    keys = statistics.median(one[2] for one in rounds)
    print(f"\nlook-ups: {keys:,.0f} keys a second (bar 1,000,000)")


if __name__ == "__main__":
    main()
