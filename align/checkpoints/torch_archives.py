"""What one rank of a training wrote with torch.save: entries by name, with tensors in any of them.

Which mapping holds the weights is not asked here (`torch_entries`): files of trainings that were cut into parts hold
tensors in places of their own, which their readers look for. `plain_tree` gives all that a file holds as plain values,
and builds nothing that the pickle names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.checkpoints.pickled_tensors import (
    Global,
    Made,
    UnsupportedTensorError,
    is_tensor,
    mapping_of,
    read_view,
)
from align.checkpoints.sound_records import ZIP_HEAD
from align.checkpoints.thresholds import DEEPEST_TREE, LONGEST_GLOBAL_NAME, LONGEST_KEY, MOST_COUNTED_VALUES
from align.checkpoints.torch_entries import (
    PLAIN,
    TreeReader,
    archive_tree,
    class_name,
    placed_tensor,
    refuse_repetition,
    size_of,
)
from align.core.parameters import OddTensor
from align.errors import NotACheckpointError, UnsupportedCheckpointError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.core.parameters import Extent, Shape, StoredTensor


MEGATRON = "megatron"  # in the metadata of a checkpoint: the arguments that tell of shapes, as JSON
ARGUMENTS = (
    "num_layers", "hidden_size", "num_attention_heads", "group_query_attention", "num_query_groups", "kv_channels",
    "num_experts", "vocab_size", "padded_vocab_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankFile:
    """The tree of one file, by the entries of its top; `checksums` are where its records lie that have one."""

    path: Path
    entries: Mapping[Any, Any]
    storages: Mapping[str, Extent]
    checksums: tuple[Extent, ...]

    def table(self, *keys: str) -> dict[Any, Any]:
        """The mapping to which these keys lead, empty if there is none; the fields of a record count as its items."""
        value: Any = self.entries
        for key in keys:
            value = fields_of(value).get(key)
        return fields_of(value)

    def tensors(self, table: Mapping[Any, Any], prefix: str = "") -> Iterator[StoredTensor]:
        """The tensors of a mapping and of those inside of it, by their dotted names; odd ones are refused."""
        for name, value in table.items():
            if isinstance(name, str) and is_tensor(value):
                yield self.tensor(f"{prefix}{name}", value)
            elif isinstance(name, str) and (inner := mapping_of(value)):
                yield from self.tensors(inner, f"{prefix}{name}.")

    def tensor(self, name: str, value: Any) -> StoredTensor:
        """The tensor of a record; raises UnsupportedCheckpointError for one of another kind, or for no tensor."""
        name = name[:LONGEST_GLOBAL_NAME]
        try:
            view = read_view(self.path, name, value)
        except UnsupportedTensorError as fault:
            raise UnsupportedCheckpointError(self.path, fault.reason, fault.remedy) from fault
        return placed_tensor(self.path, name, view, self.storages.get(view.key))


def read_rank_file(path: Path) -> RankFile:
    """Read the tree of a file of torch.save; raises what `archive_tree` raises, and NotACheckpointError for another."""
    with path.open("rb") as stream:
        head = stream.read(len(ZIP_HEAD))
    if head != ZIP_HEAD:
        raise NotACheckpointError(path, say("torch_file.no_archive"))
    tree, storages, checksums = archive_tree(path)
    return RankFile(path, mapping_of(tree) or {}, storages, checksums)


def fields_of(value: Any) -> dict[Any, Any]:
    """The items of a mapping, or the attributes of a record (argparse.Namespace, a dataclass); empty for all else."""
    found = mapping_of(value)
    if found is None and isinstance(value, Made):
        found = mapping_of(value.state)
    return found or {}


def shape_table(value: Any) -> dict[str, Shape]:
    """The shapes of a mapping of names to `torch.Size`, in its order."""
    pairs = fields_of(value).items()
    return {name: size for name, made in pairs if isinstance(name, str) and (size := size_of(made)) is not None}


def shape_arguments(table: Mapping[Any, Any]) -> dict[str, int]:
    """Those of Megatron's arguments that tell of shapes, where they are numbers."""
    return {name: int(value) for name in ARGUMENTS if isinstance(value := table.get(name), int)}


def dtype_of(value: Any) -> str:
    """What `torch.float32` and its like are called, "" for what is none."""
    return value.name if isinstance(value, Global) and value.module == "torch" else ""


def count_tensors(value: Any) -> int:
    """The tensors anywhere in a value, each once."""
    seen: dict[int, Any] = {}
    waiting, count = [value], 0
    while waiting and len(seen) < MOST_COUNTED_VALUES:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if is_tensor(item):
            count += 1
        elif isinstance(item, (list, tuple)):
            waiting += item
        else:
            waiting += fields_of(item).values()
    return count


def plain_tree(path: Path, tree: Any, storages: Mapping[str, Extent]) -> Any:
    """The whole tree as dicts, lists, numbers and texts; each tensor is a StoredTensor, or an OddTensor.

    All else is the name of its class in an OddTensor, as is what lies deeper than `DEEPEST_TREE`. Raises what reading
    the tensors raises.
    """
    look = TreeReader(path)
    known: dict[int, Any] = {}
    tensors: dict[str, StoredTensor] = {}

    def plain(value: Any, name: str, depth: int) -> Any:
        if isinstance(value, PLAIN) or value is None:
            return value
        if id(value) not in known:
            known[id(value)] = OddTensor(class_name(value), "")  # of what holds itself, until it is known
            known[id(value)] = container(value, name, depth)
        return known[id(value)]

    def container(value: Any, name: str, depth: int) -> Any:
        if is_tensor(value):
            return placed(value, name)
        items = mapping_of(value)
        if depth < DEEPEST_TREE and items is not None:
            return {
                key: plain(item, f"{name}.{str(key)[:LONGEST_KEY]}", depth + 1)
                for key, item in items.items()
                if isinstance(key, (str, int))
            }
        if depth < DEEPEST_TREE and isinstance(value, (list, tuple)):
            return [plain(item, f"{name}.{number}", depth + 1) for number, item in enumerate(value)]
        return OddTensor(class_name(value), "")

    def placed(value: Any, name: str) -> StoredTensor | OddTensor:
        view = look.view(name, value)
        if isinstance(view, OddTensor):
            return view
        made = placed_tensor(path, name, view, storages.get(view.key))
        tensors[name] = made
        return made

    found = plain(tree, "", 0)
    used = {view.key: storages[view.key].nbytes for view in look.views.values()}
    refuse_repetition(path, tensors, used)
    return found
