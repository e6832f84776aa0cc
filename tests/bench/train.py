#!/usr/bin/env python3
# A step of training with gradients summed by libff.so, beside the same step over gloo.
"""Measures steps of tests/library/train.py, --backend ff beside gloo.

usage: train.py BUILD [--rounds N] [--steps N] [--json]

BUILD is the folder of libff.so and ff.py, of a release build. A transformer of 38 MB of gradients
learns from a single short line a step, so that sums are much of it. Both backends run in turn,
round by round; the first steps of each run are left out. Printed are medians of all steps, and the
median of the rounds' ratios; also of the processor time of rank 0, which says more where others are
at work, too. /usr/bin/python3 must have PyTorch (python3-torch). Run it on an idle machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "library", "train.py")
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


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
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
    if options.json:
        print(json.dumps(rows))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
