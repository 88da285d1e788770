"""Groups of two optimizers paired by the parameters that they hold, never by their number."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.layer_settings import ParameterGroup
    from align.core.name_map import NameMap


@dataclass(frozen=True, slots=True)
class GroupPair:
    """Two groups and the parameters, by the reference's names, that the one and the other treat."""

    reference: ParameterGroup
    candidate: ParameterGroup
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairedGroups:
    """Pairs, the parameters that only one side's optimizer moves, and those whose counterpart is not known."""

    pairs: tuple[GroupPair, ...]
    only_reference: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def are_named(groups: Sequence[ParameterGroup]) -> bool:
    """Tell whether the names of all parameters are known."""
    return all(group.names is not None for group in groups)


def pair_groups(
    reference: Sequence[ParameterGroup], candidate: Sequence[ParameterGroup], name_map: NameMap
) -> PairedGroups:
    """Pair the groups of two optimizers of models that `name_map` is about; all names must be known."""
    mine, theirs = _places(reference), _places(candidate)
    targets, sources = defaultdict(list), defaultdict(list)
    for pairing in name_map.pairings:
        targets[pairing.source].append(pairing.target)
        sources[pairing.target].append(pairing.source)
    held: dict[tuple[int, int], list[str]] = defaultdict(list)
    for source, place in mine.items():
        for other in sorted({theirs[target] for target in targets[source] if target in theirs}):
            held[place, other].append(source)
    open_sources, open_targets = _open_names(name_map, mine, theirs, held)
    pairs = tuple(GroupPair(reference[a], candidate[b], tuple(names)) for (a, b), names in sorted(held.items()))
    return PairedGroups(
        pairs,
        tuple(one for one in mine if targets[one] and not any(target in theirs for target in targets[one])),
        tuple(one for one in theirs if sources[one] and not any(source in mine for source in sources[one])),
        (*open_sources, *open_targets),
    )


def _places(groups: Sequence[ParameterGroup]) -> dict[str, int]:
    return {name: number for number, group in enumerate(groups) for name in group.names or ()}


def _open_names(
    name_map: NameMap, mine: dict[str, int], theirs: dict[str, int], held: dict[tuple[int, int], list[str]]
) -> tuple[list[str], list[str]]:
    """Names of either side without a known counterpart; which one it is does not matter where all lie in one group."""
    paired = {one.source for one in name_map.pairings}, {one.target for one in name_map.pairings}
    open_names = [one for one in mine if one not in paired[0]], [one for one in theirs if one not in paired[1]]
    settled: set[str] = set()
    for group in name_map.ambiguous:
        places = {mine.get(one) for one in group.sources}, {theirs.get(one) for one in group.targets}
        if len(places[0]) == len(places[1]) == 1 and None not in places[0] | places[1]:
            held[places[0].pop() or 0, places[1].pop() or 0] += group.sources
            settled |= {*group.sources, *group.targets}
    return [one for one in open_names[0] if one not in settled], [one for one in open_names[1] if one not in settled]
