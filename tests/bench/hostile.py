#!/usr/bin/env python3
# What hostile peers cost honest clients: connections that prove nothing, and one user's load.
"""hostile.py FF FOLDER [--rounds N]: bars of tests/bench/RESULTS.md, "What attackers cost".

 - the p99 of an honest client's calls while 10,000 connections of another user hold on: < 2 x alone
 - memory and descriptors of the daemon meanwhile: as before
 - the throughput of an honest client while a user with a token asks for all that it gets: >= 0.8 x
Needs root: the attacker is another user.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time

import cluster

PEERS = 10_000
NOBODY = 65534
# The beginning of a client's hello of TLS, the rest of which never comes.
HELLO = (b"\x16\x03\x01\x0f\x00\x01\x00\x0e\xfc\x03\x03" + b"x" * 38)[:49]


def attack(port):
    """In a process of nobody: opens connections, says a little, and holds them."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    peers = []
    while len(peers) < PEERS:
        try:
            peer = socket.create_connection(("127.0.0.1", port), timeout=1)
            peer.send(HELLO)
            peers.append(peer)
        except OSError:
            time.sleep(0.001)
    while True:
        time.sleep(1)


class Attack:
    def __init__(self, port):
        self.pid = os.fork()
        if self.pid == 0:
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
            try:
                attack(port)
            finally:
                os._exit(1)

    def stop(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def status(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return {"rss_mib": int(lines["VmRSS"].split()[0]) / 1024,
            "size_mib": int(lines["VmSize"].split()[0]) / 1024,
            "files": len(os.listdir(f"/proc/{pid}/fd"))}


def load(ff, meta, *words, env=None):
    """The phases of `ff bench meta`."""
    ran = subprocess.run([ff, "bench", "meta", "--meta", meta, "--json", *words],
                         env=env, capture_output=True, text=True, check=True)
    return {one["phase"]: one for one in json.loads(ran.stdout)["data"]["phases"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ff")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    made = cluster.Cluster(args.ff, args.folder)
    port = int(made.meta.rsplit(":", 1)[1])
    daemon = made.daemons[0].pid
    try:
        p99, memory = [], []
        for _ in range(args.rounds):
            alone = load(args.ff, made.meta, "--files", "5000", "--in-flight", "4")
            before = status(daemon)
            attacker = Attack(port)
            time.sleep(2)
            beside = load(args.ff, made.meta, "--files", "5000", "--in-flight", "4")
            during = status(daemon)
            attacker.stop()
            p99.append({phase: beside[phase]["p99_seconds"] / alone[phase]["p99_seconds"]
                        for phase in alone if alone[phase]["p99_seconds"] > 0})
            memory.append({name: during[name] - before[name] for name in before})
        for phase in p99[0]:
            print(f"p99 of {phase}, beside / alone: "
                  f"{statistics.median(one[phase] for one in p99):.2f}")
        for name in memory[0]:
            grown = statistics.median(one[name] for one in memory)
            print(f"the daemon grew by: {grown:.1f} {name}")

        subprocess.run([args.ff, "fs", "chmod", "777", "/", "--meta", made.meta], check=True)
        token = made.path("eve.token")
        made.admin("user", "add", "eve", "--uid", "1001", "--token-file", token)
        hostile = {key: value for key, value in os.environ.items() if key != "FF_KEY"}
        hostile["FF_TOKEN_FILE"] = token
        kept = []
        for _ in range(args.rounds):
            alone = load(args.ff, made.meta, "--files", "20000", "--in-flight", "64")
            eve = subprocess.Popen([args.ff, "bench", "meta", "--meta", made.meta, "--files",
                                    "1000000", "--in-flight", "1024", "--clients", "8"],
                                   env=hostile, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL,
                                   # Its own work is not the server's: as on another machine.
                                   preexec_fn=lambda: os.nice(19))
            time.sleep(2)
            beside = load(args.ff, made.meta, "--files", "20000", "--in-flight", "64")
            eve.kill()
            eve.wait()
            kept.append({phase: beside[phase]["per_second"] / alone[phase]["per_second"]
                         for phase in alone})
        for phase in kept[0]:
            print(f"throughput of {phase}, beside a hostile token / alone: "
                  f"{statistics.median(one[phase] for one in kept):.2f}")
    finally:
        made.stop()
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
