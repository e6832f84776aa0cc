#!/usr/bin/env python3
# `ff serve-kv` with real clients: the daemon is killed, filled and replaced.
"""usage: serve_kv.py FF PART

  clients   redis-cli and python3-redis: pipelines, transactions, many clients, a slow reader
  killed    the daemon is killed under load, and another one continues: nothing acknowledged is lost
  shared    two daemons share the keys: one joins, is killed and comes back under load
  full      the disk is full: writes are refused, reads go on
  login     tokens as passwords, with a metadata server that revokes one
  tls       certificates of both ends
  cluster   the store lies in a cluster

Exits with 77 where something that a part needs is not there.
"""
import functools
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # nothing is left in the tree
from kv_daemon import (cli, Daemon, expect, FF, Raw, refused, run, serve, serves_all, share, skip,
                       until, run_part)

import redis
import redis.cluster


def library(port):
    client = redis.Redis(port=port, decode_responses=True)
    client.set("a", "1", ex=100)
    expect((client.get("a"), client.ttl("a") > 90), ("1", True))
    client.hset("h", mapping={"x": "1", "y": "2"})
    expect(client.hgetall("h"), {"x": "1", "y": "2"})
    with client.pipeline(transaction=True) as pipeline:
        pipeline.incr("{t}n").incr("{t}n").get("{t}n")
        expect(pipeline.execute(), [1, 2, "2"])

    def double(pipeline):
        pipeline.multi()
        pipeline.set("{t}n", 4)
    client.transaction(double, "{t}n")
    other = redis.Redis(port=port)
    with client.pipeline() as pipeline:
        pipeline.watch("{t}n")
        other.incr("{t}n")
        pipeline.multi()
        pipeline.set("{t}n", 0)
        try:
            pipeline.execute()
            raise AssertionError("a watched key has changed")
        except redis.WatchError:
            pass
    expect(client.get("{t}n"), "5")
    names = {f"s:{i}" for i in range(1000)}
    client.mset({name: "v" for name in names})
    expect(sorted(client.scan_iter("s:*", count=37)), sorted(names))
    expect(client.info("server")["redis_mode"], "standalone")
    expect(client.config_get("maxmemory"), {"maxmemory": "0"})
    assert client.command_count() > 60 and len(client.client_list()) >= 2
    value = os.urandom(60 << 20)
    binary = redis.Redis(port=port)
    binary.set("large", value)
    assert binary.get("large") == value
    try:
        binary.set("large", bytes(70 << 20))
        raise AssertionError("a value is too large")
    except redis.ResponseError:
        pass
    expect(binary.delete("large"), 1)


def pipelines(port, count=100_000):
    client = Raw(("127.0.0.1", port))

    def send():
        for first in range(0, count, 1000):
            text = "".join(f"SET p:{i} {i}\r\nGET p:{i}\r\n" for i in range(first, first + 1000))
            client.socket.sendall(text.encode())
    sender = threading.Thread(target=send)
    sender.start()
    for i in range(count):
        expect((client.reply(), client.reply()), (b"+OK", b"$%d" % i))
    sender.join()
    client.close()


def slow_reader(daemon):
    redis.Redis(port=daemon.port).set("big", bytes(1 << 20))
    slow = Raw(("127.0.0.1", daemon.port))
    slow.socket.setblocking(False)
    request, sent = b"GET big\r\n" * 1000, 0
    end = time.monotonic() + 2  # the daemon stops reading, and the buffers of the kernel fill
    while sent < 20_000_000 and time.monotonic() < end:
        try:
            sent += slow.socket.send(request)
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 20_000_000, "the daemon reads requests whose replies nobody takes"
    assert daemon.rss_mib() < 1500, daemon.rss_mib()
    expect(redis.Redis(port=daemon.port).ping(), True)
    slow.socket.close()


