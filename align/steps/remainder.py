"""What is left when all pairs are made: dropped for a stated reason, or unmatched with the names that come closest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from align.core.constants import constant_reason
from align.core.folding import NUMBER
from align.core.mappings import rule_for
from align.core.names import Dropped, Unmatched
from align.steps.layers import read_layers, roles_by_name, whole_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.names import Ambiguity, NameMap, Pairing, SideName
    from align.core.parameters import Parameter, ParameterSet
    from align.steps.evidence import Pair
    from align.steps.layers import Layer

_SUGGESTIONS = 3
_CLOSE = 0.4
_MANY = 500
_PARTS = (
    "and no map makes the whole of its parts: take torch's weight_norm, spectral_norm or pruning out of the model first"
    " (remove_weight_norm, parametrize.remove_parametrizations, prune.remove)"
)
_SIDES: tuple[SideName, SideName] = ("source", "target")


def explain_remainder(
    sides: tuple[ParameterSet, ParameterSet],
    ruled: Sequence[Dropped],
    pairings: Sequence[Pairing],
    ambiguous: Sequence[Ambiguity],
    layers: Sequence[Pair],
) -> tuple[list[Dropped], list[Unmatched]]:
    """Return what is dropped and what is unmatched on both sides, in the order of their names.

    `ruled` was dropped by the user; `layers` are the pairs of layers that `pairings` come from.
    """
    paired = {p.source for p in pairings}, {p.target for p in pairings}
    in_groups = {n for group in ambiguous for n in group.sources}, {n for group in ambiguous for n in group.targets}
    rest = []
    for index, side in enumerate(sides):
        spoken = paired[index] | in_groups[index] | {d.name for d in ruled if d.side == _SIDES[index]}
        rest.append([p for p in side.parameters if p.name not in spoken])
    dropped = list(ruled)
    unmatched: list[Unmatched] = []
    for index, name in enumerate(_SIDES):
        counterparts = {p.name: pair[1 - index] for pair in layers for p in pair[index].roles.values()}
        if not rest[index]:
            continue
        reasons = _constants(sides[index], rest[index]) | _drop_reasons(sides, index, counterparts)
        reasons |= _tie_reasons(sides[index], paired[index])
        seen = _Remainder(name, counterparts, _few(rest[1 - index]), sides[1 - index], _parts(rest[1 - index]))
        for parameter in rest[index]:
            if reason := reasons.get(parameter.name):
                dropped.append(Dropped(parameter.name, name, reason))
            else:
                unmatched.append(seen.explain(parameter))
    return dropped, unmatched


def explain_anew(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> NameMap:
    """Return the map with what is not paired explained by the pairings that it has now.

    Of a group that has lost all names of one side, the others are unmatched.
    """
    left, right = (roles_by_name(side) for side in sides)
    layers = [
        (left[p.source][0], right[p.target][0]) for p in name_map.pairings if p.source in left and p.target in right
    ]
    ambiguous = [group for group in name_map.ambiguous if group.sources and group.targets]
    dropped, unmatched = explain_remainder(sides, name_map.dropped, name_map.pairings, ambiguous, layers)
    return replace(name_map, ambiguous=tuple(ambiguous), dropped=tuple(dropped), unmatched=tuple(unmatched))


def _parts(rest: Iterable[Parameter]) -> dict[str, list[str]]:
    """The names of the parts of each weight that is kept in parts."""
    parts: dict[str, list[str]] = {}
    for parameter in rest:
        if whole := whole_of(parameter):
            parts.setdefault(whole, []).append(parameter.name)
    return parts


def _few(rest: list[Parameter]) -> list[Parameter]:
    """The parameters, or where they are many, the first of those that differ in their numbers alone."""
    if len(rest) <= _MANY:
        return rest
    return list({(NUMBER.sub("#", p.name), p.shape): p for p in reversed(rest)}.values())[::-1]


def _tie_reasons(side: ParameterSet, paired: set[str]) -> dict[str, str]:
    """Reasons, by name, for names of a tensor that is paired under another of its names."""
    tensors = {p.tied_to or p.name: p.name for p in side.parameters if p.name in paired}
    return {
        p.name: f"the same tensor as {tensors[p.tied_to or p.name]}, which is paired"
        for p in side.parameters
        if (p.tied_to or p.name) in tensors
    }


def _constants(side: ParameterSet, rest: Iterable[Parameter]) -> dict[str, str]:
    """Reasons, by name, for tensors that a model computes from its settings alone."""
    known = {module.path for module in side.modules if rule_for(module.classes)}
    reasons = {p.name: constant_reason(p, known_layer=p.module in known) for p in rest}
    return {name: reason for name, reason in reasons.items() if reason}


def _drop_reasons(
    sides: tuple[ParameterSet, ParameterSet], index: int, counterparts: dict[str, Layer]
) -> dict[str, str]:
    """Reasons, by name, for roles that the counterpart, or the other side's layers of the same kind, do not have."""
    own, others = read_layers(sides[index]), read_layers(sides[1 - index])
    reasons = {(layer.kind, role): reason for layer in others for role, reason in layer.dropped.items()}
    found = {}
    for layer in own:
        for role, parameter in layer.roles.items():
            counterpart = counterparts.get(parameter.name)
            reason = reasons.get((layer.kind, role)) if counterpart is None else counterpart.dropped.get(role)
            if reason:
                found[parameter.name] = reason
    return found


@dataclass(frozen=True, slots=True)
class _Remainder:
    """What a parameter without a counterpart is held against; `rest` is what is left on the `other` side.

    `parts` are those of its weights that it keeps in parts.
    """

    side: SideName
    counterparts: dict[str, Layer]
    rest: list[Parameter]
    other: ParameterSet
    parts: dict[str, list[str]]

    def explain(self, parameter: Parameter) -> Unmatched:
        """Say why a parameter has no counterpart, with the names that come closest."""
        if whole := whole_of(parameter):
            return Unmatched(parameter.name, self.side, f"it is a part of {whole}, {_PARTS}")
        if parts := self.parts.get(parameter.name):
            return Unmatched(parameter.name, self.side, f"the other side has it in parts, {_PARTS}", tuple(parts))
        shape = list(parameter.shape)
        same_shape = [p for p in self.rest if p.shape == parameter.shape]
        close = _closest(parameter, same_shape)
        namesake = self.other.by_name.get(parameter.name)
        if layer := self.counterparts.get(parameter.name):
            reason = f"its layer is paired with {layer.path or 'the root'}, which has no such parameter"
        elif same_shape:
            reason = f"what is left of shape {shape} is of another class, or part of an auxiliary head or a copy"
        elif namesake is not None and namesake.shape != parameter.shape:
            reason = f"shape {shape}, the parameter of this name has {list(namesake.shape)}"
            close = [namesake]
        elif close := _closest(parameter, [p for p in self.rest if len(p.shape) == len(parameter.shape)]):
            reason = f"nothing is left of shape {shape}, the closest name has {list(close[0].shape)}"
        else:
            reason = f"nothing is left of shape {shape} on the other side"
        return Unmatched(parameter.name, self.side, reason, tuple(p.name for p in close))


def _closest(parameter: Parameter, candidates: Iterable[Parameter]) -> list[Parameter]:
    by_name = {p.name: p for p in candidates}
    return [by_name[name] for name in get_close_matches(parameter.name, by_name, _SUGGESTIONS, _CLOSE)]
