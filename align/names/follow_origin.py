"""An exported model beside the one that it may come from: what the export folded, turned or left out is found again.

The names that both sides have in common are matched first. What then has no counterpart is looked for by its value: an
export multiplies a BatchNorm into a convolution, keeps constants in the place of a table's rows, and leaves zeros out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.parameters import Origin, OriginNorm
from align.core.protocols import OriginFollower, SettingsReader
from align.names.thresholds import USUAL_NORM_EPSILON
from align.names.user_rules import NameRules
from align.rules.layer_rules import role_of, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Module, ParameterSet
    from align.models.open_side import Side

_TORCH_ATTRIBUTES = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
_NORM = "batch_norm"


def follow_origins(reference: Side, candidate: Side) -> tuple[Side, Side]:
    """Both sides, an exported one with its parameters as the other, which is not exported, knows them."""
    return followed_side(reference, candidate), followed_side(candidate, reference)


def followed_side(side: Side, origin: Side, *, same_values: bool = True) -> Side:
    """The side with what its origin tells of it; any side that is no export as it is.

    `same_values` tells whether the export is meant to have the origin's values.
    """
    if not isinstance(side.reader, OriginFollower) or isinstance(origin.reader, OriginFollower):
        return side
    theirs = origin.reader.read_parameters(origin.model, origin.label)
    own = side.reader.read_parameters(side.model, side.label)
    known = Origin(
        theirs,
        origin.reader.read_values(origin.model),
        tuple(_norms(theirs, _epsilons(origin))),
        _paired(own, theirs),
        _biases(theirs),
        frozenset(name for one in theirs.modules if rule_for(one.classes[:1]) for name in one.parameters),
        same_values,
    )
    return replace(side, model=side.reader.followed(side.model, known))


def _paired(own: ParameterSet, theirs: ParameterSet) -> dict[str, str]:
    from align.names.matching.match_names import match_names  # it needs SciPy, and a conversion imports this module

    pairs = match_names(own, theirs, NameRules()).pairings
    return {one.source: one.target for one in pairs}


def _epsilons(origin: Side) -> dict[str, float]:
    if not isinstance(origin.reader, SettingsReader):
        return {}
    layers = origin.reader.read_settings(origin.model)
    return {one.path: eps for one in layers if isinstance(eps := one.values.get("eps"), float)}


def _norms(side: ParameterSet, epsilons: dict[str, float]) -> Iterator[OriginNorm]:
    for module in side.modules:
        rule = rule_for(module.classes)
        if rule is None or rule[0].kind != _NORM:
            continue
        names = dict(_by_role(side, module))
        if set(names) == set(_TORCH_ATTRIBUTES.values()):
            yield OriginNorm(module.path, epsilons.get(module.path, USUAL_NORM_EPSILON), names)


def _by_role(side: ParameterSet, module: Module) -> Iterator[tuple[str, str]]:
    for name in module.parameters:
        role = role_of(module.classes, side.by_name[name].attribute) or ""
        if role in _TORCH_ATTRIBUTES:
            yield _TORCH_ATTRIBUTES[role], name


def _biases(side: ParameterSet) -> dict[str, str]:
    found = {}
    for module in side.modules:
        roles = dict(_by_role(side, module))
        if "weight" in roles and "bias" in roles:
            found[roles["weight"]] = roles["bias"]
    return found
