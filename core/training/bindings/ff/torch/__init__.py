# ff.torch: the backend "ff" of torch.distributed. The modules are: group (the process group and its
# operations), work (operations in flight), elements (types and reductions), hosts (which ranks
# share a host).
"""The backend "ff" of torch.distributed, for tensors in memory of the host and of NVIDIA GPUs:

    import torch.distributed as dist
    import ff.torch

    dist.init_process_group("ff")

Then every collective operation of torch.distributed, send, recv, barrier, monitored_barrier and
new_group work as with gloo, and so do DistributedDataParallel and ZeroRedundancyOptimizer. Tensors
may have any type, bfloat16 as well. Of tensors on a GPU, all_reduce, reduce, broadcast, all_gather
and reduce_scatter work, in the order of its current stream: copy engines copy them through host
memory, where the ranks reduce them, and no kernel runs (ff_allreduce_on() in ff.h). Other
operations on them need a group of the backend nccl. If a rank dies, or is late (the `timeout` of
the group), every other rank gets an ff.Error that names it; the group is then of no more use, but
shrink() makes one of the ranks that are left.

Ranks of one host use shared memory. Between hosts, the variables FF_KEY_FILE, FF_WIRE, FF_ALGO,
FF_DETERMINISTIC, FF_ZONE, FF_NET and FF_NET_SECURITY apply as they do to `ff allreduce`.
"""
import functools
import inspect

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ff._library import Error
from ff.torch.group import Group

__all__ = ("Error", "Group", "shrink")


def shrink(group=None):
    """After an Error, goes on without lost ranks: every rank of `group` that lives calls it, and
    gets a new group of those that do (Comm.shrink() says which). Of the default group, the new one
    becomes the default, with ranks numbered anew, and the groups made by new_group() are gone, as
    after destroy_process_group(). What refers to the old group, such as a DistributedDataParallel
    model, is made anew: that also gives all ranks the parameters of one of them, as they may have
    failed in different steps. (Compare shrink_group() of PyTorch 2.9.)"""
    c10d = distributed_c10d
    old = c10d._get_default_group() if group is None else group
    if not isinstance(old, Group):
        raise Error(2, "shrink() takes a group of the backend ff")
    is_default, of_world = old is c10d.GroupMember.WORLD, dict(c10d._pg_group_ranks[old])
    name = c10d._pg_names[old]
    made, ranks = old.shrink()
    dist.destroy_process_group(None if is_default else old)
    if is_default:
        known = {rank: rank for rank in range(len(ranks))}
        c10d._update_default_pg(made)
    else:
        world_rank = {rank: one for one, rank in of_world.items()}
        known = {world_rank[rank]: number for number, rank in enumerate(ranks)}
    c10d._pg_map[made], c10d._pg_names[made] = ("ff", made._store), name + " shrunk"
    c10d._pg_group_ranks[made] = known
    return made


def _register():
    register = dist.Backend.register_backend
    devices = "devices" in inspect.signature(register).parameters  # since PyTorch 2.1
    register("ff", Group, **({"devices": ["cpu", "cuda"]} if devices else {}))
    of_torch = dist.monitored_barrier

    # torch.distributed has it for gloo only.
    @functools.wraps(of_torch)
    def monitored_barrier(group=dist.GroupMember.WORLD, timeout=None, wait_all_ranks=False):
        wanted = distributed_c10d.GroupMember.WORLD if group is None else group
        if not isinstance(wanted, Group):
            return of_torch(group, timeout, wait_all_ranks)
        return wanted.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    dist.monitored_barrier = distributed_c10d.monitored_barrier = monitored_barrier


_register()
