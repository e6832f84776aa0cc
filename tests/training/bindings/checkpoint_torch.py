#!/usr/bin/env python3
# Checkpoints of the Python package with PyTorch and numpy: models, optimizers, generators, types,
# and tensors that do not lie in memory as they are stored. Without PyTorch: skipped.
"""usage: checkpoint_torch.py FOLDER FF, where the package ff and libff.so are, and the binary"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback

SKIPPED = 77


def says(text, call, *arguments, **named):
    import ff
    try:
        call(*arguments, **named)
    except ff.Error as error:
        assert error.code == 2 and text in str(error), f"'{text}' in '{error}'"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def same(torch, a, b):
    """The same structure, types and bits."""
    if isinstance(a, torch.Tensor):
        a, b = a.detach(), b.detach()
        return (a.dtype == b.dtype and a.shape == b.shape and
                a.contiguous().view(-1).view(torch.uint8).tolist() ==
                b.contiguous().view(-1).view(torch.uint8).tolist()) if a.dim() and a.numel() else \
            torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(torch, a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, [torch] * len(a), a, b))
    return type(a) is type(b) and a == b


def training(torch, ff, store):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40),
                                torch.nn.Linear(40, 2).to(torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.3)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 30)).square().sum().backward()
            optimizer.step()
            schedule.step()
        return [one.detach().clone() for one in model.parameters()]

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(), "rng": torch.get_rng_state()}
    train(3)
    save = ff.save_async(state(), "train", 3, store)
    after = train(3)  # while it is written
    save.wait()
    loaded = ff.load(store, "train")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    schedule.load_state_dict(loaded["schedule"])
    torch.set_rng_state(loaded["rng"])
    assert same(torch, train(3), after)
    assert type(loaded["optimizer"]["param_groups"][0]["betas"]) is tuple
    assert list(loaded["optimizer"]["state"]) == list(range(6))


def kinds(torch, ff, store):
    whole = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    state = {
        "transposed": whole.t(), "part": whole[2:4, 3:7], "spread": torch.ones(1).expand(5, 3),
        "leaf": torch.nn.Parameter(torch.randn(3)), "none": torch.zeros(0, 3),
        "zero_d": torch.tensor(7), "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
        "imaginary": torch.randn(4, dtype=torch.complex64).conj().imag,
    }
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                  torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        state[str(dtype)] = torch.randint(0, 2, (5, 7)).to(dtype)
    ff.save_async(state, store=store).wait()
    loaded = ff.load(store)
    for name, tensor in state.items():
        assert same(torch, tensor.resolve_conj().resolve_neg(), loaded[name]), name
    says("x.1: a tensor on the device meta", ff.save_async,
         {"x": [1, torch.empty(2, device="meta")]}, store=store)
    if torch.cuda.is_available():
        ff.save_async([torch.ones(1000, device="cuda")], store=store).wait()
        assert torch.equal(ff.load(store)[0], torch.ones(1000))


def arrays(torch, ff, store):
    import numpy
    state = {"array": numpy.arange(12.0).reshape(3, 4)[:, ::2], "scalar": numpy.float32(1.5),
             "generator": numpy.random.get_state(), "flags": numpy.array([True, False]),
             "zero_d": numpy.array(3), "frozen": numpy.arange(3), "tensor": torch.ones(2)}
    state["frozen"].flags.writeable = False
    ff.save_async(state, "numpy", store=store).wait()
    loaded = ff.load(store, "numpy")
    for name in ("array", "flags", "zero_d", "frozen"):
        assert type(loaded[name]) is numpy.ndarray and loaded[name].dtype == state[name].dtype
        assert (loaded[name] == state[name]).all() and loaded[name].shape == state[name].shape
    assert type(loaded["scalar"]) is numpy.float32 and loaded["scalar"] == 1.5
    assert type(loaded["tensor"]) is torch.Tensor
    numpy.random.set_state(loaded["generator"])
    says("x: an array of object", ff.save_async, {"x": numpy.array([None])}, store=store)
    sys.modules["torch"] = None  # as if it were not there
    try:
        loaded = ff.load(store, "numpy")
        assert type(loaded["tensor"]) is numpy.ndarray and loaded["tensor"].tolist() == [1, 1]
    finally:
        sys.modules["torch"] = torch


def types_it_lacks(torch, ff, store):
    header = {"fp8": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]},
              "words": {"dtype": "U16", "shape": [1, 2], "data_offsets": [4, 8]},
              "fours": {"dtype": "F4", "shape": [4], "data_offsets": [8, 10]},
              "half": {"dtype": "BF16", "shape": [], "data_offsets": [10, 12]}}
    text = json.dumps(header).encode()
    data = bytes(range(10)) + b"\x80\x3f"
    path = store + ".safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    subprocess.run([sys.argv[2], "checkpoint", "save", "--store", store, path], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loaded = ff.load(store)
    assert loaded["half"].dtype == torch.bfloat16 and loaded["half"].item() == 1
    fp8, words = loaded["fp8"], loaded["words"]
    assert fp8.dtype == getattr(torch, "float8_e4m3fn", torch.uint8)
    assert list(fp8.shape) == [2, 2] and fp8.view(torch.uint8).flatten().tolist() == [0, 1, 2, 3]
    if not hasattr(torch, "uint16"):
        assert words.dtype == torch.uint8 and words.tolist() == [[4, 5, 6, 7]]
    assert loaded["fours"].dtype == torch.uint8 and loaded["fours"].tolist() == [8, 9]


def python_with_torch():
    for python in dict.fromkeys((sys.executable, shutil.which("python3"), "/usr/bin/python3")):
        if python and subprocess.run([python, "-c", "import torch, numpy"],
                                     capture_output=True).returncode == 0:
            return python
    return None


def main():
    try:
        import numpy  # noqa: F401: looked for
        import torch
    except ImportError:
        python = python_with_torch()
        if python is None:
            print("skipped: no Python here has PyTorch and numpy (Debian: python3-torch)")
            return SKIPPED
        return subprocess.run([python, *sys.argv]).returncode
    sys.path.insert(0, sys.argv[1])
    import ff
    failed = []
    for test in (training, kinds, arrays, types_it_lacks):
        root = tempfile.mkdtemp(prefix="ff-checkpoint-")
        try:
            test(torch, ff, os.path.join(root, "store"))
            print(f"{test.__name__}: well", flush=True)
        except BaseException:
            traceback.print_exc()
            failed.append(test.__name__)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else f"well with PyTorch {torch.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
