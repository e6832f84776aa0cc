#!/usr/bin/env python3
# The bars of the wire: calls and bulk of ff against plain sockets, memcpy, gRPC and the raw disk.
"""Measures ff bench net and its peers in turn.

usage: net.py FF PEERS DISK_DIR [--rounds N] [--seconds S]

FF is build/ff of a release build, PEERS the build folder with socket_peer and grpc_peer
(cmake -DFF_BENCHMARKS=ON, with libgrpc++-dev and protobuf-compiler-grpc installed), DISK_DIR a
directory on the disk to read. Everything runs in turn, round by round; medians are printed.
"""
import argparse
import collections
import json
import statistics
import subprocess
import sys


def measure(command):
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {run.returncode}\n{run.stderr}{run.stdout}")
    return json.loads(run.stdout)


def one_round(args, figures):
    seconds = ["--seconds", str(args.seconds)]
    for name, options in (("socket", []), ("socket-crc", ["--crc"]), ("memcpy", ["--memcpy"])):
        peer = measure([f"{args.peers}/socket_peer", *options, *seconds])
        figures[name].append(peer["bytes_per_second"])
    grpc = measure([f"{args.peers}/grpc_peer", *seconds])
    figures["grpc"].append(grpc["calls_per_second"])
    figures["grpc p99"].append(grpc["p99_seconds"])
    duration = f"{int(args.seconds * 1000)}ms"
    ours = measure([args.ff, "bench", "net", "--disk", args.dir, "--duration", duration, "--json"])
    for row in ours["data"]["rows"]:
        name = f"{row['way']} {row['test']} {row['size']} x{row['in_flight']}"
        unit = "calls_per_second" if row["size"] == 4096 else "bytes_per_second"
        figures[name].append(row[unit])
        figures[name + " p99"].append(row["p99_seconds"])


BARS = [
    ("tcp bulk / plain socket, 1 MiB", "tcp read 1048576 x8", "socket", 0.9),
    ("tcp bulk with CRC / plain socket", "tcp read-crc 1048576 x8", "socket", 0.75),
    ("4 KiB disk reads over tcp / raw", "tcp disk 4096 x64", "raw disk 4096 x64", 0.7),
    ("4 KiB disk reads over shm / raw", "shm disk 4096 x64", "raw disk 4096 x64", 0.85),
    ("1 MiB disk reads over shm / raw", "shm disk 1048576 x8", "raw disk 1048576 x8", None),
    ("shm bulk / memcpy", "shm read 1048576 x8", "memcpy", 0.8),
    ("4 KiB calls over tcp / gRPC", "tcp call 4096 x64", "grpc", 1.5),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("peers")
    parser.add_argument("dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    args = parser.parse_args()
    figures = collections.defaultdict(list)
    for _ in range(args.rounds):
        one_round(args, figures)
    median = {name: statistics.median(values) for name, values in figures.items()}
    for name, value in median.items():
        print(f"{name:32} {value:.6g}")
    print("\n| work | bar | measured |\n|---|---|---|")
    for title, ours, theirs, bar in BARS:
        # Of one round each: the machine drifts between rounds.
        ratio = statistics.median(a / b for a, b in zip(figures[ours], figures[theirs]))
        wanted = "" if bar is None else f"{bar} {'met' if ratio >= bar else 'MISSED'}"
        print(f"| {title} | {wanted} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
