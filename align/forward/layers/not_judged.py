"""What matters in training alone, of which a run in evaluation mode shows nothing: it is told, and judges nothing."""

from __future__ import annotations

import shlex
from itertools import groupby
from typing import TYPE_CHECKING

from align.core.name_map import SIDES
from align.core.verdicts import Finding
from align.forward.layers.dropped_shares import compare_shares, describe_shares, folded_paths
from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.pair_layers import pair_layers
from align.rules.pitfalls import pitfalls
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.layer_settings import LayerSettings
    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSet
    from align.traces.module_calls import CallPairs

Settings = tuple["Mapping[str, LayerSettings]", "Mapping[str, LayerSettings]"]
_EXACT = ("int", "uint", "bool")  # dtypes that no optimizer trains


def not_judged(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, name_map: NameMap, calls: CallPairs
) -> Iterator[Finding]:
    """Tell settings that are unlike and show in training only, and parameters that one side alone trains.

    One note a kind. `settings` are by path, empty where they are not read. Layers are paired as in the run, and those
    that neither run called by their place.
    """
    if all(settings):
        pairs = _pairs(sides, settings, name_map, calls)
        lint = _command(sides)
        yield from _shares(sides, settings, pairs, calls)
        yield from _settings(pairs, sides[1].label, lint)
    yield from _frozen(sides, name_map)


def _pairs(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, name_map: NameMap, calls: CallPairs
) -> list[LayerPair]:
    """The pairs of the run; beside them, what is paired by the models alone of layers that are in none."""
    called: dict[tuple[str, str], bool] = {}
    for pair in calls.pairs:
        key = pair.reference.module, pair.candidate.module
        if key[0] in settings[0] and key[1] in settings[1]:
            called[key] = called.get(key, False) or pair.certain
    run = [LayerPair(settings[0][one], settings[1][other], sure) for (one, other), sure in called.items()]
    done = {one for one, _ in called}, {other for _, other in called}
    built, _ = pair_layers(sides, name_map, (settings[0], settings[1]))
    return run + [one for one in built if one.reference.path not in done[0] and one.candidate.path not in done[1]]


def _shares(
    sides: tuple[ParameterSet, ParameterSet], settings: Settings, pairs: Sequence[LayerPair], calls: CallPairs
) -> Iterator[Finding]:
    """What layers drop in training, one by one where they are surely the same."""
    sure = [(pair.reference.path, pair.candidate.path) for pair in pairs if pair.certain]
    mine, theirs = (frozenset(one.module for one in calls.unpaired if one.side == side) for side in SIDES)
    compared = compare_shares(settings, sure, (mine, theirs))
    if shares := describe_shares(compared):
        layers = len(compared.pairs) + sum(map(len, compared.alone))
        message = sentence("forward_finding.dropped_shares_not_judged", shares=shares)
        yield _note(sides[1].label, message, "dropout", layers)


def _settings(pairs: Sequence[LayerPair], label: str, lint: str) -> Iterator[Finding]:
    """Other settings of layers that surely correspond, a note for each rule."""
    rules = [rule for rule in pitfalls() if rule.training_only and rule.absent is None]
    found = [one for one in compare_settings(pairs, rules).findings if one.certain]
    for rule, group in groupby(sorted(found, key=lambda one: one.rule), key=lambda one: one.rule):
        own = list(group)
        first = own[0]
        message = sentence(
            "forward_finding.setting_not_judged",
            setting=first.setting,
            count=len(own),
            layers=folded_paths([one.candidate for one in own]),
            reference=first.reference_setting,
            candidate=first.candidate_setting,
            effect=first.effect,
            change=first.change,
            command=lint,
        )
        yield _note(label, message, rule, len(own))


def _command(sides: tuple[ParameterSet, ParameterSet]) -> str:
    """The command that lists all settings, of sides that a command can open."""
    labels = [side.label for side in sides]
    return shlex.join(["align", "lint", *labels]) if all(":" in label for label in labels) else ""


def _frozen(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> Iterator[Finding]:
    """Parameters that training moves on one side alone: frozen, or no parameters, on the other."""
    still: dict[str, list[str]] = {side: [] for side in SIDES}
    for one in name_map.pairings:
        mine, theirs = sides[0].by_name.get(one.source), sides[1].by_name.get(one.target)
        trained = _is_trained(mine), _is_trained(theirs)
        if trained == (False, True):
            still["reference"].append(one.source)
        if trained == (True, False):
            still["candidate"].append(one.target)
    for side, names in still.items():
        if own := list(dict.fromkeys(names)):
            message = sentence(
                "forward_finding.frozen_not_judged", count=len(own), side=side, parameters=folded_paths(own)
            )
            yield _note(sides[1].label, message, "requires_grad", len(own), "parameters")


def _is_trained(parameter: Parameter | None) -> bool | None:
    """None where it is not known, or where no training could move it."""
    if parameter is None or parameter.dtype.startswith(_EXACT):
        return None
    return False if parameter.buffer else parameter.trainable


def _note(label: str, message: str, setting: str, number: int, counts: str = "layers") -> Finding:
    return Finding("not-judged", "note", label, message, {"setting": setting, counts: number})
