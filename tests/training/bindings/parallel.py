#!/usr/bin/env python3
# The parallelisms of HaiScale over the backend "ff" of torch.distributed, each a small training of
# two ranks: data parallel, sharded (ZeRO-3), pipeline in 1F1B and in zero-bubble order, tensor
# parallel, and experts with all-to-all. Losses are gloo's, to the bit. Without PyTorch: skipped.
"""usage: parallel.py FOLDER [--steps N] [--width N], where the package ff and libff.so are

Prints the median time of a step with gloo and with ff, which take turns in one run.
"""
import argparse
import os
import statistics
import sys
import time
import warnings

import ddp

RANKS = 2  # gloo adds more in another order
ROUNDS = 3


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=4, help="of each round")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rank", action="store_true", help="be a rank")
    return parser.parse_args()


def layers_of(count, width, seed=7):
    import torch
    torch.manual_seed(seed)
    return [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh())
            for _ in range(count)]


def batch_of(step, rank, width, rows=16):
    import torch
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 * step + rank))


def descend(parameters, grads, rate=0.1):
    import torch
    with torch.no_grad():
        for one, grad in zip(parameters, grads):
            one -= rate * grad


# ---- each training: a generator that does a step whenever it is asked, and yields its loss


def data_parallel(group, rank, width):
    """DistributedDataParallel: gradients in buckets, summed while backward() goes on."""
    import torch
    net = torch.nn.Sequential(*layers_of(6, width))
    model = torch.nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(10**9):
        optimizer.zero_grad()
        loss = model(batch_of(step, rank, width)).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.item()


class Shards:
    """The parameters of each layer, of which each rank has a part; all_gather makes them whole, one
    layer ahead of its use."""

    def __init__(self, layers, group, rank):
        import torch
        self.layers, self.group = layers, group
        self.parts, self.flying = [], {}
        for layer in layers:
            flat = torch.nn.utils.parameters_to_vector(layer.parameters()).detach()
            self.parts.append(flat.chunk(RANKS)[rank].clone())

    def prefetch(self, number):
        import torch
        import torch.distributed as dist
        if not 0 <= number < len(self.layers) or number in self.flying:
            return
        part = self.parts[number]
        whole = torch.empty(part.numel() * RANKS)
        wholes = list(whole.chunk(RANKS))
        self.flying[number] = whole, dist.all_gather(wholes, part, group=self.group, async_op=True)

    def layer(self, number):
        import torch
        self.prefetch(number)
        whole, work = self.flying.pop(number)
        work.wait()
        torch.nn.utils.vector_to_parameters(whole, self.layers[number].parameters())
        return self.layers[number]


