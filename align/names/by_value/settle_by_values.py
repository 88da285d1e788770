"""Where both sides have values, these say more than names: what one value tells of a map that names made.

Pairs that are sure and hold one value are not looked at further. What is open, or not sure, is settled; and a sure pair
of unequal values is parted where another of its shape alone has the equal one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.core.transforms import chained
from align.names.by_value.equal_values import EqualValue, pair_equal_values
from align.names.layers.read_layers import roles_by_name
from align.names.layers.weight_transforms import turned_and_reshaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet, Shape
    from align.core.transforms import Transform
    from align.names.by_value.equal_values import Values

Sides = tuple["ParameterSet", "ParameterSet"]


def pairs_by_values(name_map: NameMap, sides: Sides, values: tuple[Values, Values]) -> dict[str, Pairing]:
    """Return the pairs, by source, that values settle beside or against the map, and those that they confirm.

    What the user said stands.
    """
    said = (
        {p.source for p in name_map.pairings if p.evidence == "user"},
        {p.target for p in name_map.pairings if p.evidence == "user"},
    )
    free = [
        {n: tensor for n, tensor in own.items() if n not in spoken and side.by_name[n].tied_to is None}
        for own, spoken, side in zip(values, said, sides, strict=True)
    ]
    before = {p.source: p for p in name_map.pairings}
    layers = [roles_by_name(side) for side in sides]
    told: dict[str, Pairing] = {}
    known = _known(name_map, sides)
    for equal in pair_equal_values(free[0], free[1], known):
        mine = before.get(equal.source)
        if equal in known:
            told |= {equal.source: mine} if mine and mine.target == equal.target else {}
        elif layers[0][equal.source][0].aside == layers[1][equal.target][0].aside:
            told[equal.source] = _pairing(equal, sides, mine)
    return told


def with_value_pairs(name_map: NameMap, told: Mapping[str, Pairing]) -> NameMap:
    """The map that was made with these pairs as rules, with the evidence, transform and note of each."""
    pairings = (
        told[p.source] if p.source in told and p.target == told[p.source].target else p for p in name_map.pairings
    )
    return replace(name_map, pairings=tuple(pairings))


def _known(name_map: NameMap, sides: Sides) -> set[EqualValue]:
    """Pairs that values need not confirm, by the first name of each tensor."""
    found = set()
    for pairing in name_map.pairings:
        if pairing.confidence == 1:
            one, other = (side.by_name[n] for side, n in zip(sides, (pairing.source, pairing.target), strict=True))
            names = one.tied_to or one.name, other.tied_to or other.name
            found |= {
                EqualValue(*names, turned)
                for turned in (False, True)
                if _transform(one.shape, other.shape, turned) == pairing.transform
            }
    return found


def _pairing(equal: EqualValue, sides: Sides, before: Pairing | None) -> Pairing:
    one, other = sides[0].by_name[equal.source], sides[1].by_name[equal.target]
    transform = _transform(one.shape, other.shape, equal.turned)
    note = ""
    if before is not None and before.target != equal.target:
        note = f"the names say {before.target}, which holds another value"
    elif before is not None and before.transform != transform:
        note = "the names do not say that it is transposed, the values do"
    return Pairing(equal.source, equal.target, "values", 1.0, transform, note)


def _transform(before: Shape, wanted: Shape, turned: bool) -> Transform:
    """The transform between two shapes of one value, which may be a matrix and its transpose."""
    plain = tuple(length for length in before if length != 1)
    if not turned or len(plain) != 2:
        return turned_and_reshaped(before, wanted, turned=False)
    return chained(turned_and_reshaped(before, plain, turned=False), turned_and_reshaped(plain, wanted, turned=True))
