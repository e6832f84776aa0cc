#!/usr/bin/env python3
# The bars of a mount: existing programs on it, beside another file system and the bare disk.
"""Measures a mount of a cluster of its own beside the raw disk and another mounted file system.

usage: mount.py FF DIR [--beside DIR] [--rounds N] [--size BYTES]

FF is build/ff of a release build, run as root; DIR a folder on the disk to use, where `ff up` makes
three storage daemons with two replicas. --beside names a folder of a mounted peer (MooseFS with
goal 2, three chunkservers on the same disk). fio must be installed. What is compared runs in turn,
round by round; medians are printed, and the CPU time of the whole machine for each operation (each
MiB where the figure is a speed). Raw is fio on a freshly fallocated file, with direct I/O;
sequential works by io_uring with 8 requests in flight, random ones by the same jobs as on mounts.
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

SECONDS = 5
CREATES = 2000
SMALL = 8192
MIB = 1 << 20

# (work, figure, of which of the peer's times how much at least, of raw how much); a bar of both is
# the lower of the two where `either`.
BARS = [
    ("write 1 MiB, fsync at the end", "write", 4, 0.4, True),
    ("the same, 4 jobs", "write 4", None, None, False),
    ("read 1 MiB, direct", "read", 2, 0.7, False),
    ("the same, 4 jobs", "read 4", None, None, False),
    ("read 4 KiB anywhere, direct, 8 jobs", "randread", 3, 0.5, False),
    ("write 4 KiB anywhere, direct, 8 jobs", "randwrite", 1.5, None, False),
    ("create in one directory, 1 client", "create", 1, None, False),
    ("create in one directory, 8 clients", "create 8", 3, None, False),
    ("write files of 8 KiB, 1 client", "small", None, None, False),
    ("read files of 8 KiB, 1 client, once opened", "small read", None, None, False),
]


def fio(folder, *options):
    """The job's figures: {"read": {"bw_bytes", "iops"}, "write": …}."""
    command = ["fio", "--name=job", f"--directory={folder}", "--filename_format=job.$jobnum",
               "--group_reporting", "--output-format=json", *options]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["jobs"][0]


def busy_ticks():
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def measured(figures, work, where, call):
    """Notes the rate that `call` returns, and the CPU seconds of one of what it counts."""
    ticks, began = busy_ticks()[0], time.monotonic()
    rate = call()
    count = rate * (time.monotonic() - began)
    figures[work, where].append(rate)
    busy = (busy_ticks()[0] - ticks) / os.sysconf("SC_CLK_TCK")
    figures[f"cpu {work}", where].append(busy / count)


def settle():
    """Waits, for a minute at most, until processors are idle: what was removed is cleared away."""
    end = time.monotonic() + 60
    before = busy_ticks()
    while time.monotonic() < end:
        time.sleep(1)
        now = busy_ticks()
        if now[0] - before[0] < 0.1 * (now[1] - before[1]):
            return
        before = now


def write(folder, jobs, size, raw):
    if raw:
        how = ["--ioengine=io_uring", "--iodepth=8", "--direct=1", "--fallocate=posix"]
    else:
        how = ["--ioengine=psync", "--direct=0", "--fallocate=none"]
    done = fio(folder, "--rw=write", "--bs=1M", f"--numjobs={jobs}", f"--size={size // jobs}",
               "--end_fsync=1", *how)  # fmt: skip
    return done["write"]["bw_bytes"]


def read(folder, jobs, size, raw):
    how = ["--ioengine=io_uring", "--iodepth=8"] if raw else ["--ioengine=psync"]
    done = fio(folder, "--rw=read", "--bs=1M", "--direct=1", f"--numjobs={jobs}",
               f"--size={size // jobs}", "--time_based", f"--runtime={SECONDS}", *how)  # fmt: skip
    return done["read"]["bw_bytes"]


def anywhere(folder, work, size):
    done = fio(folder, f"--rw={work}", "--bs=4k", "--direct=1", "--numjobs=8", "--time_based",
               f"--runtime={SECONDS}", "--ioengine=psync", f"--size={size // 8}",
               "--fallocate=none", "--norandommap=1")  # fmt: skip
    return done["read" if work == "randread" else "write"]["iops"]


def make_files(folder, name, count, data):
    for i in range(count):
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        descriptor = os.open(f"{folder}/{name}.{i}", flags, 0o644)
        if data:
            os.write(descriptor, data)
        os.close(descriptor)


