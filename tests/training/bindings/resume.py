#!/usr/bin/env python3
# A training that is killed and started again, from what ff.Periodic has saved, learns the same as
# one that never was: the same losses, bit for bit. Without PyTorch: skipped.
"""usage: resume.py FOLDER FF [SEED], where the package ff and libff.so are, and the binary

Two ranks of train.py are killed with SIGKILL, in the order and at the moments that the seed draws:
after some step, when a save has just begun, and when the shard of one rank of two is in the store.
Then the newest checkpoint is damaged, which all ranks must say; without it, they go on again.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from ddp import LIMIT, TRAIN, free_port, python_with_torch

RANKS = 2
STEPS = 24
KILLS = 4  # at least, and so many more until one was in the middle of a save
MOST_KILLS = 10


def start(*words, ranks=RANKS):
    """As torchrun would, but for its restarts."""
    port = free_port()
    started = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        for name in ("FF_ATTEMPT", "TORCHELASTIC_RUN_ID"):
            env.pop(name, None)
        started.append(subprocess.Popen(
            [PYTHON, TRAIN, "--library", FOLDER, "--json", "--batch", "2", "--context", "32",
             "--steps", str(STEPS), *words],
            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return started


def end(started):
    """Exit codes, lines and errors of all, none of which may hang."""
    try:
        said = [one.communicate(timeout=LIMIT) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    return ([one.returncode for one in started],
            [json.loads(line) for out, _ in said for line in out.splitlines()],
            "\n".join(errors for _, errors in said))


def binary(*words, code=0):
    done = subprocess.run([FF, "checkpoint", *words, "--store", STORE, "--json"],
                          capture_output=True, text=True)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)["data"]


def losses_of(lines):
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def undisturbed():
    codes, lines, errors = end(start())
    assert codes == [0] * RANKS, errors
    losses = losses_of(lines)
    assert sorted(losses) == list(range(1, STEPS + 1)), losses
    return losses, {line["digest"] for line in lines if "digest" in line}


# ---- kills


def shards_of(step):
    """Of how many ranks there are shards; all, once they are one checkpoint."""
    folder = f"{STORE}/runs/train/{step}"
    if os.path.exists(f"{folder}/index.jsonl"):
        return RANKS
    return len(glob.glob(f"{folder}/shards/*/*.jsonl"))


def wait_for(moment, ranks, seen, draw):
    """Until that moment has come; gives the step being saved, if it is one."""
    number = draw.randint(2, 7) if moment == "a step" else draw.randint(1, 2)
    first = 1 if moment == "a shard" else 0  # rank 1 has less to save
    for text in ranks[first].stdout:
        line = json.loads(text)
        seen.append(line)
        number -= ("loss" in line) if moment == "a step" else (line.get("event") == "saving")
        if number == 0:
            break
    else:
        raise AssertionError(f"the training has ended before {moment}: {end(ranks)[2]}")
    if moment == "a step":
        return None
    until = time.monotonic() + LIMIT
    while moment == "a shard" and shards_of(line["step"]) == 0 and time.monotonic() < until:
        pass
    return line["step"]


def killed(moment, draw):
    """Starts the training and kills it. Its losses, and whether a save was under way."""
    ranks, seen = start("--store", STORE, "--save-every", draw.choice(["3", "0.05s"])), []
    try:
        saving = wait_for(moment, ranks, seen, draw)
        for rank in draw.sample(ranks, RANKS):
            rank.kill()
    finally:
        codes, lines, errors = end(ranks)
    assert codes == [-9] * RANKS, errors
    seen += lines
    resumed = [line["step"] for line in seen if line.get("event") == "resumed"]
    middle = saving is not None and shards_of(saving) < RANKS
    print(f"killed at {moment}: from step {max(resumed, default=0)} to "
          f"{max(losses_of(seen), default=0)}"
          + (f", with {shards_of(saving)} of {RANKS} shards of step {saving}" if middle else ""),
          flush=True)
    return losses_of(seen), middle, set(resumed)


def check_store():
    """Whole steps are whole, and others not listed as such. Gives the one saved last."""
    if not os.path.exists(f"{STORE}/ff-store.json"):  # killed before the first save made it
        return 0
    binary("verify", "--all")
    steps = binary("ls")["steps"]
    assert all(step["state"] in ("verified", "incomplete") for step in steps), steps
    whole = [step["step"] for step in steps if step["state"] == "verified"]
    last = binary("latest", "train")["step"] if whole else 0
    assert last in [*whole, 0], f"{last} of {whole}"
    return last


def go_on(losses, digests, newest):
    codes, lines, errors = end(start("--store", STORE, "--save-every", "5"))
    assert codes == [0] * RANKS, errors
    resumed = {line["step"] for line in lines if line.get("event") == "resumed"}
    assert resumed == ({newest} if newest else set()), lines
    rest = losses_of(lines)
    assert list(rest) == list(range(newest + 1, STEPS + 1)), rest
    assert all(losses[step] == loss for step, loss in rest.items()), (rest, losses)
    assert {line["digest"] for line in lines if "digest" in line} == digests, "another model"


def many_kills(losses, digests, draw):
    moments = ["a step", "the begin of a save", "a shard"]
    middles = kills = newest = 0
    while kills < KILLS or (middles == 0 and kills < MOST_KILLS):
        if newest > STEPS - 9:  # too few are left
            break
        moment = moments[kills] if kills < len(moments) else draw.choice(moments)
        some, middle, resumed = killed(moment, draw)
        assert resumed == ({newest} if newest else set()), f"{resumed} of {newest}"
        assert all(losses[step] == loss for step, loss in some.items()), (some, losses)
        kills, middles, newest = kills + 1, middles + middle, check_store()
    assert middles > 0, "no kill was in the middle of a save"
    go_on(losses, digests, newest)
    assert check_store() == STEPS
    print(f"{kills} kills, {middles} in the middle of a save: the losses of {STEPS} steps, and the "
          "model, are those of a training that was not killed")


def damaged(losses, digests):
    """No rank goes on from what is damaged: each names the tensor."""
    chunks = [path for path in glob.glob(f"{STORE}/chunks/*/*") if os.path.getsize(path) > 1 << 18]
    newest = max(chunks, key=os.path.getmtime)
    with open(newest, "r+b") as file:
        middle = os.path.getsize(newest) // 2
        file.seek(middle)
        byte = file.read(1)[0]
        file.seek(middle)
        file.write(bytes([byte ^ 1]))
    binary("verify", f"train@{STEPS}", code=3)
    ranks = start("--store", STORE)
    codes, lines, errors = end(ranks)
    assert codes == [1] * RANKS and not losses_of(lines), lines
    named = f"ff.Error: train@{STEPS}: chunk {os.path.basename(newest)}"
    assert errors.count(named) == RANKS and "tensor '" in errors, errors
    binary("forget", f"train@{STEPS}", "--yes")
    # Not verified afterwards: the same bytes, saved again, rely on the same chunk until prune has
    # taken it away, which waits for what the killed ranks might still be at.
    go_on(losses, digests, check_store())
    print("damaged: named to all ranks; without it they go on from the step before")


def main():
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    losses, digests = undisturbed()
    many_kills(losses, digests, random.Random(seed))
    damaged(losses, digests)


if __name__ == "__main__":
    FOLDER, FF = (os.path.abspath(path) for path in sys.argv[1:3])
    PYTHON = python_with_torch()
    with tempfile.TemporaryDirectory(prefix="ff-resume-") as root:
        STORE = os.path.join(root, "store")
        main()
