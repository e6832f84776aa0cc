#!/usr/bin/env python3
# PyTorch's DistributedDataParallel with ff for its gradients: the same training as over gloo,
# whatever way the model is wrapped, and errors that reach whoever called backward(). Without
# PyTorch: skipped.
"""usage: ddp.py FOLDER, where the package ff and libff.so are"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(HERE, "train.py")
SKIPPED = 77
LIMIT = 100  # seconds for any run


def python_with_torch():
    for python in (sys.executable, "/usr/bin/python3"):
        tried = subprocess.run([python, "-c", "import torch.distributed as d; d.Reducer"],
                               capture_output=True)
        if tried.returncode == 0:
            return python
    print("skipped: neither this Python nor /usr/bin/python3 has PyTorch (Debian: python3-torch)")
    sys.exit(SKIPPED)


# ---- whole trainings


SMALL = ["--json", "--batch", "2", "--context", "32", "--steps", "6", "--bucket-mb", "0.3"]


def train(*words):
    words = [PYTHON, TRAIN, "--library", FOLDER, *SMALL, *words]
    # gloo's ranks sometimes do not find each other, and then wait for half an hour.
    for last in (False, True) if "gloo" in words else (True,):
        started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        try:
            said, why = started.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.communicate()
            if last:
                raise
            continue
        assert started.returncode == 0, why
        return learned(said)


def learned(said):
    """Losses by step, and what the ranks say they have trained."""
    lines = [json.loads(line) for line in said.splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    digests = {line["digest"] for line in lines if "digest" in line}
    assert len(losses) == 6 and len(digests) == 1, said
    return losses, digests


def same_losses():
    """Of two ranks, to the bit; of more, gloo adds in another order."""
    for ranks, tolerance, ways in ((2, 0, ([], ["--copy-gradients"])), (4, 1e-4, ([],))):
        theirs, their_model = train("--backend", "gloo", "--nproc", str(ranks))
        assert theirs[-1] < theirs[0] - 0.1, f"nothing was learned: {theirs}"
        for more in ways:
            ours, our_model = train("--backend", "ff", "--nproc", str(ranks), *more)
            apart = max(abs(one - other) for one, other in zip(ours, theirs))
            assert apart <= tolerance, f"{ranks} ranks {more}: {ours} beside gloo's {theirs}"
            assert tolerance > 0 or our_model == their_model, "another model than gloo's"
            what = " ".join([f"{ranks} ranks", *more])
            print(f"{what}: losses at most {apart:.1e} from gloo's")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(ranks, words_of):
    """Ranks as torchrun starts them, each with words of its own."""
    port = free_port()
    started = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        started.append(subprocess.Popen([PYTHON, *words_of(rank)], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return started


def ends_of(started):
    """Exit codes, errors and lines of all, none of which may hang."""
    try:
        said = [one.communicate(timeout=LIMIT) for one in started]
    finally:
        for one in started:
            one.kill()
    return ([one.returncode for one in started], [errors for _, errors in said],
            [lines for lines, _ in said])


def lost_rank():
    ranks = start(3, lambda rank: [TRAIN, "--library", FOLDER, "--json", "--steps", "1000000",
                                   "--context", "16"])
    for line in ranks[0].stdout:
        if json.loads(line)["step"] >= 4:
            break
    ranks[1].kill()
    begun = time.monotonic()
    codes, said, _ = ends_of(ranks)
    name = f"rank 1 (process {ranks[1].pid})"
    for rank in (0, 2):
        assert codes[rank] == 1, codes
        last = said[rank].strip().splitlines()[-1]
        assert "ff.Error" in last and name + " is gone" in last, said[rank]
    print(f"lost: named to all within {time.monotonic() - begun:.1f} s: {last}")


# ---- hosts


@contextlib.contextmanager
def hosts():
    """The names of two network namespaces with a wire between them, and the address of the first;
    nothing where they cannot be made. Names and addresses are of this process (RFC 2544)."""
    names = [f"ffd{os.getpid()}-{host}" for host in range(2)]
    subnet = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}."
    lines = [f"netns add {names[0]}", f"netns add {names[1]}",
             f"link add eth0 netns {names[0]} type veth peer name eth0 netns {names[1]}"]
    for number, name in enumerate(names):
        lines += [f"-n {name} addr add {subnet}{number + 1}/24 dev eth0",
                  f"-n {name} link set eth0 up", f"-n {name} link set lo up"]
    try:
        made = os.geteuid() == 0 and all(
            subprocess.run(["ip", *line.split()], capture_output=True).returncode == 0
            for line in lines)
        yield (names, subnet + "1") if made else None
    finally:
        for name in names if os.geteuid() == 0 else []:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def two_hosts():
    """A rank on each of two hosts learns what two ranks of one host do."""
    with hosts() as made, tempfile.TemporaryDirectory() as folder:
        if made is None:
            print("two hosts: skipped, network namespaces cannot be made here")
            return
        names, address = made
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        ranks = []
        for rank, name in enumerate(names):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0",
                       LOCAL_WORLD_SIZE="1", MASTER_ADDR=address, MASTER_PORT="29500",
                       FF_KEY_FILE=key, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="eth0")
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", name, PYTHON, TRAIN, "--library", FOLDER, *SMALL],
                env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        codes, errors, said = ends_of(ranks)
        assert codes == [0, 0], "\n".join(errors)
    far, _ = learned("".join(said))
    near, _ = train("--nproc", "2")
    apart = max(abs(one - other) for one, other in zip(far, near))
    assert apart <= 1e-5, f"{far} beside {near}"
    print(f"two hosts: losses at most {apart:.1e} from those of one host")


# ---- a rank of two, with two models side by side: one summed by ff, one by gloo


def net_of(torch, layers):
    torch.manual_seed(3)
    return torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(layers)])


class Pair:
    def __init__(self, comm, layers=4, net=net_of, **wrap):
        import torch
        from torch.nn.parallel import DistributedDataParallel
        import ff
        wrap.setdefault("gradient_as_bucket_view", True)
        wrap.setdefault("bucket_cap_mb", 0.006)
        self.models = [DistributedDataParallel(net(torch, layers), **wrap) for _ in range(2)]
        known = set(comm._hooks)
        ff.register_comm_hook(self.models[0], comm)
        [self.hook] = set(comm._hooks) - known

    def step(self, rank, step, to_none, no_sync=False):
        """Gradients of both are the same bits, and move the weights a little."""
        import torch
        for model in self.models:
            inputs = torch.randn(5, 32, generator=torch.Generator().manual_seed(10 * step + rank))
            if not no_sync and step > 0:
                model.zero_grad(set_to_none=to_none)
            model(inputs).square().mean().backward()
        self.compare(f"step {step}")
        with torch.no_grad():
            for model in self.models:
                for one in model.parameters():
                    if one.grad is not None:
                        one -= 0.1 * one.grad

    def compare(self, what):
        ours, theirs = (list(model.parameters()) for model in self.models)
        for number, (one, other) in enumerate(zip(ours, theirs)):
            if other.grad is None:
                assert one.grad is None, f"{what}, parameter {number}: a gradient"
            else:
                assert one.grad.equal(other.grad), f"{what}, parameter {number} differs"

    def lives_where_all_reach(self, wanted):
        homes = [(home.data_ptr(), home.data_ptr() + home.numel() * 4)
                 for home in self.hook._homes.values()]
        for one in self.models[0].parameters():
            at = one.grad.data_ptr()
            assert wanted == any(start <= at < end for start, end in homes), "gradients are copied"


def uses_part(torch, layers):
    class Net(torch.nn.Module):
        """Of its layers, the last is used in every other step."""
        def __init__(self):
            super().__init__()
            self.always, self.sometimes = net_of(torch, layers), torch.nn.Linear(32, 32)
            self.steps = 0

        def forward(self, inputs):
            self.steps += 1
            inputs = self.always(inputs)
            return self.sometimes(inputs) if self.steps % 2 == 0 else inputs
    return Net()


def flows(comm, rank):
    for to_none in (False, True):
        for wrap in ({}, {"gradient_as_bucket_view": False}, {"static_graph": True},
                     {"layers": 40, "bucket_cap_mb": 0.001},
                     {"net": uses_part, "find_unused_parameters": True}):
            pair = Pair(comm, **wrap)
            for step in range(4):
                pair.step(rank, step, to_none)
            pair.lives_where_all_reach(wrap.get("gradient_as_bucket_view", True))
            print(f"rank {rank}: well with {wrap}, to_none {to_none}")

    pair = Pair(comm)  # gradients of several steps are added up
    for step in range(5):
        if step == 2:
            with pair.models[0].no_sync(), pair.models[1].no_sync():
                for model in pair.models:
                    model(torch_ones()).sum().backward()
        pair.step(rank, step, False, no_sync=step >= 2)

    pair = Pair(comm)  # somebody else's tensors for gradients, though of the same memory
    for step in range(4):
        pair.step(rank, step, False)
        for model in pair.models:
            for one in model.parameters():
                one.grad = one.grad.detach() if step % 2 == 0 else one.grad.clone()

    pair = Pair(comm)  # ranks with unequal numbers of steps
    for model in pair.models:
        with model.join():
            for step in range(2 + rank):
                model.zero_grad()
                model(torch_ones() * (step + rank)).square().sum().backward()
    if rank == 1:
        pair.compare("join")


def torch_ones():
    import torch
    return torch.ones(5, 32)


def says(code, text, call):
    import ff
    try:
        call()
    except ff.Error as error:
        assert error.code == code and text in str(error), f"{code} '{text}' in {error.code} {error}"
        return
    raise AssertionError(f"no error, where '{text}' was expected")


def other_models(comm, rank):
    """Of other sizes, which PyTorch sees if they are of one process group."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import ff
    alone = [dist.new_group([one]) for one in range(2)][rank]
    model = DistributedDataParallel(net_of(torch, 2 + rank), process_group=alone)
    ff.register_comm_hook(model, comm)
    says(2, "rank 1 (process", lambda: model(torch_ones()).sum().backward())
    comm.barrier()


def be_rank():
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    import ff
    with ff.Comm() as comm:
        flows(comm, rank)
        other_models(comm, rank)
        pair = Pair(comm)
        pair.step(rank, 0, False)
        addresses = [one.grad.data_ptr() for one in pair.models[0].parameters()]
    pair.compare("closed")
    for one, before in zip(pair.models[0].parameters(), addresses):
        assert one.grad.data_ptr() != before, "in memory that is gone"
    says(2, "was closed", lambda: pair.models[0](torch_ones()).sum().backward())
    dist.barrier()


def every_flow():
    codes, said, _ = ends_of(start(2, lambda rank: [os.path.abspath(__file__), FOLDER, "rank"]))
    assert codes == [0, 0], "\n".join(said)
    print("every flow: gradients are gloo's")


def main():
    sys.path.insert(0, FOLDER)
    if sys.argv[2:] == ["rank"]:
        return be_rank()
    for test in (every_flow, same_losses, two_hosts, lost_rank):
        test()


if __name__ == "__main__":
    FOLDER = os.path.abspath(sys.argv[1])
    PYTHON = sys.executable if len(sys.argv) > 2 else python_with_torch()
    main()
