#!/usr/bin/env python3
# A cluster of real daemons on one machine, for benchmarks: a manager and three storage nodes.
"""Starts `ff serve-meta` and three `ff serve-storage` in a folder; stops them at the end."""

import json
import os
import subprocess
import time

NODES = 3
PATIENCE = 60


def use_key(folder):
    """A root key for the daemons and commands that this process starts."""
    os.environ["FF_KEY"] = os.path.join(folder, "cluster.key")
    with open(os.environ["FF_KEY"], "w", encoding="utf-8",
              opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        print(os.urandom(32).hex(), file=file)


class Cluster:
    def __init__(self, ff, folder, replicas=2, targets=4):
        self.ff, self.folder, self.daemons = ff, folder, []
        os.makedirs(folder)
        use_key(folder)
        self.meta = self.start("serve-meta", "--dir", self.path("meta"))
        self.admin("init")
        for node in range(1, NODES + 1):
            self.start("serve-storage", "--node", str(node), "--meta", self.meta,
                       "--disk", self.path(f"disk{node}"))
        self.until(lambda status: len(status["nodes"]) == NODES)
        self.admin("plan", "--replicas", str(replicas), "--targets-per-disk", str(targets),
                   "--apply")
        self.until(lambda status: status["chains"]["all"] == status["chains"]["whole"] > 0)

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *words):
        """The address that the daemon listens at."""
        log = open(self.path(f"{len(self.daemons)}.log"), "w", encoding="utf-8")
        daemon = subprocess.Popen([self.ff, *words, "--listen", "127.0.0.1:0"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                  text=True)
        self.daemons.append(daemon)
        line = daemon.stdout.readline()
        assert line.startswith("listening on "), line
        return line.split()[-1]

    def admin(self, *words, check=True):
        return subprocess.run([self.ff, "admin", *words, "--meta", self.meta], check=check,
                              capture_output=True, text=True).stdout

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition(json.loads(self.admin("status", "--json", check=False))["data"]):
            assert time.monotonic() < end, "the cluster does not come up"
            time.sleep(0.1)

    def seconds(self):
        """Of processor, of each daemon so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        def used(daemon):
            with open(f"/proc/{daemon.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / ticks
        return [used(daemon) for daemon in self.daemons]

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait()
