#!/usr/bin/env python3
# A training in a task of a real scheduler is interrupted for another task: it saves the step that
# it is at, goes on there, and learns the same as one that never was. One that does not listen goes
# on from its last save. Without PyTorch: skipped.
"""usage: interrupted.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

from ddp import LIMIT, TRAIN, python_with_torch
from polling import until as poll

STEPS = 40
EVERY = 7  # steps between saves, of the one that does not listen
NOBODY = 65534


class Cluster:
    """A scheduler and the agent of this machine."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.key = os.path.join(folder, "key")
        with open(self.key, "w", encoding="ascii") as file:
            os.chmod(self.key, 0o600)
            file.write("5a" * 32 + "\n")
        self.address = self.start("serve", "--dir", folder + "/scheduler")
        self.start("agent", "--scheduler", self.address[0], "--dir", folder + "/agent",
                   "--task-dir", folder + "/tasks", "--end-tasks")

    def start(self, *words):
        log = os.path.join(self.folder, words[0] + ".log")
        with open(log, "w", encoding="utf-8") as out:
            daemon = subprocess.Popen([FF, "schedule", *words, "--listen", "127.0.0.1:0", "--key",
                                       self.key], stdout=out, stderr=out)
        self.daemons.append(daemon)
        return poll(lambda: self.listens(log, daemon), LIMIT)

    @staticmethod
    def listens(log, daemon):
        with open(log, encoding="utf-8") as file:
            said = file.read()
        assert daemon.poll() is None, said
        return [line.split()[-1] for line in said.splitlines() if line.startswith("listening on")]

    def __call__(self, *words):
        env = {name: value for name, value in os.environ.items() if not name.startswith("FF_")}
        env.update(FF_SCHEDULER=self.address[0], FF_KEY=self.key)
        done = subprocess.run([FF, "schedule", *words], env=env, capture_output=True, text=True,
                              timeout=LIMIT)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def end(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait()

    def submit(self, priority, *command):
        user = ["--user", str(NOBODY)] if os.geteuid() == 0 else []
        submitted = self("submit", *user, "-p", str(priority), "--nproc", "2", "--chdir",
                         self.folder, "-e", "OMP_NUM_THREADS=1", "-e", "GLOO_SOCKET_IFNAME=lo",
                         "--", *command)
        return submitted.strip()

    def show(self, task):
        return json.loads(self("show", task, "--json"))["data"]

    def lines(self, task, attempt):
        """What rank 0 has printed, as far as it is whole."""
        said = ""
        for end in ("agent/attempts", "agent/ended"):
            logs = glob.glob(f"{self.folder}/{end}/{task}.{attempt}/0.log*")
            for log in sorted(logs, reverse=True):
                with open(log, encoding="utf-8") as file:
                    said += file.read()
        found = [line[line.index("{"):] for line in said.splitlines(True)
                 if "{" in line and line.endswith("}\n")]
        return [json.loads(line) for line in found]

    def until(self, condition):
        """Waits while ranks of any task print something."""
        return poll(condition, LIMIT, progress=lambda: sum(
            os.path.getsize(log) for log in glob.glob(f"{self.folder}/agent/attempts/*/*.log*")))

    def losses(self, task, attempt):
        return {line["step"]: line["loss"] for line in self.lines(task, attempt) if "loss" in line}


def training(*words):
    return [PYTHON, TRAIN, "--library", FOLDER, "--json", "--batch", "2", "--context", "32",
            "--store", STORE, *words]


def undisturbed(cluster):
    task = cluster.submit(30, *training("--steps", str(STEPS), "--run", "whole"))
    cluster.until(lambda: cluster.show(task)["state"] == "succeeded")
    losses = cluster.losses(task, 1)
    assert sorted(losses) == list(range(1, STEPS + 1)), losses
    return losses


def interrupted(cluster, expected):
    """As often as it may be: the most that is lost is one step."""
    task = cluster.submit(10, *training("--steps", str(STEPS), "--run", "listens"))
    for attempt in (1, 2):
        cluster.until(lambda at=attempt: len(cluster.losses(task, at)) >= 5)
        other = cluster.submit(50, "true")
        cluster.until(lambda task=other: cluster.show(task)["state"] == "succeeded")
    cluster.until(lambda: cluster.show(task)["state"] == "succeeded")
    shown = cluster.show(task)
    attempts = shown["attempts"]
    assert len(attempts) == 3 and shown["failures"] == 0, attempts
    learned = {}
    for number, attempt in enumerate(attempts, 1):
        losses = cluster.losses(task, number)
        lost = [step for step in losses if step in learned]
        assert not lost, f"attempt {number} learns {lost} again"
        learned.update(losses)
        if number == len(attempts):
            continue
        assert attempt["stop"] == "preempted" and attempt["acked_s"], attempt
        assert max(losses) - attempt["saved_step"] <= 1, (max(losses), attempt)
    assert learned == expected, f"{learned}, where {expected} was expected"


def deaf(cluster):
    """Nobody asks it: it is ended, and begins at its last save."""
    command = training("--steps", "1000000", "--run", "deaf", "--save-every", str(EVERY))
    task = cluster.submit(10, "env", "-u", "FF_TASK_DIR", *command)
    cluster.until(lambda: len(cluster.losses(task, 1)) >= 2 * EVERY)
    cluster.submit(50, "true")
    cluster.until(lambda: len(cluster.losses(task, 2)) >= 1)
    first = cluster.show(task)["attempts"][0]
    assert first["acked_s"] is None and first["terminated_s"], first
    lost = max(cluster.losses(task, 1)) - min(cluster.losses(task, 2)) + 1
    # The save of the last interval may still have been under way.
    assert lost <= 2 * EVERY, f"{lost} steps are lost"
    print(f"without listening {lost} steps were lost, of {EVERY} between saves")
    cluster("stop", task)
    cluster.until(lambda: cluster.show(task)["state"] == "stopped")


def main():
    global FOLDER, FF, PYTHON, STORE
    FOLDER, FF = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    PYTHON = python_with_torch()
    folder = tempfile.mkdtemp(prefix="ff-interrupted-")
    os.chmod(folder, 0o711)
    STORE = os.path.join(folder, "store")
    os.mkdir(STORE)
    if os.geteuid() == 0:
        os.chown(STORE, NOBODY, NOBODY)
    cluster = None
    try:
        cluster = Cluster(folder)
        interrupted(cluster, undisturbed(cluster))
        deaf(cluster)
    except AssertionError:
        for log in glob.glob(folder + "/*.log") + glob.glob(folder + "/agent/*/*/0.log"):
            with open(log, encoding="utf-8") as file:
                sys.stderr.write(f"{log}:\n{file.read()}\n")
        raise
    finally:
        if cluster is not None:
            cluster.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
