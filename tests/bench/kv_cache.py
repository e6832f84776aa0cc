#!/usr/bin/env python3
# The bar of KV caches: look-ups over HTTP in batches of 128, at least 100,000 keys a second.
"""Measures the metadata service of ff serve-kv, and a plain loop over sockets that asks it.

usage: kv_cache.py FF [--keys N] [--clients N] [--rounds N] [--seconds S]

FF is build/ff of a release build. A gateway on a temporary folder gets N keys; then processes ask
for batches of 128 of them, each on one connection, one request after the other. Medians are
printed, with the time until a killed gateway serves its keys again.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BATCH = 128
LEASE_S = 60


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest() + "-k"


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    @staticmethod
    def request(operation, body):
        text = json.dumps(body).encode()
        return (f"POST /0/{operation} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
                f"\r\nContent-Length: {len(text)}\r\n\r\n").encode() + text

    def send(self, request):
        """The status and the body of the reply."""
        self.socket.sendall(request)
        status = int(self.file.readline().split()[1])
        length = 0
        while (line := self.file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, self.file.read(length)

    def ask(self, operation, **body):
        status, text = self.send(self.request(operation, body))
        if status >= 300:
            sys.exit(f"{operation}: {status} {text.decode()}")
        return json.loads(text) if text else {}


class Gateway:
    def __init__(self, ff, folder):
        self.process = subprocess.Popen(
            [ff, "serve-kv", folder, "--insecure", "--listen", "127.0.0.1:0", "--kv-cache-listen",
             "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if line.startswith("kv-cache on "):
                self.port = int(line.rsplit(":", 1)[1])
                return
        sys.exit("the gateway does not start")

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

    def kill(self):
        self.process.kill()
        self.process.wait()


def fill(port, count):
    connection = Connection(port)
    connection.ask("initialize", num_pages=count)
    begin = time.monotonic()
    for first in range(0, count, BATCH):
        keys = [key(i) for i in range(first, min(count, first + BATCH))]
        pages = connection.ask("reserve_and_allocate_page_indices",
                               keys=[[k, ""] for k in keys])["indices"]
        connection.ask("confirm_write", written_keys_to_confirm=[
            [k, page] for k, (_, page) in zip(keys, pages)], pages_to_release=[])
    return count / (time.monotonic() - begin)


def look_up(port, operation, count, seconds, seed, results):
    connection = Connection(port)
    dice = random.Random(seed)
    requests = [connection.request(operation, {"keys": [key(dice.randrange(count))
                                                        for _ in range(BATCH)]})
                for _ in range(64)]
    asked, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        status, body = connection.send(requests[asked % len(requests)])
        if status != 200 or b"null" in body or b"false" in body:
            sys.exit(f"{operation}: {status} {body[:200]}")
        asked += 1
    results.put(asked * BATCH / seconds)


def measure(port, operation, args, seed):
    results = multiprocessing.Queue()
    clients = [multiprocessing.Process(target=look_up, args=(
        port, operation, args.keys, args.seconds, seed + i, results)) for i in range(args.clients)]
    for client in clients:
        client.start()
    total = sum(results.get(timeout=LEASE_S) for _ in clients)
    for client in clients:
        client.join()
    return total


def serve_again(ff, folder):
    """A gateway after a killed one, and the seconds until it has found a key."""
    begin = time.monotonic()
    gateway = Gateway(ff, folder)
    connection = Connection(gateway.port)
    request = connection.request("exists", {"keys": [key(0)]})
    while connection.send(request)[0] != 200:
        if time.monotonic() > begin + LEASE_S:
            sys.exit("the gateway does not serve the keys")
        time.sleep(0.05)
    return gateway, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ff")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(os.path.realpath(args.ff), f"{folder}/kv")
        empty = gateway.rss()
        print(f"{'reserve and confirm':32} {fill(gateway.port, args.keys):12,.0f} keys/s")
        print(f"{'memory':32} {(gateway.rss() - empty) / args.keys:12.0f} bytes/key")
        for operation in ("exists", "get_page_indices"):
            rounds = [measure(gateway.port, operation, args, 100 * i) for i in range(args.rounds)]
            print(f"{operation:32} {statistics.median(rounds):12,.0f} keys/s")
        gateway.kill()
        gateway, seconds = serve_again(args.ff, f"{folder}/kv")
        print(f"{'serves again after':32} {seconds:12.1f} s")
        gateway.kill()


if __name__ == "__main__":
    main()
