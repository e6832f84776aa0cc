# What the tests of `ff serve-kv` share: a daemon, clients that see bytes, and waiting.
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FF = os.path.realpath(sys.argv[1])
DEADLINE_S = 60


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


try:
    import redis
except ImportError:
    skip("python3-redis is not installed")


STARTED = []  # processes, which end with this one


def end_all():
    for process in STARTED:
        process.kill()


atexit.register(end_all)


def until(what, condition):
    """Polls until the condition holds, and returns its value."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.02)


def expect(actual, expected, what=""):
    assert actual == expected, f"{what}: {actual!r}, not {expected!r}"


class Daemon:
    """A daemon of ff that prints where it listens."""

    def __init__(self, *words, start=(FF,), pass_fds=(), **settings):
        env = {"PATH": os.environ["PATH"], "HOME": "/proc/nonexistent", **settings}
        self.process = subprocess.Popen([*start, *words], env=env, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, pass_fds=pass_fds)
        STARTED.append(self.process)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait()
            raise AssertionError(line + self.process.stderr.read())
        self.address = line.split()[-1]
        self.port = int(self.address.rsplit(":", 1)[1])
        self.log = []
        threading.Thread(target=self._read_log, daemon=True).start()

    def _read_log(self):
        self.log.extend(self.process.stderr)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(DEADLINE_S), 0, "exit code of the daemon")

    def rss_mib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def serve(folder, *words, port=0, **settings):
    if not settings:
        settings = {"FF_INSECURE": "1"}
    return Daemon("serve-kv", folder, "--listen", f"127.0.0.1:{port}", *words, **settings)


class Raw:
    """A client that sees the bytes of replies."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        out = b"*%d\r\n" % len(words)
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(out)

    def reply(self):
        """One reply, nested ones as lists behind their type; an error or a line as its bytes."""
        line = self.file.readline()
        assert line.endswith(b"\r\n"), f"the connection has ended: {line!r}"
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and rest != b"-1":
            return kind + self.file.read(int(rest) + 2)[:-2]
        if kind in b"*~%" and rest != b"-1":
            return [kind] + [self.reply() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
        return kind + rest

    def ask(self, *words):
        self.send(*words)
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


def cli(port, *words, text=None, **settings):
    done = subprocess.run(["redis-cli", "-p", str(port), *words], input=text, text=True, check=True,
                          capture_output=True, env={**os.environ, **settings})
    return done.stdout


def run(*words, **settings):
    done = subprocess.run([FF, *words], env={"PATH": os.environ["PATH"], **settings},
                          capture_output=True, text=True)
    expect(done.returncode, 0, done.stderr)
    return done.stdout


def refused(text, call):
    try:
        call()
    except redis.RedisError as error:
        assert text in str(error), error
    else:
        raise AssertionError("nothing was refused")


def share(port):
    """How many partitions the daemon serves."""
    return redis.Redis(port=port).info("store")["owned_partitions"]


def serves_all(port):
    info = redis.Redis(port=port).info("store")
    return info["owned_partitions"] == info["partitions"]


def run_part(parts):
    """The part that the command line names, in a folder of its own."""
    # After SIGTERM, too, nothing runs on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as work:
        parts[sys.argv[2]](work)
    print("passed")
