"""Which layer's settings are to be compared with which: paired as for a run that calls every module once, in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from align.core.traces import Capture
from align.lint.compare_settings import LayerPair
from align.models.padding_in_code import is_padded_by_code
from align.rules.layer_rules import rule_for
from align.traces.module_calls import CalledModules
from align.traces.pair_calls import pair_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.layer_settings import LayerSettings
    from align.core.name_map import NameMap
    from align.core.parameters import Module, ParameterSet
    from align.core.protocols import Model
    from align.traces.module_calls import CallPair

PADS = "mindspore.nn.Pad"  # the only padding layer that no layer rule knows: it has no counterpart in torch


def pair_layers(
    sides: tuple[ParameterSet, ParameterSet],
    name_map: NameMap,
    settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]],
) -> tuple[list[LayerPair], tuple[list[LayerSettings], list[LayerSettings]]]:
    """Return the pairs in the reference's order and, of each side, the layers without a counterpart.

    `settings` are by path. Modules around others are certain where they hold the same parameters and are of one kind.
    """
    left = CalledModules(_calls_in_tree_order(sides[0]), sides[0], name_map, "source")
    right = CalledModules(_calls_in_tree_order(sides[1]), sides[1], name_map, "target")
    calls = pair_calls(left, right)
    padded = _behind_padding(left, settings[0]), _behind_padding(right, settings[1])

    def layers(pair: CallPair) -> LayerPair:
        mine, theirs = pair.reference, pair.candidate
        certain = pair.certain or bool(left.holds(mine) and mine.kind and mine.kind == theirs.kind)
        behind = (mine.module in padded[0]) != (theirs.module in padded[1])
        both = settings[0][mine.module], settings[1][theirs.module]
        return LayerPair(*both, certain, (mine.kind, theirs.kind), behind)

    alone = (
        [settings[0][one.module] for one in calls.unpaired if one.side == "reference"],
        [settings[1][one.module] for one in calls.unpaired if one.side == "candidate"],
    )
    return [layers(pair) for pair in calls.pairs], alone


def mark_padded_in_code(pair: LayerPair, models: tuple[Model, Model]) -> LayerPair:
    """Mark a pair of which one layer alone is given what the user's code pads by a function."""
    layers = pair.reference, pair.candidate
    mine, theirs = (is_padded_by_code(model, layer.path) for model, layer in zip(models, layers, strict=True))
    return replace(pair, padded=True) if mine != theirs else pair


def _behind_padding(side: CalledModules, settings: Mapping[str, LayerSettings]) -> set[str]:
    """Paths of the layers that stand right behind one that pads."""
    return {after.module for before, after in pairwise(side.leaves) if _pads(settings[before.module])}


def _pads(layer: LayerSettings) -> bool:
    rule = rule_for(layer.classes)
    return PADS in layer.classes or (rule is not None and rule[0].kind.endswith("_pad"))


def _calls_in_tree_order(side: ParameterSet) -> list[Capture]:
    """Return a capture of unknown output for each module; it comes after all modules inside, as it returns later."""
    return [Capture(order, one.path, 0, "", one.class_name, (), "") for order, one in enumerate(_returned(side))]


def _returned(side: ParameterSet) -> Iterator[Module]:
    around: list[Module] = []
    for module in side.modules:
        while around and around[-1].path and not module.path.startswith(f"{around[-1].path}."):
            yield around.pop()
        around.append(module)
    yield from reversed(around)
