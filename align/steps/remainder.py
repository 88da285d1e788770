"""What is left when all pairs are made: dropped for a stated reason, or unmatched with the names that come closest."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from align.core.names import Dropped, Unmatched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.names import Ambiguity, NameMap, Pairing, SideName
    from align.core.parameters import Parameter, ParameterSet
    from align.steps.layers import Layer

_SUGGESTIONS = 3
_CLOSE = 0.4


def explain_remainder(
    sides: tuple[ParameterSet, ParameterSet],
    layers: tuple[list[Layer], list[Layer]],
    ruled: NameMap,
    pairings: Sequence[Pairing],
    ambiguous: Sequence[Ambiguity],
) -> tuple[list[Dropped], list[Unmatched]]:
    """Return what is dropped and what is unmatched on both sides, in the order of their names."""
    paired = {p.source for p in pairings}, {p.target for p in pairings}
    in_groups = {n for group in ambiguous for n in group.sources}, {n for group in ambiguous for n in group.targets}
    dropped = list(ruled.dropped)
    unmatched: list[Unmatched] = []
    rest = []
    names: tuple[SideName, SideName] = ("source", "target")
    for index, side in enumerate(names):
        spoken = paired[index] | in_groups[index] | {d.name for d in dropped if d.side == side}
        rest.append([p for p in sides[index].parameters if p.name not in spoken])
    for index, side in enumerate(names):
        reasons = _drop_reasons(layers[index], layers[1 - index])
        for parameter in rest[index]:
            reason = _tie_reason(parameter, paired[index]) or reasons.get(parameter.name)
            if reason:
                dropped.append(Dropped(parameter.name, side, reason))
            else:
                unmatched.append(_unmatched(parameter, side, rest[1 - index], sides[1 - index]))
    return dropped, unmatched


def _tie_reason(parameter: Parameter, paired: set[str]) -> str:
    if parameter.tied_to in paired:
        return f"the same tensor as {parameter.tied_to}, which is paired"
    return ""


def _drop_reasons(own: list[Layer], others: list[Layer]) -> dict[str, str]:
    """Reasons, by name, for roles that the other side's layers of the same kind do not have."""
    reasons = {(layer.kind, role): reason for layer in others for role, reason in layer.dropped.items()}
    return {
        parameter.name: reasons[layer.kind, role]
        for layer in own
        for role, parameter in layer.roles.items()
        if (layer.kind, role) in reasons
    }


def _unmatched(parameter: Parameter, side: SideName, rest: list[Parameter], other: ParameterSet) -> Unmatched:
    same_shape = [p.name for p in rest if p.shape == parameter.shape]
    if close := get_close_matches(parameter.name, same_shape, _SUGGESTIONS, _CLOSE):
        reason = "no layer of this class and shape is left on the other side"
        return Unmatched(parameter.name, side, reason, tuple(close))
    namesake = other.by_name.get(parameter.name)
    if namesake is not None and namesake.shape != parameter.shape:
        reason = f"shape {list(parameter.shape)}, the parameter of this name has {list(namesake.shape)}"
        return Unmatched(parameter.name, side, reason, (namesake.name,))
    reason = f"the other side has no free parameter of shape {list(parameter.shape)}"
    close = get_close_matches(parameter.name, [p.name for p in rest], _SUGGESTIONS, _CLOSE)
    return Unmatched(parameter.name, side, reason, tuple(close))
