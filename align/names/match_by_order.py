"""What names leave open is read from the order in which both models call their layers; what names tell stays.

A sure pair that this order contradicts stays too, but is no longer sure: a correct port may call its shortcut first,
and a wrong one may call two blocks the other way round. A trial tells them apart.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from align.models.fit_inputs import run_fitted
from align.names.layers.read_layers import LayeredSides
from align.names.matching.match_names import match_names
from align.names.thresholds import CONFIDENCE_BY_ORDER
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture
    from align.core.transforms import Transform
    from align.models.open_side import Side
    from align.names.user_rules import NameRules

    _Call = tuple[int, int, Pairing]

_CROSSED = sentence("pair_note.another_order")


def settle_by_order(
    name_map: NameMap,
    sides: tuple[Side, Side],
    parameters: tuple[ParameterSet, ParameterSet],
    inputs: Mapping[str, Array],
    rules: NameRules,
) -> tuple[NameMap, list[tuple[str, list[str]]]]:
    """Run both sides once; return the map as the order of execution has it, and what of each side did not run."""
    source, target = (_executed(side, own, inputs) for side, own in zip(sides, parameters, strict=True))
    unseen = [(side.label, unseen_modules(side)) for side in (source, target)]
    return match_by_order(name_map, source, target, rules), unseen


def unseen_modules(side: ParameterSet) -> list[str]:
    """The paths of modules with parameters that were not seen to run."""
    return [module.path for module in side.modules if module.parameters and not module.ran]


def match_by_order(name_map: NameMap, source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Return the map with those ambiguous groups paired, not surely, that the order of execution of both sides tells.

    Sides that do not both stand in that order change nothing.
    """
    if not source.order == target.order == "execution":
        return name_map
    again = _paired(name_map, source, target, rules) if name_map.ambiguous else name_map
    return _doubted(again, LayeredSides((source, target)))


def _paired(name_map: NameMap, source: ParameterSet, target: ParameterSet, rules: NameRules) -> NameMap:
    """Match again with all pairs of the map as rules; what is new rests on the order."""
    known = {(p.source, p.target): p for p in name_map.pairings}
    targets: dict[str, list[tuple[str, Transform]]] = defaultdict(list)
    for pairing in name_map.pairings:
        targets[pairing.source].append((pairing.target, pairing.transform))
    names = {name: found[0] for name, found in targets.items()}
    further = {name: tuple(found[1:]) for name, found in targets.items() if len(found) > 1}
    fixed = replace(rules, names=rules.names | names, further={**rules.further, **further})
    again = replace(match_names(source, target, fixed), frameworks=name_map.frameworks)
    pairings = (
        known.get((p.source, p.target)) or replace(p, confidence=min(p.confidence, CONFIDENCE_BY_ORDER))
        for p in again.pairings
    )
    return replace(again, pairings=tuple(pairings))


def _doubted(name_map: NameMap, sides: LayeredSides) -> NameMap:
    """The map with those sure pairs doubted that cross another pair of their kind and shape in the order of calls."""
    left, right = (_places(side) for side in sides.parameters)
    roles = sides.roles[0]
    rivals: dict[object, list[_Call]] = defaultdict(list)
    for pairing in name_map.pairings:
        if pairing.source in roles and pairing.source in left and pairing.target in right:
            layer, role = roles[pairing.source]
            place = left[pairing.source], right[pairing.target]
            rivals[layer.kind, layer.signature, role].append((*place, pairing))
    crossed = {id(pairing) for calls in rivals.values() for pairing in _crossing(calls)}
    pairings = (
        replace(p, confidence=min(p.confidence, CONFIDENCE_BY_ORDER), note=p.note or _CROSSED)
        if id(p) in crossed and p.sure and p.evidence not in ("user", "values")
        else p
        for p in name_map.pairings
    )
    return replace(name_map, pairings=tuple(pairings))


def _places(side: ParameterSet) -> dict[str, int]:
    """The place of each parameter's module among those that ran."""
    ran = [module for module in side.modules if module.ran]
    return {name: place for place, module in enumerate(ran) for name in module.parameters}


def _crossing(calls: Sequence[_Call]) -> list[Pairing]:
    """Pairs before which, in the source, something is called that the target calls later, or the other way round."""
    calls = sorted(calls, key=lambda call: call[0])
    after = [target for _, target, _ in calls]
    highest = list(accumulate(after, max))
    lowest = list(accumulate(reversed(after), min))[::-1]
    return [
        pairing
        for number, (_, target, pairing) in enumerate(calls)
        if highest[number] > target or lowest[number] < target
    ]


@dataclass
class CallOrder:
    """A CaptureSink that only remembers when each module first returned."""

    first: dict[str, int] = field(default_factory=dict)

    def add(self, capture: Capture, value: Array) -> None:  # noqa: ARG002
        """Note a module."""
        self.first.setdefault(capture.module, capture.order)


def in_execution_order(side: ParameterSet, order: CallOrder) -> ParameterSet:
    """Return the side with its modules in the order of their first return, and those marked that were not seen to run.

    Those stand where the module around them ended; their tensors may have been used past them, as attention uses its
    output projection. If no module with parameters was seen, the order of registration stays.
    """
    modules = tuple(m if m.path in order.first else replace(m, ran=False) for m in side.modules)
    if not any(module.parameters and module.ran for module in modules):
        return replace(side, modules=modules)
    modules = tuple(sorted(modules, key=lambda module: _end(module.path, order.first)))
    return replace(side, modules=modules, order="execution")


def _end(path: str, first: Mapping[str, int]) -> int:
    while path and path not in first:
        path = path.rpartition(".")[0]
    return first.get(path, len(first))


def _executed(side: Side, parameters: ParameterSet, inputs: Mapping[str, Array]) -> ParameterSet:
    """The parameters in execution order where it is known."""
    orders: list[CallOrder] = []

    def run(given: Inputs) -> None:
        orders.append(CallOrder())
        side.runner.run(side.model, given, orders[-1])

    run_fitted(side, inputs, run)
    return in_execution_order(parameters, orders[-1])
