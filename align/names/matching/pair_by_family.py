"""The pairs that a family makes of two given sides, and the names that it knows but cannot pair here.

Such a name pairs at its place in the family or nowhere: where it has another width or is missing, another layer of the
same shape is not it, however alone that stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.name_map import Dropped, SideName, Unmatched
from align.names.map_from_family import map_from_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.core.name_map import Pairing
    from align.core.parameters import ParameterSet
    from align.rules.directed_rules import TargetFamily
    from align.rules.model_families import ModelFamily

    Groups = dict[str, list[Pairing]]


@dataclass(frozen=True, slots=True)
class FamilyPairs:
    """Pairs whose shapes agree, names that have a place which does not fit, and what only one side has."""

    pairings: tuple[Pairing, ...]
    unmatched: tuple[Unmatched, ...] = ()
    dropped: tuple[Dropped, ...] = ()


def pair_by_family(family: ModelFamily, source: ParameterSet, target: ParameterSet) -> FamilyPairs:
    """Pair two sides by a form of a family; raises MapError as `map_from_family`.

    A port whose layers are those of `mint` stands at the same places under torch's names.
    """
    backwards = source.framework == "mindspore"
    wanted: tuple[TargetFamily, ...] = ("torch",) if backwards else ("nn", "mint")
    agreed: Groups = {}
    refused: Groups = {}
    filled: set[str] = set()
    gone: set[str] = set()  # a count of batches, which only mint keeps
    for to in wanted:
        inferred = map_from_family(family, source.by_name, to)
        filled |= {fill.name for fill in inferred.fills}
        gone |= {drop.name for drop in inferred.name_map.dropped}
        for name, group in _by_source(inferred.name_map.pairings).items():
            if name not in agreed:
                fits = all(_agrees(pairing, source, target) for pairing in group)
                (agreed if fits else refused).setdefault(name, group)
        refused = {name: group for name, group in refused.items() if name not in agreed and name not in gone}
    refused |= _not_whole(agreed, refused)
    pairings = tuple(p for name, group in agreed.items() if name not in refused for p in group)
    spoken = {p.target for p in pairings} | filled
    return FamilyPairs(
        pairings,
        (
            *_refused_sources(refused, target),
            *_refused_targets(family, [name for name in target.names if name not in spoken], refused, source),
        ),
        (*_dropped(family, "source", source), *_dropped(family, "target", target)),
    )


def _by_source(pairings: Iterable[Pairing]) -> Groups:
    groups: Groups = {}
    for pairing in pairings:
        groups.setdefault(pairing.source, []).append(pairing)
    return groups


def _agrees(pairing: Pairing, source: ParameterSet, target: ParameterSet) -> bool:
    other = target.by_name.get(pairing.target)
    return other is not None and pairing.transform.output_shape(source.by_name[pairing.source].shape) == other.shape


def _not_whole(agreed: Groups, refused: Groups) -> Groups:
    """The sources that fit, but with others that do not make one target."""
    broken = {p.target for group in refused.values() for p in group}
    return {name: group for name, group in agreed.items() if any(p.target in broken for p in group)}


def _refused_sources(refused: Groups, target: ParameterSet) -> Iterator[Unmatched]:
    for name, group in refused.items():
        targets = [p.target for p in group]
        there = tuple(one for one in targets if one in target.by_name)
        yield Unmatched(name, "source", _reason(targets, target.by_name[there[0]].shape if there else None), there)


def _refused_targets(
    family: ModelFamily, names: Iterable[str], refused: Groups, source: ParameterSet
) -> Iterator[Unmatched]:
    backwards = source.framework == "torch"
    makers: dict[str, list[str]] = {}
    for pairing in (p for group in refused.values() for p in group):
        makers.setdefault(pairing.target, []).append(pairing.source)
    for name in names:
        place = family.place(name, backwards=backwards)
        if name in makers:
            shape = source.by_name[makers[name][0]].shape
            yield Unmatched(name, "target", _reason(makers[name], shape), tuple(makers[name]))
        elif place is not None and not family.reason_to_drop(name, _framework(backwards=backwards)):
            yield Unmatched(name, "target", _reason(place.paths, None))


def _reason(names: Iterable[str], shape: tuple[int, ...] | None) -> str:
    has = "which the other side does not have" if shape is None else f"which has shape {list(shape)}"
    return f"the family says {first_few(list(names))}, {has}"


def _dropped(family: ModelFamily, side: SideName, parameters: ParameterSet) -> Iterator[Dropped]:
    framework = _framework(backwards=parameters.framework == "mindspore")
    for name in parameters.names:
        if reason := family.reason_to_drop(name, framework):
            yield Dropped(name, side, reason)


def _framework(*, backwards: bool) -> str:
    return "mindspore" if backwards else "torch"
