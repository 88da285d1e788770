"""The causes of what is at fault: suspected by settings, weights and data, and confirmed by trying the change.

All layers are tried in one run for each change, since each is seen alone: what answers in the place of a layer is the
layer rebuilt with the changed setting, and weights that differ are the reference's for the time of the trials.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.forward.causes.culprits import (
    WEIGHTS,
    at_layer,
    by_module,
    culprit_of,
    findings_around,
    is_mended,
    with_findings,
    with_relation,
    with_weights,
)
from align.forward.causes.guess_cause import applied_by, guess_cause
from align.forward.causes.try_changes import module_at, settings_of, try_settings, try_unpaired
from align.forward.isolation.locate_faults import ProducerLayer
from align.models.rebuild_from_settings import with_attributes
from align.models.restore_state import restored_attributes
from align.models.source_lines import called_at, made_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.forward.causes.rebuild_layer import Owner
    from align.forward.culprit_result import Culprit
    from align.forward.isolation.isolate_layers import Bench, IsolatedLayers
    from align.forward.isolation.isolated_calls import IsolatedCall, IsolationOptions
    from align.forward.isolation.locate_faults import Fault
    from align.forward.relations.relation import Relation
    from align.lint.lint_result import SettingFinding
    from align.models.open_side import Side
    from align.traces.pair_inputs import CallKey


@dataclass(frozen=True, slots=True)
class Weights:
    """The candidate's values before any run, whose names a run may change, and those that it should hold instead.

    `modules` are the paths of those that own them; `causes` tell, by the same, what those that differ are. `owners` are
    the reference's modules by the candidate's that own the same parameters. `never_given`: all of them differ.
    """

    held: Mapping[str, Array]
    meant: Mapping[str, Array] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    causes: Mapping[str, Relation] = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    never_given: bool = False


def explain_culprits(reference: Side, bench: Bench, alone: IsolatedLayers, weights: Weights) -> tuple[Culprit, ...]:
    """Name the causes of faults; of weights that were never given, nothing that they alone explain is told."""
    groups = by_module(alone.faults)
    culprits = {id(group): culprit_of(group) for group in groups}

    def unexplained() -> list[list[Fault]]:
        return [group for group in groups if not culprits[id(group)].cause]

    with _filled(bench.side, weights):
        if weights.meant and (calls := _tried(bench, alone.way, {})):
            for group in groups:
                if is_mended(group, calls):
                    culprits[id(group)] = with_weights(
                        culprits[id(group)], _owner(group, calls, weights), weights.causes
                    )
        for group, change, confirmed in try_settings(reference, bench, unexplained(), alone, weights.owners):
            told = with_findings(culprits[id(group)], change.findings, confirmed=confirmed)
            also = confirmed and group[0].path in weights.modules  # it was tried with the reference's weights
            culprits[id(group)] = replace(told, cause=f"{told.cause} + {WEIGHTS}") if also else told
        for group, finding in _try_around(reference, bench, unexplained(), alone):
            culprits[id(group)] = with_findings(culprits[id(group)], [finding], confirmed=True)
        for group, change, _ in try_unpaired(reference, bench, unexplained(), alone, weights.owners):
            layer = at_layer(culprits[id(group)], ProducerLayer(change.path, change.findings[0].candidate_class))
            culprits[id(group)] = with_findings(layer, change.findings, confirmed=True)
    for group in unexplained():
        culprits[id(group)] = _guessed(bench, group[0], culprits[id(group)], alone)
    kept = [one for one in culprits.values() if not (weights.never_given and one.cause == WEIGHTS)]
    return tuple(replace(one, line=_line(bench.side.model, one)) for one in kept)


def _guessed(bench: Bench, fault: Fault, culprit: Culprit, alone: IsolatedLayers) -> Culprit:
    """Name what the data tell, and the layer without counterpart that it tells of."""
    unpaired_maker = fault.made_by is not None and fault.made_by.counterpart is None
    found = None if unpaired_maker else guess_cause(bench, fault)
    if found is None:
        return culprit
    maker = applied_by(bench, fault, found, alone.calls)
    return with_relation(at_layer(culprit, maker) if maker else culprit, found)


def _try_around(
    reference: Side, bench: Bench, groups: Sequence[list[Fault]], alone: IsolatedLayers
) -> Iterator[tuple[list[Fault], SettingFinding]]:
    """Try the settings that differ by name in the modules around what is wrong between layers, on the live modules."""
    settings = settings_of(reference), settings_of(bench.side)
    for group in groups:
        if group[0].part == "layer":
            continue
        for finding in findings_around(group[0], settings):
            module = module_at(bench.side.model, finding.candidate)
            with restored_attributes([module]):
                with_attributes(module, finding.arguments)
                calls = _tried(bench, alone.way, {})
            if is_mended(group, calls):
                yield group, finding
                break


def _owner(group: Sequence[Fault], calls: Mapping[CallKey, IsolatedCall], weights: Weights) -> ProducerLayer | None:
    """The latest layer without counterpart that holds other values and was called before a fault shows."""
    if group[0].pair.candidate.module in weights.modules:
        return None
    shows = calls[group[0].key].begun if group[0].part == "inputs" else calls[group[0].key].ended
    before = [(key, call) for key, call in calls.items() if call.samples and call.ended <= shows]
    owners = [(call.ended, ProducerLayer(key[0], call.class_name)) for key, call in before if key[0] in weights.modules]
    return max(owners, key=lambda one: one[0])[1] if owners else None


def _line(model: Model, culprit: Culprit) -> str:
    """Where to look: the line that makes a layer, or the one that hands it what is wrong."""
    calls = culprit.part == "inputs" and called_at(model, culprit.candidate)
    return calls or made_at(model, culprit.candidate)


def _tried(bench: Bench, way: IsolationOptions, stand_ins: Mapping[str, Model]) -> Mapping[CallKey, IsolatedCall]:
    """Run the candidate once more, its layers alone."""
    return bench.run(way, stand_ins).calls


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
