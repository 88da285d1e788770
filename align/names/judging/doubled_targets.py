"""Targets that a map makes twice: no conversion follows such a map, so none is written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.name_map import Ambiguity
from align.core.piece_transforms import apart_from_whole
from align.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap, Pairing
    from align.core.transforms import Transform


def with_doubled_open(name_map: NameMap) -> tuple[NameMap, list[str]]:
    """The map with the pairs that make a target twice as open groups, and a line for each such target."""
    doubled = doubled_targets(name_map.pairings)
    kept = tuple(one for one in name_map.pairings if one.target not in doubled)
    paired = {one.source for one in kept}
    groups, lines = [], []
    for target, sources in doubled.items():
        reason = f"{first_few(sources)} all lead to it"
        own = [one for one in sources if one not in paired] or sources
        groups.append(Ambiguity(tuple(own), (target,), reason))
        lines.append(f"{target} is left open: {reason}, and a target is made once")
    return replace(name_map, pairings=kept, ambiguous=(*name_map.ambiguous, *groups)), lines


def refuse_doubled(name_map: NameMap, path: Path) -> None:
    """Raise MapError naming all targets that are made twice, before a map is written."""
    if doubled := doubled_targets(name_map.pairings):
        faults = [f"{target}: {first_few(sources)} all lead to it" for target, sources in doubled.items()]
        raise MapError(
            path, faults, "nothing was written: leave one source for each target, or parts that do not overlap"
        )


def doubled_targets(pairings: Iterable[Pairing]) -> dict[str, list[str]]:
    """The sources of each target of which a value would be made twice; parts that do not overlap make one together."""
    groups: dict[str, list[Pairing]] = {}
    for one in pairings:
        groups.setdefault(one.target, []).append(one)
    return {
        target: [one.source for one in own]
        for target, own in groups.items()
        if len(own) > 1 and _overlap([one.transform for one in own])
    }


def _overlap(transforms: Sequence[Transform]) -> bool:
    parts = [part for transform in transforms if (part := apart_from_whole(transform)[1])]
    if len(parts) < len(transforms) or len({(part.axis, part.shape) for part in parts}) > 1:
        return True
    spans = sorted((part.start, part.stop) for part in parts)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
