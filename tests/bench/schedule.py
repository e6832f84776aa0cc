#!/usr/bin/env python3
# The bars of `ff schedule`: decisions, use of a busy cluster, submissions.
"""Measures ff schedule: how long one decision takes, how well a busy cluster is used, and how many
tasks a second are taken in durably over the network.

usage: schedule.py FF BUILD [--rounds N]

FF is build/ff of a release build, BUILD a folder built with FF_BENCHMARKS=ON (decide_bench and
submit_load are taken from it). Medians of the rounds are printed.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile

TASKS, FLIGHTS = 9000, 64  # by an operator; all users together may have 10,000


# The nodes and the load of this benchmark have no keys.
os.environ["FF_INSECURE"] = "1"


def decisions(build):
    said = subprocess.run([build + "/decide_bench", "--benchmark_format=json"], check=True,
                          capture_output=True, text=True).stdout
    rows = json.loads(said)["benchmarks"]
    return {one["name"]: one["cpu_time"] for one in rows if one["run_type"] == "iteration"}


def simulated(ff, nodes, tasks):
    said = subprocess.run([ff, "schedule", "simulate", "--nodes", str(nodes), "--tasks",
                           str(tasks), "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(said)["data"]


def submissions(ff, build):
    folder = tempfile.mkdtemp(prefix="ff-schedule-")
    words = [ff, "schedule", "serve", "--dir", folder, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            at = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline()).group()
            said = subprocess.run([build + "/submit_load", at, str(TASKS), str(FLIGHTS)],
                                  check=True, capture_output=True, text=True).stdout
        finally:
            server.terminate()
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)
    return float(said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ff")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.ff = os.path.abspath(options.ff)
    passes = [decisions(options.build) for _ in range(options.rounds)]
    for name in passes[0]:
        print(f"{name}: {statistics.median(one[name] for one in passes):.2f} ms")
    rates = [submissions(options.ff, options.build) for _ in range(options.rounds)]
    print(f"durable submissions a second: {statistics.median(rates):.0f}")
    for nodes, tasks in ((1250, 5000), (10_000, 15_000)):
        run = simulated(options.ff, nodes, tasks)
        print(f"{nodes} nodes, {tasks} tasks: utilisation {run['utilisation']:.4f}, "
              f"overhead {run['overhead']:.4f}, decision p50 {run['pass_ms_p50']:.2f} "
              f"p99 {run['pass_ms_p99']:.2f} max {run['pass_ms_max']:.2f} ms")


if __name__ == "__main__":
    main()
