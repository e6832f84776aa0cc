# What a distributed checkpoint holds (PyTorch's Metadata) as JSON, which PyTorch would pickle:
#
#   {"version": 1, "ranks": N, "tensors": {NAME: {"dtype": "float32", "layout": "strided",
#    "requires_grad": false, "memory_format": "contiguous_format", "pin_memory": false,
#    "size": [8, 4], "chunks": [[OFFSETS, SIZES, RANK, NAME], ...]}, ...},
#    "bytes": {NAME: [RANK, NAME], ...}, "planner": TEXT}
#
# RANK and the second NAME say in which rank's file, under which name, the bytes are (a chunk
# without elements has neither); "planner" is what the planner stores (ff._state), if anything.
import difflib
import json
import math
import typing

import torch

from ff._library import Error
from ff._state import Builder, Document, Flattener
from ff.torch.dcp.api import metadata as of_torch

_VERSION = 1
_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_FLAGS = ("requires_grad", "pin_memory")


class Place(typing.NamedTuple):
    """Where the bytes of a part of a tensor, or of an object, are: the tensor `name` of the file
    of `rank`."""
    rank: int
    name: str


class Names(dict):
    """Tensors and objects of a checkpoint; one that it lacks is an Error."""
    checkpoint = ""

    def __missing__(self, name):
        near = difflib.get_close_matches(str(name), list(self), 1)
        instead = f"; it has '{near[0]}'" if near else ""
        raise Error(1, f"{self.checkpoint} has no tensor or object '{name}'{instead}")


# ---- to JSON


def to_json(metadata, results, ranks):
    """Error 2: what the planner describes cannot be stored."""
    places = {result.index: result.storage_data for of_rank in results for result in of_rank}
    tensors, objects = {}, {}
    for name, described in metadata.state_dict_metadata.items():
        if isinstance(described, of_torch.TensorStorageMetadata):
            tensors[name] = _tensor(name, described, places)
        elif isinstance(described, of_torch.BytesStorageMetadata):
            objects[name] = _place(places, of_torch.MetadataIndex(name))
        else:
            raise Error(2, f"'{name}': the planner describes it by a "
                           f"{type(described).__qualname__}, which ff.torch.dcp cannot store")
    said = {"version": _VERSION, "ranks": ranks, "tensors": tensors, "bytes": objects}
    if metadata.planner_data is not None:
        said["planner"] = _planner_data(metadata.planner_data)
    return json.dumps(said, separators=(",", ":"))


def _tensor(name, described, places):
    properties = described.properties
    said = {}
    for key, kind in _KINDS.items():
        value = getattr(properties, key)
        if not isinstance(value, kind):
            raise Error(2, f"'{name}': its {key} {value!r} is no {kind}")
        said[key] = str(value).replace("torch.", "")
    said.update((key, bool(getattr(properties, key))) for key in _FLAGS)
    said["size"] = list(described.size)
    said["chunks"], seen = [], set()
    for chunk in described.chunks:
        if tuple(chunk.offsets) in seen:
            continue  # which several ranks hold, and one of them has saved
        seen.add(tuple(chunk.offsets))
        index = of_torch.MetadataIndex(name, chunk.offsets)
        place = _place(places, index) if index in places or math.prod(chunk.sizes) else []
        said["chunks"].append([list(chunk.offsets), list(chunk.sizes), *place])
    return said


def _place(places, index):
    if index not in places:
        where = "" if index.offset is None else f" at {list(index.offset)}"
        raise Error(2, f"'{index.fqn}'{where}: the planner describes it, but no rank has saved it")
    return list(places[index])


def _planner_data(data):
    flattener = Flattener()
    try:
        said = flattener.document(data)
    except Error as error:
        raise Error(2, f"the data of the planner: {error}") from None
    if flattener.pieces:
        raise Error(2, "the data of the planner has tensors, arrays or bytes, which ff.torch.dcp "
                       "does not store: let it be numbers, texts and containers of them")
    return said


# ---- from JSON


def from_json(text, checkpoint):
    """Metadata whose storage_data are the places by MetadataIndex, and the number of ranks. Error
    3: it does not make one."""
    try:
        said = json.loads(text)
        version = said["version"]
        if version <= _VERSION:
            return _metadata(said, checkpoint), int(said["ranks"])
    except Error:
        raise
    except Exception as error:  # of whatever the checkpoint may say
        raise Error(3, f"{checkpoint}: its description (ff.dcp) makes no checkpoint: "
                       f"{type(error).__name__}: {error}") from error
    raise Error(1, f"{checkpoint} was saved by a newer ff.torch.dcp (version {version}): load it "
                   "with that")


def _metadata(said, checkpoint):
    names, places = Names(), {}
    names.checkpoint = checkpoint
    for name, tensor in said["tensors"].items():
        properties = {key: _named(tensor[key], kind) for key, kind in _KINDS.items()}
        properties.update((key, bool(tensor[key])) for key in _FLAGS)
        chunks = []
        for offsets, sizes, *place in tensor["chunks"]:
            chunks.append(of_torch.ChunkStorageMetadata(offsets=torch.Size(offsets),
                                                        sizes=torch.Size(sizes)))
            if place:
                places[of_torch.MetadataIndex(name, offsets)] = _stored(*place)
        names[name] = of_torch.TensorStorageMetadata(
            properties=of_torch.TensorProperties(**properties), size=torch.Size(tensor["size"]),
            chunks=chunks)
    for name, place in said["bytes"].items():
        names[name] = of_torch.BytesStorageMetadata()
        places[of_torch.MetadataIndex(name)] = _stored(*place)
    data = said.get("planner")
    return of_torch.Metadata(state_dict_metadata=names, storage_data=places,
                             planner_data=None if data is None else
                             Builder(Document(data), {}).state())


def _stored(rank, name):
    if type(rank) is not int or type(name) is not str:
        raise TypeError(f"a place {rank!r}, {name!r}")
    return Place(rank, name)


def _named(name, kind):
    found = getattr(torch, name, None)
    if not isinstance(found, kind):
        raise Error(1, f"the checkpoint has a {kind.__name__} '{name}', which this PyTorch "
                       f"({torch.__version__}) does not have")
    return found
