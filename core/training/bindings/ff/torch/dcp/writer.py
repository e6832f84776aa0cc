# Saves of PyTorch's distributed checkpoint. Each rank saves its parts of tensors, and its objects,
# as its shard of a checkpoint of N + 1 ranks; the coordinator adds the last shard, which describes
# them, when all others are stored. So no checkpoint appears before all of it is there.
import dataclasses
import io
import json
import math
import os
import typing

import torch
from torch.futures import Future

from ff import _arrays
from ff._library import Error
from ff.checkpoint import Saver, save_options
from ff.torch.dcp import api
from ff.torch.dcp.metadata import Place, to_json

DESCRIPTION = "ff.dcp"  # the tensor with the JSON of ff.torch.dcp.metadata
_DESCRIPTION_FILE = "dcp.safetensors"
_PARTS_KEY = "ff.parts"  # of __metadata__: which tensors of a file are slices, and which objects
_RESERVED = ("", "__metadata__", DESCRIPTION)  # names that no tensor of a file may have
_idle = []  # savers, whose memory the next saves use again
_last = []  # the save of async_save() begun last


class _Shard(typing.NamedTuple):
    """storage_data of a plan: what the coordinator tells each rank."""
    rank: int
    ranks: int
    attempt: str


class StorageWriter(api.Versions, api.storage.StorageWriter):
    """Saves as RUN@STEP of an ff store:

        save_state_dict(state, ff.torch.dcp.StorageWriter("/data/ckpt", "llama", step))

    save_state_dict() is that of torch.distributed._shard.checkpoint in PyTorch 1.13; in later
    versions, torch.distributed.checkpoint.save(state, storage_writer=...), where a checkpoint_id,
    if one is given, is the step. `store`, `replace`, `compress` and `threads` are those of
    ff.save_async(). `process_group` may have any backend.

    Tensors are stored without pickle, objects as the planner makes them (PyTorch's pickles them).
    Ranks that hold the same part of a tensor store it once. The same state saved again under its
    step is accepted; another one is refused (Error.code 5), unless replace=True. If a rank fails or
    dies, there is no checkpoint; `ff checkpoint prune` removes what the others have stored."""

    def __init__(self, store, run="default", step=None, *, replace=False, compress=False,
                 threads=0):
        super().__init__()
        self._store, self._run, self.step = store, run, step
        self._options = replace, compress, threads
        self._attempt = self._ranks = None  # of the coordinator

    def set_up(self, is_coordinator):
        if self.step is None:
            raise Error(2, "ranks save together under one step: give step=")

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        self._attempt, self._ranks = os.urandom(8).hex(), len(plans)
        seen = {}  # of each tensor: its whole size, and the elements of its parts
        made = []
        for rank, plan in enumerate(plans):
            items = [item for item in plan.items if _is_first(item, seen)]
            shard = _Shard(rank, self._ranks, self._attempt)
            made.append(dataclasses.replace(plan, items=items, storage_data=shard))
        _check_whole(seen)
        return made

    def write_data(self, plan, planner):
        if not isinstance(plan.storage_data, _Shard):
            raise Error(2, "the planner has replaced the storage_data of the plan, which "
                           "finish_plan() has to keep")
        shard = plan.storage_data
        pieces, results = {}, []
        slices, objects = {}, []
        wanted = {_storable(item.index.fqn) for item in plan.items}
        for item in plan.items:
            name = _free_name(pieces, wanted, _storable(item.index.fqn))
            data = planner.resolve_data(item)
            if item.type == api.planner.WriteItemType.BYTE_IO:
                pieces[name] = _object_piece(item, data)
                objects.append(name)
            else:
                pieces[name] = _tensor_piece(item, data)
                slices.update(_slice_of(name, item))
            results.append(api.storage.WriteResult(item.index, pieces[name].size,
                                                   Place(shard.rank, name)))
        self._save(shard.rank, pieces, _parts_text(slices, objects), shard)
        return _done(results)

    def finish(self, metadata, results):
        text = to_json(metadata, results, self._ranks)
        piece = _arrays.buffer_piece(text.encode(), DESCRIPTION)
        shard = _Shard(self._ranks, self._ranks, self._attempt)
        saved = self._save(shard.rank, {DESCRIPTION: piece}, _parts_text({}, [DESCRIPTION]), shard,
                           _DESCRIPTION_FILE)
        if saved is not None and saved.outcome == "waiting":
            raise Error(1, f"{self._run}@{self.step}: the shards of {saved.missing_ranks} ranks "
                           "are gone: another program removes files in the store")

    def _save(self, rank, pieces, texts, shard, file=None):
        """Gives what became of it."""
        saver = _saver()
        try:
            return self._start(saver, rank, pieces, texts, shard, file).wait()
        finally:
            _idle.append(saver)

    def _start(self, saver, rank, pieces, texts, shard, file):
        replace, compress, threads = self._options
        options = save_options(self._run, self.step, self._store, rank, shard.ranks + 1,
                               shard.attempt, replace, compress, threads, file)
        return saver.start(options, str(self._run), pieces, texts)


