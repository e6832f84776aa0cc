#!/usr/bin/env python3
# Rings in Python beside rings in C++: the same reads of the same mount.
"""Measures hf3fs_fuse beside `ff bench ring`, round by round; prints medians.

usage: python_ring.py FF FOLDER MOUNT [--rounds N]

FOLDER has the Python package (build/python), MOUNT is a directory of an ff mount. Reads of 1 MiB,
16 in flight, through the file; and random ones of 4 KiB, 64 in flight, 16 results at a time.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory

SIZE = 512 << 20
SMALL = 40_000  # reads


def measure(io, mount, file, piece, depth, batch, offsets):
    """Bytes a second."""
    shm = SharedMemory(size=piece * depth, create=True)
    iov = io.make_iovec(shm, mount)
    shm.unlink()
    ring = io.make_ioring(mount, depth)
    parts = [iov[i * piece:(i + 1) * piece] for i in range(depth)]
    began, under_way, done = time.monotonic(), 0, 0
    offset = iter(offsets)
    while done < len(offsets):
        for part, at in zip(parts, offset):
            ring.prepare(part, True, file, at)
            under_way += 1
        parts = ring.submit().wait(max_results=depth, min_results=min(batch, under_way))
        under_way -= len(parts)
        done += len(parts)
        if any(part.result != piece for part in parts):
            raise RuntimeError("a read failed, or was short")
    speed = len(offsets) * piece / (time.monotonic() - began)
    shm.close()
    return speed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("folder")
    parser.add_argument("mount")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sys.path.insert(0, args.folder)
    from hf3fs_fuse import io

    path = f"{args.mount}/python-ring.{os.getpid()}"
    with open(path, "wb") as out:
        for _ in range(SIZE >> 20):
            out.write(os.urandom(1 << 20))
    file = os.open(path, os.O_RDONLY)
    io.register_fd(file)
    mount = io.extract_mount_point(path)
    figures = {}
    for _ in range(args.rounds):
        words = [args.ff, "bench", "ring", args.mount, "--size", str(SIZE), "--depth", "16",
                 "--small-depth", "64", "--batch", "16", "--rounds", "1", "--json"]  # fmt: skip
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        beside = {row["test"]: row["ring_bytes_per_second"]
                  for row in json.loads(done.stdout)["data"]["rows"]}  # fmt: skip
        large = measure(io, mount, file, 1 << 20, 16, 1, range(0, SIZE, 1 << 20))
        places = [random.randrange(SIZE >> 12) << 12 for _ in range(SMALL)]
        small = measure(io, mount, file, 4096, 64, 16, places)
        figures.setdefault("1 MiB", []).append((large, beside["read"]))
        figures.setdefault("4 KiB", []).append((small, beside["random read"]))
    io.deregister_fd(file)
    os.close(file)
    os.unlink(path)
    print("| reads | Python | C++ | ratio (bar 0.9) |\n|---|---|---|---|")
    for name, pairs in figures.items():
        mine, others = (statistics.median(speeds) / 1e6 for speeds in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"| {name} | {mine:,.0f} MB/s | {others:,.0f} MB/s | {ratio:.2f} |")


if __name__ == "__main__":
    main()
