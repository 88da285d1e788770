"""All that a file of torch's holds, as plain values: what a training wrote beside its weights.

Nothing is built that the pickle names. What is no dict, list, number, text or plain tensor keeps the name of its class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.checkpoints.pickled_tensors import is_tensor, mapping_of
from align.checkpoints.thresholds import DEEPEST_TREE, LONGEST_KEY
from align.checkpoints.torch_entries import PLAIN, TreeReader, class_name, placed_tensor, refuse_repetition
from align.core.parameters import OddTensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.core.parameters import Extent, StoredTensor


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
                key: plain(one, f"{name}.{str(key)[:LONGEST_KEY]}", depth + 1)
                for key, one in items.items()
                if isinstance(key, (str, int))
            }
        if depth < DEEPEST_TREE and isinstance(value, (list, tuple)):
            return [plain(one, f"{name}.{number}", depth + 1) for number, one in enumerate(value)]
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