class AsyncWriter(StorageWriter):
    """Only copies, and writes in the background: the last shard that is stored makes the
    checkpoint, whichever it is."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.saves = []  # (saver, its save)

    def set_up(self, is_coordinator):
        super().set_up(is_coordinator)
        if _last:  # here, so that all ranks get its error
            _last.pop().wait_unless_told()

    def _save(self, rank, pieces, texts, shard, file=None):
        saver = _saver()
        try:
            save = self._start(saver, rank, pieces, texts, shard, file)
        except BaseException:
            _idle.append(saver)
            raise
        self.saves.append((saver, save))


class AsyncSave:
    """A save of async_save() on this rank. Gives its result as often as it is asked."""

    def __init__(self, saves):
        self._saves = saves
        self._result = self._error = None

    def done(self):
        """Whether what this rank saves is stored, or has failed."""
        return all(save.done() for _, save in self._saves)

    def wait(self):
        """Until what this rank saves is stored; gives a Saved, or raises its error. `outcome` is
        "waiting" if other ranks were not done: the checkpoint appears when the last one is, which
        gets "committed", or "already_there" if another one was as late."""
        if self._result is None and self._error is None:
            self._collect()
        if self._error is not None:
            raise Error(self._error.code, str(self._error))
        return self._result

    def wait_unless_told(self):
        """As wait(), but raises no error that wait() has raised."""
        if self._error is None:
            self.wait()

    def _collect(self):
        ended = []
        for saver, save in self._saves:
            try:
                ended.append(save.wait())
            except Error as error:
                self._error = error
            _idle.append(saver)
        if self._error is None:
            best = min(ended, key=lambda one: ("committed", "already_there", "waiting").index(
                one.outcome))
            self._result = ended[0]._replace(outcome=best.outcome,
                                             missing_ranks=best.missing_ranks)


def async_save(state_dict, store=None, run="default", step=None, *, process_group=None,
               planner=None, replace=False, compress=False, threads=0):
    """Saves as StorageWriter does, but returns an AsyncSave as soon as the parts of this rank are
    copied: the program may change them, while threads write the copy.

    All ranks of the process group call it. Only the plan is made together; no operation of the
    group goes on in the background. It first waits for the save before, and raises its error if
    nobody has waited for it. A program that ends waits for its save."""
    writer = AsyncWriter(store, run, step, replace=replace, compress=compress, threads=threads)
    try:
        api.save(state_dict, writer, planner, process_group)
    except BaseException:
        for saver, save in writer.saves:  # which no checkpoint will include
            saver.close(give_up=True)
        raise
    made = AsyncSave(writer.saves)
    _last.append(made)
    return made


# ---- parts of tensors


def _is_first(item, seen):
    """Whether an item has to be stored: no other rank's has the same part, and it has elements."""
    data = item.tensor_data
    if data is None:
        return True
    whole, parts = seen.setdefault(item.index.fqn, (data.size, {}))
    elements = math.prod(data.chunk.sizes)
    if tuple(data.chunk.offsets) in parts or (elements == 0 and math.prod(whole) > 0):
        return False
    parts[tuple(data.chunk.offsets)] = elements
    return True


def _check_whole(seen):
    for name, (whole, parts) in seen.items():
        if sum(parts.values()) != math.prod(whole):
            raise Error(2, f"'{name}': the parts that the ranks hold have {sum(parts.values())} "
                           f"elements, but a tensor of {list(whole)} has {math.prod(whole)}")


def _saver():
    while _idle:
        saver = _idle.pop()
        if saver.is_of_this_process():
            return saver
    return Saver()


def _storable(name):
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _free_name(pieces, all_wanted, wanted):
    """A rank may hold several parts of a tensor."""
    name, again = wanted, 1
    while name in pieces or name in _RESERVED or (again > 1 and name in all_wanted):
        again += 1
        name = f"{wanted}~{again}"
    return name


def _tensor_piece(item, data):
    name, said = item.index.fqn, item.tensor_data
    _arrays.check_tensor(torch, data, name)
    if data.layout != torch.strided:
        raise Error(2, f"{name}: a sparse tensor cannot be a part of a distributed checkpoint: "
                       "save to_dense() of it")
    if data.dtype != said.properties.dtype or data.shape != said.chunk.sizes:
        raise Error(2, f"{name}: the planner gives {data.dtype} {list(data.shape)} where it has "
                       f"announced {said.properties.dtype} {list(said.chunk.sizes)}")
    return _arrays.torch_piece(torch, data, name)


def _object_piece(item, data):
    if not isinstance(data, io.BytesIO):
        raise Error(2, f"{item.index.fqn}: the planner gives a {type(data).__qualname__} where it "
                       "has announced bytes")
    return _arrays.buffer_piece(data.getbuffer(), item.index.fqn)


def _slice_of(name, item):
    """What the file says of a part that is not the whole tensor."""
    said = item.tensor_data
    if said.chunk.sizes == said.size:
        return {}
    return {name: {"tensor": _storable(item.index.fqn), "shape": list(said.size),
                   "start": list(said.chunk.offsets)}}


def _parts_text(slices, objects):
    return {_PARTS_KEY: json.dumps({"slices": slices, "objects": objects})}


def _done(value):
    future = Future()
    future.set_result(value)
    return future
