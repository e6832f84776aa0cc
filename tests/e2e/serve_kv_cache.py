#!/usr/bin/env python3
# The metadata service of KV caches with the client that SGLang has: requests, and its retries.
"""usage: serve_kv_cache.py FF PART

  client   the sequence of requests of SGLang's hf3fs backend, and a restart
  killed   gateways are killed with SIGKILL while clients write; a standby takes over
  rights   tokens, also in the URL, and TLS

Exits with 77 where something that a part needs is not there.
"""
import json
import os
import subprocess
import sys
import threading
import time

from kv_daemon import (DEADLINE_S, FF, Daemon, expect, run, run_part, serve, skip, until)

try:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util.retry import Retry
except ImportError:
    skip("python3-requests is not installed")

PAGE = 64  # bytes of a page of the tests


def serve_cache(folder, *words, port=0, **settings):
    """A gateway; .cache is the address of its KV caches."""
    daemon = serve(folder, "--kv-cache-listen", f"127.0.0.1:{port}", *words, **settings)
    line = daemon.process.stdout.readline()
    assert line.startswith("kv-cache on "), line
    daemon.cache = line.split()[-1]
    return daemon


class Caches:
    """The requests of SGLang's Hf3fsGlobalMetadataClient."""

    def __init__(self, url, retries=3, **options):
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False
        for name, value in options.items():
            setattr(self.session, name, value)
        retries = Retry(total=retries, backoff_factor=0.3, status_forcelist=[500, 502, 503, 504],
                        allowed_methods=["GET", "POST"])
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, HTTPAdapter(max_retries=retries))

    def post(self, target, **body):
        reply = self.session.post(f"{self.url}/{target}", data=json.dumps(body),
                                  headers={"Content-Type": "application/json"},
                                  timeout=DEADLINE_S)
        reply.raise_for_status()
        return {} if reply.status_code == 204 else reply.json()

    def initialize(self, rank, pages, **more):
        self.post(f"{rank}/initialize", num_pages=pages, **more)

    def reserve(self, rank, keys, **more):
        pairs = [[key, ""] for key in keys]
        return self.post(f"{rank}/reserve_and_allocate_page_indices", keys=pairs,
                         **more)["indices"]

    def confirm(self, rank, written, released=(), **more):
        self.post(f"{rank}/confirm_write", written_keys_to_confirm=written,
                  pages_to_release=list(released), **more)

    def get(self, rank, keys, **more):
        return self.post(f"{rank}/get_page_indices", keys=keys, **more)["indices"]

    def exists(self, rank, keys, **more):
        return self.post(f"{rank}/exists", keys=keys, **more)["exists"]

    def delete(self, rank, keys, **more):
        self.post(f"{rank}/delete_keys", keys=keys, **more)

    def clear(self, rank, **more):
        self.post(f"{rank}/clear", **more)


def status_of(call):
    try:
        call()
    except requests.HTTPError as error:
        return error.response.status_code
    return 200


def digests(name, count):
    return [f"{name}{i:0{64 - len(name)}x}-k" for i in range(count)]


def use_rank(caches, rank, **more):
    """What a rank of SGLang does; returns the keys that it leaves."""
    caches.initialize(rank, 200, **more)
    caches.initialize(rank, 200, **more)  # when SGLang starts again
    keys = digests(f"a{rank}", 128)
    expect(caches.exists(rank, keys, **more), [False] * 128)
    pages = caches.reserve(rank, keys, **more)
    expect({found for found, _ in pages}, {False})
    expect(len({page for _, page in pages}), 128)
    expect(caches.get(rank, keys, **more), [None] * 128)
    written = [[key, page] for key, (_, page) in zip(keys[:100], pages)]
    caches.confirm(rank, written, [page for _, page in pages[100:]], **more)
    caches.confirm(rank, written, **more)  # a repeated request
    expect(caches.exists(rank, keys, **more), [True] * 100 + [False] * 28)
    expect(caches.get(rank, keys[:100], **more), [page for _, page in pages[:100]])
    expect(caches.reserve(rank, keys[:3], **more), [[True, page] for _, page in pages[:3]])
    caches.delete(rank, keys[:10], **more)
    expect(caches.exists(rank, keys[:12], **more), [False] * 10 + [True] * 2)
    return keys[10:100]


