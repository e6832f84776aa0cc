# ff for Python: the public names of the package, all of which work through libff.so. The modules
# are: collective and ddp (sums over processes), checkpoint (save and load), record (training data),
# kv (keys and values), task (the agent).
"""Sums arrays of many processes; saves and loads training state; reads samples, keys and values.

    import ff
    with ff.Comm() as comm:              # torchrun's environment; or Comm(rank, ranks, job)
        comm.allreduce(gradients, op="avg")          # a tensor, an array, anything in memory
        work = comm.allreduce_async(more)
        ...
        work.wait()

Arrays are tensors of PyTorch, or objects with the buffer protocol (array, bytearray, numpy). Those
on a CUDA device are summed in the order of its current stream: what is put there after wait(), or
after another method of Comm, gets the result, and only the stream waits for the last copy.
Every rank calls the same operations in the same order. Memory of Comm.buffer() is reached by all
ranks and costs no copy.

Gradients of a model under PyTorch's DistributedDataParallel, on CPUs, bucket by bucket, while
backward() goes on (register_comm_hook):

    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    ff.register_comm_hook(model, comm)

    save = ff.save_async({"model": model.state_dict(), "epoch": 3}, run="llama", store="/data/ckpt")
    ...
    save.wait()                          # its step, or its error
    state = ff.load("/data/ckpt", "llama")

A checkpoint is one of `ff checkpoint`, which lists, verifies, prunes and restores it.

`import ff.torch` adds the backend "ff" to torch.distributed, `import ff.torch.dcp` a store for its
distributed checkpoint.

Samples of training data in FFRecord files, as `ff record` packs them: see ff.record.

Keys and values in the store of `ff serve-kv`, such as a cache of KV blocks:

    kv = ff.KV("ff:///cache")
    kv.put(key, block)
    kv.get_many(keys, into=blocks)       # without the gateway, into memory at hand

In a task, whose agent may ask it to make room (anywhere else nobody asks):

    ff.heartbeat(step)
    if ff.should_stop():                 # save, and exit
        ...

libff.so is the file that FF_LIBRARY names; else the one beside this package; else, in the source
tree, that of build/; else the system's.
"""
from ff import record
from ff._library import Error, lib as _lib
from ff._types import register_type
from ff.checkpoint import (LoadedArray, Periodic, Save, Saved, Saver, latest, load, save_async,
                           wait)
from ff.collective import OPS, TYPES, Comm, Work
from ff.ddp import allreduce_hook, register_comm_hook
from ff.kv import KV
from ff.task import StopRequest, heartbeat, life_state, saved, set_life_state, should_stop

__version__ = _lib.ff_version().decode()
__all__ = ("Comm", "Error", "KV", "LoadedArray", "OPS", "Periodic", "Save", "Saved", "Saver",
           "StopRequest", "TYPES", "Work", "allreduce_hook", "heartbeat", "latest", "life_state",
           "load", "record", "register_comm_hook", "register_type", "save_async", "saved",
           "set_life_state", "should_stop", "wait")
