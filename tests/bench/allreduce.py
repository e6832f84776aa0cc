#!/usr/bin/env python3
# The bars of `ff allreduce` on one host, beside Open MPI and gloo in the same run.
"""Measures ff allreduce beside Open MPI and gloo, and against what memory gives.

usage: allreduce.py FF --mpi FILE.c --gloo FILE.py [--rounds N]

FF is build/ff of a release build. The peers' programs print a line "... algbw X GB/s": one in C,
with MPI, takes MIB ITERATIONS; one in Python, with torch.distributed, RANK WORLD MIB ITERATIONS.
mpicc, mpirun and python3-torch must be installed. What is compared runs in turn, round by round,
out of place as nccl-tests measure it; medians are printed. Open MPI is taken at its best of three
ways.
Run it on an idle machine, as root: ff then has large pages.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile

MPI_WAYS = [[], ["--mca", "mpi_yield_when_idle", "1"],
            ["--mca", "mpi_yield_when_idle", "1", "--mca", "coll_tuned_priority", "100"]]
LARGE = 186  # MiB, as the paper's

# Work: MiB, ranks; what is it to be held against, and how much of it is wanted.
WORKS = [
    ("186 MiB, 4 ranks", LARGE, 4, {"gloo": 8, "mpi": 8, "memory": 0.7}),
    ("186 MiB, 2 ranks", LARGE, 2, {"better": 5, "memory": 0.7}),
    ("186 MiB, 8 ranks", LARGE, 8, {"mpi": 8}),
    ("1 MiB, 4 ranks", 1, 4, {"better": 1.5}),
]
NAMES = {"gloo": "gloo", "mpi": "Open MPI", "better": "the better peer", "memory": "memory's triad"}


def iterations(mib, fast):
    return (20 if fast else 4) if mib >= LARGE else (500 if fast else 100)


def ours(ff, mib, ranks):
    words = [ff, "allreduce", "bench", "--nproc", str(ranks), "-b", f"{mib}M", "-e", f"{mib}M",
             "-n", str(iterations(mib, True)), "--json"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    data = json.loads(said)["data"]
    assert data["wrong"] == 0, data
    rate = data["rows"][0]["out_of_place"]["algorithm_bytes_per_second"] / 1e9
    return rate, data.get("memory", {}).get("share")


def algbw(text):
    return float(re.search(r"algbw ([\d.]+) GB/s", text).group(1))


def gloo(program, mib, ranks):
    words = ["/usr/bin/python3", program]  # Debian's: it has Debian's torch
    tail = [str(ranks), str(mib), str(iterations(mib, False))]
    others = [subprocess.Popen(words + [str(rank)] + tail, stdout=subprocess.DEVNULL)
              for rank in range(1, ranks)]
    first = subprocess.run(words + ["0"] + tail, capture_output=True, text=True, check=True)
    for other in others:
        other.wait()
    return algbw(first.stdout)


def mpi(program, way, mib, ranks):
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", *way, "-n", str(ranks), program,
             str(mib), str(iterations(mib, False))]
    return algbw(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("ff")
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--gloo", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        program = folder + "/mpi_allreduce"
        subprocess.run(["mpicc", "-O3", "-o", program, options.mpi], check=True)
        for turn in range(options.rounds):
            for name, mib, ranks, _ in WORKS:
                note = lambda what, value: seen.setdefault((name, what), []).append(value)
                rate, share = ours(options.ff, mib, ranks)
                note("ff", rate)
                if share is not None:
                    note("share", share)
                note("gloo", gloo(options.gloo, mib, ranks))
                for number, way in enumerate(MPI_WAYS):
                    note(f"mpi {number}", mpi(program, way, mib, ranks))
                print(f"round {turn + 1}, {name}: {rate:.2f} GB/s", file=sys.stderr)
    middle = {key: statistics.median(values) for key, values in seen.items()}
    print("| work | bar | measured | | figures (medians, GB/s) |\n|---|---|---|---|---|")
    met = True
    for name, _, _, bars in WORKS:
        ways = [middle[name, f"mpi {number}"] for number in range(len(MPI_WAYS))]
        peers = {"gloo": middle[name, "gloo"], "mpi": max(ways)}
        peers["better"] = max(peers.values())
        rate = middle[name, "ff"]
        for what, wanted in bars.items():
            ratio = middle[name, "share"] if what == "memory" else rate / peers[what]
            met &= ratio >= wanted
            print(f"| {name} | ≥ {wanted} × {NAMES[what]} | {ratio:.2f} | "
                  f"{'met' if ratio >= wanted else 'MISSED'} | ff {rate:.2f}, gloo "
                  f"{peers['gloo']:.2f}, Open MPI {peers['mpi']:.2f} (way "
                  f"{ways.index(max(ways)) + 1}) |")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
