#!/usr/bin/env python3
# The backend "ff" of torch.distributed: each operation gives what gloo gives, or what torch
# computes; works, futures, groups, and the errors of ranks that disagree, are late or die.
"""usage: torch_group.py FOLDER, where the package ff and libff.so are"""
import datetime
import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings

import ddp
from ddp import ends_of, python_with_torch, start

RANKS = 3


def says(text, call):
    import ff
    try:
        call()
    except ff.Error as error:
        assert text in str(error), f"'{text}' in '{error}'"
        return error
    raise AssertionError(f"no error, where '{text}' was expected")


def values(dtype, shape, seed):
    """Small whole numbers, whose sums are exact in every order and type."""
    import torch
    made = torch.Generator().manual_seed(seed)
    numbers = torch.randint(1, 4, shape, generator=made)
    return (numbers % 2).to(dtype) if dtype == torch.bool else numbers.to(dtype)


def types():
    import torch
    return [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
            torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128]


def layouts(tensor):
    """The same values, in memory with and without gaps."""
    import torch
    yield tensor.clone()
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    wide[..., 0] = tensor
    yield wide[..., 0]


def reduced(every, op):
    import torch
    import torch.distributed as dist
    calls = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add,
             dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum,
             dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.BAND: torch.bitwise_and,
             dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}
    call = next(one for known, one in calls.items() if known == op)
    result = every[0]
    for one in every[1:]:
        result = call(result, one)
    return result / len(every) if op == dist.ReduceOp.AVG else result


def ops_of(dtype):
    from torch.distributed import ReduceOp
    if dtype.is_complex:
        return [ReduceOp.SUM, ReduceOp.AVG]
    plain = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    if dtype.is_floating_point:
        return plain + [ReduceOp.AVG]
    return plain + [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]


def reductions(rank):
    import torch
    import torch.distributed as dist
    seed = 0
    for dtype in types():
        for op in ops_of(dtype):
            seed += 10
            every = [values(dtype, (RANKS, 5), seed + one) for one in range(RANKS)]
            wanted = reduced(every, op)
            for tensor in layouts(every[rank]):
                dist.all_reduce(tensor, op)
                torch.testing.assert_close(tensor, wanted, msg=f"all_reduce {dtype}")
            for tensor in layouts(every[rank]):
                dist.reduce(tensor, 1, op)
                torch.testing.assert_close(tensor, wanted if rank == 1 else every[rank],
                                           msg=f"reduce {dtype}")
            for output in layouts(torch.zeros(5, dtype=dtype)):
                dist.reduce_scatter(output, list(every[rank]), op)
                torch.testing.assert_close(output, wanted[rank], msg=f"reduce_scatter {dtype}")
            output = torch.zeros(5, dtype=dtype)
            dist._reduce_scatter_base(output, every[rank], op)
            torch.testing.assert_close(output, wanted[rank], msg=f"_reduce_scatter_base {dtype}")
            tensors = [every[rank].clone(), every[rank][0].clone()]
            dist.all_reduce_coalesced(tensors, op)
            torch.testing.assert_close(tensors[0], wanted)
            torch.testing.assert_close(tensors[1], wanted[0])


