"""A name map with what a trial found: new pairings, and the reasons of what stays open."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.names.by_value.settle_groups import SettledGroups


UNSEEN = "blind: no output of the trial's run depends on it"
UNTOLD = "of equal class and shape; a trial was run and does not tell: none is given what another is, or not one to one"
_CROSSED = "the names say {}, which stands elsewhere in the run"


def inverted_map(name_map: NameMap, target: ParameterSet, source: ParameterSet) -> NameMap:
    """The map from the target to the source, as far as its transforms can be undone."""
    return replace(
        name_map,
        source=target.label,
        target=source.label,
        pairings=tuple(inverted_pairings(name_map.pairings, source)),
        ambiguous=tuple(replace(one, sources=one.targets, targets=one.sources) for one in name_map.ambiguous),
    )


def inverted_pairings(pairings: Sequence[Pairing], source: ParameterSet) -> list[Pairing]:
    """Pairings back to their sources; those whose transform cannot be undone are left out."""
    found = []
    for pairing in pairings:
        own = source.by_name[pairing.source]
        with suppress(ValueError):
            back = pairing.transform.inverse(own.shape, own.dtype)
            found.append(replace(pairing, source=pairing.target, target=pairing.source, transform=back))
    return found


def with_trial(name_map: NameMap, found: SettledGroups, order: Sequence[str]) -> NameMap:
    """Return the map with the settled pairings in place of older ones and of their groups, in the source's order."""
    gone = {p.source for p in found.pairings}, {p.target for p in found.pairings}
    reopened = {name for group in found.reopened for name in group.sources}
    named = {p.source: p.target for p in name_map.pairings if p.sure}
    place = {name: index for index, name in enumerate(order)}
    kept = [p for p in name_map.pairings if p.source not in gone[0] | reopened and p.target not in gone[1]]
    new = [
        replace(p, note=_CROSSED.format(own)) if (own := named.get(p.source, p.target)) != p.target else p
        for p in found.pairings
    ]
    opened = gone[0] | reopened, gone[1] | {name for group in found.reopened for name in group.targets}
    ambiguous = [left for group in name_map.ambiguous for left in _left(group, opened, found.reasons)]
    ambiguous += [left for group in found.reopened for left in _left(group, gone, found.reasons)]
    return replace(
        name_map,
        pairings=tuple(sorted((*kept, *new), key=lambda pairing: place[pairing.source])),
        ambiguous=tuple(ambiguous),
    )


def with_blind(name_map: NameMap, blind: tuple[Set[str], Set[str]], before: NameMap) -> NameMap:
    """Return the map with a note at each pair of which a name is `blind` on its side.

    The other parameters of its layer tell where it belongs; where all are blind, a pair is what it was `before`.
    """
    known = {(p.source, p.target, p.transform): p for p in before.pairings}
    unseen = {id(p) for p in name_map.pairings if p.source in blind[0] or p.target in blind[1]}
    seen = {_owners(p) for p in name_map.pairings if id(p) not in unseen}
    pairings: list[Pairing] = []
    ambiguous = list(name_map.ambiguous)
    for pairing in name_map.pairings:
        own: Pairing | None = pairing
        if id(pairing) in unseen:
            if _owners(pairing) not in seen:
                own = known.get((pairing.source, pairing.target, pairing.transform))
            own = own and replace(own, note="; ".join(filter(None, (own.note, UNSEEN))))
        if own:
            pairings.append(own)
        else:
            ambiguous.append(Ambiguity((pairing.source,), (pairing.target,), UNSEEN))
    return replace(name_map, pairings=tuple(pairings), ambiguous=tuple(ambiguous))


def _owners(pairing: Pairing) -> tuple[str, str]:
    return pairing.source.rpartition(".")[0], pairing.target.rpartition(".")[0]


def _left(group: Ambiguity, gone: tuple[set[str], set[str]], reasons: Mapping[str, str]) -> Iterator[Ambiguity]:
    sources = tuple(name for name in group.sources if name not in gone[0])
    targets = tuple(name for name in group.targets if name not in gone[1])
    if sources or targets:
        said = dict.fromkeys(reasons[name] for name in (*sources, *targets) if name in reasons)
        yield replace(group, sources=sources, targets=targets, reason="; ".join(said) or UNTOLD)