def clients(folder):
    if shutil.which("redis-cli") is None:
        skip("redis-cli is not installed")
    daemon = serve(f"{folder}/kv", "--http", "0")
    expect(cli(daemon.port, "SET", "k", "v"), "OK\n")
    expect(cli(daemon.port, "-3", "GET", "k"), "v\n")
    expect(cli(daemon.port, "NOSUCH")[:28], "ERR unknown command 'NOSUCH'")
    mass = "".join(f"SET m:{i} {i}\n" for i in range(20_000))
    assert "errors: 0, replies: 20000" in cli(daemon.port, "--pipe", text=mass)
    expect(len(cli(daemon.port, "--scan", "--pattern", "m:*").split()), 20_000)
    library(daemon.port)
    pipelines(daemon.port)
    idle = [Raw(("127.0.0.1", daemon.port)) for _ in range(3000)]
    expect({client.ask("PING") for client in idle}, {b"+PONG"})
    assert daemon.rss_mib() < 1500, daemon.rss_mib()
    for client in idle:
        client.close()
    slow_reader(daemon)
    line = daemon.process.stdout.readline()
    with socket.create_connection(("127.0.0.1", int(line.split()[-1]))) as http:
        http.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        page = http.makefile().read()
    assert 'ff_gateway_commands_total{command="get"}' in page, page
    daemon.stop()


