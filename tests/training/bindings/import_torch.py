#!/usr/bin/env python3
# `ff checkpoint import` of what PyTorch has written: values of torch.save() that ff.load() gives
# back to the bit, folders of torch.distributed.checkpoint of one and of two ranks and of the
# classes of PyTorch 2, and files that are hostile, old or no state. Without PyTorch: skipped.
"""usage: import_torch.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import collections
import datetime
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import types

import ddp
from checkpoint_torch import same
from dcp import alone, compare, full_state, load, plain
from ddp import LIMIT, ends_of, python_with_torch, start

NOT_JOINED = 4  # exit code of a rank


def command(*words, code=0):
    done = subprocess.run([FF, "checkpoint", *words, "--store", STORE], capture_output=True,
                          text=True)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def imported(path, run, *words):
    return json.loads(command("import", path, "--run", run, "--json", *words))["data"]


def saved(torch, value, name="model.pt", **options):
    path = os.path.join(FILES, name)
    torch.save(value, path, **options)
    return path


# ---- files of torch.save()


def state_of_all_kinds(torch):
    torch.manual_seed(1)
    bits = torch.randint(0, 256, (960,), dtype=torch.uint8)
    wide = torch.arange(100_000, dtype=torch.float32)
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.complex64, torch.complex128)
    return {
        "types": {str(kind): bits.view(kind).clone().view(-1, 4) for kind in types},
        "bool": torch.tensor([True, False, True]),
        "views": {"whole": wide, "part": wide[17:90_000:3], "turned": wide.view(250, 400).t(),
                  "block": wide.view(100, 10, 100)[5:, 3:7, ::7],
                  "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
                  "expanded": torch.tensor([1.5, 2.5]).unsqueeze(1).expand(2, 300),
                  "empty": torch.zeros(0, 7), "scalar": torch.tensor(3, dtype=torch.int16)},
        "leaf": torch.nn.Parameter(torch.randn(3)), "frozen": torch.nn.Parameter(
            torch.randn(2), requires_grad=False), "grad": torch.zeros(2, requires_grad=True),
        "large": torch.randn(3_000_000), "step": 1234, "lr": 1e-4, "names": ["a", ("b", None)],
        "text": "<ünïcode>\n", "raw": b"\x00\xff" * 50, "array": bytearray(b"abc"),
        "of numbers": {0: {"m": torch.ones(2)}, 1: True, None: 2.0, (1, "x"): "tuple"},
        "huge": [2**70, -2**70, -1, 2**40, float("inf")], "set": {3, 1}, "frozen set":
            frozenset({"x"}), "complex": 1 + 2j, "range": range(1, 9, 2),
        "default": collections.defaultdict(list, {"k": [1]}), "deque": collections.deque([1, 2], 5),
        "count": collections.Counter("aab"), "size": torch.Size([2, 3]), "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1), "a.b": 1, "a": {"b": torch.ones(1)},
    }


def values(torch, ff):
    state = state_of_all_kinds(torch)
    for protocol in (2, 3, 4, 5):
        path = saved(torch, state, pickle_protocol=protocol)
        said = imported(path, "all", "--step", str(protocol))
        assert said["outcome"] == "committed" and said["left_out_count"] == 0, said
        found = ff.load(STORE, "all", protocol)
        assert same(torch, state, found), protocol
        for name in ("leaf", "frozen", "grad"):
            assert type(found[name]) is type(state[name]), name
            assert found[name].requires_grad == state[name].requires_grad, name
        assert type(found["default"]) is collections.defaultdict
        assert found["default"].default_factory is list and found["deque"].maxlen == 5
    whole = found["views"]["whole"]
    assert whole.data_ptr() != found["views"]["part"].data_ptr()
    assert "already" in command("import", path, "--run", "all", "--step", "5")
    command("verify", "all@5")
    shown = command("show", "all@5", "--tensor", "views.*")
    assert "views.turned" in shown, shown


def models(torch, ff):
    """What programs save: a model, its optimizer, a generator; and tensors without containers."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    tied = torch.nn.Linear(4, 4)
    model.add_module("tied", tied)
    model.add_module("again", tied)
    optimizer = torch.optim.AdamW(model.parameters())
    model[1](model[0](torch.randn(2, 3, 8, 8))).sum().backward()
    tied(torch.randn(4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
             "rng": torch.get_rng_state()}
    imported(saved(torch, state), "model")
    found = ff.load(STORE, "model")
    assert same(torch, state, found)
    assert found["model"]._metadata == state["model"]._metadata
    other = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    other.add_module("tied", torch.nn.Linear(4, 4))
    other.add_module("again", other.tied)
    other.load_state_dict(found["model"])
    for value in (torch.arange(3), 5, None, [torch.ones(1)], torch.nn.Parameter(torch.ones(2))):
        imported(saved(torch, value), "single")
        assert same(torch, value, ff.load(STORE, "single")), value


class Hostile:
    def __reduce__(self):
        return os.system, (f"touch {FILES}/hostile-was-here",)


def refused(torch, ff):
    good = {"w": torch.ones(3), "list": [1, 2]}
    text = command("import", saved(torch, {**good, "bad": Hostile()}), "--run", "bad", code=5)
    assert "system, which could run code" in text and "--skip-unknown" in text, text
    assert not os.path.exists(f"{STORE}/runs/bad")
    said = imported(os.path.join(FILES, "model.pt"), "bad", "--skip-unknown")
    assert said["left_out"] == ["bad"] and said["left_out_count"] == 1, said
    assert same(torch, good, ff.load(STORE, "bad"))
    within = saved(torch, {"list": [1, types.SimpleNamespace(a=1), torch.ones(1)]})
    command("import", within, "--run", "bad", code=5)
    imported(within, "bad", "--skip-unknown")
    found = ff.load(STORE, "bad")["list"]
    assert found[:2] == [1, None] and torch.equal(found[2], torch.ones(1))
    assert not os.path.exists(f"{FILES}/hostile-was-here")

    text = command("import", saved(torch, {"s": torch.eye(2).to_sparse()}), "--run", "bad", code=5)
    assert "_rebuild_sparse_tensor" in text, text
    old = saved(torch, good, _use_new_zipfile_serialization=False)
    text = command("import", old, "--run", "bad", code=1)
    assert "PyTorch before 1.6" in text and "torch.save(torch.load(" in text, text
    script = os.path.join(FILES, "script.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), script)
    assert "TorchScript" in command("import", script, "--run", "bad", code=1)
    path = saved(torch, {"w": torch.arange(1000)})
    with open(path, "rb") as file:
        content = bytearray(file.read())
    at = content.index(bytes(torch.arange(1000).numpy().data)[:800])
    content[at + 700] ^= 4
    with open(path, "wb") as file:
        file.write(content)
    assert "CRC-32" in command("import", path, "--run", "bad", code=3)
    imported(path, "bad", "--skip-crc")


# ---- folders of torch.distributed.checkpoint


def save_folder(torch, rank, path, single_file):
    from ff.torch.dcp import api
    writer = api.package.FileSystemWriter(path, single_file_per_rank=single_file == "single")
    api.package.save_state_dict(full_state(torch), writer)


def be_rank(path, single_file):
    import torch
    import torch.distributed as dist
    import ff.torch.dcp  # before ShardedTensor
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=LIMIT / 2))
    except RuntimeError as error:
        print(f"did not join: {error}", file=sys.stderr)
        sys.exit(NOT_JOINED)
    save_folder(torch, dist.get_rank(), path, single_file)
    dist.barrier()
    dist.destroy_process_group()


