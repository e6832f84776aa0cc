#!/usr/bin/env python3
# The bars of `ff allreduce`, beside Open MPI and gloo in the same run.
"""Measures ff allreduce beside Open MPI and gloo, and against what memory gives; and between four
hosts, which are network namespaces of this machine, beside gloo.

usage: allreduce.py FF --mpi FILE.c [--rounds N] [--old FF]
       allreduce.py FF --hosts [--rounds N] [--old FF]

FF is build/ff of a release build. FILE.c is a program with MPI that takes MIB ITERATIONS and prints
a line "... algbw X GB/s"; gloo_peer.py beside this one does so with gloo. mpicc, mpirun, ip and
python3-torch must be installed. What is compared runs in turn, round by round,
out of place as nccl-tests measure it; medians are printed. Open MPI is taken at its best of three
ways. gloo does not encrypt, so ff between hosts is held against it without encryption
(net.security = "trusted-network"), and measured with it, too. With --hosts, only hosts are
measured. With --old, another binary of ff is measured between hosts in the same rounds, also in an
all-to-all.
Run it on an idle machine, as root: ff then has large pages.
"""
import argparse
import json
import os
import random
import re
import socket
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
HOSTS, RANKS_EACH = 4, 2
BETWEEN = [("186 MiB, 4 hosts × 2 ranks", LARGE, 2.5), ("1 MiB, 4 hosts × 2 ranks", 1, None)]
SECURITY = ["trusted-network", "tls"]
EXCHANGED = [8, 64, 512, 4096, 65536]  # KiB of a rank's array of an all-to-all
GLOO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gloo_peer.py")
GLOO_TRIES = 4
HEAD = "| work | bar | measured | | figures (medians, GB/s) |\n|---|---|---|---|---|"
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


def gloo(mib, ranks, hosts=None):
    """On this host, or two ranks on each of `hosts`. Its ranks sometimes abort as they leave."""
    for left in reversed(range(GLOO_TRIES)):
        try:
            return gloo_once(mib, ranks, hosts)
        except AssertionError:
            if not left:
                raise


