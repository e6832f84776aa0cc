#!/usr/bin/env python3
# PyTorch's distributed checkpoint on an ff store: saved by four ranks and loaded by two, three and
# one; what becomes of saves that fail, die or come twice, and of states and checkpoints that do not
# fit. Without PyTorch: skipped.
"""usage: dcp.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import datetime
import glob
import json
import os
import subprocess
import sys
import tempfile

import ddp
from ddp import LIMIT, ends_of, python_with_torch, start

RUN = "demo"
NOT_JOINED = 4  # exit code of a rank


# ---- the state: each value is known to every rank, so any of them can compare its part


def wholes():
    import torch
    return {"rows": torch.arange(60, dtype=torch.float32).view(10, 6) / 7,
            "columns": torch.arange(36).view(4, 9),
            "few": torch.arange(6, dtype=torch.float64).view(2, 3),
            "blocks": torch.arange(64, dtype=torch.bfloat16).view(8, 8),
            "odd*name[0]\\": torch.arange(12, dtype=torch.int8).view(6, 2)}


def parts_of(name, ranks):
    """Which rank has which part: (rank, offsets, sizes). "blocks" is cut in both dimensions, so
    that a rank may have several parts."""
    rows, columns = wholes()[name].shape
    if name == "blocks":
        return [(number % ranks, [row, column], [4, 4])
                for number, (row, column) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4)))]
    along = columns if name == "columns" else rows
    length = -(-along // ranks)
    parts = []
    for rank in range(ranks):
        begin, end = min(rank * length, along), min((rank + 1) * length, along)
        if begin < end:
            here = ([0, begin], [rows, end - begin]), ([begin, 0], [end - begin, columns])
            parts.append((rank, *here[0 if name == "columns" else 1]))
    return parts


def sharded(name, whole, group=None):
    """A ShardedTensor of all ranks with the values of `whole`."""
    import torch.distributed as dist
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.metadata import ShardMetadata
    rank, shards = dist.get_rank(), []
    for owner, offsets, sizes in parts_of(name, dist.get_world_size()):
        if owner == rank:
            said = ShardMetadata(shard_offsets=offsets, shard_sizes=sizes,
                                 placement=f"rank:{rank}/cpu")
            part = whole[offsets[0]:offsets[0] + sizes[0], offsets[1]:offsets[1] + sizes[1]]
            shards.append(sharded_tensor.Shard(part.clone(), said))
    return sharded_tensor.init_from_local_shards(shards, list(whole.shape), process_group=group)


def chunked():
    """A ShardedTensor that PyTorch has cut; the last ranks have parts without elements."""
    import torch
    import torch.distributed as dist
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    ranks = dist.get_world_size()
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{rank}/cpu" for rank in range(ranks)])
    made = sharded_tensor.empty(spec, 5, 2)
    for shard in made.local_shards():
        begin = shard.metadata.shard_offsets[0]
        shard.tensor.copy_(torch.arange(10.0).view(5, 2)[begin:begin + shard.tensor.shape[0]])
    return made


def plain(torch):
    return {"plain": torch.arange(15, dtype=torch.bfloat16).view(3, 5),
            "turned": torch.arange(6.0).view(2, 3).t(), "zero": torch.zeros(0, 4),
            "scalar": torch.tensor(7.5, dtype=torch.float64),
            "leaf": torch.nn.Parameter(torch.ones(3))}


def full_state(torch, scale=1):
    """What a rank of the process group saves."""
    state = {name: sharded(name, whole * scale) for name, whole in wholes().items()}
    state.update(plain(torch), chunked=chunked(), epoch=3, config={"lr": 0.1, "names": ("a", "b")})
    return state


def empty_like(torch, state):
    """The same state without its values."""
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    empty = {}
    for name, value in state.items():
        if isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                shard.tensor.zero_()
            empty[name] = value
        else:
            empty[name] = torch.zeros_like(value) if isinstance(value, torch.Tensor) else None
    return empty


def compare(torch, loaded, scale=1):
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    whole = {name: one * scale for name, one in wholes().items()}
    whole.update(plain(torch), chunked=torch.arange(10.0).view(5, 2))
    for name, value in loaded.items():
        if isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                (row, column), (rows, columns) = (shard.metadata.shard_offsets,
                                                  shard.metadata.shard_sizes)
                wanted = whole[name][row:row + rows, column:column + columns]
                assert torch.equal(shard.tensor, wanted), f"{name} at {row}, {column}"
        elif isinstance(value, torch.Tensor):
            assert torch.equal(value, whole[name]), name
    if "epoch" in loaded:
        assert loaded["epoch"] == 3 and loaded["config"] == {"lr": 0.1, "names": ("a", "b")}


def alone(torch):
    """A state of whole tensors, for a program of one rank."""
    return {**{name: torch.zeros_like(one) for name, one in wholes().items()},
            **{name: torch.zeros_like(one) for name, one in plain(torch).items()},
            "chunked": torch.zeros(5, 2), "epoch": None, "config": None}


# ---- calls


def save(state, step, planner=None, no_dist=False, writer=None, **options):
    from ff.torch import dcp
    from ff.torch.dcp import api
    api.package.save_state_dict(state, writer or dcp.StorageWriter(STORE, RUN, step, **options),
                                planner=planner, no_dist=no_dist)


def load(state, step=None, no_dist=False, planner=None, run=RUN):
    from ff.torch import dcp
    from ff.torch.dcp import api
    api.package.load_state_dict(state, dcp.StorageReader(STORE, run, step), planner=planner,
                                no_dist=no_dist)
    return state


def fails(code, text, call, *arguments, **named):
    """The ff.Error by which the call fails, on whatever rank."""
    import ff
    from ff.torch.dcp import api
    try:
        call(*arguments, **named)
    except api.package.CheckpointException as error:
        found = [one for one, _ in error.failures.values()]
    except ff.Error as error:
        found = [error]
    else:
        raise AssertionError(f"no error, where '{text}' was expected")
    for one in found:
        assert isinstance(one, ff.Error) and text in str(one) and one.code == code, repr(found)
    return found[0]


# ---- what ranks do; a rank is a process of its own


def save_of_four(torch, rank):
    """Step 1, again, other values, in the background."""
    import torch.distributed as dist
    from ff.torch import dcp
    state = full_state(torch)
    save(state, 1)
    save(state, 1)
    fails(5, "demo@1: attempt", save, full_state(torch, 2), 1)
    compare(torch, load(empty_like(torch, full_state(torch)), 1))
    save(full_state(torch, 2), 4)
    save(full_state(torch, 3), 4, replace=True)
    compare(torch, load(empty_like(torch, full_state(torch)), 4), 3)

    state = full_state(torch)
    saving = dcp.async_save(state, STORE, RUN, 5)
    for shard in state["rows"].local_shards():
        shard.tensor.fill_(-1)  # while it is written
    saved = saving.wait()
    assert saving.done() and saving.wait() == saved and saved.step == 5
    outcomes = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, saved.outcome)
    assert "committed" in outcomes, outcomes
    compare(torch, load(empty_like(torch, state), 5))
    again = dcp.async_save(full_state(torch), STORE, RUN, 5).wait()
    assert again.outcome == "already_there" and again.bytes_written == 0, again
    dcp.async_save(full_state(torch, 2), STORE, RUN, 5)  # that nobody waits for
    fails(5, "demo@5: attempt", dcp.async_save, full_state(torch), STORE, RUN, 6)
    misfits(torch, rank)
    replicated(torch)


def replicated(torch):
    """Every rank announces the same tensors, as planners of PyTorch 2 do: one of them is stored."""
    import dataclasses
    from ff.torch.dcp import api
    default = api.package.default_planner

    class Planner(default.DefaultSavePlanner):
        def create_local_plan(self):
            plan = default.create_default_local_save_plan(self.state_dict, True)
            shard = api.planner.WriteItemType.SHARD  # of which several ranks may have one
            items = [dataclasses.replace(item, type=shard) for item in plan.items]
            return dataclasses.replace(plan, items=items)
    save(plain(torch), 10, planner=Planner())
    compare(torch, load({name: torch.zeros_like(one) for name, one in plain(torch).items()}, 10))


def misfits(torch, rank):
    """States that do not fit what was saved: all ranks get the error, and nothing is read."""
    def state_with(name, value):
        return {**empty_like(torch, full_state(torch)), name: value}
    fails(1, "demo@1 has no tensor or object 'rowz'; it has 'rows'", load,
          state_with("rowz", torch.zeros(1)), 1)
    fails(2, "'plain' is torch.bfloat16 in demo@1, but torch.float32 in the state", load,
          state_with("plain", torch.zeros(3, 5)), 1)
    for shape in ((3, 4), (4, 5)):
        fails(2, f"'plain' has the shape [3, 5] in demo@1, but {list(shape)} in the state", load,
              state_with("plain", torch.zeros(shape, dtype=torch.bfloat16)), 1)
    fails(2, "'epoch' is an object in demo@1, but a tensor in the state", load,
          state_with("epoch", torch.zeros(1)), 1)
    other = sharded("rows", torch.zeros(10, 6, dtype=torch.float64))
    fails(2, "'rows' is torch.float32", load, state_with("rows", other), 1)
    mine = {"rows": other} if rank == 0 else {}
    fails(2, "the parts that the ranks hold have", save, mine, 7)
    fails(2, "give step=", save, {"a": torch.zeros(1)}, None)
    fails(2, "sparse tensor", save, {"a": torch.eye(2).to_sparse()}, 7)


def load_and_save(torch, rank):
    """Step 1 by two ranks, whose step 2 three load; these also save the step that died."""
    import torch.distributed as dist
    empty = empty_like(torch, full_state(torch))
    compare(torch, load(empty, {2: 1, 3: 2}[dist.get_world_size()]))
    save(empty, dist.get_world_size())
    fails(5, "demo@1: attempt", save, empty, 1)  # the same values in other shards
    if dist.get_world_size() == 3:
        save(empty, 8)


def die(torch, rank):
    """Rank 1 dies when it has stored nothing yet, and the others something."""
    from ff.torch.dcp import api
    default = api.package.default_planner.DefaultSavePlanner

    class Planner(default):
        def resolve_data(self, write_item):
            if rank == 1:
                os._exit(9)
            return super().resolve_data(write_item)
    try:
        save(full_state(torch), 8, planner=Planner())
    except BaseException as error:
        assert not isinstance(error, AssertionError)
        print(f"failed: {type(error).__name__}", flush=True)
        os._exit(3)  # the group is of no more use


def split(torch, rank):
    """Each rank saves as if it were alone: the second of them differs, and is refused."""
    import torch.distributed as dist
    if rank == 0:
        save({"a": torch.zeros(4)}, 9, no_dist=True)
    dist.barrier()
    if rank == 1:
        fails(5, "demo@9: attempt", save, {"a": torch.ones(4)}, 9,
              no_dist=True)


ROLES = (save_of_four, load_and_save, die, split)


def be_rank(role, backend):
    import torch
    import torch.distributed as dist
    import ff.torch.dcp  # before ShardedTensor: api.py says why
    torch.set_num_threads(1)
    try:
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=LIMIT / 2))
    except RuntimeError as error:
        print(f"did not join: {error}", file=sys.stderr)
        sys.exit(NOT_JOINED)
    next(one for one in ROLES if one.__name__ == role)(torch, dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()


def run(role, ranks, backend, codes=None):
    """Ranks that have to end with `codes`, and their lines."""
    def words(_):
        return [os.path.abspath(__file__), FOLDER, FF, STORE, role.__name__, backend]
    ended, errors, lines = ends_of(start(ranks, words))
    if NOT_JOINED in ended and backend == "gloo":  # its ranks sometimes do not find each other
        ended, errors, lines = ends_of(start(ranks, words))
    assert ended == (codes or [0] * ranks), f"{role.__name__}: {ended}\n" + "\n".join(errors)
    print(f"{role.__name__}: {ranks} ranks, {backend}")
    return lines


# ---- the store, as the command sees it


def command(*words, code=0):
    done = subprocess.run([FF, "checkpoint", *words, "--store", STORE], capture_output=True,
                          text=True)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def states():
    """What the list says of each step."""
    return {one["step"]: one["state"] for one in
            json.loads(command("list", RUN, "--json"))["data"]["steps"]}


def is_complete(step):
    """Whether the checkpoint is there, rather than nothing or shards that wait for others."""
    return os.path.exists(f"{STORE}/runs/{RUN}/{step}/index.jsonl")


def safetensors(path):
    """Names and tensors of a file, by nothing of ff."""
    import torch
    types = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16,
             "I64": torch.int64, "I8": torch.int8}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    assert "ff.parts" not in header.pop("__metadata__", {}), "what no longer holds"
    tensors = {}
    for name, said in header.items():
        begin, end = said["data_offsets"]
        flat = torch.zeros(0, dtype=types[said["dtype"]])
        if begin < end:
            flat = torch.frombuffer(data[begin:end], dtype=types[said["dtype"]])
        tensors[name] = flat.view(said["shape"])
    return tensors


def exported(torch):
    """One file with whole tensors, and files for another number of ranks."""
    wanted = {**wholes(), **plain(torch), "chunked": torch.arange(10.0).view(5, 2)}
    for step in (1, 2, 3):
        path = f"{STORE}.{step}.safetensors"
        command("export", f"{RUN}@{step}", path)
        found = safetensors(path)
        assert set(found) == set(wanted), set(found) ^ set(wanted)
        for name, one in wanted.items():
            assert torch.equal(found[name], one.detach()), name
    command("load", f"{RUN}@1", f"{STORE}.two", "--reshard", "2", "--tensor", "blocks", "--tensor",
            "rows", "--tensor", "plain")
    halves = [safetensors(path) for path in sorted(glob.glob(f"{STORE}.two/**/*.safetensors",
                                                             recursive=True))]
    assert len(halves) == 2
    for name in ("blocks", "rows", "plain"):
        both = [half[name] for half in halves]
        assert torch.equal(both[0] if name == "plain" else torch.cat(both), wanted[name]), name
    print("exported: whole tensors, and halves")


def one_rank(torch):
    """A program without a process group loads what four have saved."""
    compare(torch, load(alone(torch), 1, no_dist=True))
    last = load({"scalar": torch.zeros((), dtype=torch.float64)}, no_dist=True)
    assert last["scalar"].item() == 7.5
    partly = {"rows": torch.zeros(10, 6)}
    compare(torch, load(partly, 1, no_dist=True))


def other_checkpoints(torch):
    """Those that this has not saved, or that say what no save says."""
    import ff
    fails(1, "ff.load() loads what was not saved by ff.torch.dcp", load, {"a": torch.zeros(4)}, 77,
          no_dist=True)
    ff.save_async({"a": torch.zeros(4)}, "other", 1, STORE).wait()
    fails(1, "ff.load() loads what was not saved by ff.torch.dcp", load, {"a": torch.zeros(4)},
          no_dist=True, run="other")

    good = {"version": 1, "ranks": 1, "bytes": {}, "tensors": {"a": {
        "dtype": "float32", "layout": "strided", "requires_grad": False, "pin_memory": False,
        "memory_format": "contiguous_format", "size": [4], "chunks": [[[0], [4], 0, "a"]]}}}
    for step, (code, text, said) in enumerate((
            (0, "", json.dumps(good)), (3, "makes no checkpoint", "{"),
            (3, "makes no checkpoint", "[" * 10000), (3, "is of 5 ranks", json.dumps(
                {**good, "ranks": 5})),
            (1, "newer ff.torch.dcp", json.dumps({**good, "version": 2})),
            (1, "has a dtype 'load'", json.dumps(good).replace("float32", "load")),
            (3, "makes no checkpoint", json.dumps(good).replace('0, "a"', '"0", "a"')),
            (3, "does not name the tensor 'a'", json.dumps(good).replace('0, "a"', '0, "b"')),
            (3, "is F32 [4], but torch.int32", json.dumps(good).replace("float32", "int32"))), 1):
        crafted("crafted", step, said)
        state = {"a": torch.ones(4, dtype=torch.int32 if "int32" in said else torch.float32)}
        if code == 0:
            assert load(state, step, no_dist=True, run="crafted")["a"].tolist() == [0] * 4
        else:
            fails(code, text, load, state, step, no_dist=True, run="crafted")


def crafted(run_name, step, said):
    """A checkpoint of one rank's tensor "a" with `said` as its description."""
    import torch
    from ff import _arrays
    from ff.checkpoint import Saver, save_options
    with Saver() as saver:
        for rank, (name, file, piece) in enumerate((
                ("a", None, _arrays.torch_piece(torch, torch.zeros(4), "a")),
                ("ff.dcp", "dcp.safetensors", _arrays.buffer_piece(said.encode(), "ff.dcp")))):
            options = save_options(run_name, step, STORE, rank, 2, "x", False, False, 0, file)
            saver.start(options, run_name, {name: piece}, {}).wait()