def run(ranks, path, single_file):
    def words(_):
        return [os.path.abspath(__file__), FOLDER, FF, STORE, path, single_file]
    for last in (False, True):
        ended, errors, _ = ends_of(start(ranks, words))
        if NOT_JOINED not in ended or last:  # gloo's ranks sometimes do not find each other
            break
    assert ended == [0] * ranks, f"{ended}\n" + "\n".join(errors)


def folders(torch, ff):
    for ranks in (1, 2):
        for single_file in ("single", "many"):
            path = os.path.join(FILES, f"dcp-{ranks}-{single_file}")
            run(ranks, path, single_file)
            name = f"dcp{ranks}{single_file}"
            said = imported(path, name, "--step", "7")
            assert said["kind"] == "dcp" and said["values"] == 2, said
            compare(torch, load(alone(torch), 7, no_dist=True, run=name))
            command("verify", f"{name}@7")
            assert "already" in command("import", path, "--run", name, "--step", "7")
            out = os.path.join(FILES, f"{name}.safetensors")
            command("export", f"{name}@7", out)
            loaded = ff_file(ff, out, name)
            compare(torch, {key: loaded[key] for key in alone(torch) if key in loaded})
            assert "rows" in loaded and "epoch" not in loaded


def ff_file(ff, path, name):
    """The tensors of a safetensors file."""
    command("save", path, "--run", f"{name}-out")
    return ff.load(STORE, f"{name}-out")


def module(name):
    made = types.ModuleType(name)
    sys.modules[name] = made
    return made


