#!/usr/bin/env python3
# Trainings over the backend "ff" of torch.distributed that lose a rank: it is killed in the middle
# of backward(); the others shrink their group, go on, and learn to the bit what a training of so
# many ranks would. On one host; and on two, whose first has the ranks 0 and 1, so that rank 0 leads
# it, and rank 2 leads the second one. Without PyTorch: skipped.
"""usage: shrink.py FOLDER, where the package ff and libff.so are"""
import os
import signal
import sys

import ddp
from ddp import ends_of, python_with_torch, start

RANKS = 3
STEPS, LOST_AT = 12, 4
RATE = 0.2


def net():
    import torch
    torch.manual_seed(7)
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(4)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))


def loss_of(model, step, rank):
    """The same function is learned from other inputs in each step and rank."""
    import torch
    inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(100 * step + rank))
    wanted = inputs[:, :8].sum(1, keepdim=True).tanh()
    return (model(inputs) - wanted).square().mean()


def descend(model, grads):
    import torch
    with torch.no_grad():
        for one, grad in zip(model.parameters(), grads):
            one -= RATE * grad


def wrap(module):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(module, bucket_cap_mb=0.02, broadcast_buffers=False)


def train(module, step, rank, victim, losses):
    """The steps from this one on, until all are done or an error."""
    model = wrap(module)
    first = next(module.parameters())
    while step[0] < STEPS:
        if (rank, step[0]) == (victim, LOST_AT):  # later buckets are being summed
            first.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))
        model.zero_grad()
        loss = loss_of(model, step[0], rank)
        loss.backward()
        descend(module, [one.grad for one in module.parameters()])
        losses.append(loss.item())
        step[0] += 1


def go_on(module, step):
    """With the ranks that are left, from the state of the first of them."""
    import torch
    import torch.distributed as dist
    import ff.torch
    group = ff.torch.shrink()
    assert group is dist.group.WORLD and dist.get_world_size() == RANKS - 1
    rank = dist.get_rank()
    number = torch.tensor(step)
    dist.broadcast(number, 0)
    step[0] = number.item()
    for one in module.parameters():
        one.grad = None
        dist.broadcast(one.data, 0)
    alone = net()
    alone.load_state_dict(module.state_dict())
    first, losses = step[0], []
    train(module, step, rank, None, losses)
    for done in range(first, STEPS):  # the same training in one process
        each = []
        for one in range(RANKS - 1):
            alone.zero_grad()
            loss_of(alone, done, one).backward()
            each.append([parameter.grad / (RANKS - 1) for parameter in alone.parameters()])
        descend(alone, [sum(grads[1:], grads[0]) for grads in zip(*each)])
    for one, other in zip(module.parameters(), alone.parameters()):
        assert one.equal(other), "not what two ranks learn"
    return losses


def be_rank(victim):
    import torch
    import torch.distributed as dist
    import ff.torch
    torch.set_num_threads(1)
    dist.init_process_group("ff")
    rank, module, step, losses = dist.get_rank(), net(), [0], []
    try:
        train(module, step, rank, victim, losses)
    except ff.Error as error:
        assert f"rank {victim} (process" in str(error), error
    later = go_on(module, step)
    mean = [sum(part[-3:]) / 3 for part in (losses[:3], later)]
    assert mean[1] < 0.8 * mean[0], f"{losses}, then {later}"
    print(f"losses {mean[0]:.3f}, then {mean[1]:.3f}")
    part = dist.new_group([0]) if victim != 0 else None  # the store was that of rank 0
    assert part is None or dist.get_world_size() == RANKS - 1
    dist.barrier()  # the store ends with its rank
    dist.destroy_process_group()


def main():
    words = [os.path.abspath(__file__), FOLDER]
    for hosts, victim in ((1, 0), (1, 1), (2, 0), (2, 1)):
        codes, errors, said = ends_of(start(RANKS, lambda rank: [*words, str(victim), str(hosts)]))
        wanted = [-signal.SIGKILL if rank == victim else 0 for rank in range(RANKS)]
        assert codes == wanted, f"{codes}: " + "\n".join(errors)
        print(f"hosts: {hosts}, without rank {victim}:", said[2].strip())


if __name__ == "__main__":
    FOLDER = sys.argv[1]
    if len(sys.argv) == 4:
        sys.path.insert(0, FOLDER)
        if sys.argv[3] == "2":
            rank = int(os.environ["RANK"])
            os.environ.update(LOCAL_WORLD_SIZE=str(2 - rank // 2), LOCAL_RANK=str(rank % 2))
        be_rank(int(sys.argv[2]))
    else:
        ddp.PYTHON = PYTHON = python_with_torch()
        main()
