"""The state_dict in a pickled tree: found by looking, taken only where a single mapping can be meant.

Training checkpoints hold it one or two keys down, beside counters, optimizer states and 0-d figures such as an
accuracy. A mapping with real weights wins over lone scalars; two mappings with weights are for the user to tell apart.
What stands beside it is described, and the tensors in there are counted, so that nothing is left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from align.core.words import counted
from align.errors import UnsupportedCheckpointError
from align.formats._pickle.machine import Made, mapping_of
from align.formats._pickle.torch_tensors import class_name, describe, is_tensor, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

DEEPEST = 2
MOST_LISTED = 12
LONGEST_WORD = 60

_Mappings = dict[tuple[str, ...], dict[Any, Any]]


@dataclass(frozen=True, slots=True)
class StateDict:
    """The mapping and the keys that lead to it, () at the top."""

    keys: tuple[str, ...]
    entries: dict[Any, Any]


def find_state_dict(path: Path, tree: Any) -> StateDict:
    """The one mapping of names to tensors: at the top, or one or two keys down.

    Raises UnsupportedCheckpointError if there is none, or if several could be meant.
    """
    for holds in (_holds_weights, _holds_tensors):
        level: _Mappings = {(): mapping_of(tree) or {}}
        for _ in range(DEEPEST + 1):
            found = _those_that(holds, level)
            if found:
                (keys, entries), *_ = found.items()
                _refuse_several(path, found | _those_that(holds, _inner({keys: entries})))
                return StateDict(keys, entries)
            level = _inner(level)
    raise _nothing_found(path, tree)


def read_others(tree: Any, state_dict: StateDict, names: Collection[str]) -> tuple[dict[str, str], dict[str, int]]:
    """What the tree holds beside the tensors of these names: each entry in a few words, and how many tensors are in it.

    Entries without tensors are missing in the second table.
    """
    words: dict[str, str] = {}
    tensors: dict[str, int] = {}
    mapping = mapping_of(tree) or {}
    for depth in range(len(state_dict.keys) + 1):
        inside = depth < len(state_dict.keys)
        taken = {state_dict.keys[depth]} if inside else names
        for key, value in mapping.items():
            if key not in taken:
                name = _fresh(".".join((*state_dict.keys[:depth], _word(key))), words)
                words[name] = describe(value)
                if count := _count_tensors(value):
                    tensors[name] = count
        mapping = (mapping_of(mapping[state_dict.keys[depth]]) or {}) if inside else {}
    return words, tensors


def _those_that(holds: Callable[[Mapping[Any, Any]], bool], mappings: _Mappings) -> _Mappings:
    return {keys: entries for keys, entries in mappings.items() if holds(entries)}


def _holds_tensors(entries: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and is_tensor(value) for name, value in entries.items())


def _holds_weights(entries: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and is_tensor(value) and not _is_scalar(value) for name, value in entries.items())


def _is_scalar(tensor: Any) -> bool:
    shape = shape_of(tensor)
    return shape is not None and prod(shape) == 1


def _inner(mappings: _Mappings) -> _Mappings:
    """The mappings one key further down, each once, by the keys that lead to them."""
    found: _Mappings = {}
    seen: set[int] = set()
    for keys, mapping in mappings.items():
        for name, value in mapping.items():
            entries = mapping_of(value) if isinstance(name, str) else None
            if entries is not None and id(entries) not in seen:
                seen.add(id(entries))
                found[(*keys, name)] = entries
    return found


def _refuse_several(path: Path, found: Collection[tuple[str, ...]]) -> None:
    if len(found) > 1:
        listed = ", ".join(repr(".".join(keys)) if keys else "the top level" for keys in list(found)[:MOST_LISTED])
        raise UnsupportedCheckpointError(
            path, f"{len(found)} of its entries could be the weights: {listed}", "save the one you mean alone"
        )


def _nothing_found(path: Path, tree: Any) -> UnsupportedCheckpointError:
    for value in [tree, *(mapping_of(tree) or {}).values()]:
        state = mapping_of(value.state) if isinstance(value, Made) else None
        if state is not None and "_modules" in state:
            hint = "load it where its code is at home and save model.state_dict() with torch.save"
            return UnsupportedCheckpointError(path, f"it holds a whole pickled module, {class_name(value)}", hint)
    return UnsupportedCheckpointError(
        path, f"it holds {_contents(tree)}", "save a state_dict with torch.save(model.state_dict(), ...)"
    )


def _contents(tree: Any) -> str:
    if is_tensor(tree):
        return "a single tensor without a name"
    mapping = mapping_of(tree)
    if mapping is None:
        return f"no named tensors, but: {describe(tree)}"
    if not mapping:
        return "an empty dict, no tensors"
    listed = [
        f"{_word(name)[:LONGEST_WORD]} ({describe(value)})" for name, value in list(mapping.items())[:MOST_LISTED]
    ]
    more = (
        f" and {counted(len(mapping) - len(listed), 'more entry', 'more entries')}"
        if len(mapping) > len(listed)
        else ""
    )
    return f"no named tensors, but: {', '.join(listed)}{more}"


def _word(key: Any) -> str:
    """A key for the reader's eyes; what is no plain text stands in brackets or quotes."""
    if isinstance(key, str):
        return key if key.isprintable() else repr(key)
    return f"[{describe(key)}]"


def _fresh(name: str, taken: Collection[str]) -> str:
    """The name, numbered if another entry is called so."""
    number = 1
    while (fresh := name if number == 1 else f"{name} ({number})") in taken:
        number += 1
    return fresh


def _count_tensors(value: Any) -> int:
    """Tensors anywhere in a value, each record once, so that references which double at every level cost nothing."""
    seen: set[int] = set()
    waiting, count = [value], 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if is_tensor(item):
            count += 1
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
        elif isinstance(item, Made):
            waiting += [item.arguments, item.state, item.items, item.elements]
    return count
