"""Both models on the same fixed inputs: every paired layer's difference, and where the port first goes wrong."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.memory import Forecast, refuse_beyond, unannounced
from align.core.name_map import SIDES
from align.core.protocols import SettingsReader, silent
from align.core.verdicts import Outcome
from align.errors import CannotRunError
from align.forward.caveats import not_judged, one_signed_layers, telling_inputs, with_caveats
from align.forward.compare_traces import (
    compare_traces,
    culprits_in_batches,
    described_rows,
    first_divergence,
    with_texts,
)
from align.forward.explain_culprits import compare_live_weights, explain_culprits, right_weights
from align.forward.forward_result import NO_ALLOWANCES, ForwardComparison, FurtherRun
from align.forward.functions.compare_functions import BothRecords, compare_functions, record_both
from align.forward.functions.look_inside import look_inside
from align.forward.functions.try_edits import try_edits
from align.forward.isolate_layers import Bench, isolate_layers
from align.forward.isolated_calls import expected_calls
from align.forward.judge_forward import (
    accept_deviations,
    check_allowances,
    coarser_layers,
    compare_witness,
    failure_finding,
    judge_forward,
    judge_until_failure,
    no_part_at_fault,
    paired_until,
    probe_unseen,
    read_failure,
    unseen_findings,
    with_unseen,
    without_witness,
)
from align.forward.measure_power import answers_alike, moved_alike, power_of, with_power
from align.forward.run_both_models import (
    chip_of,
    kept_traces,
    memory_beside,
    predicted,
    refuse_unknown,
    run_both_models,
    with_all_noise,
    with_carried,
    with_functions,
)
from align.forward.settings_to_try import with_same_change
from align.forward.suspects import Budget, guess_causes, try_missing_layers, with_lines
from align.forward.thresholds import FEWER_RUNS_BYTES, MOST_LOOK_RUNS, TIMES_BOTH_TRACED
from align.measure.measure_arrays import Kernels, measured_by
from align.models.call_model import bound_findings, read_bindings, refuse_random
from align.models.inputs import batches_of, describe_inputs, read_both_inputs
from align.models.open_side import copied_sides, describe_host, environments, open_side, open_sides, unseen_layers
from align.names.map_result import follow_origins
from align.traces.pair_traces import choose_map, left_out, map_in_order, open_names, pair_traces
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.memory import Needs
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.protocols import Inputs, LayerSettings, Model, Progress
    from align.core.traces import Limit
    from align.core.verdicts import Finding, Verdict
    from align.errors import ModelFailedError
    from align.forward.explain_culprits import ComparedWeights
    from align.forward.forward_result import (
        Allowances,
        Culprit,
        FunctionComparison,
        FurtherKind,
        LayerComparison,
        Power,
        UnseenModule,
    )
    from align.forward.isolate_layers import IsolatedLayers
    from align.forward.judge_forward import Deviations
    from align.forward.run_both_models import BothRuns, Measured
    from align.models.inputs import InputsSource
    from align.models.open_side import Side, SideRequest
    from align.rules.ascend_rules import AscendTarget
    from align.traces.module_calls import CallPairs

HIDDEN_BY: dict[FurtherKind, str] = {
    "neutral values": "forward_verdict.hidden_neutral_values",
    "other inputs": "forward_verdict.hidden_other_inputs",
    "other lengths": "forward_verdict.hidden_other_lengths",
}
STAGES = 8  # no limit: what progress is reported of
STAGE_BEHIND_BOTH = 3  # no limit: of these, behind the runs of both models


def compare_forward(  # noqa: PLR0913 - one parameter an option
    reference: str | Model | Side,
    candidate: str | Model | Side,
    *,
    inputs: InputsSource,
    candidate_inputs: InputsSource | None = None,
    name_map: NameMap | Path | str | None = None,
    traces: Path | None = None,
    allowances: Allowances = NO_ALLOWANCES,
    power: bool = True,
    functions: bool = False,
    thorough: bool = False,
    witness: str | Model | Side | SideRequest | None = None,
    emulate: str | None = None,
    switches: Mapping[str, str] | None = None,
    memory_check: bool = True,
    announce: Callable[[Needs], None] = unannounced,
    progress: Progress = silent,
) -> ForwardComparison:
    """Run two models on the same inputs in evaluation mode and compare every paired layer's output.

    A side is a live model, `module:function`, what `align.open_side` returns for a model with its checkpoint, or an
    `align.SideRequest`, which says the same of a side that is yet to be opened: sides that share tensors need that.
    `inputs` are arrays by name, a file of them, or a function that returns them; of several batches, in a list, one
    follows the other without a reset between, so that what a model keeps of one shows in the next; `candidate_inputs`
    are what the candidate alone is given, batch by batch. Without `name_map` the two models are matched first.
    `traces` is a folder that keeps both traces; those of a run that fails stay beside it, as `traces.part`.
    `allowances` are limits of single layers, and deviations accepted for a reason. `power` measures whether models that
    agree could have differed. `functions` compares every functional call. Wrong code without a known cause is
    looked into with 150 runs, or with as many as that takes if it is `thorough` or compares `functions`. `witness`
    is a third side, such as an ONNX export, that says which of the three deviates at each layer. `emulate` is a
    chip (`ascend:910b`): what it is expected to do to the reference, under these `switches`, is the limit, and a
    port inside is within the prediction. `announce` hears what a long comparison is expected to take; large models for
    which memory will not do are refused, if there is a `memory_check`. Of a candidate that raises, what ran before is
    compared; the verdict is "could not compare", and `failure` says where it was.
    Raises NothingInCommonError if no layer pairs, UnusedPatternsError for an allowance that fits none, CannotRunError
    for a model that differs and draws random numbers.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, layer):
    ...     weights = {"weight": np.ones((2, 3), np.float32)}
    ...     return ArrayModel((ArrayLayer(path, layer, lambda x, weight: x @ weight.T, weights),))
    >>> twins = model("fc", "torch.nn.Linear"), model("head", "mindspore.nn.Dense")
    >>> compare_forward(*twins, inputs={"x": np.ones((4, 3), np.float32)}).verdict.outcome.value
    'aligned'
    """
    refuse_unknown(emulate, switches)
    sides = follow_origins(*open_sides(reference, candidate))
    chip = chip_of(emulate, switches, sides)
    given = read_both_inputs(inputs, candidate_inputs)
    names = _match(sides, name_map)
    models = sum(one.nbytes for one in names.parameters)
    more = memory_beside(names.parameters)
    if memory_check:
        refuse_beyond(more, models)
    begun = _announced(progress, Forecast(more, TIMES_BOTH_TRACED, announce))
    measured: Measured = "all" if models < FEWER_RUNS_BYTES else "gathered"
    task = _Task(sides, given, allowances, begun, functions, thorough or functions, measured)
    kernels = Kernels(models)
    with kept_traces(traces) as folder, measured_by(kernels.make):
        done = _compared(task, names, folder, chip, map_is_final=name_map is not None)
        if done.gathered.run.failure is not None:
            failed = _result(task, done, None)
            return predicted(failed if witness is None else without_witness(failed), chip)
        task.begun()
        agree = done.judged.verdict.outcome is Outcome.ALIGNED and chip is None
        third = None
        if witness is not None:
            gathered = done.gathered
            third = compare_witness(sides, open_side(witness), gathered.run, gathered.calls, gathered.layers)
        further = _further(task, done) if power and agree else _Further()
        shown = _power(task, done, further) if power and agree and further.hidden is None else None
    progress("forward", STAGES, STAGES)
    result = _result(task, further.hidden or done, shown, further)
    return predicted(replace(result, witness=third), chip)


def _compared(
    task: _Task, names: _Names, folder: Path, chip: AscendTarget | None = None, *, map_is_final: bool
) -> _Done:
    run = run_both_models(task.sides, task.inputs, folder, task.begun, chip, task.measured)
    task.begun()
    gathered = _gather(task, names, run, map_is_final=map_is_final)
    if run.failure is not None:
        return _Done(gathered, _judge_failed(task, gathered, run.failure))
    gathered = _with_carried(task, gathered)
    task.begun()
    gathered, bench, alone = _isolate(task, gathered)
    task.begun()
    records = record_both((task.sides[0], run.inputs[0]), bench, alone) if task.functions else None
    explained = _explain(task, gathered, bench, alone, records) if alone.faults else _Explained()
    if records:
        called, unseen = compare_functions(records, bench.side.label)
        explained = replace(explained, functions=called, findings=(*explained.findings, *unseen))
    return _Done(gathered, _judge(task, gathered, alone, explained), explained)


def _further(task: _Task, done: _Done) -> _Further:
    """Compare again where the given values or inputs cannot tell: with other ones, of which most hides least.

    The first that shows a difference is the result; what shows none is told.
    """
    runs: list[FurtherRun] = []
    names = done.gathered.names
    own_names, unlike = names.weights.names, {one.subject for one in names.weights.findings}
    moved = moved_alike(task.sides, own_names, names.parameters, names.name_map, unlike)
    with moved as (neutral, values):
        if values is not None:
            weights = replace(names.weights, weights=names.weights.weights.without(values.targets))
            subjects = tuple(sentence("neutral_value.named", name=name, why=neutral[name]) for name in values.names)
            again = _again(task, replace(names, weights=weights), "neutral values", subjects)
            runs.append(again[0])
            if again[1] is not None:
                return _Further(tuple(runs), again[1])
        seen = set(values.names) if values is not None and runs[-1].outcome == "aligned" else set()
        hidden = {name: why for name, why in neutral.items() if name not in seen}
    one_signed = [*one_signed_layers(done.gathered.run.reference, names.parameters[0])]
    one_kind = task.inputs[0] is task.inputs[1]
    for other in telling_inputs(batches_of(task.inputs[0]), one_signed) if one_kind else ():
        if not other.batches:
            reason = sentence("blind_spot.not_drawn")
            runs.append(FurtherRun("other inputs", other.blind_spots, "could not compare", reason))
            continue
        asked = replace(task, inputs=(other.batches, other.batches))
        again = _again(asked, names, "other lengths" if other.lengths else "other inputs", other.blind_spots)
        if other.signs and again[1] is not None:
            again = _of_other_signs(again[0], again[1])
        runs.append(again[0])
        if again[1] is not None:
            return _Further(tuple(runs), again[1], hidden)
    return _Further(tuple(runs), None, hidden)


def _of_other_signs(run: FurtherRun, done: _Done) -> tuple[FurtherRun, _Done | None]:
    """What values of other signs show; nothing where the original returns NaN or Inf, as it does not take them."""
    measured = [one.measurement for one in done.gathered.layers if one.measurement]
    if any(one.nan_reference or one.inf_reference for one in measured):
        return replace(run, outcome="could not compare", reason=sentence("blind_spot.signs_not_finite")), None
    reason = sentence("forward_verdict.hidden_other_signs", subjects=run.subjects, reason=run.reason)
    return run, replace(done, judged=replace(done.judged, verdict=replace(done.judged.verdict, reason=reason)))


def _again(task: _Task, names: _Names, kind: FurtherKind, subjects: tuple[str, ...]) -> tuple[FurtherRun, _Done | None]:
    """Compare in another state: what came of it, and all of it where the models differ."""
    quiet = replace(task, begun=lambda: None, measured="all" if task.measured == "all" else "none")
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        try:
            done = _compared(quiet, names, Path(folder), map_is_final=True)
            stays = [*one_signed_layers(done.gathered.run.reference, names.parameters[0])]
        except CannotRunError as error:
            return FurtherRun(kind, subjects, "could not compare", error.message), None
    outcome = done.judged.verdict.outcome
    if outcome is Outcome.NOT_ALIGNED and done.gathered.run.failure is None:
        reason = sentence(HIDDEN_BY[kind], subjects=subjects, reason=done.judged.verdict.reason)
        verdict = replace(done.judged.verdict, reason=reason)
        shown = replace(done, judged=replace(done.judged, verdict=verdict))
        return FurtherRun(kind, subjects, "not aligned", done.judged.verdict.reason), shown
    if outcome is Outcome.ALIGNED:
        if left := tuple(subject for subject in subjects if subject in stays):
            return FurtherRun(kind, left, "could not compare", sentence("blind_spot.signs_stay")), None
        return FurtherRun(kind, subjects, "aligned"), None
    return FurtherRun(kind, subjects, "could not compare", done.judged.verdict.reason), None


def _power(task: _Task, done: _Done, further: _Further) -> Power:
    """What the inputs can show, and whether the port hears them."""
    run = done.gathered.run
    power = power_of(task.sides[0], run.inputs[0], run.reference, _limits(done.judged), further.neutral)
    if task.inputs[0] is not task.inputs[1] or max(power.inputs.values(), default=0.0) <= 1.0:
        return power
    others = [one for one in further.runs if one.kind != "neutral values" and one.outcome == "aligned"]
    if others and task.measured != "all":  # a port that agrees on other inputs too has no stored answer
        return power
    return replace(power, stored=answers_alike(task.sides[1], run.inputs[1], run.candidate))


@dataclass(frozen=True, slots=True)
class _Task:
    """The sides, what they are given and what is allowed; `begun` is called at each stage.

    `functions` says that functional calls are compared, `thorough` that wrong code gets as many runs as it takes,
    `measured` how much of the noise is measured unless more is needed.
    """

    sides: tuple[Side, Side]
    inputs: tuple[Inputs, Inputs]
    allowances: Allowances
    begun: Callable[[], None]
    functions: bool
    thorough: bool = False
    measured: Measured = "all"


@dataclass(frozen=True, slots=True)
class _Names:
    """The parameters of both sides, their map, and the differences of their values by it; the settings of layers."""

    parameters: tuple[ParameterSet, ParameterSet]
    name_map: NameMap
    weights: ComparedWeights
    settings: tuple[Mapping[str, LayerSettings], Mapping[str, LayerSettings]]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Both models run on their own: their calls in pairs, and the errors that have gathered."""

    names: _Names
    run: BothRuns
    calls: CallPairs
    layers: tuple[LayerComparison, ...]

    @property
    def differ(self) -> bool:
        return any(layer.outcome == "not aligned" for layer in self.layers)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What is at fault with its causes, what else was seen meanwhile, and the functional calls, if asked for."""

    culprits: tuple[Culprit, ...] = ()
    findings: tuple[Finding, ...] = ()
    functions: tuple[FunctionComparison, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """All layers, gathered and alone, what is at fault, and the verdict."""

    known: Deviations
    findings: tuple[Finding, ...]
    verdict: Verdict
    unseen: tuple[UnseenModule, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    """One comparison: what both models returned, the judgement, and what was explained."""

    gathered: _Gathered
    judged: _Judged
    explained: _Explained = field(default_factory=_Explained)


@dataclass(frozen=True, slots=True)
class _Further:
    """Comparisons in other states, the one that shows a difference, and what is neutral and was not moved."""

    runs: tuple[FurtherRun, ...] = ()
    hidden: _Done | None = None
    neutral: Mapping[str, str] = field(default_factory=dict)


def _announced(progress: Progress, forecast: Forecast) -> Callable[[], None]:
    """Report each stage, and say behind the two runs by themselves what all is expected to take."""
    stages, told = count(1), {1: forecast.begin, STAGE_BEHIND_BOTH: forecast.tell}

    def begun() -> None:
        stage = next(stages)
        told.get(stage, lambda: None)()
        progress("forward", stage, STAGES)

    return begun


def _match(sides: tuple[Side, Side], name_map: NameMap | Path | str | None) -> _Names:
    first, second = (side.reader.read_parameters(side.model, side.label) for side in sides)
    return _named(sides, (first, second), choose_map(name_map, (first, second)))


def _named(sides: tuple[Side, Side], parameters: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> _Names:
    owners = [{one.name: one.module for one in side.parameters} for side in parameters]
    settings = _settings_of(sides[0]), _settings_of(sides[1])
    return _Names(parameters, name_map, compare_live_weights(sides, (owners[0], owners[1]), name_map), settings)


def _settings_of(side: Side) -> dict[str, LayerSettings]:
    """Settings of all layers of a side by path, none where its framework's are not read."""
    if not isinstance(side.reader, SettingsReader):
        return {}
    return {layer.path: layer for layer in side.reader.read_settings(side.model)}


