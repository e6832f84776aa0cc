#!/usr/bin/env python3
# Checkpoints of the Python package: states out and in again, what happens behind the program's
# back, and the binary on the same store. Needs no other package; checkpoint_torch.py has PyTorch.
"""usage: checkpoint.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import array
import collections
import contextlib
import glob
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

from polling import until

MIB = 1 << 20


class Skipped(Exception):
    pass


def says(code, text, call, *arguments, **named):
    import ff
    try:
        call(*arguments, **named)
    except ff.Error as error:
        assert text in str(error), f"'{text}' in '{error}'"
        assert error.code == code, f"{error.code}: {error}"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def binary(*words, code=0):
    done = subprocess.run([sys.argv[2], "checkpoint", *words, "--json"], capture_output=True,
                          text=True)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)["data"] if code == 0 else done.stdout + done.stderr


def child(store, body):
    """A Python that runs `body` on ff and `store`."""
    text = (f"import sys, os, time\nsys.path.insert(0, {sys.argv[1]!r})\n"
            f"import ff\nstore = {store!r}\n")
    return subprocess.Popen([sys.executable, "-c", text + body], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    said, errors = process.communicate(timeout=120)
    return process.returncode, said + errors


@contextlib.contextmanager
def environment(**variables):
    """Sets variables, or removes those that are None, until the end of the block."""
    before = dict(os.environ)
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def bits(number):
    return struct.pack(">d", number)


def a_round_trip(ff, store):
    strange = struct.unpack(">d", bytes.fromhex("7ff8000000abcdef"))[0]
    floats = [0.1, -0.0, 5e-324, 1e308, math.inf, -math.inf, math.nan, strange]
    matrix = memoryview(bytearray(range(24))).cast("h", [3, 4])
    state = {
        "floats": floats, "ints": [0, -1, 2**80, True, False, None], "text": "é\n\"\0\ud800",
        "pair": (1, ("a", [()])), 7: {"seven": 7, None: 1, (1, "a"): 2, 0.5: 3, True: 4},
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "counter": collections.Counter("abca"), "empty": [{}, [], "", b"", bytearray()],
        "bytes": b"\0\xff", "bytearray": bytearray(b"abc"), "complex": 1 - 2j,
        "a.b": array.array("d", [1.5]), "a": {"b": array.array("f", [2.5])}, "a.b~2": b"3",
        "__metadata__": b"m", "z\0": b"n", "": array.array("q", [-5]), "matrix": matrix,
        "none": array.array("i"),
    }
    saved = ff.save_async(state, "r", store=store).wait()
    assert saved == (saved.run, 1, "committed", 0, saved.bytes, saved.bytes_written, saved.seconds)
    assert saved.run == "r" and saved.seconds > 0
    back = ff.load(store, "r")
    assert list(map(bits, back["floats"])) == list(map(bits, floats)), back["floats"]
    assert list(back) == list(state) and back["matrix"].tolist() == matrix.tolist()
    assert type(back["ordered"]) is collections.OrderedDict and type(back["bytearray"]) is bytearray
    assert type(back["counter"]) is collections.Counter and type(back["empty"][4]) is bytearray
    assert back["a.b"].format == "d" and back["a.b"][0] == 1.5 and back["a"]["b"][0] == 2.5
    assert back[""].tolist() == [-5] and back["none"].nbytes == 0 and not back["matrix"].readonly
    same = ("ints", "text", "pair", 7, "ordered", "counter", "empty", "bytes", "bytearray",
            "complex", "a.b~2", "__metadata__", "z\0")
    for key in same:
        assert back[key] == state[key] and type(back[key]) is type(state[key]), back[key]
    assert [type(one) for one in back["ints"]] == [type(one) for one in state["ints"]]
    for alone in (3, [1, "x"], array.array("b", [1, 2]), {}):
        ff.save_async(alone, "alone", store=store).wait()
        loaded = ff.load(store, "alone")
        assert loaded == alone or loaded.tolist() == alone.tolist()
    assert ff.load(store, "r", 1, tensors=["a.*", "bytes"]).keys() == {"a.b", "a.b~2", "a.b~2~2",
                                                                       "bytes"}


def b_what_cannot_be_stored(ff, store):
    class Thing:
        pass
    save = lambda state, **named: ff.save_async(state, store=store, **named)
    says(2, "model.layers.1: a __main__.", save, {"model": {"layers": [1, Thing()]}})
    says(2, "x: a defaultdict", save, {"x": collections.defaultdict(lambda: 1)})
    says(2, "register_type(", save, {"x": Thing()})
    says(2, "x: a key of type b_what", save, {"x": {Thing(): 1}})
    says(2, "the state: a", save, Thing())
    endless = []
    endless.append(endless)
    says(2, "0: it holds itself", save, endless)
    says(2, "when_busy", save, 1, when_busy="never")
    says(2, "no step", save, 1, step=-1)
    says(2, "no rank 2 of 2", save, 1, rank=2, world=2, step=1, attempt="a")
    says(2, "give step=", save, 1, rank=1, world=2)
    says(2, "one attempt", save, 1, rank=1, world=2, step=1)
    says(2, "RANK and WORLD_SIZE", save, 1, rank="env")
    with environment(RANK="²", WORLD_SIZE="2"):
        says(2, "RANK of the environment is no number", save, 1, rank="env")
    with environment(RANK="1", WORLD_SIZE="2"):  # without a torchrun id
        says(2, "one attempt. Give all ranks the same step and attempt", save, 1, rank="env",
             step=1)
    with environment(RANK="1", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="none"):  # no --rdzv-id
        says(2, "one attempt. Give all ranks the same step and attempt", save, 1, rank="env",
             step=1)
    with environment(RANK="2", WORLD_SIZE="2", FF_ATTEMPT="a"):
        says(2, "no rank 2 of 2", save, 1, rank="env", step=1)
    says(2, "FF_STORE", ff.save_async, 1)
    says(2, "run", save, 1, run="../up")
    says(2, "run", save, 1, run="\ud800")
    for name in ("run", "attempt"):
        says(2, f"{name}='a\\x00b' contains a zero", save, 1, **{name: "a\0b"})
    says(2, "store='/a\\x00b' contains a zero", ff.save_async, 1, store=b"/a\0b")
    says(2, "tensors='a\\x00b' contains a zero", ff.load, store, tensors="a\0b")
    says(1, "no such store", ff.load, store)
    assert ff.latest(store) is None and not os.path.exists(store)
    save(1).wait()
    says(1, "no committed", ff.load, store, "other")
    says(1, "2", ff.load, store, step=2)
    says(1, "no such tensors", ff.load, store, tensors="*")
    says(2, "chooses nothing", ff.load, store, tensors=[])
    assert ff.latest(store) == 1 and ff.latest(store, "other") is None
    os.environ["FF_STORE"] = store
    try:
        assert ff.save_async(2).wait().step == 2 and ff.load() == 2
    finally:
        del os.environ["FF_STORE"]


def c_the_copy_is_the_checkpoint(ff, store):
    parts = [bytearray(os.urandom(4 * MIB)) for _ in range(20)]
    before = [bytes(part) for part in parts]
    save = ff.save_async(parts, store=store)
    for part in parts:
        part[:] = bytes(len(part))
    first = save.wait()
    assert first.bytes_written > 80 * MIB
    assert [bytes(part) for part in ff.load(store)] == before
    parts = [bytearray(part) for part in before]
    parts[3][5] ^= 1
    second = ff.save_async(parts, store=store).wait()
    assert second.step == 2 and second.bytes_written < 5 * MIB, second
    assert ff.load(store, step=2)[3] == parts[3]
    assert save.wait() == first and save.done()


def d_busy(ff, store):
    state = bytearray(os.urandom(MIB)) * 256
    for index in range(256):
        state[index * MIB] = index  # no two chunks are alike
    first = ff.save_async(state, store=store, threads=1)
    assert not first.done()
    assert ff.save_async(state, store=store, when_busy="skip") is None
    second = ff.save_async([state, 1], store=store)
    assert first.done() and first.wait().step == 1
    assert ff.wait() == second.wait() and second.wait().step == 2
    assert ff.save_async(1, store=store, when_busy="skip").wait().step == 3
    saver = ff.Saver()
    state[5] ^= 1
    given_up = saver.save_async(bytes(state)[::-1], store=store, run="other", threads=1)
    saver.close(give_up=True)
    says(1, "was given up", given_up.wait)
    says(2, "was closed", saver.busy)
    assert ff.latest(store, "other") is None
    binary("verify", "--all", "--store", store)


def e_errors_come_later(ff, store):
    ff.save_async(1, step=1, store=store).wait()
    assert ff.save_async(1, step=1, store=store).wait().outcome == "already_there"
    differs = ff.save_async(2, step=1, store=store)
    says(5, "other content", differs.wait)
    says(5, "other content", differs.wait)
    says(5, "other content", ff.wait)
    ff.save_async(3, step=1, store=store, replace=True).wait()
    assert ff.load(store, step=1) == 3
    ff.save_async(2, step=1, store=store)  # which nobody waits for
    says(5, "other content", ff.save_async, 4, step=2, store=store)
    assert ff.latest(store) == 1
    assert ff.save_async(4, step=2, store=store).wait().step == 2
    os.makedirs(store + "2")
    with open(store + "2/file", "w"):
        pass
    says(5, "not a", ff.save_async(1, store=store + "2").wait)


def f_full_and_read_only(ff, store):
    os.makedirs(store)
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", store]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        raise Skipped("a small file system cannot be mounted")
    try:
        place = store + "/s"
        ff.save_async(os.urandom(4 * MIB), store=place).wait()
        save = ff.save_async(os.urandom(64 * MIB), store=place)
        says(1, "space", save.wait)
        assert ff.latest(place) == 1
        binary("verify", "--all", "--store", place)
        subprocess.run(["mount", "-o", "remount,ro", store], check=True)
        says(5, "ead-only", ff.save_async(1, store=place).wait)
        assert len(ff.load(place)) == 4 * MIB
        subprocess.run(["mount", "-o", "remount,rw", store], check=True)
        assert ff.save_async(1, store=place).wait().step == 2
    finally:
        subprocess.run(["umount", store], check=True)


def g_the_binary_reads_and_writes_the_same(ff, store):
    state = {"w": array.array("f", [1, 2, 3]), "n": {"x": bytes(9 * MIB) + b"1", "lr": 0.1}}
    for compress in (False, True):
        ff.save_async(state, "c" if compress else "r", store=store, compress=compress).wait()
    assert {one["run"] for one in binary("ls", "--store", store)["steps"]} == {"c", "r"}
    assert "n.x" in json.dumps(binary("show", "--store", store, "r@1"))
    binary("verify", "--all", "--store", store)
    for run in "cr":
        out = f"{store}-{run}"
        binary("load", "--store", store, run, out)
        with open(out + "/state.safetensors", "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            data = file.read()
        begin, end = header["w"]["data_offsets"]
        assert header["w"]["dtype"] == "F32" and begin % 4 == 0
        assert data[begin:end] == state["w"].tobytes()
        loaded = ff.load(store, run)
        assert loaded["n"] == state["n"] and loaded["w"].tolist() == [1, 2, 3]
        # And back, as a file.
        binary("save", "--store", store, "--run", "again", out + "/state.safetensors")
        assert ff.load(store, "again")["n"] == state["n"]
    plain = {"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
             "b": {"dtype": "F64", "shape": [], "data_offsets": [4, 12]}}
    with open(store + ".safetensors", "wb") as file:
        text = json.dumps(plain).encode()
        file.write(struct.pack("<Q", len(text)) + text + b"\x80\x3f\0\0" + struct.pack("<d", 2.5))
    both = [out + "/state.safetensors", store + ".safetensors", sys.argv[0]]
    binary("save", "--store", store, "--run", "plain", both[1])
    loaded = ff.load(store, "plain")
    assert loaded["a"].tolist() == [0x80, 0x3f, 0, 0] and loaded["b"].tolist() == 2.5
    binary("save", "--store", store, "--run", "both", *both)
    loaded = ff.load(store, "both")
    assert loaded.keys() == {os.path.basename(path) for path in both[:2]}
    assert loaded["state.safetensors"]["n"] == state["n"]
    binary("save", "--store", store, "--run", "none", sys.argv[0])
    says(1, "no such tensors", ff.load, store, "none")


def h_damage(ff, store):
    ff.save_async({"a": os.urandom(5 * MIB), "b": {"c": os.urandom(5 * MIB)}}, store=store).wait()
    chunks = [path for path in glob.glob(store + "/chunks/*/*") if os.path.getsize(path) > MIB]
    named = set()
    for path in chunks:
        with open(path, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)[0]
            file.seek(5000)
            file.write(bytes([byte ^ 4]))
            file.flush()
            try:
                ff.load(store)
            except ff.Error as error:
                assert error.code == 3, error
                named |= {name for name in ("'a'", "'b.c'") if f"tensor {name}" in str(error)}
            else:
                raise AssertionError("a flipped bit was not seen")
            file.seek(5000)
            file.write(bytes([byte]))
    assert named == {"'a'", "'b.c'"}
    assert len(ff.load(store)["a"]) == 5 * MIB


def i_killed(ff, store):
    body = """