def client(folder):
    daemon = serve_cache(f"{folder}/kv", "--http", "0")
    caches = Caches(f"http://{daemon.cache}")
    expect(status_of(lambda: caches.exists(0, ["a"])), 404)
    expect(status_of(lambda: caches.post("0/initialize", num_pages="x")), 400)
    left = {rank: use_rank(caches, rank) for rank in (0, 1, 7)}
    use_rank(caches, 0, namespace="mamba")
    caches.clear(0, namespace="mamba")
    expect(caches.exists(0, left[0], namespace="mamba"), [False] * 90)
    found = {rank: caches.get(rank, keys) for rank, keys in left.items()}
    # More than there are pages: those that were not used for longest go.
    pages = [page for _, page in caches.reserve(7, digests("b", 190))]
    expect(len(set(pages)), 190)
    expect(caches.exists(7, left[7]).count(True), 10)
    # Clients of Redis see nothing of it, and remove nothing.
    ask = subprocess.run(["redis-cli", "-p", str(daemon.port), "FLUSHALL"], capture_output=True,
                         text=True)
    if ask.returncode == 0:
        expect(ask.stdout.strip(), "OK")
    daemon.stop()
    daemon = serve_cache(f"{folder}/kv")
    caches = Caches(f"http://{daemon.cache}")
    for rank in (0, 1):
        expect(caches.get(rank, left[rank]), found[rank], f"rank {rank} after a restart")
    daemon.stop()


class Load:
    """A client that writes pages of a file under new keys, as long as it is told to."""

    def __init__(self, number, file, urls):
        self.number, self.file, self.urls = number, file, urls  # urls may change
        self.acknowledged = {}  # keys and pages that were confirmed
        self.reserved = {}      # pages and keys whose confirmation got no answer
        self.failures, self.stopping = [], False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        caches = {}
        batch = turn = 0
        while not self.stopping:
            batch += 1
            keys = digests(f"{self.number:x}{batch:06x}", 8)
            url = self.urls[turn // 4 % len(self.urls)]
            turn += 1
            try:
                self.write(caches.setdefault(url, Caches(url, retries=0)), keys)
            except (requests.ConnectionError, requests.exceptions.RetryError):
                turn += 4  # it was killed, or the other one has not taken over yet
                time.sleep(0.1)
            except Exception as error:  # pylint: disable=broad-except
                self.failures.append(repr(error))

    def write(self, caches, keys):
        pages = [page for _, page in caches.reserve(0, keys)]
        for key, page in zip(keys, pages):
            assert page >= 0, "no page is free"
            self.reserved[page] = key
            os.pwrite(self.file, key.encode()[:PAGE], page * PAGE)
        caches.confirm(0, list(zip(keys, pages)))
        for key, page in zip(keys, pages):
            self.acknowledged[key] = page
            del self.reserved[page]

    def stop(self):
        self.stopping = True
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), "a client hangs"
        expect(self.failures, [])


def check_load(url, loads, file):
    caches = Caches(url)
    owners = {}
    for load in loads:
        keys = list(load.acknowledged)
        for begin in range(0, len(keys), 1000):
            part = keys[begin:begin + 1000]
            for key, page in zip(part, caches.get(0, part)):
                expect(page, load.acknowledged[key], f"the page of {key}")
                expect(os.pread(file, PAGE, page * PAGE), key.encode()[:PAGE], f"page {page}")
                assert page not in owners, f"page {page} has {key} and {owners[page]}"
                owners[page] = key
        for page, key in load.reserved.items():
            # It may be confirmed or not, and nobody else has it.
            assert owners.get(page, key) == key, f"page {page} has {owners[page]} and {key}"
    return len(owners)


