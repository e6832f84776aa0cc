# PyTorch's distributed checkpoint under one set of names, whatever the version: 1.13 has it in
# torch.distributed._shard.checkpoint, versions from 2.0 on in torch.distributed.checkpoint. The
# methods that versions have beside the common ones are in Versions.
import contextlib
import dataclasses
import importlib

import torch.distributed as dist

from ff._library import Error


@contextlib.contextmanager
def _hashable_dataclasses():
    """Python from 3.11 on refuses a default that is a dataclass without a hash, and PyTorch 1.13
    has such defaults, so that its sharded tensors cannot be imported: here they get a hash."""
    of_python = dataclasses.dataclass

    def dataclass(cls=None, /, **options):
        if cls is None:
            return lambda later: dataclass(later, **options)
        if "__hash__" not in vars(cls) and not options.get("frozen"):
            options["unsafe_hash"] = True
        return of_python(cls, **options)
    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = of_python


def _package():
    try:
        return importlib.import_module("torch.distributed.checkpoint")
    except ModuleNotFoundError:  # 1.13
        with _hashable_dataclasses():
            return importlib.import_module("torch.distributed._shard.checkpoint")


package = _package()
metadata, planner, storage = (importlib.import_module(f"{package.__name__}.{name}")
                              for name in ("metadata", "planner", "storage"))


class Versions:
    """What PyTorch calls first: set_up(is_coordinator) of a writer, set_up(metadata,
    is_coordinator) of a reader."""

    def init(self, *arguments):  # 1.13
        self.set_up(*arguments)

    def set_up_storage_writer(self, is_coordinator, *_, **__):  # from 2.0 on
        self.set_up(is_coordinator)

    def set_up_storage_reader(self, read, is_coordinator, *_, **__):  # from 2.0 on
        self.set_up(read, is_coordinator)

    def reset(self, checkpoint_id=None):  # from 2.3 on
        if checkpoint_id is not None:
            self.set_step(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):  # from 2.3 on
        """Whether PyTorch may choose this storage for a path: never."""
        return False

    def set_step(self, checkpoint_id):
        """Of the next save or load: the checkpoint_id of torch.distributed.checkpoint.save() and
        load()."""
        text = str(checkpoint_id)
        if not text.isascii() or not text.isdigit():
            raise Error(2, f"checkpoint_id={checkpoint_id!r} is no step of a run")
        self.step = int(text)


def save(state_dict, writer, planner_of_save, process_group):
    """Saves with PyTorch's function."""
    chosen = {"storage_writer": writer, "planner": planner_of_save, "process_group": process_group}
    if hasattr(package, "save"):  # from 2.2 on
        return package.save(state_dict, **chosen)
    return package.save_state_dict(state_dict, no_dist=not dist.is_initialized(), **chosen)
