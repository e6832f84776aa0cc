#!/usr/bin/env python3
# A training as people write it, with its gradients summed by libff.so or by gloo: the example of
# the README, what tests/training/bindings/ddp.py compares, and what tests/bench/train.py measures.
"""Trains a small transformer to continue text, byte by byte, on CPUs.

usage: train.py [--backend ff|gloo] [--nproc N] [--steps N] [--json] [...]
                [--store DIR [--run NAME] [--save-every 300s|STEPS]]

Started by torchrun, or with --nproc, which starts N ranks here. The text is that of the files
given by --text, else the licenses that every Debian has. What a rank reads at a step follows from
the seed, the step and the rank alone. The package ff and libff.so are looked for in --library, else
in build/python of this tree.

With --store the training is saved while it goes on, and at its end; started again, with as many
ranks, it goes on from the step saved last, as if it had never ended. All ranks save shards of one
checkpoint, which is there once all of them are: rank 0 what is the same everywhere (the model, the
optimizer, the step), so that it is copied and written once, and each its own random numbers.
"""
import argparse
import glob
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

GRACE = 30  # seconds that the other ranks have to end by themselves once one has failed


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--backend", choices=("ff", "gloo"), default="ff")
    parser.add_argument("--nproc", type=int, help="start so many ranks on this machine")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank at a step")
    parser.add_argument("--context", type=int, default=64, help="bytes of a sequence")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--bucket-mb", type=float, default=25, help="as DistributedDataParallel's")
    parser.add_argument("--copy-gradients", action="store_true",
                        help="without gradient_as_bucket_view")
    parser.add_argument("--deadline", type=float, default=60, help="seconds, for an operation")
    parser.add_argument("--text", nargs="+", metavar="FILE")
    parser.add_argument("--store", metavar="DIR", help="of checkpoints; with --backend ff")
    parser.add_argument("--run", default="train", help="their name")
    parser.add_argument("--save-every", default="300s", metavar="SECONDSs|STEPS")
    parser.add_argument("--library", metavar="FOLDER", default=os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "build", "python"))
    parser.add_argument("--json", action="store_true", help="rank 0 prints an object for each step")
    options = parser.parse_args()
    if options.store is not None and options.backend != "ff":
        parser.error("--store goes with --backend ff")
    return options


# ---- ranks of this machine