def killed(folder):
    file = os.open(f"{folder}/pages", os.O_RDWR | os.O_CREAT)
    first, second = (serve_cache(f"{folder}/kv") for _ in range(2))
    urls = [f"http://{daemon.cache}" for daemon in (first, second)]
    Caches(urls[0]).initialize(0, 1 << 20)
    # The one that does not own the pages sends clients to the other one.
    expect(Caches(urls[1]).exists(0, ["a"]), [False])
    loads = [Load(number, file, urls) for number in range(4)]

    def written():
        return sum(len(load.acknowledged) for load in loads)

    until("clients write", lambda: written() > 200)
    first.kill()
    before = written()
    until("clients write to the other one", lambda: written() > before + 200)
    first = serve_cache(f"{folder}/kv")
    urls[0] = f"http://{first.cache}"
    second.kill()
    before = written()
    until("clients write to the one that came back", lambda: written() > before + 200)
    for load in loads:
        load.stop()
    assert check_load(urls[0], loads, file) > 600
    first.stop()
    first = serve_cache(f"{folder}/kv")
    check_load(f"http://{first.cache}", loads, file)
    first.stop()
    os.close(file)


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    f"{folder}/tls.key", "-out", f"{folder}/tls.crt"], check=True,
                   capture_output=True)


def rights(folder):
    key = f"{folder}/cluster.key"
    with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(os.urandom(32).hex() + "\n")
    manager = Daemon("serve-meta", "--listen", "127.0.0.1:0", "--dir", f"{folder}/meta",
                     "--key", key)
    settings = {"FF_META": manager.address, "FF_KEY": key}
    run("admin", "init", **settings)
    own = os.getuid() or 1000
    os.mkdir(f"{folder}/kv", 0o755)
    if own != os.getuid():
        os.chown(f"{folder}/kv", own, own)
    tokens = {}
    for name, uid in (("ann", own), ("bob", own + 1)):
        run("admin", "user", "add", name, "--uid", str(uid), "--token-file", f"{folder}/{name}",
            **settings)
        with open(f"{folder}/{name}") as file:
            tokens[name] = " ".join(file.read().split())
    make_certificate(folder)
    daemon = serve_cache(f"{folder}/kv", "--kv-cache-tls-cert", f"{folder}/tls.crt",
                         "--kv-cache-tls-key", f"{folder}/tls.key", **settings)
    trust = {"verify": f"{folder}/tls.crt"}
    # SGLang's client knows no tokens, but URLs have passwords.
    password = requests.utils.quote(tokens["ann"], safe="")
    ann = Caches(f"https://default:{password}@{daemon.cache}", **trust)
    bob = Caches(f"https://{daemon.cache}", headers={"Authorization": f"Bearer {tokens['bob']}"},
                 **trust)
    nobody = Caches(f"https://{daemon.cache}", **trust)
    ann.initialize(0, 10)
    pages = ann.reserve(0, ["a"])
    ann.confirm(0, [["a", pages[0][1]]])
    expect(bob.exists(0, ["a"]), [True])  # the mode of the folder lets others read
    expect(status_of(lambda: bob.clear(0)), 403)
    expect(status_of(lambda: bob.reserve(0, ["b"])), 403)
    expect(status_of(lambda: nobody.exists(0, ["a"])), 401)
    run("admin", "user", "remove", "bob", **settings)
    until("the removed user is refused", lambda: status_of(lambda: bob.exists(0, ["a"])) == 401)
    expect(ann.exists(0, ["a"]), [True])
    daemon.stop()
    for words in (["--kv-cache-listen", "0.0.0.0:0"], ["--kv-cache-tls-cert", f"{folder}/tls.crt"]):
        done = subprocess.run([FF, "serve-kv", f"{folder}/kv", "--listen", "127.0.0.1:0", *words],
                              env={"FF_META": manager.address, "FF_KEY": key}, capture_output=True,
                              text=True)
        assert done.returncode != 0 and "--kv-cache-tls-" in done.stderr, done.stderr
    manager.kill()


PARTS = {part.__name__: part for part in (client, killed, rights)}

if __name__ == "__main__":
    run_part(PARTS)