def _gather(task: _Task, names: _Names, run: BothRuns, *, map_is_final: bool) -> _Gathered:
    """Pair and compare what the models returned; a map that is not final is completed by the order of the run."""
    if not map_is_final and not names.name_map.complete:
        names = _named(task.sides, names.parameters, map_in_order(run.traces, names.parameters, names.name_map))
    calls = paired_until(run.failure, lambda: pair_traces(run.traces, names.parameters, names.name_map), run.reference)
    if run.failure is None:
        check_allowances(task.allowances, calls.pairs)
    compared = compare_traces(*run.traces, calls.pairs, run.noise.accumulated, task.allowances, run.padding)
    layers = described_rows([*with_texts(compared, run.traces)], run.traces)
    gathered = _Gathered(names, run, calls, layers)
    if not gathered.differ:
        return gathered
    if run.noise.measured != "all":
        return _gather(task, names, with_all_noise(run, task.sides[0]), map_is_final=True)
    if run.failure is None:
        refuse_random(task.sides[1], run.inputs[1], run.candidate)
    return gathered


def _with_carried(task: _Task, gathered: _Gathered) -> _Gathered:
    run = gathered.run
    noise = with_carried(run.noise, task.sides[0], run.inputs[0], run.reference, gathered.calls.pairs)
    return replace(gathered, run=replace(run, noise=noise))


