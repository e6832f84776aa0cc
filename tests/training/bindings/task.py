#!/usr/bin/env python3
# What the Python package does in a task: a loop that is asked to stop saves and ends, as in the
# README; what it tells; what it says outside of any task.
"""usage: task.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

LOOP = """
import sys
sys.path.insert(0, sys.argv[1])
import ff
store = sys.argv[2]
first = (ff.latest(store) or 0) + 1
for step in range(first, 10_000_000):
    ff.heartbeat(step)
    stop = ff.should_stop()
    if stop:
        ff.save_async({"step": step}, step=step, store=store).wait()
        print(stop.reason, step, flush=True)
        break
"""


def says(code, text, call, *arguments):
    import ff
    try:
        call(*arguments)
    except ff.Error as error:
        assert text in str(error), f"'{text}' in '{error}'"
        assert error.code == code, f"{error.code}: {error}"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def content(folder, name):
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read()


def put(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(text)


def a_words(ff, folder):
    assert ff.should_stop() is None
    put(folder, "stop", "preempted 17900")  # is being written
    assert ff.should_stop() is None and not os.path.exists(os.path.join(folder, "ack"))
    put(folder, "stop", "preempted 1790000000\n")
    stop = ff.should_stop()
    assert stop and stop == ff.StopRequest("preempted", 1790000000) and stop.deadline > 0
    assert os.path.exists(os.path.join(folder, "ack"))
    ff.saved(120)
    assert content(folder, "saved") == "120\n"
    ff.heartbeat(7)
    assert content(folder, "heartbeat.0") == "7\n"
    os.environ["RANK"] = "12"
    try:
        ff.heartbeat(8)
        ff.heartbeat(9, rank=3)
        os.environ["RANK"] = "first"
        says(2, "RANK='first'", ff.heartbeat, 8)
    finally:
        del os.environ["RANK"]
    assert (content(folder, "heartbeat.12"), content(folder, "heartbeat.3")) == ("8\n", "9\n")
    assert ff.life_state() == 0
    ff.set_life_state(2**32 - 1)
    assert ff.life_state() == 2**32 - 1 and content(folder, "life_state") == "4294967295\n"
    for call, bad in ((ff.saved, -1), (ff.saved, "1"), (ff.heartbeat, 1.5),
                      (ff.set_life_state, 2**32), (ff.set_life_state, -1)):
        says(2, "is no", call, bad)
    put(folder, "life_state", "seven\n")
    says(3, "life_state", ff.life_state)


def b_in_no_task(ff, folder):
    put(folder, "stop", "preempted 1790000000\n")
    os.environ.pop("FF_TASK_DIR")
    os.chdir(folder)
    assert ff.should_stop() is None and ff.life_state() == 0
    ff.saved(1)
    ff.heartbeat(1)
    ff.set_life_state(1)
    assert os.listdir(folder) == ["stop"]
    os.environ["FF_TASK_DIR"] = os.path.join(folder, "gone")
    assert ff.should_stop() is None
    says(1, "FF_TASK_DIR", ff.saved, 1)


def c_a_loop_that_is_asked(ff, folder):
    store = os.path.join(folder, "store")
    last = 0
    for attempt in ("one", "two"):
        task = os.path.join(folder, attempt)
        os.mkdir(task, 0o700)
        loop = subprocess.Popen([sys.executable, "-c", LOOP, sys.argv[1], store], text=True,
                                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                env={**os.environ, "FF_TASK_DIR": task})
        until = time.monotonic() + 60
        while not os.path.exists(os.path.join(task, "heartbeat.0")) and time.monotonic() < until:
            time.sleep(0.01)
        put(task, "stop.new", "preempted 1790000000\n")
        os.rename(os.path.join(task, "stop.new"), os.path.join(task, "stop"))
        said, _ = loop.communicate(timeout=60)
        reason, step = said.split()
        assert loop.returncode == 0 and reason == "preempted" and int(step) > last, said
        assert content(task, "saved") == content(task, "heartbeat.0") == f"{step}\n"
        assert ff.load(store) == {"step": int(step)}
        last = int(step)
    listed = subprocess.run([sys.argv[2], "checkpoint", "list", "--json", "--store", store],
                            capture_output=True, check=True)
    assert len(json.loads(listed.stdout)["data"]["steps"]) == 2


def d_a_save_that_cannot_tell(ff, folder):
    text = ("import sys\nsys.path.insert(0, sys.argv[1])\nimport ff\n"
            "print(ff.save_async(1, step=5, store=sys.argv[2]).wait().step)\n")
    done = subprocess.run([sys.executable, "-c", text, sys.argv[1], os.path.join(folder, "store")],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "FF_TASK_DIR": os.path.join(folder, "gone")})
    assert (done.returncode, done.stdout) == (0, "5\n"), done
    assert "step 5 is saved, but the task's agent was not told" in done.stderr, done.stderr


def main():
    sys.argv[1:3] = map(os.path.abspath, sys.argv[1:3])  # tests change the folder
    sys.path.insert(0, sys.argv[1])
    sys.modules["torch"] = sys.modules["numpy"] = None  # as if they were not there
    import ff
    failed = []
    for name, test in sorted(globals().items()):
        if name[1:2] != "_" or not callable(test):
            continue
        folder = tempfile.mkdtemp(prefix="ff-task-")
        os.environ["FF_TASK_DIR"] = folder
        try:
            test(ff, folder)
            print(f"{name[2:]}: well", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(name[2:])
        finally:
            os.chdir("/")
            shutil.rmtree(folder, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
