#!/usr/bin/env python3
# gloo, through PyTorch, as what `ff allreduce bench` is held against.
"""usage: gloo_peer.py MIB ITERATIONS, in torchrun's environment: RANK WORLD_SIZE MASTER_ADDR
MASTER_PORT, and GLOO_SOCKET_IFNAME between hosts. Rank 0 prints "... algbw X GB/s"."""
import os
import sys
import time

import torch
import torch.distributed as distributed


def main():
    size, iterations = float(sys.argv[1]) * 1048576, int(sys.argv[2])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    data = torch.ones(int(size / 4))
    distributed.all_reduce(data)
    distributed.barrier()
    began = time.time()
    for _ in range(iterations):
        distributed.all_reduce(data)
    took = (time.time() - began) / iterations
    if os.environ["RANK"] == "0":
        print(f"gloo {took * 1e3:.2f} ms algbw {size / took / 1e9:.3f} GB/s")


if __name__ == "__main__":
    main()
