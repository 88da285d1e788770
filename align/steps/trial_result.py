"""A name map with what a trial found: new pairings, and the reasons of what stays open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.names import Ambiguity, NameMap, Pairing


def with_trial(
    name_map: NameMap, settled: Sequence[Pairing], reasons: Mapping[str, str], order: Sequence[str]
) -> NameMap:
    """Return the map with the settled pairings in the source's order, and out of their groups."""
    place = {name: index for index, name in enumerate(order)}
    pairings = sorted((*name_map.pairings, *settled), key=lambda pairing: place.get(pairing.source, len(place)))
    gone = {p.source for p in settled}, {p.target for p in settled}
    ambiguous = (left for group in name_map.ambiguous for left in _left(group, gone, reasons))
    return replace(name_map, pairings=tuple(pairings), ambiguous=tuple(ambiguous))


def _left(group: Ambiguity, gone: tuple[set[str], set[str]], reasons: Mapping[str, str]) -> Iterator[Ambiguity]:
    sources = tuple(name for name in group.sources if name not in gone[0])
    targets = tuple(name for name in group.targets if name not in gone[1])
    if sources or targets:
        said = dict.fromkeys(reasons[name] for name in sources if name in reasons)
        yield replace(group, sources=sources, targets=targets, reason="; ".join(said) or group.reason)
