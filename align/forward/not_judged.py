"""What matters in training alone, of which a run in evaluation mode shows nothing: it is reported, and not judged.

Layers that drop a share of their values are compared one by one where they are surely one layer, the others by the
shares that each side has: which of them is which is not known, and one side may drop in code.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from align.core.name_map import SIDES
from align.core.verdicts import Finding
from align.forward.thresholds import SHARE_DIGITS
from align.lint.compare_settings import LayerPair, compare_settings, pair_layers
from align.names.fold_names import fold_alike
from align.rules.pitfalls import equal_settings, pitfalls
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeGuard

    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSet
    from align.core.protocols import LayerSettings, Setting
    from align.traces.module_calls import CallPairs


Settings = tuple["Mapping[str, LayerSettings]", "Mapping[str, LayerSettings]"]
_EXACT = ("int", "uint", "bool")  # dtypes that no optimizer trains
# Layers of users' own classes: what they are called, and where they keep the share that they drop, or keep.
_DROPS = re.compile(r"drop|stochastic_?depth", re.IGNORECASE)
_PATH = re.compile(r"path|depth", re.IGNORECASE)
_CHANNELS = re.compile(r"[123]d")
_DROPPED = ("p", "drop_prob", "drop_rate", "drop_path", "drop_path_prob", "dropout", "dropout_prob", "prob", "rate")
_KEPT = "keep_prob"


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


@dataclass(frozen=True, slots=True)
class DroppedShare:
    """The share that one layer drops, as its class is given it, and what it drops: values, channels or paths."""

    path: str
    share: float
    setting: str
    drops: str


@dataclass(frozen=True, slots=True)
class ComparedShares:
    """Layers of both sides that drop another share, and the layers of either side whose share the other one lacks."""

    pairs: tuple[tuple[DroppedShare, DroppedShare], ...]
    alone: tuple[tuple[DroppedShare, ...], tuple[DroppedShare, ...]]


def compare_shares(
    settings: Settings, sure: Iterable[tuple[str, str]], called: tuple[frozenset[str], frozenset[str]]
) -> ComparedShares:
    """Compare the shares of two models; `sure` are the paths of layers that correspond, `called` ran without any."""
    mine, theirs = ({one.path: one for one in _dropped_shares(side)} for side in settings)
    pairs = [(mine[left], theirs[right]) for left, right in sure if left in mine and right in theirs]
    first = _Side(settings[0], mine, frozenset(one.path for one, _ in pairs), called[0])
    second = _Side(settings[1], theirs, frozenset(other.path for _, other in pairs), called[1])
    unlike = tuple(pair for pair in pairs if not equal_settings(pair[0].share, pair[1].share))
    return ComparedShares(unlike, (tuple(_alone(first, second)), tuple(_alone(second, first))))


@dataclass(frozen=True, slots=True)
class _Side:
    """The layers that drop, by path, those that are `paired`, and those that were `called` without a counterpart."""

    settings: Mapping[str, LayerSettings]
    layers: Mapping[str, DroppedShare]
    paired: frozenset[str]
    called: frozenset[str]

    @property
    def kept_in_code(self) -> set[float]:
        """Shares that modules keep which drop nothing themselves, as `self.dropout = 0.1` for a function."""
        values = [
            value
            for path, layer in self.settings.items()
            if not self.layers.keys() & {path, *_ancestors(path)}
            for name, value in layer.values.items()
            if _DROPS.search(name) and _is_share(value)
        ]
        return {round(share, SHARE_DIGITS) for value in values for share in (value, 1 - value)}


def describe_shares(compared: ComparedShares) -> str:
    """Say which shares are unlike, and which one side alone has; "" if none."""
    unlike: dict[tuple[str, str], list[str]] = {}
    for mine, theirs in compared.pairs:
        unlike.setdefault((mine.setting, theirs.setting), []).append(theirs.path)
    parts: list[str] = []
    for (one, other), paths in unlike.items():
        key = "forward_finding.shares_unlike"
        parts.append(sentence(key, reference=one, candidate=other, count=len(paths), layers=folded_paths(paths)))
    for side, shares in zip(SIDES, compared.alone, strict=True):
        alone: dict[str, list[str]] = {}
        for share in shares:
            alone.setdefault(share.setting, []).append(share.path)
        for setting, paths in alone.items():
            key = "forward_finding.share_of_one_side"
            parts.append(sentence(key, setting=setting, side=side, count=len(paths), layers=folded_paths(paths)))
    return joined("; ", parts) if parts else ""


def folded_paths(paths: list[str]) -> list[str]:
    """The paths of layers, those that differ in their numbers only as one."""
    return [path or sentence("model_part.model_itself") for path, _ in fold_alike((path, None) for path in paths)]


def _dropped_shares(settings: Mapping[str, LayerSettings]) -> list[DroppedShare]:
    """All shares of a side; a layer inside one that drops is a part of it."""
    found = [share for layer in settings.values() if (share := _dropped_share(layer))]
    paths = {one.path for one in found}
    return [one for one in found if paths.isdisjoint(_ancestors(one.path))]


def _dropped_share(layer: LayerSettings) -> DroppedShare | None:
    for rule in pitfalls():
        form = rule.form_of(layer.classes) if rule.absent is not None else None
        if form and form.readable(layer.values) and _is_share(value := form.read(layer.values, layer.classes)):
            return _named(layer, value, form.show(layer.values, layer.classes))
    if not _DROPS.search(_class_name(layer)):
        return None
    for name in (*_DROPPED, _KEPT):
        if _is_share(value := layer.values.get(name)):
            return _named(layer, 1 - value if name == _KEPT else value, f"{name}={value}")
    return None


def _named(layer: LayerSettings, share: float, setting: str) -> DroppedShare:
    name = _class_name(layer)
    drops = "paths" if _PATH.search(name) else "channels" if _CHANNELS.search(name) else "values"
    return DroppedShare(layer.path, round(share, SHARE_DIGITS), setting, drops)


def _alone(own: _Side, other: _Side) -> Iterator[DroppedShare]:
    """Layers without a sure counterpart whose share the other side has nowhere, nor keeps for its code.

    One that ran must have its counterpart among the layers that are not paired either; another one may be a second
    name of one that is.
    """
    held = {(one.drops, one.share) for one in other.layers.values()}
    free = {(one.drops, one.share) for path, one in other.layers.items() if path not in other.paired}
    in_code = other.kept_in_code
    for path, one in own.layers.items():
        known = (one.drops, one.share) in (free if path in own.called else held)
        if one.share and path not in own.paired and not known and one.share not in in_code:
            yield one


def _is_share(value: Setting) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _class_name(layer: LayerSettings) -> str:
    return layer.classes[0].rpartition(".")[2] if layer.classes else ""


def _ancestors(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