class Writers:
    """Threads that set keys, and remember what was acknowledged."""

    def __init__(self, ports, count=4):
        self.ports, self.stopping, self.acked = ports, False, {}
        self.threads = [threading.Thread(target=self.write, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def write(self, number):
        client, i = None, 0
        while not self.stopping:
            try:
                if client is None:
                    client = Raw(("127.0.0.1", self.ports[0]))
                names = [f"w{number}:{i + k}" for k in range(20)]
                i += len(names)
                for name in names:
                    client.send("SET", name, name * 40)
                for name in names:
                    reply = client.reply()
                    if reply == b"+OK":
                        self.acked[name] = name * 40
            except (OSError, AssertionError, ValueError):
                client = None  # killed: the next daemon may listen already
                time.sleep(0.01)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return self.acked


def check_acked(port, acked):
    client = redis.Redis(port=port, decode_responses=True)
    names = sorted(acked)
    for first in range(0, len(names), 1000):
        some = names[first:first + 1000]
        expect(client.mget(some), [acked[name] for name in some], "values after a kill")


def killed(folder):
    daemon = serve(f"{folder}/kv")
    port, acked = daemon.port, {}
    counter = 0
    for _ in range(4):
        writers = Writers([port])
        before = len(acked)
        until("there is load", lambda: len(writers.acked) > before + 3000)
        client = redis.Redis(port=port)
        counter = client.incr("counter")
        daemon.kill()
        acked.update(writers.stop())
        daemon = serve(f"{folder}/kv", port=port)
        client = redis.Redis(port=port)
        until("its partitions are claimed", lambda: serves_all(port))
        expect(int(client.get("counter")), counter)
        check_acked(port, acked)
    # A second gateway takes over while the first one's clients write.
    second = serve(f"{folder}/kv")
    until("each has its share", lambda: share(port) == share(second.port) == 8)
    replies = [Raw(("127.0.0.1", one.port)).ask("GET", "counter") for one in (daemon, second)]
    expect(sorted(reply[:1] for reply in replies), [b"$", b"-"])
    assert b"-MOVED" in [reply[:6] for reply in replies], replies
    writers = Writers([port])
    until("there is load", lambda: len(writers.acked) > 3000)
    daemon.kill()
    begin = time.monotonic()
    until("the second gateway serves", lambda: serves_all(second.port))
    print(f"took over after {time.monotonic() - begin:.1f} s")
    acked.update(writers.stop())
    check_acked(second.port, acked)
    second.stop()
    # After an orderly end nobody has to wait.
    third = serve(f"{folder}/kv")
    assert serves_all(third.port)
    check_acked(third.port, acked)
    third.stop()


class ClusterWriters(Writers):
    """Likewise, in cluster mode: the numbers at keys grow, and one more counts changes."""

    def write(self, number):
        client, i = None, 0
        while not self.stopping:
            i += 1
            name = f"c{number}:{i % 200}"
            try:
                if client is None:
                    client = cluster_client(self.ports)
                client.set(name, i)
                self.acked[name] = str(i)
                client.incr(f"count{number}")
                self.acked[f"count{number}"] = self.acked.get(f"count{number}", 0) + 1
            except Exception:  # pylint: disable=broad-except
                client = None  # the library has errors of its own when a gateway goes
                time.sleep(0.01)


def cluster_client(ports):
    nodes = [redis.cluster.ClusterNode("127.0.0.1", port) for port in ports]
    return redis.cluster.RedisCluster(startup_nodes=nodes, decode_responses=True)


def check_shared(ports, acked):
    client = cluster_client(ports)
    for name, value in acked.items():
        found = client.get(name)
        # What was not acknowledged may have happened, too.
        assert found is not None and int(found) >= int(value), (name, found, value)


def shared(folder):
    logging.disable(logging.CRITICAL)  # the library logs each redirection
    first = serve(f"{folder}/kv")
    writers = ClusterWriters([first.port])
    until("there is load", lambda: len(writers.acked) > 500)
    second = serve(f"{folder}/kv")
    ports = [first.port, second.port]
    writers.ports = ports
    until("each has its share", lambda: share(ports[0]) == share(ports[1]) == 8)
    before = dict(writers.acked)
    until("there is load", lambda: sum(writers.acked[name] != before[name]
                                       for name in before) > 200)
    first.kill()
    begin = time.monotonic()
    until("the other one serves all", lambda: serves_all(second.port))
    print(f"took over after {time.monotonic() - begin:.1f} s")
    check_shared([second.port], dict(writers.acked))
    first = serve(f"{folder}/kv", port=first.port)
    until("each has its share", lambda: share(ports[0]) == share(ports[1]) == 8)
    acked = writers.stop()
    check_shared(ports, acked)
    first.stop()
    until("the other one serves all", lambda: serves_all(second.port))
    check_shared([second.port], acked)
    client = redis.Redis(port=second.port)  # without cluster mode, since it is alone
    assert None not in client.mget(list(acked))
    second.stop()


def full(folder):
    disk = f"{folder}/disk"
    os.mkdir(disk)
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "ff", disk], capture_output=True).returncode == 0
    if not mounted:
        skip("only root can mount a small disk")
    try:
        daemon = serve(f"{disk}/kv")
        client = redis.Redis(port=daemon.port)
        value, kept = os.urandom(256 << 10), 0
        try:
            for kept in range(1000):
                client.set(f"k{kept}", value)
            raise AssertionError("the disk is not full")
        except redis.ResponseError as error:
            assert str(error).startswith("MISCONF"), error
        for i in range(kept):
            assert client.get(f"k{i}") == value, i
        expect(client.get(f"k{kept}"), None)
        expect(client.ping(), True)
        subprocess.run(["mount", "-o", "remount,size=192m", disk], check=True)
        until("there is room again", lambda: sets(client, "after", value))
        assert client.get("after") == value and client.get("k0") == value
        expect(client.flushall(), True)
        expect(client.dbsize(), 0)
        daemon.stop()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def sets(client, key, value):
    try:
        return client.set(key, value)
    except redis.ResponseError:
        return False


