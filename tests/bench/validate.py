#!/usr/bin/env python3
# The bars of `ff validate`: what it measures beside the programs that everybody measures with.
"""Measures ff validate beside STREAM, OpenBLAS and fio, and how long and how large a quick run is.

usage: validate.py FF DIR --stream FILE [--rounds N]

FF is build/ff of a release build, DIR a folder on the disk to use, FILE a triad in C with OpenMP
that prints lines "triad N GB/s". gcc, fio and libopenblas0 must be installed. What is compared runs
in turn, round by round; medians are printed. Run it on an idle machine, as root: ff measures with
large pages, and so that the peers do the same, the kernel is told to give them some meanwhile.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

WEEKLY = 4 * 2**30  # bytes of the file that --level weekly writes

BARS = [
    ("triad / STREAM", "triad", "peer triad", 0.95, 1.05),
    ("GEMM, a core / OpenBLAS", "gemm", "peer gemm", 0.5, None),
    ("write 1 MiB / fio", "write", "peer write", 0.9, 1.1),
    ("read 1 MiB / fio", "read", "peer read", 0.9, 1.1),
    ("read 4 KiB anywhere / fio", "4 KiB reads", "peer 4 KiB reads", 0.9, 1.1),
]


def checks(ff, state, *words):
    ran = subprocess.run([ff, "validate", "--json", "--force", *words], capture_output=True,
                         text=True, env={**os.environ, "FF_STATE": state})
    return json.loads(ran.stdout)["data"]["checks"]


class Setting:
    """A setting of the kernel, changed for a while."""

    def __init__(self, path, value):
        self.path, self.value = pathlib.Path(path), value

    def __enter__(self):
        was = self.path.read_text().split()
        chosen = [word.strip("[]") for word in was if word.startswith("[")]
        self.was = chosen[0] if chosen else was[0]
        self.path.write_text(self.value)

    def __exit__(self, *error):
        self.path.write_text(self.was)


def ours(ff, state, folder, figures):
    for words in (["--only", "memory.stream", "--level", "weekly"], ["--only", "cpu"],
                  ["--only", "storage.speed", "--level", "weekly", "--scratch", folder]):
        for check in checks(ff, state, *words):
            if check["value"] is not None:
                figures.setdefault(check["part"], []).append(check["value"])


def stream(program, figures):
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    best = max(float(found) for found in re.findall(r"triad ([\d.]+) GB/s", said))
    figures.setdefault("peer triad", []).append(best * 1e9)


def sgemm(figures, side=3072):
    """One core's share of OpenBLAS's best, all cores at once, on matrices of its liking."""
    blas = ctypes.CDLL("libopenblas.so.0")
    count = side * side
    a, b, c = ((ctypes.c_float * count)() for _ in range(3))
    for i in range(0, count, 97):
        a[i] = b[i] = 1.5
    row_major, plain = 101, 111
    seconds = []
    for _ in range(4):  # the first one also wakes its threads
        began = time.monotonic()
        blas.cblas_sgemm(row_major, plain, plain, side, side, side, ctypes.c_float(1), a, side, b,
                         side, ctypes.c_float(0), c, side)
        seconds.append(time.monotonic() - began)
    rate = 2 * side**3 / min(seconds) / len(os.sched_getaffinity(0))
    figures.setdefault("peer gemm", []).append(rate)


def fio(folder, *words):
    said = subprocess.run(["fio", "--name=peer", f"--filename={folder}/peer", "--direct=1",
                           "--ioengine=io_uring", "--output-format=json", f"--size={WEEKLY}",
                           "--mem=mmaphuge", "--hugepage-size=2m", *words],
                          capture_output=True, text=True, check=True).stdout
    return json.loads(said)["jobs"][0]


def disk(folder, figures):
    large = ["--bs=1M", "--iodepth=8"]
    done = fio(folder, "--rw=write", "--end_fsync=1", *large)
    figures.setdefault("peer write", []).append(done["write"]["bw_bytes"])
    done = fio(folder, "--rw=read", *large)
    figures.setdefault("peer read", []).append(done["read"]["bw_bytes"])
    done = fio(folder, "--rw=randread", "--bs=4k", "--iodepth=32", "--time_based", "--runtime=5")
    figures.setdefault("peer 4 KiB reads", []).append(done["read"]["iops"])
    os.remove(f"{folder}/peer")


def quick(ff, state, figures):
    """Seconds of a whole quick run; bytes of its largest process outside the tests of memory."""
    began = time.monotonic()
    checks(ff, state)
    figures.setdefault("quick seconds", []).append(time.monotonic() - began)
    groups = "host cpu pci network storage gpu collective log".split()
    words = [word for group in groups for word in ("--only", group)]
    # A process of its own, so that the largest of its children is known.
    said = subprocess.run(
        [sys.executable, "-c",
         "import resource, subprocess, sys\n"
         "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
         "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)",
         ff, "validate", "--quiet", "--force", *words],
        capture_output=True, text=True, env={**os.environ, "FF_STATE": state})
    figures.setdefault("quick bytes", []).append(int(said.stdout))


def table(figures):
    middle = {name: statistics.median(values) for name, values in figures.items()}
    print("| work | bar | measured | | ff, peer |\n|---|---|---|---|---|")
    for name, mine, peer, least, most in BARS:
        ratio = middle[mine] / middle[peer]
        met = ratio >= least and (most is None or ratio <= most)
        bar = f"≥ {least}" if most is None else f"{least} to {most}"
        print(f"| {name} | {bar} | {ratio:.2f} | {'met' if met else 'MISSED'} "
              f"| {middle[mine]:.4g}, {middle[peer]:.4g} |")
    past = middle["triad past the caches"]
    ratio = past / middle["peer triad"]
    print(f"| triad past the caches / STREAM | shown | {ratio:.2f} | | {past:.4g} |")
    seconds, size = middle["quick seconds"], middle["quick bytes"] / 2**20
    print(f"| a quick run | ≤ 15 s | {seconds:.1f} s | {'met' if seconds <= 15 else 'MISSED'} | |")
    print(f"| its memory outside tests of memory | ≤ 200 MiB | {size:.0f} MiB "
          f"| {'met' if size <= 200 else 'MISSED'} | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures = {}
    with (
        tempfile.TemporaryDirectory(dir=options.dir) as folder,
        Setting("/sys/kernel/mm/transparent_hugepage/enabled", "always"),
        Setting("/proc/sys/vm/nr_hugepages", "64"),
    ):
        triad = f"{folder}/triad"
        subprocess.run(["gcc", "-O3", "-fopenmp", "-o", triad, options.stream], check=True)
        for number in range(options.rounds):
            state = f"{folder}/state{number}"  # no baseline: nothing is measured twice
            pathlib.Path(state).mkdir()
            ours(options.ff, state, folder, figures)
            stream(triad, figures)
            sgemm(figures)
            disk(folder, figures)
            quick(options.ff, state, figures)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    table(figures)


if __name__ == "__main__":
    main()
