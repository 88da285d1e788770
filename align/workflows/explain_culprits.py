"""The causes of what is at fault: suspected by settings, weights and data, and confirmed by trying the change.

All layers are tried in one run for each change, since each is seen alone: what answers in the place of a layer is the
layer rebuilt with the changed setting, and weights that differ are the reference's for the time of the trials.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from align.core.pitfalls import pitfalls
from align.core.protocols import SettingsReader
from align.core.rebuilding import with_attributes
from align.core.source_lines import called_at, made_at
from align.core.untouched import attributes_kept
from align.steps.culprits import (
    WEIGHTS,
    by_module,
    culprit_of,
    findings_around,
    findings_of,
    is_mended,
    with_findings,
    with_hypothesis,
    with_weights,
)
from align.steps.locate import Maker
from align.steps.unruled_settings import settings_moved
from align.workflows.confirm_causes import rebuilt_layer
from align.workflows.guess_causes import guess_cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.culprits import Culprit
    from align.core.dtypes import Array
    from align.core.hypotheses import Hypothesis
    from align.core.lint import SettingFinding
    from align.core.protocols import Model
    from align.core.settings import LayerSettings
    from align.steps.isolate import IsolatedCall, Way
    from align.steps.locate import Fault
    from align.steps.pair_inputs import CallKey
    from align.workflows.isolate_layers import Bench, IsolatedLayers
    from align.workflows.sides import Side


@dataclass(frozen=True, slots=True)
class Weights:
    """The candidate's values before any run, whose names a run may change, and those that it should hold instead.

    `modules` are the paths of those that own them; `causes` tell, by the same, what those that differ are.
    """

    held: Mapping[str, Array]
    meant: Mapping[str, Array] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    causes: Mapping[str, Hypothesis] = field(default_factory=dict)


def explain_culprits(reference: Side, bench: Bench, alone: IsolatedLayers, weights: Weights) -> tuple[Culprit, ...]:
    """Name the causes of faults."""
    groups = by_module(alone.faults)
    culprits = {id(group): culprit_of(group) for group in groups}
    with _filled(bench.side, weights):
        if weights.meant and (calls := _tried(bench, alone.way, {})):
            for group in groups:
                if is_mended(group, calls):
                    culprits[id(group)] = with_weights(
                        culprits[id(group)], _owner(group, calls, weights), weights.causes
                    )
        open_groups = [group for group in groups if not culprits[id(group)].cause]
        for group, findings, confirmed in _try_settings(reference, bench, open_groups, alone.way):
            told = with_findings(culprits[id(group)], findings, confirmed=confirmed)
            also = confirmed and group[0].path in weights.modules  # it was tried with the reference's weights
            culprits[id(group)] = replace(told, cause=f"{told.cause} + {WEIGHTS}") if also else told
        for group, finding in _try_around(
            reference, bench, [one for one in groups if not culprits[id(one)].cause], alone
        ):
            culprits[id(group)] = with_findings(culprits[id(group)], [finding], confirmed=True)
    for group in groups:
        culprit = culprits[id(group)]
        stranger = group[0].made_by is not None and group[0].made_by.counterpart is None
        if not culprit.cause and not stranger and (found := guess_cause(bench, group[0])):
            culprit = with_hypothesis(culprit, found)
        culprits[id(group)] = replace(culprit, line=_line(bench.side.model, culprit))
    return tuple(culprits.values())


def _try_around(
    reference: Side, bench: Bench, groups: Sequence[list[Fault]], alone: IsolatedLayers
) -> Iterator[tuple[list[Fault], SettingFinding]]:
    """Try the settings that differ by name in the modules around what is wrong between layers, on the live modules."""
    settings = _settings(reference), _settings(bench.side)
    for group in groups:
        if group[0].part == "layer":
            continue
        for finding in findings_around(group[0], settings):
            module = _at(bench.side.model, finding.candidate)
            with attributes_kept([module]):
                with_attributes(module, finding.arguments)
                calls = _tried(bench, alone.way, {})
            if is_mended(group, calls):
                yield group, finding
                break


def _at(model: Model, path: str) -> Any:
    """The live module at a path."""
    return reduce(getattr, path.split(".") if path else [], model)


def _owner(group: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall], weights: Weights) -> Maker | None:
    """The latest layer without counterpart that holds other values and was called before a fault shows."""
    if group[0].pair.candidate.module in weights.modules:
        return None
    shows = calls[group[0].key].begun if group[0].part == "inputs" else calls[group[0].key].ended
    before = [(key, call) for key, call in calls.items() if call.samples and call.ended <= shows]
    owners = [(call.ended, Maker(key[0], call.class_name)) for key, call in before if key[0] in weights.modules]
    return max(owners, key=lambda one: one[0])[1] if owners else None


def _line(model: Model, culprit: Culprit) -> str:
    """Where to look: the line that makes a layer, or the one that hands it what is wrong."""
    calls = culprit.part == "inputs" and called_at(model, culprit.candidate)
    return calls or made_at(model, culprit.candidate)


def _try_settings(
    reference: Side, bench: Bench, groups: Sequence[list[Fault]], way: Way
) -> Iterator[tuple[list[Fault], Sequence[SettingFinding], bool]]:
    """Try what the settings suggest for each layer: each finding alone, then all together.

    Yields the findings that mend a layer, and those that could not be tried.
    """
    settings = _settings(reference), _settings(bench.side)
    found = findings_of([group[0] for group in groups], settings, pitfalls())
    waiting = [(group, _options(found.get(group[0].path, ()))) for group in groups]
    for group, options in waiting:
        if group[0].made_by:
            options.sort(key=partial(_moved, reference, bench.side, settings[1]))
    for turn in range(max((len(options) for _, options in waiting), default=0)):
        asked = [(group, options[turn]) for group, options in waiting if len(options) > turn]
        stand_ins = {option[0].candidate: rebuilt_layer(reference, bench.side, *option) for _, option in asked}
        built = {path: layer for path, layer in stand_ins.items() if layer is not None}
        calls = _tried(bench, way, built) if built else {}
        for group, option in asked:
            tried = option[0].candidate in built
            if (tried and calls and is_mended(group, calls)) or (not tried and _would_explain(option)):
                yield group, option, tried
                waiting = [(other, own) for other, own in waiting if other is not group]


def _moved(
    reference: Side, side: Side, settings: Mapping[str, LayerSettings], findings: Sequence[SettingFinding]
) -> int:
    """How many settings of a layer a change moves: the one that moves fewest says most."""
    layer = rebuilt_layer(reference, side, *findings)
    if layer is None or not isinstance(side.reader, SettingsReader):
        return len(settings)
    return settings_moved(settings[findings[0].candidate], side.reader.read_settings(layer)[0], pitfalls())


def _options(findings: Sequence[SettingFinding]) -> list[tuple[SettingFinding, ...]]:
    options: list[tuple[SettingFinding, ...]] = [(finding,) for finding in findings]
    return [*options, tuple(findings)] if len(options) > 1 else options


def _would_explain(findings: Sequence[SettingFinding]) -> bool:
    return len(findings) == 1 and findings[0].severity == "error"


def _tried(bench: Bench, way: Way, stand_ins: Mapping[str, Model]) -> Mapping[CallKey, IsolatedCall]:
    """Run the candidate once more, its layers alone."""
    return bench.run(way, stand_ins).calls


def _settings(side: Side) -> dict[str, LayerSettings]:
    if not isinstance(side.reader, SettingsReader):
        return {}
    return {layer.path: layer for layer in side.reader.read_settings(side.model)}


@contextmanager
def _filled(side: Side, weights: Weights) -> Iterator[None]:
    """Give the candidate the values that it should hold for a while."""
    if weights.meant:
        _load(side, {**weights.held, **weights.meant})
    try:
        yield
    finally:
        if weights.meant:
            _load(side, weights.held)


def _load(side: Side, values: Mapping[str, Array]) -> None:
    """Fill a model by order: a run may rename its parameters."""
    names = side.reader.read_values(side.model)
    side.reader.load_values(side.model, dict(zip(names, values.values(), strict=True)))