def _isolate(task: _Task, gathered: _Gathered) -> tuple[_Gathered, Bench, IsolatedLayers]:
    """Judge each layer alone; where anything differs, do all again with the candidate's own functions in the limits."""
    bench = _bench(task, gathered)
    alone = isolate_layers(bench)
    if gathered.run.noise.measured != "all" and not alone.clean:
        run = with_all_noise(gathered.run, task.sides[0])
        gathered = _with_carried(task, _gather(task, gathered.names, run, map_is_final=True))
        bench = _bench(task, gathered)
        alone = isolate_layers(bench)
    if not (alone.faults or gathered.differ):
        return gathered, bench, alone
    noise = with_functions(gathered.run.noise, task.sides, gathered.run.inputs[0], gathered.run.reference)
    if noise is None:
        return gathered, bench, alone
    gathered = _gather(task, gathered.names, replace(gathered.run, noise=noise), map_is_final=True)
    bench = _bench(task, gathered)
    return gathered, bench, isolate_layers(bench)


def _bench(task: _Task, gathered: _Gathered) -> Bench:
    run, pairs = gathered.run, gathered.calls.pairs
    expected = expected_calls(run.reference, pairs, run.noise.isolated, task.allowances, run.padding)
    return Bench(task.sides[1], run.inputs[1], expected)


