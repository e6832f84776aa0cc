# ff.torch.dcp: PyTorch's distributed checkpoint (DCP) on an ff store. The modules are: api (names
# of the versions of PyTorch), metadata (the description of a checkpoint as JSON), writer, reader.
"""PyTorch's distributed checkpoint (DCP) on an ff store, with its deduplication, checksums and
commit: each rank saves its parts of tensors, and any other number of ranks loads them.

    import torch.distributed._shard.checkpoint as checkpoint    # from PyTorch 2.0 on:
    import ff.torch.dcp                                         # torch.distributed.checkpoint

    checkpoint.save_state_dict(state, ff.torch.dcp.StorageWriter("/data/ckpt", "llama", step))
    checkpoint.load_state_dict(state, ff.torch.dcp.StorageReader("/data/ckpt", "llama"))

    save = ff.torch.dcp.async_save(state, "/data/ckpt", "llama", step)   # returns once it is copied
    ...
    save.wait()

`ff checkpoint` lists, verifies, prunes and restores these checkpoints like all others, and
`ff checkpoint export` makes one safetensors file of one. ff has run this with PyTorch 1.13, which
can import its own sharded tensors with Python 3.11 (Debian 12) only after `import ff.torch.dcp`.
"""
from ff.torch.dcp.reader import StorageReader
from ff.torch.dcp.writer import AsyncSave, StorageWriter, async_save

__all__ = ("AsyncSave", "StorageReader", "StorageWriter", "async_save")