def copies(rank):
    import torch
    import torch.distributed as dist
    for seed, dtype in enumerate(types()):
        every = [values(dtype, (RANKS, 4), seed * 10 + one) for one in range(RANKS)]
        for tensor in layouts(every[rank]):
            dist.broadcast(tensor, 2)
            assert tensor.equal(every[2]), f"broadcast {dtype}"
        for layout in range(2):
            def empty(shape=(RANKS, 4)):
                return list(layouts(torch.zeros(shape, dtype=dtype)))[layout]
            mine = list(layouts(every[rank]))[layout]
            parts = [empty() for _ in range(RANKS)]
            dist.all_gather(parts, mine)
            assert all(one.equal(other) for one, other in zip(parts, every)), f"all_gather {dtype}"
            whole = empty((RANKS * RANKS, 4))
            dist._all_gather_base(whole, mine)
            assert whole.equal(torch.cat(every)), f"_all_gather_base {dtype}"
            lists = [[empty(), empty((4,))] for _ in range(RANKS)]
            dist.all_gather_coalesced(lists, [mine, mine[0]])
            assert all(one[0].equal(other) and one[1].equal(other[0])
                       for one, other in zip(lists, every)), f"all_gather_coalesced {dtype}"
            parts = [empty() for _ in range(RANKS)]
            dist.gather(mine, parts if rank == 1 else None, 1)
            assert rank != 1 or all(one.equal(other) for one, other in zip(parts, every))
            part = empty((4,))
            dist.scatter(part, list(mine) if rank == 0 else None, 0)
            assert part.equal(every[0][rank]), f"scatter {dtype}"
            whole = empty()
            dist.all_to_all_single(whole, mine)
            assert whole.equal(torch.stack([one[rank] for one in every])), f"all_to_all {dtype}"
            parts = [empty((one + 1,)) for one in range(RANKS)]
            dist.all_to_all(parts, [mine[one][:rank + 1] for one in range(RANKS)])
            for one, part in enumerate(parts):
                assert part.equal(every[one][rank][:one + 1]), f"all_to_all {dtype}"
            if rank == 0:
                dist.send(mine, 2, tag=5)
            elif rank == 2:
                got = empty()
                assert dist.recv(got, 0, tag=5) == 0 and got.equal(every[0]), f"recv {dtype}"
    splits = [[0, 2, 1], [3, 0, 1], [1, 1, 1]]  # rows from one rank to another
    sent = torch.arange(3 * sum(splits[rank])).view(-1, 3) + 100 * rank
    mine = [row[rank] for row in splits]
    got = torch.empty((sum(mine), 3), dtype=torch.int64)
    dist.all_to_all_single(got, sent, mine, splits[rank])
    wanted = [torch.arange(3 * sum(splits[one])).view(-1, 3).add(100 * one).split(splits[one])[rank]
              for one in range(RANKS)]
    assert got.equal(torch.cat(wanted)), got
    objects = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": one} for one in range(RANKS)]


def works(rank):
    import torch
    import torch.distributed as dist
    tensors = [torch.full((1000,), float(i + rank)) for i in range(200)]  # more than ff allows
    flying = [dist.all_reduce(one, async_op=True) for one in tensors]
    for i, work in reversed(list(enumerate(flying))):
        assert work.wait() and work.is_completed() and work.is_success()
        assert tensors[i][999] == 3 * i + 3 and work.result()[0] is tensors[i]
    for _ in range(100):  # nobody waits for these
        dist.all_reduce(torch.ones(1000), async_op=True)
    dist.barrier()

    seen = []
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(
        lambda one: seen.append(one.value()[0][0].item()) or one.value()[0] * 2)
    assert future.wait()[0] == 2 * RANKS and seen == [RANKS]
    works = [dist.barrier(async_op=True)] + [dist.all_gather(
        [torch.empty(2) for _ in range(RANKS)], torch.ones(2), async_op=True) for _ in range(10)]
    torch.futures.wait_all([one.get_future() for one in works])

    right, left = (rank + 1) % RANKS, (rank + RANKS - 1) % RANKS
    ins = [torch.empty(1000) for _ in range(20)]
    operations = [dist.P2POp(dist.isend, torch.full((1000,), 100.0 * rank + i), right, tag=i)
                  for i in range(20)]
    operations += [dist.P2POp(dist.irecv, one, left, tag=i) for i, one in enumerate(ins)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(one[0] == 100 * left + i for i, one in enumerate(ins))
    got, futures = torch.empty(3), []
    if rank == 0:
        for _ in range(RANKS - 1):
            work = dist.irecv(got)
            work.wait()
            assert got[0] == work.source_rank(), got
    else:
        futures.append(dist.isend(torch.full((3,), float(rank)), 0).get_future())
    torch.futures.wait_all(futures)
    dist.barrier()


def groups(rank):
    import torch
    import torch.distributed as dist
    for ranks in itertools.chain(itertools.combinations(range(RANKS), 2), [(1,), (0, 1, 2)]):
        group = dist.new_group(list(ranks))
        if rank not in ranks:
            continue
        one = torch.tensor([float(rank + 1)])
        dist.all_reduce(one, group=group)
        assert one.item() == sum(ranks) + len(ranks), (ranks, one)
        dist.broadcast(one, ranks[-1], group=group)
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    assert dist.get_backend().lower() == "ff" and dist.get_world_size() == RANKS


def mistakes(rank):
    import torch
    import torch.distributed as dist
    says("rank 2 (process", lambda: dist.all_reduce(torch.ones(2 if rank == 2 else 3)))
    says("to_dense", lambda: dist.all_reduce(torch.ones(3).to_sparse()))
    says("SUM and AVG", lambda: dist.reduce(torch.ones(3, dtype=torch.complex64), 0,
                                            dist.ReduceOp.MAX))
    says("4 rows", lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4)))
    says("3 tensors to send", lambda: dist.all_to_all([torch.ones(1)] * 2, [torch.ones(1)] * 2))
    if rank < 2:
        text = "rank 0 (process" if rank else "rank 1 (process"
        tensor = torch.ones(2 + rank)
        error = says(text, lambda: dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0))
        assert "sends 8 bytes with tag 0" in str(error) and "receives 12" in str(error)
    dist.barrier()
    before = time.monotonic()
    if rank != 1:
        error = says("rank 1 did not come", lambda: dist.monitored_barrier(
            timeout=datetime.timedelta(seconds=0.5), wait_all_ranks=True))
        assert error.code == 6 and time.monotonic() - before < 60
    dist.barrier()
    if rank == 1:  # what the others have waited for
        says("rank 1 did not come", lambda: dist.monitored_barrier())
    dist.monitored_barrier()


