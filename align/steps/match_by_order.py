"""What names leave open is read from the order in which both models call their layers; what names tell stays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from align.steps.match import match_names

if TYPE_CHECKING:
    from align.core.names import NameMap
    from align.core.parameters import ParameterSet
    from align.core.rename import NameRules
    from align.core.transforms import Transform

# Two correct ports may call two branches in another order.
_BY_ORDER = 0.75


def match_by_order(name_map: NameMap, source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the map with those ambiguous groups paired, not surely, that the order of execution of both sides tells.

    Sides that do not both stand in that order, and a map that leaves nothing open, change nothing.
    """
    if not name_map.ambiguous or not source.order == target.order == "execution":
        return name_map
    known = {(p.source, p.target): p for p in name_map.pairings}
    targets: dict[str, list[tuple[str, Transform]]] = defaultdict(list)
    for pairing in name_map.pairings:
        targets[pairing.source].append((pairing.target, pairing.transform))
    names = {name: found[0] for name, found in targets.items()}
    further = {name: tuple(found[1:]) for name, found in targets.items() if len(found) > 1}
    fixed = replace(rules, names=rules.names | names, further={**rules.further, **further})
    again = replace(match_names(source, target, fixed), frameworks=name_map.frameworks)
    pairings = (
        known.get((p.source, p.target)) or replace(p, confidence=min(p.confidence, _BY_ORDER)) for p in again.pairings
    )
    return replace(again, pairings=tuple(pairings))
