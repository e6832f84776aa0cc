#!/usr/bin/env python3
# Keys and values of the Python package (ff.KV): reads beside a gateway, without one, and in a
# cluster; changes through gateways that die.
"""usage: kv.py FOLDER FF PART, where the package ff and libff.so are, and the binary

  local     one gateway: values in all kinds of memory, expiry, errors, forks, threads
  killed    gateways are killed: reads go on, and changes, when the next one serves
  shared    two gateways share the keys: changes go to the owner of each, also when it changes
  cluster   the store lies in a cluster, with keys
  large     programs that write large values by themselves, gateways and storage are killed
  tls       gateways and programs have certificates
"""
import array
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from checkpoint import environment, says
from checkpoint_torch import SKIPPED, python_with_torch
from kv_gateway import Gateway
from polling import until

MIB = 1 << 20


def raw(address, *words):
    """The first line of the reply to one request of the Redis protocol."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return client.makefile("rb").readline()


def commands_of(address):
    """How many commands a gateway has run, this one included."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"INFO stats\r\n")
        lines = client.makefile("rb")
        return next(int(line.split(b":")[1]) for line in lines
                    if line.startswith(b"total_commands_processed:"))


def paths_of_values(kv, address):
    """Large values are reserved and confirmed (2 commands), others are sent (SET)."""
    def commands(call, *arguments, **options):
        before = commands_of(address)
        call(*arguments, **options)
        return commands_of(address) - before - 1
    value = os.urandom(MIB)
    assert commands(kv.put, "large", value) == 2 and kv.get("large") == value
    assert commands(kv.put_many, {f"large {i}": value for i in range(3)}, ttl=100) == 6
    assert commands(kv.put, "small", value[:1000]) == 1
    assert commands(kv.put, "mark", b"\0ff-kv\0" + value) == 1
    # A list is replaced, and what was in it: the gateway has to do that.
    assert raw(address, b"RPUSH", b"large", b"item").startswith(b"-WRONGTYPE")
    assert raw(address, b"RPUSH", b"queue", b"item") == b":1\r\n"
    assert commands(kv.put, "queue", value) == 3 and kv.get("queue") == value
    # Of several values of one key, the last one counts.
    pairs = [("twice", b"small"), ("twice", value)]
    for order in (pairs, pairs[::-1]):
        kv.put_many(order)
        assert kv.get("twice") == order[-1][1]
    kv.delete_many(["large", "large 0", "large 1", "large 2", "small", "queue", "twice"])


def values_of_all_kinds(kv):
    values = {f"size {size}": os.urandom(size)
              for size in (0, 1, 7, 1000, 65535, 65536, MIB, 3 * MIB + 5)}
    # What a gateway marks, and what looks like a mark.
    values.update({b"\0key\r\n": b"\0ff-kv\0s", "hash?": b"\0ff-kv\0hash", "mark": b"\0ff-kv\0"})
    kv.put_many(values)
    assert kv.get_many(values) == list(values.values())
    assert kv.exists_many([*values, "none"]) == [True] * len(values) + [False]
    buffers = [bytearray(len(value)) for value in values.values()]
    room = [bytearray(len(buffer) + 8) for buffer in buffers]
    assert kv.get_many(values, into=room) == [len(value) for value in values.values()]
    assert [bytes(one[:-8]) for one in room] == list(values.values())
    assert kv.get("size 7") == values["size 7"] and kv.get("none") is None
    assert kv.get_many(["none", "size 1"], into=[bytearray(1), buffers[1]]) == [None, 1]
    says(2, "has 1000 bytes, and its buffer 999", kv.get_many, ["size 1000"],
         into=[bytearray(999)])
    says(2, "may be written", kv.get_many, ["size 1"], into=[b"x"])
    says(2, "2 keys, and 1 buffers", kv.get_many, ["a", "b"], into=[bytearray(1)])
    says(1, "a key of 32768 bytes", kv.put, bytes(32768), b"")
    assert kv.delete("size 1") and not kv.delete("size 1") and not kv.exists("size 1")
    assert kv.delete_many(["size 7", "none", "size 1000"]) == 2
    assert kv.get_many([]) == [] and kv.exists_many([]) == []
    kv.put_many({})