def creates(folder, clients, data=b""):
    """A second, of all clients together."""
    os.mkdir(folder)
    count = CREATES // 2 if data else CREATES
    makers = [multiprocessing.Process(target=make_files, args=(folder, k, count, data))
              for k in range(clients)]  # fmt: skip
    began = time.monotonic()
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
        assert maker.exitcode == 0
    return clients * count / (time.monotonic() - began)


def read_files(folder):
    names = os.listdir(folder)
    began = time.monotonic()
    for name in names:
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            assert len(file.read()) == SMALL
    return len(names) / (time.monotonic() - began)


def works(where, folder, size, figures):
    """Everything in a fresh folder of one file system."""
    raw = where == "raw"
    os.mkdir(folder)
    settle()
    def run(work, call, *words):
        measured(figures, work, where, lambda: call(*words))

    run("create", creates, f"{folder}/one", 1)
    run("create 8", creates, f"{folder}/eight", 8)
    run("small", creates, f"{folder}/small", 1, bytes(SMALL))
    run("small read", read_files, f"{folder}/small")
    for jobs, suffix in ((4, " 4"), (1, "")):
        run("write" + suffix, write, folder, jobs, size, raw)
        run("read" + suffix, read, folder, jobs, size, raw)
        for name in os.listdir(folder):
            if name.startswith("job."):
                os.unlink(f"{folder}/{name}")
        settle()
    # The files of eight jobs, written once.
    write(folder, 8, size, raw)
    for work in ("randread", "randwrite"):
        run(work, anywhere, folder, work, size)
    shutil.rmtree(folder)


def ring(ff, folder, raw, size):
    """Medians of `ff bench ring`'s own rounds."""
    words = [ff, "bench", "ring", folder, "--raw", raw, "--size", str(size), "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["data"]


def table(figures):
    places = ["peer"] if any(where == "peer" for _, where in figures) else []
    print("| work | bar | × peer | × raw | | ff, peer, raw (medians) "
          "| CPU each |\n|---|---|---|---|---|---|---|")
    for text, work, of_peer, of_raw, either in BARS:
        def ratio(where, work=work):
            pairs = zip(figures[work, "ff"], figures[work, where])
            return statistics.median(a / b for a, b in pairs)

        against = {"raw": ratio("raw"), **{place: ratio(place) for place in places}}
        wanted = {"peer": of_peer, "raw": of_raw}
        bars = [against[place] >= wanted[place] for place in against if wanted[place] is not None]
        held = any(bars) if either else all(bars)
        verdict = "" if not bars else "met" if held else "MISSED"
        joint = " or " if either else ", "
        bar = joint.join(f"≥ {wanted[place]} × {place}"
                         for place in ("peer", "raw") if wanted[place] is not None)  # fmt: skip
        shown, costs = [], []
        for where in ("ff", "peer", "raw"):
            if (work, where) in figures:
                middle = statistics.median(figures[work, where])
                bulk = work.startswith(("write", "read"))
                shown.append(f"{middle / 1e6:,.0f} MB/s" if bulk else f"{middle:,.0f}/s")
                cost = statistics.median(figures[f"cpu {work}", where]) * (MIB if bulk else 1)
                costs.append(f"{cost * 1e6:,.0f}")
        peer = f"{against['peer']:.2f}" if places else "–"
        print(f"| {text} | {bar} | {peer} | {against['raw']:.2f} | {verdict} "
              f"| {', '.join(shown)} | {', '.join(costs)} µs |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--beside", help="a folder of the peer's mount")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--no-ring", action="store_true")
    args = parser.parse_args()
    ff = os.path.abspath(args.ff)
    folder = f"{os.path.abspath(args.dir)}/ff-bench-mount-{os.getpid()}"
    mounted = f"{folder}/mnt"
    os.makedirs(mounted)
    figures = collections.defaultdict(list)
    subprocess.run([ff, "up", "--dir", f"{folder}/cluster", "--mount", mounted, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        places = {"ff": f"{mounted}/bench", "raw": f"{folder}/raw"}
        if args.beside:
            places["peer"] = f"{args.beside}/ff-bench-{os.getpid()}"
        for number in range(args.rounds):
            order = list(places.items())
            for where, place in order if number % 2 == 0 else reversed(order):
                works(where, place, args.size, figures)
                print(f"round {number + 1} of {args.rounds}: {where}", file=sys.stderr)
        rings = None if args.no_ring else ring(ff, mounted, folder, args.size)
    finally:
        subprocess.run([ff, "down", "--dir", f"{folder}/cluster", "--purge", "--yes", "--quiet"],
                       check=True)  # fmt: skip
        shutil.rmtree(folder)
    table(figures)
    if rings is not None:
        print(json.dumps(rings))


if __name__ == "__main__":
    main()
