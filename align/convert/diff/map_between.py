"""Which way a map leads between two checkpoints at hand, and what it leaves out on either side.

A conversion knows only its source and must not lose anything; a diff has both sides and lists what has no counterpart.
So the way is taken on which more tensors meet, and a name that one side lacks is no fault of the map.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.convert.diff.pair_tensors import pair_tensors
from align.convert.planning.two_way_map import DirectedMap, follow_backward, follow_forward
from align.core.name_map import Dropped
from align.errors import MapError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.convert.planning.two_way_map import TwoWayMap
    from align.core.checkpoints import StoredTensor
    from align.core.name_map import SideName
    from align.names.user_rules import NameRules

    Tensors = Mapping[str, StoredTensor]

MOST_REASONS = 12
MEETS_NOTHING_FAULT = "followed either way, it leads from no name of the reference to one of the candidate"


def map_between(two_way: TwoWayMap, reference: Tensors, candidate: Tensors) -> DirectedMap:
    """Follow the map from the reference's names to the candidate's, in the direction in which more tensors meet.

    `dropped` holds what is left out on both sides, tensors that a conversion fills among them; `warnings` name the
    reference's tensors for which the map has no counterpart, by reason. Raises MapError for a map that contradicts
    itself, or on which nothing meets.
    """

    def meeting(way: DirectedMap) -> tuple[int, int, int]:
        found = pair_tensors(reference, candidate, way.name_map)
        comparable = sum(pair.comparable is not None for pair in found.pairs)
        return comparable, len(found.pairs), -len(found.missing) - len(found.extra)

    ways = (follow(two_way, reference) for follow in (follow_forward, follow_backward))
    way = max((_with_drops(way, two_way.rules, reference, candidate) for way in ways), key=meeting)
    if way.problems or not meeting(way)[1]:
        raise MapError(two_way.rules.label, way.problems or [MEETS_NOTHING_FAULT])
    return replace(way, warnings=tuple(_warnings(two_way, way)))


def _with_drops(way: DirectedMap, rules: NameRules, reference: Tensors, candidate: Tensors) -> DirectedMap:
    sides: tuple[SideName, SideName] = ("target", "source") if way.backwards else ("source", "target")
    dropped = (*_dropped(rules, sides[0], reference, "source"), *_dropped(rules, sides[1], candidate, "target"))
    return replace(way, name_map=replace(way.name_map, dropped=dropped))


def _dropped(rules: NameRules, side: SideName, names: Tensors, end: SideName) -> Iterator[Dropped]:
    for name in names:
        if drop := rules.drop_of(side, name):
            yield Dropped(name, end, drop[0])


def _warnings(two_way: TwoWayMap, way: DirectedMap) -> Iterator[str]:
    if way.backwards:
        yield sentence("diff_warning.followed_back", map=two_way.rules.label)
    reasons: dict[str, list[str]] = {}
    for one in way.name_map.unmatched:
        if one.side == "source":
            reasons.setdefault(one.reason, []).append(one.name)
    for reason, names in list(reasons.items())[:MOST_REASONS]:
        yield sentence("diff_warning.map_says_nothing", names=names, reason=reason)