def _explain(
    task: _Task, gathered: _Gathered, bench: Bench, alone: IsolatedLayers, records: BothRecords | None
) -> _Explained:
    """Explain what is at fault by itself: causes that are tried, those that the data suggest, and where to look."""
    names = gathered.names
    suspects = explain_culprits(task.sides[0], bench, alone, names.weights.weights, names.settings)
    suspects = guess_causes(bench, alone, suspects)
    budget = Budget(None if task.thorough else MOST_LOOK_RUNS)
    looked = look_inside((task.sides[0], gathered.run.inputs[0]), bench, alone, suspects, budget, records)
    lined = with_lines([suspect.culprit for suspect in looked.suspects], bench.side.model)
    told = [replace(suspect, culprit=own) for suspect, own in zip(looked.suspects, lined, strict=True)]
    with right_weights(bench.side, names.weights.weights):
        listed = try_missing_layers(task.sides[0], bench, alone, told, budget)
        edited = try_edits(task.sides[0].model, bench, alone, listed, budget)
    culprits = [suspect.culprit for suspect in edited]
    culprits = with_same_change(culprits, names.settings, gathered.calls.pairs)
    return _Explained(culprits_in_batches(culprits, gathered.run.candidate), looked.findings)


def _judge(task: _Task, gathered: _Gathered, alone: IsolatedLayers, explained: _Explained) -> _Judged:
    run, calls, weights, culprits = gathered.run, gathered.calls, gathered.names.weights, explained.culprits
    layers = [replace(layer, isolated=alone.outputs.get(layer.key)) for layer in gathered.layers]
    unseen = [
        probe_unseen(role, side, inputs, trace)
        for role, side, inputs, trace in zip(SIDES, task.sides, run.inputs, run.traces, strict=True)
    ]
    labels = task.sides[0].label, task.sides[1].label
    findings = (
        *run.noise.findings,
        *unseen_layers(*task.sides),
        *copied_sides(*task.sides),
        *bound_findings(task.sides, task.inputs, run.inputs),
        *(one for own, side in zip(unseen, task.sides, strict=True) for one in unseen_findings(own, side.label)),
        *alone.findings,
        *explained.findings,
        *left_out(run.traces, labels),
        *open_names(gathered.names.name_map),
        *weights.findings,
        *coarser_layers(run.candidate.captures, task.allowances.coarsest),
        *(() if weights.weights.never_given else no_part_at_fault(layers, culprits, labels)),
        *not_judged(gathered.names.parameters, gathered.names.settings, gathered.names.name_map, calls),
    )
    known = accept_deviations(layers, culprits, task.allowances.accepted)
    verdict = judge_forward(known.layers, calls.unpaired, findings, known.culprits)
    hidden = (*unseen[0], *unseen[1])
    return _Judged(known, findings, with_unseen(verdict, hidden, gathered.names.parameters), hidden)


