"""Layers that one side names by what they are and the other only numbers: `q, k, v` against `dense1, dense2, dense3`.

They share a shape with one another, and often with a layer behind them, so that neither shapes nor words pair them.
Two conventions of writing do: attention lists queries, keys and values in this order, and a gated feed-forward calls
its gate `w1`, the values `w3` and what goes down again `w2`, as the first published code of Llama did. They are
followed where the layers stand in one place of both models, in which neither side has a second such group.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.layers.path_words import numbered
from align.names.layers.same_place import PairedModules
from align.names.matching.piece_order import ATTENTION, NUMBERED
from align.names.matching.reserve_fused import named_groups
from align.names.matching.weigh_exchanges import may_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.names.layers.read_layers import Layer, Pair
    from align.names.matching.reserve_fused import Group

    _Members = dict[int, Layer]


@dataclass(frozen=True, slots=True)
class _Convention:
    """The signs of the named layers in the order that they are written in, and the numbered ones in that order."""

    signs: tuple[str, ...]
    chosen: Callable[[str, _Members], Group]


def match_numbered_projections(
    left: Sequence[Layer], right: Sequence[Layer], known: Sequence[Pair]
) -> list[tuple[Pair, float]]:
    """Pair free layers that one side names and the other numbers; the pairs that are `known` tell the places."""
    places = PairedModules(known)
    pairs: list[Pair] = []
    for convention in _CONVENTIONS:
        for named, listed in _triples(convention, (left, right), places, 0):
            pairs += zip(named, listed, strict=True)
        for named, listed in _triples(convention, (right, left), places, 1):
            pairs += zip(listed, named, strict=True)
    return [(pair, NUMBERED) for pair in pairs]


def _triples(
    convention: _Convention, layers: tuple[Sequence[Layer], Sequence[Layer]], places: PairedModules, side: int
) -> Iterator[tuple[Group, Group]]:
    """Yield each named group with the numbered one that alone stands in its place; `side` is that of the named."""
    written = [group for group in named_groups(layers[0], convention.signs) if _in_order(group)]
    groups, lists = _by_place(written, places, side), _by_place(list(_listed(layers[1], convention)), places, 1 - side)
    for here in groups.values():
        others = [group for place in places.facing(here[0][0], side) for group in lists.get(place, ())]
        if len(here) == len(others) == 1 and all(may_pair(x, y) for x, y in zip(here[0], others[0], strict=True)):
            yield here[0], others[0]


def _by_place(groups: Sequence[Group], places: PairedModules, side: int) -> dict[str | None, list[Group]]:
    found: dict[str | None, list[Group]] = defaultdict(list)
    for group in groups:
        found[places.module(group[0], side)].append(group)
    return found


def _in_order(group: Group) -> bool:
    positions = [layer.position for layer in group]
    return positions == sorted(positions)


def _listed(layers: Sequence[Layer], convention: _Convention) -> Iterator[Group]:
    """Yield the layers that a convention chooses from each list of numbered matrices."""
    lists: dict[str, _Members] = defaultdict(dict)
    for layer in layers:
        found = numbered(layer.path)
        if len(layer.shapes.get("weight", ())) == 2 and found and found[-1][2] == layer.path:
            lists[found[-1][0]][int(found[-1][1])] = layer
    for stem, members in lists.items():
        if chosen := convention.chosen(stem.rpartition(".")[2], members):
            yield chosen


def _attending(_: str, members: _Members) -> Group:
    """The first three of three, or of four, of which the last is the projection of what they give."""
    numbers = sorted(members)
    if len(numbers) not in (3, 4) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ()
    return tuple(members[number] for number in numbers[:3])


def _gated(stem: str, members: _Members) -> Group:
    """`w1` and `w3`, whether or not `w2` is paired already."""
    return (members[1], members[3]) if stem == "w" and members.keys() | {2} == {1, 2, 3} else ()


_CONVENTIONS = (_Convention(ATTENTION, _attending), _Convention(("g", "u"), _gated))