def memory_of_all_kinds(kv):
    numbers = array.array("d", [1.5, 2.5, 3.5])
    kv.put("numbers", numbers)
    back = array.array("d", [0] * 3)
    assert kv.get_many(["numbers"], into=[back]) == [24] and back == numbers
    kv.put("view", memoryview(b"abcdef")[2:4])
    assert kv.get("view") == b"cd"
    says(2, "contiguous", kv.put, "view", memoryview(b"abcdef")[::2])
    try:
        import numpy
    except ImportError:
        return
    matrix = numpy.arange(100_000, dtype="float32").reshape(100, 1000)
    kv.put("matrix", matrix)
    copy = numpy.zeros_like(matrix)
    kv.get_many(["matrix"], into=[copy])
    assert (copy == matrix).all()
    try:
        import torch
    except ImportError:
        return
    tensor = torch.arange(50_000, dtype=torch.float16).reshape(50, -1)
    kv.put("tensor", tensor)
    other = torch.zeros_like(tensor)
    assert kv.get_many(["tensor"], into=[other]) == [100_000] and torch.equal(other, tensor)
    says(2, "contiguous", kv.get_many, ["tensor"], into=[other.t()])


def in_a_child(kv, pipe):
    kv.put("child", b"1")
    pipe.send(bytes(kv.get("size 65536")))


def more_processes(kv):
    """A forked child and a spawned one open the store for themselves."""
    for how in ("fork", "spawn"):
        context = multiprocessing.get_context(how)
        ours, theirs = context.Pipe()
        child = context.Process(target=in_a_child, args=(kv, theirs))
        child.start()
        assert len(ours.recv()) == 65536
        child.join()
        assert child.exitcode == 0
        kv.refresh()
        assert kv.get("child") == b"1" and kv.delete("child")
    assert pickle.loads(pickle.dumps(kv)).exists("size 65536")


def threads(kv):
    failed = []

    def work(number):
        for i in range(50):
            key = f"thread {number}"
            kv.put(key, str(i))
            if kv.get(key) != str(i).encode():
                failed.append((number, i))
    together = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in together:
        one.start()
    for one in together:
        one.join()
    assert not failed, failed


def damage(store):
    """A byte of a value changes on the disk."""
    changed = 0
    for part in os.listdir(store):
        for name in os.listdir(f"{store}/{part}") if part.startswith("p0") else []:
            with open(f"{store}/{part}/{name}", "r+b") as file:
                at = file.read(32 * MIB).find(b"unmistakable")
                if at >= 0:
                    file.seek(at + 3)
                    changed += file.write(b"X")
    assert changed == 1


def local(ff, binary, work):
    store = f"{work}/kv"
    says(1, "there is no store of keys and values", ff.KV, store)
    with Gateway(binary, store, "--partitions", "2") as gateway:
        kv = ff.KV(store)
        values_of_all_kinds(kv)
        paths_of_values(kv, gateway.address)
        memory_of_all_kinds(kv)
        more_processes(kv)
        threads(kv)
        kv.put("short", b"1", ttl=0.3)
        kv.put("long", b"2", ttl=1000)
        until(lambda: not kv.exists("short"))
        assert kv.get_many(["short", "long"]) == [None, b"2"]
        assert raw(gateway.address, b"HSET", b"hash", b"field", b"value") == b":1\r\n"
        assert raw(gateway.address, b"RPUSH", b"list", b"item") == b":1\r\n"
        kv.refresh()
        assert kv.exists_many(["hash", "list"]) == [True, True]
        says(2, "the key hash has a hash, not a string", kv.get, "hash")
        says(2, "the key list has a list, not a string", kv.get, "list")
        # Others' changes are seen when the view is old enough, or after refresh().
        with ff.KV(store, max_age=3600) as old:
            assert old.get("long") == b"2"
            kv.put("long", b"3")
            assert old.get("long") == b"2"
            old.refresh()
            assert old.get("long") == b"3"
        kv.put("harmed", b"unmistakable" * 1000)
        assert kv.get("harmed") == b"unmistakable" * 1000
        damage(store)
        says(3, "is damaged; key: harmed", kv.get, "harmed")
        kv.close()
        says(2, "the store is closed", kv.get, "long")
        says(2, "must not be negative", ff.KV, store, max_age=-1)
        says(2, "contains a zero", ff.KV, "a\0b")