def gloo_once(mib, ranks, hosts):
    words = ["/usr/bin/python3", GLOO, str(mib), str(iterations(mib, False))]  # with Debian's torch
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    started = []
    for rank in range(ranks):
        place = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=port,
                     MASTER_ADDR=hosts.address(0) if hosts else "127.0.0.1")
        if hosts:
            place["GLOO_SOCKET_IFNAME"] = "eth0"
        where = hosts.enter(rank // RANKS_EACH) if hosts else []
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        started.append(subprocess.Popen(where + words, env=place, stdout=output, text=True))
    said = started[0].communicate()[0]
    assert [one.wait() for one in started] == [0] * ranks
    return algbw(said)


class Hosts:
    """Network namespaces on a bridge, and a stand-in for ssh."""

    def __init__(self, folder):
        self.id = f"{os.getpid() % 10000}"
        self.net = f"198.18.{random.randrange(1, 250)}"
        self.bridge = "ffm" + self.id
        self.rsh = folder + "/rsh"
        self.ip("link", "add", self.bridge, "type", "bridge")
        self.ip("link", "set", self.bridge, "up")
        for host in range(HOSTS):
            self.ip("netns", "add", self.name(host))
            self.ip("link", "add", self.link(host), "type", "veth", "peer", "name", "eth0", "netns",
                    self.name(host))
            self.ip("link", "set", self.link(host), "master", self.bridge, "up")
            inside = ["-n", self.name(host)]
            self.ip(*inside, "addr", "add", self.address(host) + "/24", "dev", "eth0")
            self.ip(*inside, "link", "set", "eth0", "up")
            self.ip(*inside, "link", "set", "lo", "up")
        with open(self.rsh, "w") as script:
            cases = "".join(f"{self.address(i)}) n={self.name(i)};;\n" for i in range(HOSTS))
            script.write(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n'
                         'exec ip netns exec $n sh -c "$2"\n')
        os.chmod(self.rsh, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for host in range(HOSTS):
            self.ip("link", "del", self.link(host))
            self.ip("netns", "del", self.name(host))
        self.ip("link", "del", self.bridge)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def name(self, host):
        return f"ffm{self.id}-{host}"

    def link(self, host):
        return f"ffm{self.id}v{host}"

    def address(self, host):
        return f"{self.net}.{host + 1}"

    def enter(self, host):
        return ["ip", "netns", "exec", self.name(host)]

    def ours(self, ff, kib, security="trusted-network", collective="all_reduce"):
        words = [ff, "allreduce", "bench", "--hosts", ",".join(map(self.address, range(HOSTS))),
                 "--ssh", self.rsh, "--nproc", str(RANKS_EACH), "-b", f"{kib}K", "-e", f"{kib}K",
                 "-n", str(iterations(kib / 1024, False)), "--collective", collective, "--json"]
        data = json.loads(subprocess.run(words, capture_output=True, text=True, check=True,
                                         env=dict(os.environ, FF_NET_SECURITY=security)
                                         ).stdout)["data"]
        assert data["wrong"] == 0, data
        return data["rows"][0]["out_of_place"]["algorithm_bytes_per_second"] / 1e9


def between_hosts(ff, rounds, folder):
    """Rows of the table, and whether all bars are met."""
    seen, met = {}, True
    with Hosts(folder) as hosts:
        for turn in range(rounds):
            for name, mib, _ in BETWEEN:
                for way in SECURITY:
                    seen.setdefault((name, way), []).append(hosts.ours(ff, mib * 1024, way))
                seen.setdefault((name, "gloo"), []).append(gloo(mib, HOSTS * RANKS_EACH, hosts))
                print(f"round {turn + 1}, {name}: {seen[name, SECURITY[0]][-1]:.2f} GB/s",
                      file=sys.stderr)
    for name, _, wanted in BETWEEN:
        rate, tls, peer = (statistics.median(seen[name, who]) for who in (*SECURITY, "gloo"))
        good = wanted is None or rate / peer >= wanted
        met &= good
        print(f"| {name} | {f'≥ {wanted} × gloo' if wanted else ''} | {rate / peer:.2f} | "
              f"{'' if wanted is None else 'met' if good else 'MISSED'} | ff {rate:.2f} (with TLS "
              f"{tls:.2f}), gloo {peer:.2f} |")
    return met


def beside_old(ff, old, rounds, folder):
    """Rows of the table of both binaries between hosts."""
    works = [("all_reduce", LARGE * 1024), ("all_reduce", 1024)]
    works += [("alltoall", kib) for kib in EXCHANGED]
    seen = {}
    with Hosts(folder) as hosts:
        for turn in range(rounds):
            for collective, kib in works:
                for who, binary in sorted([("new", ff), ("old", old)], reverse=turn % 2 == 1):
                    for way in SECURITY:
                        seen.setdefault((collective, kib, way, who), []).append(
                            hosts.ours(binary, kib, way, collective))
    print("\n| 4 hosts × 2 ranks | new / old | figures (medians, GB/s) |\n|---|---|---|")
    for collective, kib in works:
        for way in SECURITY:
            new, was = (statistics.median(seen[collective, kib, way, who])
                        for who in ("new", "old"))
            print(f"| {collective} of {kib} KiB, {way} | {new / was:.2f} | {was:.3f} to "
                  f"{new:.3f} |")


def mpi(program, way, mib, ranks):
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", *way, "-n", str(ranks), program,
             str(mib), str(iterations(mib, False))]
    return algbw(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("ff")
    parser.add_argument("--mpi")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--old")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.mpi is None and not options.hosts:
        parser.error("--mpi FILE.c or --hosts")
    if options.hosts:
        print(HEAD)
    met = options.hosts or on_one_host(options)
    with tempfile.TemporaryDirectory() as folder:
        met &= between_hosts(options.ff, options.rounds, folder)
        if options.old:
            beside_old(options.ff, options.old, options.rounds, folder)
    return 0 if met else 1


def on_one_host(options):
    """Prints the table; whether all bars are met."""
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
                note("gloo", gloo(mib, ranks))
                for number, way in enumerate(MPI_WAYS):
                    note(f"mpi {number}", mpi(program, way, mib, ranks))
                print(f"round {turn + 1}, {name}: {rate:.2f} GB/s", file=sys.stderr)
    middle = {key: statistics.median(values) for key, values in seen.items()}
    print(HEAD)
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
    return met


if __name__ == "__main__":
    sys.exit(main())