def planners(torch):
    """Data of planners is stored without pickle, or refused."""
    from ff.torch.dcp import StorageReader, api

    class Planner(api.package.default_planner.DefaultSavePlanner):
        def __init__(self, data):
            self.data = data

        def create_global_plan(self, all_plans):
            plans, metadata = super().create_global_plan(all_plans)
            metadata.planner_data = self.data
            return plans, metadata
    data = {"a": ("net", 0, "weight"), "b": [1.5, None]}
    save({"a": torch.zeros(4)}, 20, planner=Planner(data), no_dist=True)
    read = StorageReader(STORE, RUN, 20).read_metadata()
    assert read.planner_data == data and list(read.state_dict_metadata) == ["a"]
    for bad in (object(), {"a": torch.zeros(1)}):
        fails(2, "the data of the planner", save, {"a": torch.zeros(4)}, 21, planner=Planner(bad),
              no_dist=True)
    assert not is_complete(21)


def damaged(torch):
    """A flipped byte: every load that needs it, and verify, name the tensor; the same save again
    repairs it."""
    large = torch.arange(1 << 19, dtype=torch.float32)
    state = {"large": large, "small": torch.ones(2), "epoch": 3}
    save(state, 30, no_dist=True)
    with open(f"{STORE}/runs/{RUN}/30/index.jsonl", encoding="utf-8") as index:
        line = next(json.loads(one) for one in index if one.startswith('{"tensor":"large"'))
    digest = line["extents"][0][0]
    with open(f"{STORE}/chunks/{digest[:2]}/{digest}", "r+b") as chunk:
        chunk.seek(5000)
        byte = chunk.read(1)[0]
        chunk.seek(5000)
        chunk.write(bytes([byte ^ 1]))
    empty = {"large": torch.zeros(1 << 19), "small": torch.zeros(2), "epoch": None}
    said = str(fails(3, "has tensor 'large' of file 'state.safetensors'", load, empty, 30,
                     no_dist=True))
    assert f"chunk {digest}" in said and "'small'" not in said, said
    intact = load({"small": torch.zeros(2), "epoch": None}, 30, no_dist=True)
    assert intact["small"].tolist() == [1, 1] and intact["epoch"] == 3
    assert "'large'" in command("verify", f"{RUN}@30", code=3)
    save(state, 30, no_dist=True)
    assert torch.equal(load(empty, 30, no_dist=True)["large"], large)
    command("verify", f"{RUN}@30")