def killed(ff, binary, work):
    store = f"{work}/kv"
    gateway = Gateway(binary, store)
    kv = ff.KV(store, max_age=0, write_seconds=60)
    content = {f"k{i}": os.urandom(1000) for i in range(200)}
    kv.put_many(content)
    gateway.kill()
    for max_age in (0, 0.1):
        with ff.KV(store, max_age=max_age, write_seconds=0.2) as other:
            assert other.get_many(content) == list(content.values())
            says(1, "gateway", other.put, "k0", b"")
    written = []
    writer = threading.Thread(target=lambda: written.append(kv.put_many({"k0": b"new", "n": b"1"})))
    writer.start()
    gateway = Gateway(binary, store)  # takes the partitions over when the lease has ended
    writer.join()
    assert written == [None], "the change has failed"
    assert kv.get("k0") == b"new"
    content["k0"] = b"new"
    with ff.KV(store, max_age=0) as other:
        for round_ in range(5):
            content.update({f"k{i}": os.urandom(1000) for i in range(100)})
            kv.put_many(content)
            assert other.get_many(content) == list(content.values()), round_
    gateway.stop()
    says(1, "no gateway serves partition", ff.KV(store, write_seconds=0).put, "k", b"")
    with ff.KV(store) as other:
        assert other.get_many(content) == list(content.values())


def share(gateway):
    """How many partitions it serves."""
    host, port = gateway.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"INFO store\r\nQUIT\r\n")
        text = client.makefile("rb").read().decode()
    return int(text.split("owned_partitions:")[1].split()[0])


def shared(ff, binary, work):
    store = f"{work}/kv"
    first = Gateway(binary, store)
    kv = ff.KV(store, max_age=0, write_seconds=60)
    content = {f"k{i}": os.urandom(500) for i in range(200)}

    def change_all():
        content.update({key: os.urandom(500) for key in content})
        kv.put_many(content)
        assert kv.get_many(content) == list(content.values())
        return True
    change_all()
    with Gateway(binary, store) as second:
        until(lambda: change_all() and share(first) == share(second) == 8)
        change_all()
        assert kv.delete_many(["k0", "k1", "k2", "none"]) == 3
        for key in ("k0", "k1", "k2"):
            del content[key]
        first.kill()
        change_all()
        assert share(second) == 16
        assert raw(second.address, b"DBSIZE") == b":197\r\n"
    with ff.KV(store) as other:
        assert other.get_many(content) == list(content.values())


