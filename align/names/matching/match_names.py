"""Which parameter of the source is which of the target: by the user's rules, by name, by layer class, by structure.

What the evidence does not settle is AMBIGUOUS and stays unpaired: a wrong pair is worse than ten open ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import NameMap, Pairing
from align.names.apply_user_rules import apply_rules_to_sides
from align.names.layers.outer_wrappers import without_outer_wrappers
from align.names.layers.read_layers import roles_by_name
from align.names.layers.weight_transforms import transform_between
from align.names.matching.explain_unpaired import explain_unpaired
from align.names.matching.follow_fused import follow_fused
from align.names.matching.match_in_stages import match_in_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.name_map import Evidence
    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair
    from align.names.user_rules import NameRules

_UNSURE = 0.7
Sides = tuple["ParameterSet", "ParameterSet"]


def match_names(source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the name map of two sides, complete or not.

    Raises MapError if the rules contradict each other or the shapes. Order is taken as evidence only where both sides
    stand in execution order.
    """
    ruled = apply_rules_to_sides(rules, source, target)
    sides = without_outer_wrappers(source, target)
    spoken = {p.source for p in ruled.pairings}, {p.target for p in ruled.pairings}
    for drop in ruled.dropped:
        spoken[drop.side == "target"].add(drop.name)
    followed = follow_fused(sides, ruled.pairings, spoken)
    spoken[0].update(pairing.source for pairing in followed)
    spoken[1].update(pairing.target for pairing in followed)
    ordered = source.order == target.order == "execution"
    matched = match_in_stages(sides, spoken, _taught_layers(sides, ruled.pairings), ordered)
    open_names = {name for group in matched.ambiguous for name in group.sources}
    found = [one for (a, b), sure in matched.pairs for one in _pair_roles(a, b, sure, None)]
    found += [one for (a, b), sure in matched.other_forms for one in _pair_roles(a, b, sure, "structure")]
    found = [one for one in found if _free(one, spoken) and one.source not in open_names]
    found = [_unsure(one, matched.notes[one.source]) if one.source in matched.notes else one for one in found]
    pairings = [*ruled.pairings, *followed, *found, *matched.fused]
    layers = [pair for pair, _ in (*matched.pairs, *matched.other_forms)]
    dropped, unmatched = explain_unpaired(sides, ruled.dropped, pairings, matched.ambiguous, layers)
    place = {name: index for index, name in enumerate(source.names)}
    return NameMap(
        source=source.label,
        target=target.label,
        pairings=tuple(sorted(pairings, key=lambda pairing: place[pairing.source])),
        dropped=tuple(dropped),
        ambiguous=tuple(matched.ambiguous),
        unmatched=tuple(unmatched),
        unused_rules=ruled.unused_rules,
    )


def _taught_layers(sides: Sides, ruled: Sequence[Pairing]) -> list[Pair]:
    """Layers that the user's pairs join one to one: the rest of their parameters follows."""
    if not ruled:
        return []
    left, right = (roles_by_name(side) for side in sides)
    layers = [(left[p.source][0], right[p.target][0]) for p in ruled]
    joined = {(a.path, b.path): (a, b) for a, b in layers}
    sources, targets = Counter(path for path, _ in joined), Counter(path for _, path in joined)
    return [pair for (x, y), pair in joined.items() if sources[x] == targets[y] == 1]


def _pair_roles(a: Layer, b: Layer, confidence: float, evidence: Evidence | None) -> Iterator[Pairing]:
    for role, mine in a.roles.items():
        if role in b.roles and a.shapes[role] == b.shapes[role]:
            theirs = b.roles[role]
            transform = transform_between(a, b, role)
            found = evidence or ("name" if mine.name == theirs.name else "rule" if a.path == b.path else "structure")
            yield Pairing(mine.name, theirs.name, found, confidence, transform)


def _unsure(pairing: Pairing, note: str) -> Pairing:
    return replace(pairing, confidence=min(pairing.confidence, _UNSURE), note=note)


def _free(pairing: Pairing, spoken: tuple[set[str], set[str]]) -> bool:
    return pairing.source not in spoken[0] and pairing.target not in spoken[1]