def _judge_failed(task: _Task, gathered: _Gathered, error: ModelFailedError) -> _Judged:
    """Judge what ran before the port raised; nothing is tried with a port that does not run."""
    run, names = gathered.run, gathered.names
    findings = (
        failure_finding(error, task.sides[1].label),
        *run.noise.findings,
        *copied_sides(*task.sides),
        *bound_findings(task.sides, task.inputs, run.inputs),
        *open_names(names.name_map),
        *names.weights.findings,
    )
    known = accept_deviations(gathered.layers, (), task.allowances.accepted)
    verdict = judge_until_failure(known.layers, gathered.calls.unpaired, error)
    return _Judged(known, findings, verdict, ())


def _limits(judged: _Judged) -> dict[str, Limit]:
    """Limits by key of what agrees; for those that the user gave, the user answers."""
    rows = [row for row in judged.known.layers if row.outcome == "aligned"]
    return {row.key: row.limit for row in rows if row.limit and row.limit.source != "user"}


def _result(task: _Task, done: _Done, power: Power | None, further: _Further | None = None) -> ForwardComparison:
    gathered, judged, known = done.gathered, done.judged, done.judged.known
    first, last = first_divergence(known.layers)
    verdict = with_power(judged.verdict, power) if power else judged.verdict
    result = ForwardComparison(
        reference=task.sides[0].label,
        candidate=task.sides[1].label,
        layers=known.layers,
        first_divergent=first,
        last_aligned=last,
        unpaired=gathered.calls.unpaired,
        findings=judged.findings,
        inputs=describe_inputs(task.inputs[0]),
        bindings=read_bindings(task.sides, task.inputs),
        failure=None if gathered.run.failure is None else read_failure(gathered.run.failure),
        candidate_inputs=describe_inputs(task.inputs[1]) if task.inputs[1] is not task.inputs[0] else {},
        environment=environments(*task.sides) | {"host": describe_host()},
        verdict=verdict,
        culprits=known.culprits,
        accepted=known.accepted,
        power=power,
        unseen=judged.unseen,
        functions=done.explained.functions,
        further=() if further is None else further.runs,
    )
    return with_caveats(result, task.inputs[0])