def main():
    import torch
    import ff.torch.dcp
    run(save_of_four, 4, "gloo")
    for backend in ("gloo", "ff"):
        run(die, 3, backend, [3, 9, 3])
        assert states()[8] == "incomplete" and not is_complete(8)
    run(load_and_save, 2, "ff")
    run(load_and_save, 3, "gloo")
    run(split, 2, "ff")
    command("verify", f"{RUN}@1")
    listed = states()
    assert listed.pop(1) == "verified" and listed.pop(7) == "incomplete", listed
    assert listed == dict.fromkeys((2, 3, 4, 5, 8, 9, 10), "committed"), listed
    assert command("show", f"{RUN}@10").count("  plain") == 1
    one_rank(torch)
    exported(torch)
    other_checkpoints(torch)
    planners(torch)
    damaged(torch)
    print("one rank: loads, refuses, finds damage")
    command("forget", "--run", RUN, "--keep-last", "1", "--yes")
    said = command("prune", "--grace", "0s")
    for step in (7, 21):  # of the saves that failed
        assert f"{RUN}@{step}: removed the shards of attempt" in said, said
    assert [step for step in states() if is_complete(step)] == [30]
    command("verify", "--all")


if __name__ == "__main__":
    FOLDER, FF = map(os.path.abspath, sys.argv[1:3])
    if len(sys.argv) > 3:
        STORE = sys.argv[3]
        sys.path.insert(0, FOLDER)
        if sys.argv[4] == "main":
            ddp.PYTHON = sys.executable
            main()
        else:
            be_rank(*sys.argv[4:])
        sys.exit()
    PYTHON = python_with_torch()
    with tempfile.TemporaryDirectory(prefix="ff-dcp-") as folder:
        sys.exit(subprocess.run([PYTHON, os.path.abspath(__file__), FOLDER, FF, folder + "/store",
                                 "main"]).returncode)