ff.save_async([1, bytes([1]) * (1 << 20)], step=1, store=store).wait()
print("ready", flush=True)
for step in range(2, 1000):
    parts = [bytes([step % 256, part]) * (2 << 20) for part in range(8)]
    ff.save_async([step, *parts], step=step, store=store)
"""
    for turn in range(6):
        shutil.rmtree(store, ignore_errors=True)
        process = child(store, body)
        assert process.stdout.readline() == "ready\n", ended(process)
        if turn % 2 == 1:
            until(lambda: ff.latest(store) > 1)
        time.sleep(random.uniform(0, 0.2 + 0.2 * turn))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        binary("verify", "--all", "--store", store)
        step = ff.latest(store)
        state = ff.load(store)
        assert state[0] == step
        for part, content in enumerate(state[1:] if step > 1 else []):
            assert content == bytes([step % 256, part]) * (2 << 20)
        assert ff.save_async(1, store=store).wait().step > step
        assert step > 1 or turn % 2 == 0


def j_the_end_of_the_program(ff, store):
    code, said = ended(child(store, "ff.save_async(os.urandom(64 << 20), store=store)\n"))
    assert (code, said) == (0, ""), said
    assert len(ff.load(store)) == 64 * MIB
    code, said = ended(child(store, "ff.save_async(1, step=1, store=store)\n"))
    assert code == 0 and "a save has failed" in said and "other content" in said, said
    code, said = ended(child(store, "with ff.Periodic(store, seconds=0) as saves:\n"
                                    "    saves.step(1, 1)\n"))
    assert code == 1 and "ff.Error" in said and "other content" in said, said


def k_forks(ff, store):
    saver = ff.Saver()
    saver.save_async(bytes(MIB), store=store).wait()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            says(2, "does not outlive a fork", saver.save_async, 1, store=store)
            says(2, "does not outlive a fork", saver.busy)
            saver.close()
            with ff.Saver() as own:
                assert own.save_async(2, store=store).wait().step == 2
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    assert os.waitpid(process, 0)[1] == 0
    assert saver.save_async(bytes(MIB) + b"1", store=store).wait().step == 3
    assert ff.load(store, step=2) == 2 and len(ff.load(store)) == MIB + 1
    saver.close()


def l_periodic(ff, store):
    calls = []

    def state():
        calls.append(1)
        return {"calls": len(calls)}
    with ff.Periodic(store, "p", seconds=1000) as saves:
        assert all(saves.step(step, state) is None for step in range(10)) and not calls
        assert saves.wait() is None
    with ff.Periodic(store, "p", seconds=0.05) as saves:
        begun, step, until = [], 0, time.monotonic() + 60
        while len(begun) < 3 and time.monotonic() < until:
            before = time.monotonic()
            if saves.step(step, state):
                begun.append((before, time.monotonic()))
            step += 1
        assert len(begun) == len(calls) == 3
        # Not before it was time again.
        assert all(later[1] - earlier[0] >= 0.05 for earlier, later in zip(begun, begun[1:]))
        assert ff.load(store, "p", saves.wait().step) == {"calls": len(calls)}
    large = os.urandom(64 * MIB)
    with ff.Periodic(store, "q", seconds=0, threads=1) as saves:
        first = saves.step(1, large)
        assert saves.step(2, large) is None  # is being written
        first.wait()
        saves.step(1, b"other")  # is refused
        while saves._saver.busy():
            time.sleep(0.01)
        says(5, "other content", saves.step, 3, 3)
        assert saves.step(4, 4).wait().step == 4
    with ff.Periodic(store, "s", steps=3) as saves:
        begun = [step for step in range(10) if saves.step(step, step, now=step == 7)]
        assert begun == [0, 3, 6, 7, 9] and saves.wait().step == ff.load(store, "s") == 9
    says(2, "never", ff.Periodic, store, steps=0)
    says(2, "agree=", ff.Periodic, store, rank=0, world=2)
    answers = iter([True, False, True])
    with ff.Periodic(store, "a", seconds=0, agree=lambda due: due and next(answers)) as saves:
        assert saves.step(1, 1).wait() and not saves.step(2, 2) and saves.step(3, 3).wait()


def m_ranks(ff, store):
    one, two = ff.Saver(), ff.Saver()
    both = dict(step=9, store=store, world=2, attempt="try-1")
    first = one.save_async({"mine": b"0"}, rank=0, **both).wait()
    assert first.outcome == "waiting" and first.missing_ranks == 1 and ff.latest(store) is None
    with environment(RANK="1", WORLD_SIZE="2", FF_ATTEMPT="try-1"):
        second = two.save_async({"mine": b"1"}, rank="env", step=9, store=store).wait()
    assert second.outcome == "committed" and ff.latest(store) == 9
    says(2, "0, 1", ff.load, store)
    assert [ff.load(store, rank=rank)["mine"] for rank in (0, 1)] == [b"0", b"1"]
    says(1, "no such tensors", ff.load, store, rank=2)
    binary("verify", "--all", "--store", store)
    one.close()
    two.close()


def main():
    sys.path.insert(0, sys.argv[1])
    sys.modules["torch"] = sys.modules["numpy"] = None  # as if they were not there
    import ff
    failed = []
    for name, test in sorted(globals().items()):
        if name[1:2] != "_" or not callable(test):
            continue
        root = tempfile.mkdtemp(prefix="ff-checkpoint-")
        begun = time.monotonic()
        try:
            test(ff, os.path.join(root, "store"))
            print(f"{name[2:]}: well, {time.monotonic() - begun:.1f} s", flush=True)
        except Skipped as reason:
            print(f"{name[2:]}: skipped: {reason}", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(name[2:])
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