def cluster(ff, binary, work):
    def run(*words):
        done = subprocess.run([binary, *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)["data"]
    home = f"{work}/cluster"
    try:
        up = run("up", "--dir", home)
        settings = {"FF_META": up["meta"], "FF_KEY": up["key"]}
        with environment(**settings):
            gateway = Gateway(binary, "ff:///cache", "--partitions", "1", **settings)
            kv = ff.KV("ff:///cache", max_age=0)
            content = {f"k{i}": os.urandom(size) for i, size in enumerate(
                [100, 5000, MIB, 3 * MIB])}
            for _ in range(3):
                kv.put_many(content)
                assert kv.get_many(content) == list(content.values())
            old = ff.KV("ff:///cache", max_age=3600)
            assert old.get_many(content) == list(content.values())
            # A user who may neither read the folder nor log in.
            token = f"{work}/ann.token"
            run("admin", "user", "add", "ann", "--uid", "1001", "--token-file", token)
            with environment(FF_KEY=None, FF_TOKEN_FILE=token):
                says(5, "", ff.KV, "ff:///cache")

            def segments():
                return [entry["path"] for entry in run("fs", "ls", "/cache/p0000")["entries"]
                        if "/seg-" in entry["path"]]
            before = segments()
            gateway.stop()
            # The next one moves what is in use out of the file, of which that is a third.
            with Gateway(binary, f"ff://{up['meta']}/cache", **settings):
                until(lambda: not set(before) & set(segments()))
                assert old.get_many(content) == list(content.values())
                kv.put("k0", b"new")
                content["k0"] = b"new"
            with ff.KV(f"ff://{up['meta']}/cache") as other:
                assert other.get_many(content) == list(content.values())
            kv.close()
            old.close()
    finally:
        run("down", "--dir", home, "--purge")


# Writes one number again and again to each of the keys, larger with each turn, and prints it then.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import ff
keys, number = sys.argv[4:], int(sys.argv[3])
with ff.KV(sys.argv[2], write_seconds=60) as kv:
    while True:
        number += 1
        kv.put_many({key: b"%016d" % number * 25_000 for key in keys})
        print(number, flush=True)
"""


class LargeWriter:
    """Another process that writes large values until it is killed."""

    def __init__(self, store, after, keys):
        words = [sys.executable, "-c", WRITER, sys.argv[1], store, str(after), *keys]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.last = after

    def write(self, times):
        for _ in range(times):
            line = self.process.stdout.readline()
            assert line, "the writer has ended"
            self.last = int(line)

    def kill(self):
        self.process.kill()
        # What was acknowledged meanwhile.
        lines = [line for line in self.process.stdout if line.endswith("\n")]
        self.last = max([self.last, *map(int, lines)])
        self.process.wait()


def numbers_of(kv, keys):
    """The number that each value consists of."""
    for value in kv.get_many(keys):
        assert value == value[:16] * 25_000, "a torn value"
        yield int(value[:16])


def processes_with(*words):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                text = file.read().replace("\0", " ")
        except OSError:
            continue
        if all(word in text for word in words):
            yield int(pid)


def large(ff, binary, work):
    def run(*words):
        done = subprocess.run([binary, *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)["data"]
    home, keys = f"{work}/cluster", [f"large {i}" for i in range(6)]
    try:
        up = run("up", "--dir", home)
        settings = {"FF_META": up["meta"], "FF_KEY": up["key"]}
        with environment(**settings):
            gateway = Gateway(binary, "ff:///large", "--partitions", "2", **settings)
            last = 0
            for what in ("writer", "storage", "gateway"):
                writer = LargeWriter("ff:///large", last, keys)
                writer.write(3)
                if what == "storage":
                    storage = list(processes_with("serve-storage", home))
                    assert storage
                    os.kill(storage[0], signal.SIGKILL)
                if what == "gateway":
                    gateway.kill()
                    gateway = Gateway(binary, "ff:///large", **settings)
                if what != "writer":
                    writer.write(3)
                writer.kill()
                with ff.KV("ff:///large") as kv:
                    numbers = list(numbers_of(kv, keys))
                    assert min(numbers) >= writer.last, (what, numbers, writer.last)
                    kv.put(keys[0], b"%016d" % max(numbers) * 25_000)
                    assert list(numbers_of(kv, keys[:1])) == [max(numbers)]
                last = max(numbers)
            gateway.stop()
    finally:
        run("down", "--dir", home, "--purge")


def make_certificate(folder, name, *words):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-keyout", f"{name}.key", "-out", f"{name}.pem", *words],
                   check=True, cwd=folder, capture_output=True)


def tls(ff, binary, work):
    if shutil.which("openssl") is None:
        print("skipped: openssl is not installed")
        sys.exit(SKIPPED)
    make_certificate(work, "ca")
    for name in ("server", "client"):
        make_certificate(work, name, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext",
                         "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE")
    for name in ("cluster", "other"):
        with open(os.open(f"{work}/{name}.key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex() + "\n")

    def settings(name, key):
        return {"FF_KEY": f"{work}/{key}.key", "FF_TLS_CERT": f"{work}/{name}.pem",
                "FF_TLS_KEY": f"{work}/{name}.key", "FF_TLS_CA": f"{work}/ca.pem"}
    with Gateway(binary, f"{work}/kv", **settings("server", "cluster")):
        with environment(**settings("client", "cluster")), ff.KV(f"{work}/kv") as kv:
            values = {f"k{i}": os.urandom(size) for i, size in enumerate([10, 3 * MIB, 100] * 5)}
            kv.put_many(values)
            assert kv.get_many(values) == list(values.values())
        with environment(**settings("client", "other")), ff.KV(f"{work}/kv") as kv:
            says(5, "does not accept the key", kv.put, "k0", b"")
        with environment(FF_KEY=f"{work}/cluster.key"):
            with ff.KV(f"{work}/kv", write_seconds=0.3) as kv:
                says(1, "gateway", kv.put, "k0", b"")
                assert kv.get("k0") == values["k0"]


def main():
    python = python_with_torch() if sys.argv[3:] == ["local"] else None
    if python not in (None, sys.executable):
        return subprocess.run([python, *sys.argv, "here"]).returncode
    sys.path.insert(0, sys.argv[1])
    import ff
    work = tempfile.mkdtemp()
    for name in [name for name in os.environ if name.startswith("FF_")]:
        del os.environ[name]
    os.environ["FF_CONFIG"] = os.path.join(work, "none.toml")
    open(os.environ["FF_CONFIG"], "w").close()
    try:
        parts = {"local": local, "killed": killed, "shared": shared, "cluster": cluster,
                 "large": large, "tls": tls}
        parts[sys.argv[3]](ff, sys.argv[2], work)
    finally:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
