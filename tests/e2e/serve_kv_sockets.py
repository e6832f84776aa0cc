#!/usr/bin/env python3
# Gateways whose sockets systemd has made: clients that were there before the gateway are served.
"""usage: serve_kv_sockets.py FF PART

  passed    sockets for clients of Redis and S3, as systemd passes them
  refused   what is no such socket, and variables that contradict each other
  systemd   systemd-socket-activate starts a gateway for the first client

Exits with 77 where something that a part needs is not there.
"""
import os
import shutil
import socket
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left in the tree
from kv_daemon import DEADLINE_S, FF, STARTED, Daemon, Raw, expect, run, run_part, skip

# Puts the descriptors where systemd puts them, and becomes ff.
LAUNCH = """
import os, sys
fds = [os.dup(int(fd)) for fd in sys.argv[1].split(",") if fd]
moved = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(moved):
    os.dup2(fd, 3 + i)
    os.close(fd)
os.closerange(3 + len(moved), 100)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv(sys.argv[2], ["ff", *sys.argv[3:]])
"""


def listening(address="127.0.0.1", kind=socket.SOCK_STREAM):
    one = socket.socket(socket.AF_INET, kind)
    one.bind((address, 0))
    if kind == socket.SOCK_STREAM:
        one.listen()
    return one


def launch(sockets):
    fds = [one.fileno() for one in sockets]
    return (sys.executable, "-c", LAUNCH, ",".join(str(fd) for fd in fds), FF), fds


def start(sockets, *words, **settings):
    """A gateway with these sockets, by their names."""
    command, fds = launch(sockets.values())
    return Daemon("serve-kv", *words, start=command, pass_fds=fds, LISTEN_FDS=str(len(fds)),
                  LISTEN_FDNAMES=":".join(sockets), **settings)


def check_passed(work):
    place, state = f"{work}/cluster", {"FF_STATE": f"{work}/state"}
    text = run("up", "--dir", place, "--storage", "1", "--timeout", "4m", **state)
    try:
        line = next(line for line in text.splitlines() if "FF_META=" in line)
        settings = dict(word.split("=", 1) for word in line.split() if "=" in word)
        run("fs", "mkdir", "/objects", **settings)
        run("admin", "key", "create", "mount/test", "--key-file", f"{work}/key", **settings)
        with open(f"{work}/key", encoding="utf-8") as file:
            key = file.read()
        sockets = {"s3": listening(), "redis": listening()}
        # Both clients are there before the gateway.
        first = Raw(sockets["redis"].getsockname())
        first.send("AUTH", key)
        reader = socket.create_connection(sockets["s3"].getsockname(), DEADLINE_S)
        reader.sendall(b"GET /bucket/key HTTP/1.1\r\nHost: localhost\r\n\r\n")
        served = start(sockets, "ff:///kv", "--s3-root", "ff:///objects", **settings)
        expect(served.port, sockets["redis"].getsockname()[1], "the port of Redis")
        expect(first.reply(), b"+OK")
        expect(first.ask("SET", "key", "value"), b"+OK")
        reply = reader.makefile("rb").read(12)
        expect(reply, b"HTTP/1.1 403", "an unsigned request of S3")
        served.stop()
        # systemd has the sockets still, and starts another one for the next client.
        second = Raw(sockets["redis"].getsockname())
        second.send("AUTH", key)
        served = start(sockets, "ff:///kv", "--s3-root", "ff:///objects", **settings)
        expect(second.reply(), b"+OK")
        expect(second.ask("GET", "key"), b"$value")
        served.stop()
    finally:
        run("down", "--dir", place, "--purge", "--yes", **state)


def check_refused(work):
    def refused(text, sockets, *words, **settings):
        command, fds = launch(sockets)
        env = {"PATH": os.environ["PATH"], "FF_INSECURE": "1", **settings}
        done = subprocess.run([*command, "serve-kv", f"{work}/kv", "--listen", "127.0.0.1:0",
                               *words], env=env, pass_fds=fds, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        assert text in done.stderr, done.stderr
        expect(done.returncode, 2, done.stderr)

    good = listening()
    refused("LISTEN_FDS is '0'", [good], LISTEN_FDS="0")
    refused("LISTEN_FDS is '1x'", [good], LISTEN_FDS="1x")
    refused("LISTEN_FDS is '-1'", [good], LISTEN_FDS="-1")
    refused("LISTEN_FDS is '65'", [good], LISTEN_FDS="65")
    refused("LISTEN_PID is 'me'", [good], LISTEN_FDS="1", LISTEN_PID="me")
    refused("LISTEN_FDNAMES has 2 names", [good], LISTEN_FDS="1", LISTEN_FDNAMES="redis:s3")
    refused("descriptor 4, which LISTEN_FDS names, is no stream socket that listens", [good],
            LISTEN_FDS="2", LISTEN_FDNAMES="redis:s3")
    refused("descriptor 3", [listening(kind=socket.SOCK_DGRAM)], LISTEN_FDS="1",
            LISTEN_FDNAMES="redis")
    connected = socket.create_connection(good.getsockname())
    refused("descriptor 3", [connected], LISTEN_FDS="1", LISTEN_FDNAMES="redis")
    refused("has the name 'other'", [good], LISTEN_FDS="1", LISTEN_FDNAMES="other")
    refused("has the name ''", [good], LISTEN_FDS="1")
    refused("two inherited sockets have the name redis", [good, listening()], LISTEN_FDS="2",
            LISTEN_FDNAMES="redis:redis")
    refused("there is no --s3-root", [good], LISTEN_FDS="1", LISTEN_FDNAMES="s3")
    # A parent may have got them for itself.
    command, fds = launch([good])
    other = Daemon("serve-kv", f"{work}/kv", "--listen", "127.0.0.1:0", start=command,
                   pass_fds=fds, LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), FF_INSECURE="1")
    assert other.port != good.getsockname()[1]
    other.stop()
    # Other machines could reach this one.
    everywhere = listening("0.0.0.0")
    command, fds = launch([everywhere])
    done = subprocess.run([*command, "serve-kv", f"{work}/kv"], pass_fds=fds, capture_output=True,
                          env={"PATH": os.environ["PATH"], "FF_INSECURE": "1", "LISTEN_FDS": "1",
                               "LISTEN_FDNAMES": "redis"}, text=True, timeout=DEADLINE_S)
    assert "other machines could connect, but there is no key" in done.stderr, done.stderr


def check_systemd(work):
    program = shutil.which("systemd-socket-activate")
    if program is None:
        skip("systemd-socket-activate is not installed")
    path = f"{work}/redis"
    started = subprocess.Popen([program, "-l", path, "--fdname=redis", "-E", "FF_INSECURE=1", FF,
                                "serve-kv", f"{work}/kv"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    STARTED.append(started)
    while "Listening on " not in (line := started.stderr.readline()):
        assert line, "systemd-socket-activate has ended"
    assert not os.path.exists(f"{work}/kv"), "the gateway was there before its first client"
    expect(subprocess.run(["redis-cli", "-s", path, "SET", "key", "value"], capture_output=True,
                          check=True, timeout=DEADLINE_S).stdout, b"OK\n")
    expect(Raw(path).ask("GET", "key"), b"$value")
    # It has become the gateway.
    started.terminate()
    expect(started.wait(DEADLINE_S), 0)
    assert os.path.exists(path), "the path belongs to who has made the socket"


PARTS = {"passed": check_passed, "refused": check_refused, "systemd": check_systemd}

if __name__ == "__main__":
    run_part(PARTS)
