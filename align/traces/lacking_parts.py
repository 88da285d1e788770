"""Tells whether a part that one model alone returned is one more key of an object, or a difference.

An object may have keys and attributes that the other has not, as nobody asks for them. A list that is longer, and a
number where the other has None under the same key, are another result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from align.core.trace_metadata import ContainerKind, PartKind, ReturnedParts

Lack = Literal["one more", "other form", "None", "behind the end", "no container", "other container"]


@dataclass(frozen=True, slots=True)
class ReturnedTree:
    """All names in what a call returned, the containers among them, and those that hold None."""

    names: frozenset[str]
    containers: Mapping[str, ContainerKind]
    empty: frozenset[str]

    def around(self, name: str) -> Iterator[tuple[str, str]]:
        """The containers that a part lies in, the outermost first, each with the name of its item on the way."""
        inside = sorted((one for one in self.containers if not one or name.startswith(f"{one}.")), key=len)
        return zip(inside, [*inside[1:], name], strict=True)


def tree_of(captured: Collection[str], parts: ReturnedParts | None) -> ReturnedTree:
    """The tree of captured names and of what was told beside; containers are told by the names in earlier traces."""
    left_out = parts.left_out if parts else {}
    containers = parts.containers if parts and parts.containers else _by_names([*captured, *left_out])
    empty = frozenset(name for name, what in left_out.items() if what == "None")
    return ReturnedTree(frozenset([*captured, *left_out, *containers]), containers, empty)


def what_lacks(name: str, kind: PartKind, own: ReturnedTree, other: ReturnedTree) -> Lack:
    """Say how the other side lacks a part that is no tensor."""
    if kind == "cache" and _without_cache(name, own, other):
        return "one more"
    for parent, item in own.around(name):
        if item not in other.names:
            return _in_containers(parent, own, other)
    return "None" if name in other.empty else "other form"


def _in_containers(parent: str, own: ReturnedTree, other: ReturnedTree) -> Lack:
    """How an item lacks of which both have what is around it."""
    mine, theirs = own.containers[parent], other.containers.get(parent)
    if mine != "list" and (theirs not in ("list", None) or (not parent and not other.empty)):
        return "one more"  # a dict against a tuple or a bare tensor: what is returned as a whole may have another form
    if mine == theirs:
        return "behind the end"
    if parent in other.empty:
        return "None"
    return "no container" if theirs is None or parent else "other container"


def _without_cache(name: str, own: ReturnedTree, other: ReturnedTree) -> bool:
    """Whether the other side returned no cache at all; earlier traces do not tell."""
    cache = next((one for one, _ in own.around(name) if own.containers[one] == "cache"), None)
    return cache is None or cache not in other.names or cache in other.empty


def _by_names(names: Collection[str]) -> dict[str, ContainerKind]:
    items: dict[str, list[str]] = {}
    for name in names:
        keys = name.split(".") if name else []
        for place, key in enumerate(keys):
            items.setdefault(".".join(keys[:place]), []).append(key)
    return {name: "list" if all(key.isdigit() for key in keys) else "object" for name, keys in items.items()}
