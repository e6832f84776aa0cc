#!/usr/bin/env python3
# Measures how long ff.save_async() stops a trainer, beside one memcpy of the same state.
"""The bar of asynchronous checkpoints: time the trainer is stopped, in copies of the state.

    tests/bench/save_async.py FOLDER DIR [--mib 1024] [--tensors 300] [--rounds 9]

FOLDER is build/python, DIR is a directory on the disk to save to; --mib of it are used. In
each round, in turn: memcpy of the state, in C, into memory that was touched before; and
ff.save_async() until it returns, which is then waited for. The first save, which has to find its
memory, is told apart. Medians of the rounds. Needs nothing but Python. Prints a table in Markdown.
"""
import argparse
import ctypes
import os
import shutil
import statistics
import sys
import time

BAR = 1.3


def timed(call, *arguments, **named):
    start = time.perf_counter()
    result = call(*arguments, **named)
    return time.perf_counter() - start, result


def make_state(tensors, size):
    """Arrays of which no two chunks are alike, of `size` bytes each."""
    state = {}
    for index in range(tensors):
        data = bytearray(size)
        for at in range(0, size, 4096):
            data[at:at + 8] = (index * size + at + 1).to_bytes(8, "little")
        state[f"layers.{index}.weight"] = data
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("dir")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    sys.path.insert(0, os.path.realpath(options.folder))
    import ff
    store = os.path.join(options.dir, f"ff-bench-{os.getpid()}")
    size = (options.mib << 20) // options.tensors
    total = size * options.tensors
    state = make_state(options.tensors, size)
    source, sink = (ctypes.create_string_buffer(total) for _ in range(2))
    for memory in (source, sink):
        ctypes.memset(memory, 1, total)
    copies, stops, writes = [], [], []
    try:
        for turn in range(options.rounds + 1):
            copies.append(timed(ctypes.memmove, sink, source, total)[0])
            stop, save = timed(ff.save_async, state, store=store)
            stops.append(stop)
            writes.append(save.wait().seconds)
            print(f"  memcpy {copies[-1]:.4f} s, stopped {stop:.4f} s, written in "
                  f"{writes[-1]:.3f} s", file=sys.stderr, flush=True)
            state["layers.0.weight"][:8] = (2**63 + turn).to_bytes(8, "little")
    finally:
        shutil.rmtree(store, ignore_errors=True)
    copy, stop = statistics.median(copies[1:]), statistics.median(stops[1:])
    ratio = stop / copy
    print("| work | bar | measured | | figures (medians) |")
    print("|---|---|---|---|---|")
    print(f"| async save of {options.mib} MiB in {options.tensors} tensors: time stopped | "
          f"≤ {BAR} × memcpy | {ratio:.2f} | {'met' if ratio <= BAR else 'MISSED'} | "
          f"{stop * 1e3:.0f} of {copy * 1e3:.0f} ms; the first save {stops[0] * 1e3:.0f} ms, "
          f"{total / 1e9 / writes[0]:.2f} GB/s behind |")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
