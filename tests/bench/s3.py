#!/usr/bin/env python3
# The bar of the gateway for S3: rclone on it, beside cp on a mount of the same cluster.
"""Measures `ff serve-kv --s3-listen` beside a mount of the same cluster.

usage: s3.py FF DIR [--beside FF] [--rounds N] [--size MIB] [--streams N] [--lean]

FF is build/ff of a release build, run as root; DIR a folder on the disk to use, where `ff up` makes
three storage daemons. --beside names another build, whose gateway runs on the same cluster. rclone
must be installed (not for --lean). What is compared runs in turn, round by round: `streams` files
at once, by rclone with so many transfers, by as many cp, and by a client that sends and takes bytes
and does nothing else with them. Medians are printed, and the seconds of processor for each GiB of
the gateway and of the client's processes (cp, rclone), which say more than times where others use
the machine.
"""
import argparse
import base64
import collections
import hashlib
import hmac
import http.client
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import zlib

MIB = 1 << 20
PART = 16 * MIB
BARS = [("PUT by rclone", "rclone put", "cp to", 0.8),
        ("GET by rclone", "rclone get", "cp from", 0.8)]


class Gateway:
    """One build's gateway, and a client of it."""

    def __init__(self, name, ff, folder, settings, keys):
        self.name, self.keys = name, keys
        self.process = subprocess.Popen(
            [ff, "serve-kv", f"{folder}/kv-{name}", "--listen", "127.0.0.1:0", "--s3-listen",
             "127.0.0.1:0", "--s3-root", "ff:///objects"],
            env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def seconds(self):
        """Of processor, so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def rclone(self, *words):
        env = {"PATH": os.environ["PATH"], "HOME": "/proc/nonexistent",
               "RCLONE_CONFIG_FF_TYPE": "s3",
               "RCLONE_CONFIG_FF_PROVIDER": "Other",
               "RCLONE_CONFIG_FF_ENDPOINT": f"http://127.0.0.1:{self.port}",
               "RCLONE_CONFIG_FF_ACCESS_KEY_ID": self.keys["AWS_ACCESS_KEY_ID"],
               "RCLONE_CONFIG_FF_SECRET_ACCESS_KEY": self.keys["AWS_SECRET_ACCESS_KEY"]}
        subprocess.run(["rclone", *words, "-q"], env=env, check=True)

    def signed(self, method, path, query, digest, fields):
        """The fields of a request with a signature of version 4."""
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        fields = {"host": f"127.0.0.1:{self.port}", "x-amz-date": when,
                  "x-amz-content-sha256": digest, **fields}
        names = ";".join(sorted(fields))
        lines = "".join(f"{name}:{fields[name]}\n" for name in sorted(fields))
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
        scope = f"{when[:8]}/us-east-1/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = b"AWS4" + self.keys["AWS_SECRET_ACCESS_KEY"].encode()
        for word in (*scope.split("/"), text):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        fields["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.keys['AWS_ACCESS_KEY_ID']}/{scope},"
            f"SignedHeaders={names},Signature={key.hex()}")
        return fields

    def ask(self, method, path, body=b"", query="", digest="UNSIGNED-PAYLOAD", fields=(),
            into=None):
        """The reply's body, or how many bytes of it were put into memory."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.connect()
        fields = self.signed(method, path, query, digest, dict(fields))
        target = f"{path}?{query}" if query else path
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in fields.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        connection.sock.sendall(body)
        reply = connection.getresponse()
        got, etag = b"", reply.getheader("ETag")
        if into is None:
            got = reply.read()
        else:
            view, at = memoryview(into), 0
            while at < len(into):
                at += reply.readinto(view[at:])
        assert reply.status == 200, (reply.status, got)
        connection.close()
        return got or etag


def at_once(count, call):
    errors = []
    def one(i):
        try:
            call(i)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Rounds:
    def __init__(self, arguments, folder, mount):
        self.arguments, self.folder, self.mount = arguments, folder, mount
        self.count, self.size = arguments.streams, arguments.size * MIB
        self.rates = collections.defaultdict(list)   # bytes a second, by work and build
        self.costs = collections.defaultdict(list)   # seconds of the gateway for a GiB
        self.clients = collections.defaultdict(list)  # of cp and rclone
        self.bodies = [os.urandom(self.size) for _ in range(self.count)]
        self.digests = [hashlib.sha256(body).hexdigest() for body in self.bodies]
        os.makedirs(f"{folder}/source")
        for i, body in enumerate(self.bodies):
            with open(f"{folder}/source/{i}", "wb") as file:
                file.write(body)

    def measure(self, work, gateway, call):
        """Notes what all streams together take."""
        name = gateway.name if gateway else ""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent, began = gateway.seconds() if gateway else 0, time.monotonic()
        call()
        total = self.count * self.size
        self.rates[work, name].append(total / (time.monotonic() - began))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.clients[work, name].append(used / (total / (1 << 30)))
        if gateway:
            self.costs[work, name].append((gateway.seconds() - spent) / (total / (1 << 30)))

    def cp(self, source, target):
        os.makedirs(target, exist_ok=True)
        copies = [subprocess.Popen(["cp", f"{source}/{i}", target]) for i in range(self.count)]
        assert not any([copy.wait() for copy in copies])

    def in_parts(self, gateway, i):
        path = f"/bench/parts-{i}"
        made = gateway.ask("POST", path, query="uploads=").decode()
        upload = made.split("<UploadId>")[1].split("<")[0]
        body, etags = memoryview(self.bodies[i]), []
        for at in range(0, self.size, PART):
            query = f"partNumber={len(etags) + 1}&uploadId={upload}"
            etags.append(gateway.ask("PUT", path, body[at:at + PART], query))
        listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"
                         for n, etag in enumerate(etags, 1))
        document = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        done = gateway.ask("POST", path, document, f"uploadId={upload}")
        assert b"<Error>" not in done, done

    def lean(self, gateway):
        def put(i):
            gateway.ask("PUT", f"/bench/plain-{i}", self.bodies[i])

        def signed(i):
            gateway.ask("PUT", f"/bench/signed-{i}", self.bodies[i], digest=self.digests[i])

        def checked(i):
            crc = zlib.crc32(self.bodies[i]).to_bytes(4, "big")
            gateway.ask("PUT", f"/bench/checked-{i}", self.bodies[i],
                        fields={"x-amz-checksum-crc32": base64.b64encode(crc).decode()})

        def get(i):
            into = bytearray(self.size)
            gateway.ask("GET", f"/bench/plain-{i}", into=into)
            assert into == self.bodies[i], "other bytes came back"

        def one_put():
            for i in range(self.count):
                put(i)

        def one_get():
            for i in range(self.count):
                get(i)
        for work, call in (("put", put), ("put signed", signed), ("put crc32", checked),
                           ("put in parts", lambda i: self.in_parts(gateway, i)), ("get", get)):
            self.measure(work, gateway, lambda call=call: at_once(self.count, call))
        self.measure("put, 1 stream", gateway, one_put)
        self.measure("get, 1 stream", gateway, one_get)

    def compared(self, gateway):
        bucket, source = f"{self.mount}/objects/bench", f"{self.folder}/source"
        transfers = ("--transfers", str(self.count), "--checkers", "1", "--s3-no-check-bucket")
        self.measure("cp to", None, lambda: self.cp(source, f"{bucket}/cp"))
        self.measure("rclone put", gateway,
                     lambda: gateway.rclone("copy", source, "ff:bench/rclone", *transfers))
        # Each reads what the other has written: nothing of it is in the memory of the mount.
        back = f"{self.folder}/back"
        self.measure("cp from", None, lambda: self.cp(f"{bucket}/rclone", f"{back}/cp"))
        self.measure("rclone get", gateway,
                     lambda: gateway.rclone("copy", "ff:bench/cp", f"{back}/rclone", *transfers))
        for i in range(self.count):
            for one in (f"{back}/cp/{i}", f"{back}/rclone/{i}"):
                with open(one, "rb") as file:
                    assert file.read() == self.bodies[i], one
        for one in (back, f"{bucket}/cp", f"{bucket}/rclone"):
            shutil.rmtree(one)

    def show(self):
        print("| work | bar | measured | | MB/s (medians) | gateway, client: s/GiB |")
        print("|---|---|---|---|---|---|")
        bars = {work: (text, beside, bar) for text, work, beside, bar in BARS}
        for work, name in self.rates:
            middle = statistics.median(self.rates[work, name])
            cost = self.costs.get((work, name))
            text, bar, measured, verdict = f"{work} {name}".strip(), "–", "–", ""
            if work in bars:
                text, beside, wanted = f"{bars[work][0]} {name}".strip(), *bars[work][1:]
                ratio = middle / statistics.median(self.rates[beside, ""])
                bar, measured = f"≥ {wanted} × cp", f"{ratio:.2f}"
                verdict = "met" if ratio >= wanted else "MISSED"
            client = statistics.median(self.clients[work, name])
            print(f"| {text} | {bar} | {measured} | {verdict} | {middle / 1e6:,.0f} "
                  f"| {f'{statistics.median(cost):.2f}' if cost else '–'}, "
                  f"{f'{client:.2f}' if client > 0 else '–'} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ff")
    parser.add_argument("dir")
    parser.add_argument("--beside")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--lean", action="store_true")
    arguments = parser.parse_args()
    ff = os.path.realpath(arguments.ff)
    folder = f"{os.path.realpath(arguments.dir)}/s3"
    os.makedirs(f"{folder}/mount")
    state = {**os.environ, "FF_STATE": f"{folder}/state"}
    words = [] if arguments.lean else ["--mount", f"{folder}/mount"]
    up = subprocess.run([ff, "up", "--dir", f"{folder}/cluster", "--json", *words], env=state,
                        check=True, capture_output=True, text=True)
    made = json.loads(up.stdout)["data"]
    settings = {"FF_META": made["meta"], "FF_KEY": made["key"]}
    gateways = []
    try:
        def admin(*words):
            return subprocess.run([ff, *words], env={**state, **settings}, check=True,
                                  capture_output=True, text=True).stdout
        admin("fs", "mkdir", "/objects")
        token = f"{folder}/token"
        admin("admin", "user", "add", "bench", "--uid", "0", "--token-file", token)
        keys = dict(line.split("=", 1) for line in admin("admin", "user", "s3-key", token).split())
        builds = [("", ff)]
        if arguments.beside:
            builds = [("new", ff), ("old", os.path.realpath(arguments.beside))]
        for name, path in builds:
            gateways.append(Gateway(name, path, folder, settings, keys))
        gateways[0].ask("PUT", "/bench")
        rounds = Rounds(arguments, folder, f"{folder}/mount")
        for turn in range(arguments.rounds):
            for gateway in gateways if turn % 2 == 0 else reversed(gateways):
                rounds.lean(gateway)
                if not arguments.lean:
                    rounds.compared(gateway)
        rounds.show()
    finally:
        for gateway in gateways:
            gateway.stop()
        subprocess.run([ff, "down", "--dir", f"{folder}/cluster", "--purge", "--yes"], env=state,
                       check=True, capture_output=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
