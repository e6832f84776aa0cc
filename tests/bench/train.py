#!/usr/bin/env python3
# A step of training with gradients summed by libff.so, beside the same step over gloo.
"""Measures steps of tests/training/bindings/train.py, --backend ff beside gloo.

usage: train.py BUILD [--rounds N] [--steps N] [--dir DIR] [--json]

BUILD is build/python of a release build. A transformer of 38 MB of gradients
learns from a single short line a step, so that sums are much of it. Both backends run in turn,
round by round; the first steps of each run are left out. Printed are medians of all steps, and the
median of the rounds' ratios; also of the processor time of rank 0, which says more where others are
at work, too. The last row, without a bar, is how long a save into DIR (default: here) stops rank 0,
which copies the model and the optimizer, three times the gradients. /usr/bin/python3 must have
PyTorch (python3-torch). Run it on an idle machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(HERE, "..", "training", "bindings", "train.py")
MODEL = ["--width", "512", "--layers", "3", "--batch", "1", "--context", "8"]
WARM = 4  # steps: the model makes its buckets anew, memory is touched for the first time
KINDS = ("step", "its processor time")
BAR = 1.0  # of gloo's step, at most


def step_times(build, backend, ranks, steps):
    """Of rank 0, in milliseconds: by the clock and of its processors; and how many bytes of
    gradients there are."""
    words = ["/usr/bin/python3", TRAIN, "--library", build, "--backend", backend, "--nproc",
             str(ranks), "--steps", str(steps + WARM), "--json", *MODEL]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    times = [(1e3 * line["seconds"], 1e3 * line["processor_seconds"]) for line in lines
             if "seconds" in line]
    return times[WARM:], 4 * next(line["parameters"] for line in lines if "parameters" in line)


def stops(build, folder, steps):
    """How long saves stop rank 0 of two, in milliseconds. The first find their memory."""
    with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=folder) as store:
        words = ["/usr/bin/python3", TRAIN, "--library", build, "--nproc", "2", "--steps",
                 str(steps), "--store", store, "--save-every", "0s", "--json", *MODEL]
        said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    # The last one waits for the one before.
    times = [1e3 * line["stopped"] for line in lines if line.get("event") == "saving" and
             line["rank"] == 0 and line["step"] < steps]
    return times[1:]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times, ratios, size = {}, {}, 0
    for turn in range(options.rounds):
        for ranks in (2, 4):
            middle = {}
            for backend in ("gloo", "ff"):
                seen, size = step_times(options.build, backend, ranks, options.steps)
                for what, values in zip(KINDS, zip(*seen)):
                    times.setdefault((what, ranks, backend), []).extend(values)
                    middle[what, backend] = statistics.median(values)
            for what in KINDS:
                ratio = middle[what, "ff"] / middle[what, "gloo"]
                ratios.setdefault((what, ranks), []).append(ratio)
            print(f"round {turn + 1}, {ranks} ranks: ff {middle['step', 'ff']:.0f} ms, gloo "
                  f"{middle['step', 'gloo']:.0f} ms", file=sys.stderr)
    if not options.json:
        print("| work | bar | measured | | figures (medians, ms) |\n|---|---|---|---|---|")
    met, rows = True, []
    for (what, ranks), all_ratios in ratios.items():
        ratio = statistics.median(all_ratios)
        met &= ratio < BAR
        ours, theirs = (statistics.median(times[what, ranks, one]) for one in ("ff", "gloo"))
        rows.append({"what": what, "ranks": ranks, "gradient_bytes": size, "ratio": ratio,
                     "ratios": all_ratios, "ff_ms": ours, "gloo_ms": theirs})
        if not options.json:
            print(f"| {what}, {size / 1e6:.0f} MB of gradients, {ranks} ranks | < {BAR:.0f} × gloo "
                  f"| {ratio:.2f} | {'met' if ratio < BAR else 'MISSED'} | ff {ours:.0f}, gloo "
                  f"{theirs:.0f}; rounds {min(all_ratios):.2f} to {max(all_ratios):.2f} |")
    saves = stops(options.build, options.dir, 4 * options.steps)
    if options.json:
        print(json.dumps([*rows, {"what": "stopped by a save", "ms": saves}]))
    elif saves:
        print(f"| a save of {3 * size / 1e6:.0f} MB: time rank 0 of 2 is stopped | | "
              f"{statistics.median(saves):.0f} ms | | {len(saves)} saves, {min(saves):.0f} to "
              f"{max(saves):.0f} |")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
