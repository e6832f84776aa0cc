# Loads of PyTorch's distributed checkpoint: each rank reads the stored parts of tensors which
# overlap its own, however many ranks have saved them.
import collections
import ctypes
import dataclasses
import io
import math

import torch

from ff import _arrays
from ff._library import Error
from ff.checkpoint import Loading
from ff.torch.dcp import api
from ff.torch.dcp.metadata import from_json
from ff.torch.dcp.writer import DESCRIPTION, _done

_BATCH_BYTES = 1 << 30  # that are read at a time, into memory of their own


class StorageReader(api.Versions, api.storage.StorageReader):
    """Loads RUN@STEP of an ff store, which StorageWriter or async_save() has saved, into a state of
    any number of ranks:

        load_state_dict(state, ff.torch.dcp.StorageReader("/data/ckpt", "llama", step))

    load_state_dict() is that of torch.distributed._shard.checkpoint in PyTorch 1.13; in later
    versions, torch.distributed.checkpoint.load(state, storage_reader=...), where a checkpoint_id,
    if one is given, is the step. `step` None: the highest. `threads` read; 0: one a processor, at
    most 8.

    Every byte is checked (Error.code 3 names what is damaged). A tensor must have the type and the
    shape that were saved; it is an Error before anything is read if not. The planner turns the
    bytes of objects into objects: PyTorch's unpickles them, so load what you trust."""

    def __init__(self, store, run="default", step=None, *, threads=0):
        super().__init__()
        self._store, self._run, self.step = store, run, step
        self._threads = threads
        self._found = None  # the step
        self._metadata = self._sizes = None  # sizes of stored parts, by MetadataIndex
        self._parts = {}  # how many a rank has stored

    def read_metadata(self, *_, **__):
        self._found = self.step
        with self._loading([DESCRIPTION], None) as loading:
            self._found = loading.step
            files = loading.files()
            if len(files) != 1:
                raise Error(3, f"{self._name()} has {len(files)} descriptions (ff.dcp)")
            (_, rank, numbers), = files
            text = bytearray(loading.tensor(numbers[0])[3])
            loading.read([_address(text)])
        metadata, ranks = from_json(bytes(text), self._name())
        if rank != ranks:
            raise Error(3, f"{self._name()}: its description (ff.dcp) is of {ranks} ranks, but "
                           f"{rank} ranks have saved it")
        return metadata

    def set_up(self, metadata, is_coordinator):
        self._metadata = metadata
        self._parts = collections.Counter(place.rank for place in metadata.storage_data.values())
        self._sizes = {api.metadata.MetadataIndex(name, chunk.offsets): chunk.sizes
                       for name, described in metadata.state_dict_metadata.items()
                       if isinstance(described, api.metadata.TensorStorageMetadata)
                       for chunk in described.chunks}

    def prepare_local_plan(self, plan):
        return dataclasses.replace(plan, storage_data=self._found)

    def prepare_global_plan(self, plans):
        steps = sorted({plan.storage_data for plan in plans})
        if len(steps) > 1:
            raise Error(1, f"the ranks have found different last steps of {self._run}: "
                           f"{', '.join(map(str, steps))}: give step=")
        return plans

    def read_data(self, plan, planner):
        self._check_state(getattr(planner, "state_dict", None) or {})
        for rank, stored in self._sources(plan, planner).items():
            batch, size = [], 0
            for source in stored.values():
                if batch and size + source.size > _BATCH_BYTES:
                    self._read(rank, batch, planner)
                    batch, size = [], 0
                batch.append(source)
                size += source.size
            self._read(rank, batch, planner)
        return _done(None)

    def _name(self):
        return str(self._run) if self._found is None else f"{self._run}@{self._found}"

    def _loading(self, names, rank):
        try:
            return Loading(self._store, self._run, self._found, list(map(_glob_of, names)), rank,
                           self._threads)
        except Error as error:
            if names != [DESCRIPTION] or error.code != 1:
                raise
            raise Error(1, f"{error} (ff.load() loads what was not saved by "
                           "ff.torch.dcp)") from None

    def _check_state(self, state):
        """PyTorch 1.13 compares no shapes."""
        for name, value in state.items():
            described = self._metadata.state_dict_metadata.get(name)
            if described is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(described, api.metadata.BytesStorageMetadata):
                raise Error(2, f"'{name}' is an object in {self._name()}, but a tensor in the "
                               "state")
            if described.size != value.size():
                raise Error(2, f"'{name}' has the shape {list(described.size)} in {self._name()}, "
                               f"but {list(value.size())} in the state")

    def _sources(self, plan, planner):
        """What has to be read, by rank and name."""
        places, sources = self._metadata.storage_data, {}
        for item in plan.items:
            index, is_tensor = item.storage_index, item.type == api.planner.LoadItemType.TENSOR
            if is_tensor and math.prod(item.lengths) == 0:
                continue
            if index not in places:
                raise Error(3, f"{self._name()}: its description (ff.dcp) has no place for "
                               f"'{index.fqn}'")
            place = places[index]
            source = sources.setdefault(place.rank, {}).setdefault(
                place.name, _Source(place.name, *(self._chunk(index) if is_tensor else ())))
            source.items.append(item)
            if is_tensor:
                source.targets.append(self._target(item, source, planner))
        return sources

    def _chunk(self, index):
        """Type and shape of a stored part."""
        dtype = self._metadata.state_dict_metadata[index.fqn].properties.dtype
        return dtype, self._sizes[index]

    def _target(self, item, source, planner):
        target, name = planner.resolve_tensor(item).detach(), item.dest_index.fqn
        if target.dtype != source.dtype:
            raise Error(2, f"'{name}' is {source.dtype} in {self._name()}, but {target.dtype} in "
                           "the state")
        if target.size() != item.lengths:
            raise Error(2, f"'{name}': the planner gives a tensor of {list(target.size())} for a "
                           f"part of {list(item.lengths)}")
        return target

    def _read(self, rank, batch, planner):
        by_name = {source.name: source for source in batch}
        names = [] if len(batch) == self._parts[rank] else list(by_name)  # none: all of them
        with self._loading(names, rank) as loading:
            count = sum(len(numbers) for _, _, numbers in loading.files())
            order, addresses = [], []
            for number in range(count):
                name, dtype, shape, size = loading.tensor(number)
                if name not in by_name:
                    raise Error(3, f"{self._name()}: its description (ff.dcp) does not name the "
                                   f"tensor '{name}' of rank {rank}")
                order.append(by_name.pop(name))
                addresses.append(order[-1].memory(dtype, shape, size, self._name()))
            if by_name:
                raise Error(3, f"{self._name()}: rank {rank} has no tensor "
                               f"'{next(iter(by_name))}', which its description (ff.dcp) names")
            loading.read(addresses)
        for source in order:
            source.deliver(planner)