def classes_of_torch_2(torch):
    """Modules with the classes of PyTorch 2.6's torch.distributed.checkpoint that its metadata
    has, by their documented names and fields."""
    import dataclasses
    import enum
    module("torch.distributed.checkpoint")
    metadata = module("torch.distributed.checkpoint.metadata")
    filesystem = module("torch.distributed.checkpoint.filesystem")

    class _MEM_FORMAT_ENCODING(enum.Enum):
        TORCH_CONTIGUOUS_FORMAT = 0
        TORCH_CHANNELS_LAST = 1
        TORCH_PRESERVE_FORMAT = 2

    def dataclass_in(where, name, fields, **options):
        made = dataclasses.make_dataclass(name, fields, **options)
        made.__module__, made.__qualname__ = where.__name__, name
        setattr(where, name, made)
        return made
    _MEM_FORMAT_ENCODING.__module__ = metadata.__name__
    _MEM_FORMAT_ENCODING.__qualname__ = "_MEM_FORMAT_ENCODING"
    metadata._MEM_FORMAT_ENCODING = _MEM_FORMAT_ENCODING
    chunk = dataclass_in(metadata, "ChunkStorageMetadata", ["offsets", "sizes"], frozen=True)
    tensor = dataclass_in(metadata, "TensorStorageMetadata", ["properties", "size", "chunks"])
    dataclass_in(metadata, "BytesStorageMetadata", [])
    properties = dataclass_in(metadata, "TensorProperties", ["dtype", "layout", "requires_grad",
                                                             "memory_format", "pin_memory"])
    properties.__getstate__ = lambda self: (
        self.dtype, self.layout, self.requires_grad, _MEM_FORMAT_ENCODING(0), self.pin_memory)
    dataclass_in(metadata, "MetadataIndex", ["fqn", "offset", "index"], frozen=True)
    dataclass_in(metadata, "StorageMeta", ["checkpoint_id", "save_id", "load_id", "modules"])
    dataclass_in(metadata, "Metadata", ["state_dict_metadata", "planner_data", "storage_data",
                                        "storage_meta", "version"])
    dataclass_in(filesystem, "_StorageInfo", ["relative_path", "offset", "length",
                                              "transform_descriptors"])
    return metadata, filesystem


def folder_of_torch_2(torch, ff):
    import pathlib
    metadata, filesystem = classes_of_torch_2(torch)
    state = {"model": {"w": torch.randn(6, 4), "b": torch.arange(3, dtype=torch.bfloat16)},
             "step": 99}
    flat = {"model.w": state["model"]["w"], "model.b": state["model"]["b"], "step": 99}
    folder = os.path.join(FILES, "torch2")
    os.mkdir(folder)
    described, places = {}, {}

    def add(index, value, file):
        begin = file.tell()
        stream = io.BytesIO()
        torch.save(value, stream)
        file.write(stream.getvalue())
        places[index] = filesystem._StorageInfo(os.path.basename(file.name), begin,
                                                file.tell() - begin, None)
    for rank in range(2):
        with open(f"{folder}/__{rank}_0.distcp", "wb") as file:
            if rank == 0:
                add(metadata.MetadataIndex("step", None, None), 99, file)
                described["step"] = metadata.BytesStorageMetadata()
                add(metadata.MetadataIndex("model.b", torch.Size([0]), 0), flat["model.b"], file)
            offsets = torch.Size([3 * rank, 0])
            part = flat["model.w"][3 * rank:3 * rank + 3].clone()
            add(metadata.MetadataIndex("model.w", offsets, rank), part, file)
    for name in ("model.w", "model.b"):
        whole = flat[name]
        properties = metadata.TensorProperties(whole.dtype, torch.strided, False, None, False)
        sizes = torch.Size([3, 4]) if name == "model.w" else whole.size()
        offsets = [[0, 0], [3, 0]] if name == "model.w" else [[0]]
        described[name] = metadata.TensorStorageMetadata(
            properties, whole.size(),
            [metadata.ChunkStorageMetadata(torch.Size(one), sizes) for one in offsets])
    planner = {name: tuple(name.split(".")) for name in flat}
    storage = metadata.StorageMeta(pathlib.PosixPath("/data/step-99"), "1", None, [])
    whole = metadata.Metadata(described, planner, places, storage, "1.0.0")
    with open(f"{folder}/.metadata", "wb") as file:
        pickle.dump(whole, file)
    imported(folder, "two", "--step", "99")
    out = os.path.join(FILES, "two.safetensors")
    command("export", "two@99", out)
    assert same(torch, {name: flat[name] for name in ("model.b", "model.w")},
                dict(sorted(ff_file(ff, out, "two").items())))
    for name in [name for name in sys.modules if name.startswith("torch.distributed.checkpoint")]:
        del sys.modules[name]
    empty = {"model.w": torch.zeros(6, 4), "model.b": torch.zeros(3, dtype=torch.bfloat16),
             "step": None}
    loaded = load(empty, 99, no_dist=True, run="two")
    assert same(torch, flat, loaded), loaded


def main():
    import torch
    import ff
    import ff.torch.dcp
    import dcp
    dcp.STORE = STORE
    for part in (values, models, refused, folder_of_torch_2, folders):
        part(torch, ff)
        print(part.__name__)


if __name__ == "__main__":
    FOLDER, FF = sys.argv[1], sys.argv[2]
    sys.path.insert(0, FOLDER)
    if len(sys.argv) > 3:
        import dcp
        dcp.STORE = STORE = sys.argv[3]
        ddp.PYTHON = sys.executable
        if len(sys.argv) > 4:
            be_rank(*sys.argv[4:])
        else:
            FILES = os.path.join(os.path.dirname(STORE), "files")
            os.mkdir(FILES)
            main()
    else:
        ddp.PYTHON = PYTHON = python_with_torch()
        with tempfile.TemporaryDirectory() as temporary:
            ended = subprocess.run([PYTHON, os.path.abspath(__file__), FOLDER, FF,
                                    os.path.join(temporary, "store")])
        sys.exit(ended.returncode)