def mean_of_part(group, rank, flat):
    """The rank's part of the mean of a gradient, and the work that fills it. (gloo of PyTorch 1.13
    has no reduce_scatter.)"""
    import torch
    import torch.distributed as dist
    flat = flat / RANKS
    if dist.get_backend(group).lower() == "gloo":
        return flat.chunk(RANKS)[rank], dist.all_reduce(flat, group=group, async_op=True)
    part = torch.empty(flat.numel() // RANKS)
    work = dist.reduce_scatter(part, list(flat.chunk(RANKS)), group=group, async_op=True)
    return part, work


def sharded(group, rank, width):
    """ZeRO-3: parameters, gradients and optimizer are sharded. (FullyShardedDataParallel of PyTorch
    1.13 needs CUDA.)"""
    import torch
    shards = Shards(layers_of(6, width), group, rank)
    count = len(shards.layers)
    for step in range(10**9):
        inputs = [batch_of(step, rank, width)]
        for number in range(count):
            layer = shards.layer(number)
            shards.prefetch(number + 1)
            with torch.no_grad():
                inputs.append(layer(inputs[-1]))
        last = inputs.pop()
        grad, flying = 2 * last / last.numel(), []
        for number in reversed(range(count)):
            layer = shards.layer(number)
            shards.prefetch(number - 1)
            given = inputs[number].requires_grad_()
            grad, *grads = torch.autograd.grad(layer(given), [given, *layer.parameters()], grad)
            flat = torch.cat([one.reshape(-1) for one in grads])
            flying.append((number, *mean_of_part(group, rank, flat)))
        for number, part, work in flying:
            work.wait()
            shards.parts[number] -= 0.1 * part
        yield last.square().mean().item()


class Stage:
    """One of two stages of a pipeline, with its micro-batches in flight. A backward has two halves:
    the gradient of the input, for which the stage before waits, and that of the weights."""

    def __init__(self, group, rank, width):
        import torch
        self.group, self.rank, self.width = group, rank, width
        self.net = torch.nn.Sequential(*layers_of(4, width)[2 * rank:2 * rank + 2])
        self.parameters = list(self.net.parameters())
        self.given, self.outputs, self.sent, self.losses = {}, {}, [], []
        self.weights, self.sums = [], None

    def begin(self):
        import torch
        self.losses = []
        self.sums = [torch.zeros_like(one) for one in self.parameters]

    def exchange(self, tensor=None):
        """Sends to the other stage, or receives from it."""
        import torch
        import torch.distributed as dist
        if tensor is not None:
            self.sent.append(dist.isend(tensor, 1 - self.rank, group=self.group))
            return None
        tensor = torch.empty(16, self.width)
        dist.recv(tensor, 1 - self.rank, group=self.group)
        return tensor

    def forward(self, step, micro):
        first = self.rank == 0
        given = batch_of(step * 100 + micro, 0, self.width) if first else self.exchange()
        self.given[micro] = given.requires_grad_()
        output = self.net(given)
        if first:
            self.exchange(output.detach())
        else:
            output = output.square().mean()
            self.losses.append(output.item())
        self.outputs[micro] = output

    def backward(self, micro):
        """The gradient of the input."""
        import torch
        grad = self.exchange() if self.rank == 0 else None
        output, given = self.outputs.pop(micro), self.given.pop(micro)
        if self.rank == 1:
            into, = torch.autograd.grad(output, [given], grad, retain_graph=True)
            self.exchange(into)
        self.weights.append((output, grad))

    def backward_weights(self):
        import torch
        output, grad = self.weights.pop(0)
        for total, one in zip(self.sums, torch.autograd.grad(output, self.parameters, grad)):
            total += one

    def end(self):
        while self.weights:
            self.backward_weights()
        for work in self.sent:
            work.wait()
        self.sent.clear()
        descend(self.parameters, self.sums)


def pipeline(group, rank, width, zero_bubble=False, micros=6):
    """Two stages in 1F1B order; in zero-bubble order the gradients of the weights fill the waits at
    the end."""
    stage = Stage(group, rank, width)
    ahead = 1 - rank  # forwards of the first stage before its first backward
    for step in range(10**9):
        stage.begin()
        for micro in range(ahead):
            stage.forward(step, micro)
        for micro in range(micros):
            if micro + ahead < micros:
                stage.forward(step, micro + ahead)
            stage.backward(micro)
            if not zero_bubble or micro < micros // 2:
                stage.backward_weights()
        stage.end()
        yield sum(stage.losses)


def zero_bubble(group, rank, width):
    """The same with the two halves of a backward apart."""
    return pipeline(group, rank, width, zero_bubble=True)


def tensor_parallel(group, rank, width):
    """An MLP (Megatron-LM): the first matrix is split by columns, the second by rows."""
    import torch
    import torch.distributed as dist

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(context, inputs):
            return inputs.view_as(inputs)

        @staticmethod
        def backward(context, grad):
            grad = grad.contiguous()
            dist.all_reduce(grad, group=group)
            return grad

    class Leave(torch.autograd.Function):
        @staticmethod
        def forward(context, partial):
            partial = partial.clone()
            dist.all_reduce(partial, group=group)
            return partial

        @staticmethod
        def backward(context, grad):
            return grad

    made = torch.Generator().manual_seed(3)
    whole = [torch.randn(4 * width, width, generator=made) / 8,
             torch.randn(width, 4 * width, generator=made) / 8]
    parameters = [whole[0].chunk(RANKS)[rank].clone().requires_grad_(),
                  whole[1].chunk(RANKS, dim=1)[rank].clone().requires_grad_()]
    for step in range(10**9):
        inputs = batch_of(step, 0, width)
        for _ in range(2):  # the same layer twice, so that gradients pass Enter
            hidden = torch.relu(Enter.apply(inputs) @ parameters[0].t())
            inputs = inputs + Leave.apply(hidden @ parameters[1].t()) / 16
        loss = inputs.square().mean()
        descend(parameters, torch.autograd.grad(loss, parameters))
        yield loss.item()


def experts(group, rank, width):
    """Mixture of experts: each rank has one; tokens go to theirs and back by all-to-all, as many as
    the gate says."""
    import torch
    import torch.distributed as dist

    def exchange(rows, theirs, mine):
        got = torch.empty(sum(mine), rows.shape[1], dtype=rows.dtype)
        dist.all_to_all_single(got, rows.contiguous(), mine, theirs, group=group)
        return got

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(context, rows, theirs, mine):
            context.splits = theirs, mine
            return exchange(rows, theirs, mine)

        @staticmethod
        def backward(context, grad):
            theirs, mine = context.splits
            return exchange(grad, mine, theirs), None, None

    torch.manual_seed(5)
    gate = torch.nn.Linear(width, RANKS)
    expert = layers_of(1, width, seed=20 + rank)[0]
    for step in range(10**9):
        tokens = batch_of(step, rank, width, rows=64)
        score, choice = gate(tokens).softmax(1).max(1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=RANKS)
        arrives = torch.empty_like(counts)
        dist.all_to_all_single(arrives, counts, group=group)
        theirs, mine = counts.tolist(), arrives.tolist()
        done = expert(Exchange.apply(tokens[order], theirs, mine))
        back = Exchange.apply(done, mine, theirs)
        loss = (back * score[order, None] - tokens[order].roll(1, 1)).square().mean()
        gated, owned = list(gate.parameters()), list(expert.parameters())
        grads = torch.autograd.grad(loss, gated + owned)
        for grad in grads[:len(gated)]:  # the gate is the same on all ranks
            dist.all_reduce(grad, group=group)
        descend(gated + owned, grads)
        yield loss.item()


TRAININGS = (data_parallel, sharded, pipeline, zero_bubble, tensor_parallel, experts)


def be_rank(options):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    import ff.torch
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "ff")}
    for train in TRAININGS:
        running = {name: train(group, rank, options.width) for name, group in groups.items()}
        losses, took = {name: [] for name in groups}, {name: [] for name in groups}
        for _ in range(ROUNDS):
            for name, steps in running.items():
                dist.barrier()
                for _ in range(options.steps):
                    begun = time.perf_counter()
                    losses[name].append(next(steps))
                    took[name].append(time.perf_counter() - begun)
        assert losses["ff"] == losses["gloo"], f"{train.__name__}: {losses}"
        learns = losses["ff"][-1] != losses["ff"][0] or rank == 0
        assert learns, f"{train.__name__}: {losses['ff']}"
        if rank == RANKS - 1:
            times = ", ".join(f"{name} {statistics.median(took[name]) * 1e3:.2f} ms"
                              for name in took)
            print(f"{train.__name__}: {len(losses['ff'])} losses are gloo's; a step: {times}")
    dist.barrier()


def main():
    options = parse()
    sys.path.insert(0, os.path.abspath(options.folder))
    if options.rank:
        warnings.simplefilter("ignore")
        return be_rank(options)
    ddp.PYTHON = ddp.python_with_torch()
    words = [os.path.abspath(__file__), *sys.argv[1:], "--rank"]
    codes, said, lines = ddp.ends_of(ddp.start(RANKS, lambda rank: words))
    assert codes == [0] * RANKS, "\n".join(said)
    print(lines[-1], end="")


if __name__ == "__main__":
    main()