def spawn(nproc):
    """Starts this script nproc times, as torchrun would; what the first that failed ended with."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = []
    for rank in range(nproc):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(nproc), LOCAL_RANK=str(rank),
                   LOCAL_WORLD_SIZE=str(nproc), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        env.setdefault("OMP_NUM_THREADS", "1")
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code, until = 0, None
    try:
        while any(rank.poll() is None for rank in ranks):
            time.sleep(0.05)
            failed = [rank.returncode for rank in ranks if rank.returncode]
            if failed and until is None:
                until = time.monotonic() + GRACE
            if until is not None and time.monotonic() > until:
                print(f"ranks still ran {GRACE} s after another had failed", file=sys.stderr)
                break
        code = next((rank.returncode for rank in ranks if rank.returncode), 0)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return 1 if code < 0 else code


# ---- the model, and what it reads


def text_of(files):
    """One tensor of all their bytes."""
    import torch
    files = files or sorted(glob.glob("/usr/share/common-licenses/*"))
    text = bytearray()
    for name in files:
        if not os.path.islink(name):
            with open(name, "rb") as file:
                text += file.read()
    if len(text) < 1 << 16:
        sys.exit(f"{len(text)} bytes of text are too few: give more with --text")
    return torch.frombuffer(text, dtype=torch.uint8)


def batch_of(text, options, step, rank, ranks):
    """Bytes, and those that follow each: of a seed and a step always the same ones, whatever was
    read before, and of each rank its own."""
    import torch
    order = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(text) - options.context, (ranks, options.batch), generator=order)
    lines = torch.stack([text[at:at + options.context + 1] for at in starts[rank].tolist()]).long()
    return lines[:, :-1], lines[:, 1:]


def model_of(options):
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bytes = nn.Embedding(256, options.width)
            self.places = nn.Embedding(options.context, options.width)
            layer = nn.TransformerEncoderLayer(options.width, max(options.width // 64, 1),
                                               4 * options.width, dropout=0.1, activation="gelu",
                                               batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(options.width)
            self.head = nn.Linear(options.width, 256, bias=False)
            mask = torch.full((options.context, options.context), float("-inf")).triu(1)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, text):
            hidden = self.bytes(text) + self.places.weight
            return self.head(self.norm(self.layers(hidden, self.mask)))

    torch.manual_seed(options.seed)  # the same weights on all ranks
    return Model()


# ---- a rank


class Training:
    """All that a step changes: the model, the optimizer, random numbers, how many were done."""

    def __init__(self, options, rank, wrap):
        import torch
        self.module = model_of(options)
        self.model = wrap(self.module)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=3e-4)
        self.step = 0
        torch.manual_seed(options.seed + 1 + rank)  # what dropout drops, of each rank its own

    def state(self):
        """Of this rank. Of the same state, a step makes the same one."""
        import torch
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                "random": torch.get_rng_state(), "step": self.step}

    def shared_state(self, rank):
        """What this rank saves of it: together, all that all ranks need."""
        state = self.state()
        return state if rank == 0 else {"random": state["random"]}

    def resume(self, shared, own):
        """From what rank 0 has saved, and what this rank has."""
        import torch
        self.module.load_state_dict(shared["model"])
        self.optimizer.load_state_dict(shared["optimizer"])
        self.step = shared["step"]
        torch.set_rng_state(own["random"])

    def digest(self):
        """Of what is the same on all ranks: they have trained one model."""
        state = self.state()
        seen = hashlib.sha256(str(state["step"]).encode())
        for _, tensor in sorted(state["model"].items()):
            seen.update(tensor.numpy().tobytes())
        return seen.hexdigest()

    def run(self, inputs, targets):
        import torch
        self.optimizer.zero_grad()
        guess = self.model(inputs)
        loss = torch.nn.functional.cross_entropy(guess.flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()


def resume(options, training, comm):
    """From the step saved last, if there is any: of all ranks the one that rank 0 sees."""
    import ff
    newest = ff.latest(options.store, options.run) if comm.rank == 0 else None
    newest = comm.broadcast(bytearray((0 if newest is None else newest + 1).to_bytes(8, "little")))
    newest = int.from_bytes(newest, "little") - 1
    if newest < 0:
        return
    shared = ff.load(options.store, options.run, newest, rank=0)
    own = shared if comm.rank == 0 else ff.load(options.store, options.run, newest, rank=comm.rank)
    training.resume(shared, own)
    say(options, comm.rank, step=training.step, event="resumed")


def saves_of(options, comm):
    """Who saves when it is time."""
    import ff
    every = options.save_every
    when = {"seconds": float(every[:-1])} if every.endswith("s") else {"steps": int(every)}
    return ff.Periodic(options.store, options.run, agree=comm, rank=comm.rank, world=comm.ranks,
                       **when)


def train(options):
    import datetime

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.deadline))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    comm = None

    def wrap(module):
        nonlocal comm
        model = DistributedDataParallel(module, bucket_cap_mb=options.bucket_mb,
                                        gradient_as_bucket_view=not options.copy_gradients,
                                        broadcast_buffers=False)  # the mask is the same for all
        if options.backend == "ff":
            import ff
            comm = ff.Comm(operation_seconds=options.deadline)
            ff.register_comm_hook(model, comm)
        return model

    text = text_of(options.text)
    training = Training(options, rank, wrap)
    say(options, rank, step=0, pid=os.getpid(),
        parameters=sum(one.numel() for one in training.module.parameters()))
    saves = None
    if options.store is not None:
        resume(options, training, comm)
        saves = saves_of(options, comm)
    while training.step < options.steps:
        inputs, targets = batch_of(text, options, training.step, rank, ranks)
        begun, worked = time.perf_counter(), time.process_time()
        loss = training.run(inputs, targets)
        seconds, worked = time.perf_counter() - begun, time.process_time() - worked
        if comm is not None:
            comm.allreduce(loss, op="avg")
        else:
            dist.all_reduce(loss)
            loss /= ranks
        if rank == 0:
            say(options, rank, step=training.step, loss=loss.item(), seconds=seconds,
                processor_seconds=worked)
        stop = None
        if saves is not None:
            import ff
            ff.heartbeat(training.step)
            stop = ff.should_stop(comm)
            begun = time.perf_counter()
            if saves.step(training.step, lambda: training.shared_state(rank),
                          now=stop is not None or training.step == options.steps):
                say(options, rank, step=training.step, event="saving",
                    stopped=time.perf_counter() - begun)
        if stop is not None:
            say(options, rank, step=training.step, event="stops", reason=stop.reason)
            break
    if saves is not None:
        saves.close()
    say(options, rank, step=training.step, digest=training.digest())
    if comm is not None:
        comm.close()
    dist.destroy_process_group()


def say(options, rank, **what):
    what = {"rank": rank, **what}
    if options.json:
        line = json.dumps(what)
    elif "loss" in what:
        line = f"step {what['step']:4d}  loss {what['loss']:.6f}  {1e3 * what['seconds']:.1f} ms"
    else:
        line = ", ".join(f"{name} {value}" for name, value in what.items())
    sys.stdout.write(line + "\n")  # in one write: ranks share the output
    sys.stdout.flush()


def main():
    options = parse()
    if options.nproc is not None and "RANK" not in os.environ:
        return spawn(options.nproc)
    sys.path.insert(0, options.library)
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
