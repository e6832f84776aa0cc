# ff.torch: the backend "ff" of torch.distributed. The modules are: group (the process group and its
# operations), work (operations in flight), elements (types and reductions), hosts (which ranks
# share a host).
"""The backend "ff" of torch.distributed, for tensors in host memory:

    import torch.distributed as dist
    import ff.torch

    dist.init_process_group("ff")

Then every collective operation of torch.distributed, send, recv, barrier, monitored_barrier and
new_group work as with gloo, and so do DistributedDataParallel and ZeroRedundancyOptimizer. Tensors
may have any type, bfloat16 as well. If a rank dies, or is late (the `timeout` of the group), every
other rank gets an ff.Error that names it; the group is then of no more use.

Ranks of one host use shared memory. Between hosts, the variables FF_KEY_FILE, FF_WIRE, FF_ALGO,
FF_DETERMINISTIC, FF_ZONE and FF_NET apply as they do to `ff allreduce`.
"""
import functools

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ff._library import Error
from ff.torch.group import Group

__all__ = ("Error", "Group")


def _register():
    dist.Backend.register_backend("ff", Group)
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