def login(folder):
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
    for name, uid in (("ann", own), ("bob", own + 1)):
        run("admin", "user", "add", name, "--uid", str(uid), "--token-file", f"{folder}/{name}",
            **settings)
    with open(f"{folder}/ann") as ann_file, open(f"{folder}/bob") as bob_file:
        ann, bob = ann_file.read(), bob_file.read()
    daemon = serve(f"{folder}/kv", FF_KEY=key, FF_META=manager.address)
    client = redis.Redis(port=daemon.port, password=ann)
    expect(client.set("k", "v"), True)
    expect(redis.Redis(port=daemon.port, username="ann", password=ann.replace("\n", " ")).get("k"),
           b"v")
    expect(cli(daemon.port, "GET", "k", REDISCLI_AUTH=ann), "v\n")
    reader = redis.Redis(port=daemon.port, username="bob", password=bob)
    expect(reader.get("k"), b"v")
    with_password = functools.partial(redis.Redis, port=daemon.port)
    refused("this user has no permissions", lambda: reader.set("k", "w"))
    refused("Authentication required", with_password().ping)
    refused("WRONGPASS", with_password(password=ann.replace("a", "b")).ping)
    refused("WRONGPASS", with_password(username="bob", password=ann).ping)
    connection = Raw(("127.0.0.1", daemon.port))
    expect(connection.ask("AUTH", bob), b"+OK")
    run("admin", "user", "remove", "bob", **settings)
    until("the connection of the removed user ends", lambda: ended(connection))
    expect(Raw(("127.0.0.1", daemon.port)).ask("AUTH", bob)[:10], b"-WRONGPASS")
    expect(client.get("k"), b"v")
    daemon.stop()
    exposed = subprocess.run([FF, "serve-kv", f"{folder}/kv", "--listen", "0.0.0.0:0"],
                             env={"FF_KEY": key}, capture_output=True, text=True)
    expect(exposed.returncode, 5, exposed.stderr)
    manager.kill()


def ended(connection):
    try:
        connection.ask("PING")
        return False
    except (AssertionError, OSError):
        return True


def make_certificate(folder, name, *signer):
    """name.pem and name.key, signed by itself or by another one."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
           "-keyout", f"{name}.key", "-x509", "-days", "2", "-out", f"{name}.pem"]
    subprocess.run(["openssl", "req", *new, *signer], cwd=folder, check=True, capture_output=True)
    os.chmod(f"{folder}/{name}.key", 0o600)


def tls(folder):
    if shutil.which("openssl") is None or shutil.which("redis-cli") is None:
        skip("openssl or redis-cli is not installed")
    make_certificate(folder, "ca")
    for name in ("server", "client"):
        make_certificate(folder, name, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext",
                         "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE")
    key = f"{folder}/cluster.key"
    with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(os.urandom(32).hex() + "\n")
    daemon = serve(f"{folder}/kv", FF_KEY=key, FF_TLS_CERT=f"{folder}/server.pem",
                   FF_TLS_KEY=f"{folder}/server.key", FF_TLS_CA=f"{folder}/ca.pem")
    options = ("--tls", "--cacert", f"{folder}/ca.pem")
    own = ("--cert", f"{folder}/client.pem", "--key", f"{folder}/client.key")
    expect(cli(daemon.port, *options, *own, "PING"), "NOAUTH Authentication required.\n\n")
    for wrong in (options, ()):
        done = subprocess.run(["redis-cli", "-p", str(daemon.port), *wrong, "PING"],
                              capture_output=True, text=True)
        assert "NOAUTH" not in done.stdout and "PONG" not in done.stdout, done
    daemon.stop()


def cluster(folder):
    state = {"FF_STATE": f"{folder}/state"}
    text = run("up", "--dir", f"{folder}/cluster", **state)
    try:
        line = next(line for line in text.splitlines() if "FF_META=" in line)
        settings = dict(word.split("=", 1) for word in line.split() if "=" in word)
        settings["FF_KEY"] = settings["FF_KEY"].strip("'")
        run("admin", "key", "create", "admin/kv", "--key-file", f"{folder}/admin.key", **settings)
        with open(f"{folder}/admin.key") as file:
            password = file.read()
        daemon = serve("ff:///cache", **settings)
        client = redis.Redis(port=daemon.port, password=password)
        client.mset({f"k{i}": f"v{i}" for i in range(2000)})
        daemon.kill()
        daemon = serve("ff:///cache", **settings)
        client = redis.Redis(port=daemon.port, password=password)
        until("its partitions are claimed", lambda: client.info("store")["owned_partitions"] == 16)
        expect(client.mget(["k0", "k1999"]), [b"v0", b"v1999"])
        daemon.stop()
    finally:
        run("down", "--dir", f"{folder}/cluster", "--purge", "--yes", **state)


PARTS = {part.__name__: part for part in (clients, killed, shared, full, login, tls, cluster)}

if __name__ == "__main__":
    run_part(PARTS)