class _Source:
    """A stored part of a tensor, or an object, and the items that need it."""

    def __init__(self, name, dtype=None, sizes=None):
        self.name = name
        self.items, self.targets = [], []
        self.dtype, self.sizes = dtype, sizes
        self.size = math.prod(sizes) * _bytes_of(dtype) if dtype else 0
        self._data = None

    def memory(self, dtype, shape, size, checkpoint):
        """The address that the bytes are read to. Error: they are not what was described."""
        if self.dtype is None:
            self._data = bytearray(size)
            return _address(self._data)
        if (_arrays.dtype_name(self.dtype), list(self.sizes), self.size) != (dtype, shape, size):
            raise Error(3, f"{checkpoint}: '{self.name}' is {dtype} {shape}, but {self.dtype} "
                           f"{list(self.sizes)} in its description (ff.dcp)")
        if len(self.items) == 1 and self._is_whole(self.items[0], self.targets[0]):
            self._data = self.targets[0]
        else:
            self._data = torch.empty(self.sizes, dtype=self.dtype)
        return self._data.data_ptr()

    def _is_whole(self, item, target):
        return (item.lengths == self.sizes and target.device.type == "cpu" and
                target.layout == torch.strided and target.is_contiguous())

    def deliver(self, planner):
        """Gives the planner what was read."""
        if self.dtype is None:
            for item in self.items:
                planner.load_bytes(item, io.BytesIO(self._data))
        for item, target in zip(self.items, self.targets):
            if target is not self._data:
                part = self._data
                for dimension, (offset, length) in enumerate(zip(item.storage_offsets,
                                                                 item.lengths)):
                    part = part.narrow(dimension, offset, length)
                target.copy_(part)
            planner.commit_tensor(item, target)
        self._data = None


def _bytes_of(dtype):
    return torch.empty((), dtype=dtype).element_size()


def _address(memory):
    return ctypes.addressof((ctypes.c_char * max(len(memory), 1)).from_buffer(memory or
                                                                              bytearray(1)))


def _glob_of(name):
    """A pattern that matches this name only."""
    return "".join("\\" + one if one in "*?[\\" else one for one in name)
