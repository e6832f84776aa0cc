#!/usr/bin/env python3
# Checkpoints of the Python package in a cluster, without a mount: settings of the environment and
# of ff.toml, a user's token, a storage node that is killed during a save, signals, and the binary
# on the same store.
"""usage: cluster_store.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from checkpoint import environment, says
from polling import until

MIB = 1 << 20


def binary(*words):
    done = subprocess.run([sys.argv[2], *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)["data"]


def comes_back(ff, cluster):
    """What is saved through the library comes back, also to the binary."""
    state = {"weights": memoryview(bytes(range(256)) * (5 * MIB // 256)), "step": 7, "tags": {"a"}}
    with environment(FF_STORE="ff:///ckpt"):
        assert ff.latest(run="r") is None
        says(1, "no such store", ff.load, run="r")
        saved = ff.save_async(state, "r", 7).wait()
        assert saved.outcome == "committed" and ff.latest(run="r") == 7
        back = ff.load(run="r")
        assert bytes(back["weights"]) == bytes(state["weights"])
        assert back["step"] == 7 and back["tags"] == {"a"}
        binary("checkpoint", "verify", "r@7")
    assert ff.load(f"ff://{cluster['meta']}/ckpt/", "r")["step"] == 7
    says(2, "is not an address", ff.load, "ff://bad url/ckpt", "r")


def settings(ff, cluster, folder):
    """The settings of the command line hold here, too; keys of other commands do not disturb."""
    config = os.path.join(folder, "ff.toml")
    with open(config, "w") as file:
        file.write(f'[cluster]\nmeta = "{cluster["meta"]}"\n[net]\nkey = "{cluster["key"]}"\n'
                   '[checkpoint]\nstore = "/elsewhere"\n')
    with environment(FF_META=None, FF_KEY=None, FF_CONFIG=config):
        assert ff.latest("ff:///ckpt", "r") == 7
    with open(config, "a") as file:
        file.write('[net2]\nkey = 1\n[cluster.x]\n')
    with environment(FF_META=None, FF_KEY=None, FF_CONFIG=config):
        assert ff.latest("ff:///ckpt", "r") == 7
    with environment(FF_KEY=None):
        says(2, "no key is given", ff.latest, "ff:///ckpt", "r")
    with environment(FF_KEY="/nowhere/key"):
        says(1, "/nowhere/key", ff.latest, "ff:///ckpt", "r")
        save = ff.save_async(1, "r", 8, store="ff:///ckpt")
        says(1, "/nowhere/key", save.wait)


def users(ff, folder):
    """A user's token opens what the user may open."""
    token = os.path.join(folder, "ann.token")
    binary("admin", "user", "add", "ann", "--uid", "1001", "--gid", "1001", "--token-file", token)
    binary("fs", "mkdir", "/ann")
    binary("fs", "chown", "1001:1001", "/ann")
    with environment(FF_KEY=None, FF_TOKEN_FILE=token):
        ff.save_async({"a": 1}, "mine", 1, store="ff:///ann/ckpt").wait()
        assert ff.load("ff:///ann/ckpt", "mine") == {"a": 1}
        says(5, "", ff.save_async({"a": 1}, "r", 9, store="ff:///ckpt").wait)


def records(ff, cluster, folder):
    """FFRecord files in the cluster, beside local ones."""
    with ff.record.FileWriter("ff:///a.ffr", 2) as writer:
        writer.write_one(b"one")
        writer.write_one(bytes(3 * MIB))
    says(5, "exists already", ff.record.FileWriter, "ff:///a.ffr", 1)
    with ff.record.FileWriter(f"{folder}/b.ffr", 1) as writer:
        writer.write_one(b"local")
    with ff.record.FileReader([f"{folder}/b.ffr", "ff:///a.ffr", "ff:///a.ffr"]) as reader:
        assert reader.n == 5
        assert reader.read([4, 0, 1, 3]) == [bytes(3 * MIB), b"local", b"one", b"one"]
    says(2, "names other servers than ff:///a.ffr", ff.record.FileReader,
         ["ff:///a.ffr", f"ff://{cluster['meta']}/a.ffr"])
    binary("record", "verify", "ff:///a.ffr")


def survives(ff, cluster):
    """A storage node dies in the middle of a save, which ends well; no thread takes signals."""
    state = {f"t{i}": memoryview(os.urandom(8 * MIB)) for i in range(12)}
    save = ff.save_async(state, "big", 1, store="ff:///ckpt")
    main = threading.main_thread().native_id
    seen = set()

    def blocked():
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/status") as status:
                    words = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            except FileNotFoundError:
                continue
            if int(task) == main:
                continue
            assert int(words["SigBlk"], 16) >> (signal.SIGALRM - 1) & 1, f"{task} takes signals"
            seen.add(task)
        return len(seen) >= 2 or save.done()

    until(blocked)
    os.kill(cluster["storage_pid"], signal.SIGKILL)
    assert save.wait().outcome == "committed" and len(seen) >= 2
    back = ff.load("ff:///ckpt", "big")
    assert all(bytes(back[name]) == bytes(state[name]) for name in state)


def main():
    sys.path.insert(0, sys.argv[1])
    import ff
    folder = tempfile.mkdtemp()
    home = os.path.join(folder, "cluster")
    for name in [name for name in os.environ if name.startswith("FF_")]:
        del os.environ[name]
    os.environ["FF_CONFIG"] = os.path.join(folder, "none.toml")
    open(os.environ["FF_CONFIG"], "w").close()
    try:
        up = binary("up", "--dir", home)
        pids = {daemon["name"]: daemon["pid"] for daemon in up["daemons"]}
        cluster = {"meta": up["meta"], "key": up["key"], "storage_pid": pids["storage-2"]}
        with environment(FF_META=cluster["meta"], FF_KEY=cluster["key"]):
            comes_back(ff, cluster)
            settings(ff, cluster, folder)
            users(ff, folder)
            records(ff, cluster, folder)
            survives(ff, cluster)
    finally:
        binary("down", "--dir", home, "--purge")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