def late(rank):
    """A timeout names the rank, and a model that waits for it says so in backward()."""
    import torch
    import torch.distributed as dist
    group = dist.new_group(timeout=datetime.timedelta(seconds=12))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    model(torch.ones(1, 4)).sum().backward()
    if rank != 1:
        says("rank 1 (process", lambda: model(torch.ones(1, 4)).sum().backward())
    dist.barrier()


def be_rank(tests):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    import ff.torch
    dist.init_process_group("ff", timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()
    for test in tests:
        begun = time.monotonic()
        test(rank)
        dist.barrier()
        if rank == 0:
            print(f"{test.__name__}: {time.monotonic() - begun:.1f} s")
    dist.destroy_process_group()


def be_lost():
    import torch
    import torch.distributed as dist
    import ff.torch
    dist.init_process_group("ff")
    print("started", flush=True)
    while True:
        dist.all_to_all_single(torch.empty(3000), torch.ones(3000))


def every_operation():
    codes, said, lines = ends_of(start(RANKS, words("rank")))
    assert codes == [0] * RANKS, "\n".join(said)
    print(lines[0], end="")


def two_hosts():
    """The same on two hosts: two ranks on the first."""
    with ddp.hosts() as made, tempfile.TemporaryDirectory() as folder:
        if made is None:
            print("two hosts: skipped, network namespaces cannot be made here")
            return
        names, address = made
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        ranks = []
        for rank in range(RANKS):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR=address,
                       MASTER_PORT="29500", FF_KEY_FILE=key, OMP_NUM_THREADS="1")
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", names[rank // 2], ddp.PYTHON, *words("far")(rank)],
                env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        codes, said, lines = ends_of(ranks)
        assert codes == [0] * RANKS, "\n".join(said)
        print("two hosts:", ", ".join(lines[0].splitlines()))


def lost_rank():
    ranks = start(RANKS, words("lost"))
    for one in ranks:
        one.stdout.readline()
    ranks[1].kill()
    codes, said, _ = ends_of(ranks)
    for rank in (0, 2):
        assert codes[rank] == 1, codes
        last = said[rank].strip().splitlines()[-1]
        assert "ff.Error" in last and f"rank 1 (process {ranks[1].pid})" in last, said[rank]
    print(f"lost: {last}")


def words(part):
    return lambda rank: [os.path.abspath(__file__), FOLDER, part]


def main():
    sys.path.insert(0, FOLDER)
    warnings.simplefilter("ignore")  # of torch, about names that are to change
    if len(sys.argv) > 2:
        # Between hosts, a wrong call is the end of the job.
        parts = {"rank": (reductions, copies, works, groups, mistakes, late),
                 "far": (reductions, copies, works, groups)}
        return be_rank(parts[sys.argv[2]]) if sys.argv[2] in parts else be_lost()
    for test in (every_operation, two_hosts, lost_rank):
        test()


if __name__ == "__main__":
    FOLDER = os.path.abspath(sys.argv[1])
    if len(sys.argv) == 2:
        ddp.PYTHON, ddp.FOLDER = python_with_torch(), FOLDER
    main()
