"""From rows to a verdict: something must have been compared, and nothing compared may be off.

Of a port that raises, the verdict says where it did, and what the layers that ran before show. What the user accepts is
taken out of it, with what only carries that on; a precision that the user requires must be kept.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import EPSILON, rounded_as
from align.core.traces import smallest_factor
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import NothingInCommonError, UnusedPatternsError, UserCodeError
from align.forward.compare_traces import compare_traces, paired_outputs
from align.forward.forward_result import (
    AcceptedLayers,
    PortFailure,
    UnseenModule,
    WitnessComparison,
    WitnessedLayer,
    matches_glob,
)
from align.forward.run_both_models import trace_run
from align.forward.thresholds import (
    MOST_LISTED_PLACES,
    MOST_PROBE_RUNS,
    MOST_UNSEEN_PARAMETERS,
    NEARER_THAN_WITNESS,
    SQUARED_PIECE,
)
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import find_permuted_layout
from align.measure.thresholds import LONGEST_DOT, SMALLEST_NORMAL
from align.models.inputs import MadeArrays, SpilledArrays, run_fitted
from align.models.open_side import live_values, put_values
from align.names.map_result import followed_side
from align.traces.open_trace import CODE as NEVER_GIVEN
from align.traces.open_trace import own_elements, uncalled_modules
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import close_names, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from align.core.name_map import SideOf
    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Limit, Trace
    from align.errors import ModelFailedError
    from align.forward.forward_result import (
        AcceptedDeviation,
        Allowances,
        Culprit,
        Deviates,
        ForwardComparison,
        LayerComparison,
        UnseenState,
    )
    from align.forward.run_both_models import BothRuns
    from align.models.open_side import Side
    from align.traces.module_calls import CallPair, CallPairs, UnpairedLayer


LAYER_OUTPUTS = "forward_unit.layer_outputs"


def judge_forward(
    layers: Sequence[LayerComparison],
    unpaired: Sequence[UnpairedLayer],
    findings: Sequence[Finding],
    culprits: Sequence[Culprit] = (),
    what: str | None = None,
) -> Verdict:
    """Aligned if all compared layers and the outputs are within their limits, none is at fault and no finding an error.

    Not compared if nothing was, or if the outputs of the two models could not be compared with each other. `what` is
    what was compared of each layer, its output by default.
    """
    what = sentence(LAYER_OUTPUTS) if what is None else what
    compared = [layer for layer in layers if layer.outcome in ("aligned", "not aligned")]
    wrong = [layer for layer in compared if layer.outcome == "not aligned"]
    coverage = Coverage(
        what,
        len(compared),
        len(layers) - len(compared),
        sum(layer.side == "reference" for layer in unpaired),
        sum(layer.side == "candidate" for layer in unpaired),
    )
    errors = [finding for finding in findings if finding.severity == "error"]
    never_given = next((finding for finding in errors if finding.code == NEVER_GIVEN), None)
    if never_given and compared:
        return Verdict(Outcome.NOT_ALIGNED, never_given.message, coverage)
    if wrong:
        blamed = {(culprit.candidate, culprit.call) for culprit in culprits}
        first = _named(next((layer for layer in wrong if (layer.candidate, layer.call) in blamed), wrong[0]))
        counts = {"count": len(wrong), "total": len(compared)}
        return Verdict(
            Outcome.NOT_ALIGNED, sentence("forward_verdict.layers_differ", **counts, what=what, first=first), coverage
        )
    if culprits and compared:
        reason = sentence("forward_verdict.parts_differ", count=len(culprits), first=_culprit(culprits[0]))
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if errors and compared:
        return Verdict(Outcome.NOT_ALIGNED, _errors(errors), coverage)
    outputs = [layer for layer in layers if not layer.reference and not _is_empty_on_both(layer)]
    if not compared or not outputs or any(layer.outcome == "not comparable" for layer in outputs):
        note = next((layer.note for layer in outputs if layer.outcome == "not comparable" and layer.note), "")
        key = "forward_verdict.outputs_not_compared" if compared else "forward_verdict.no_layer_compared"
        return Verdict(Outcome.NOT_COMPARED, sentence(key, note=note), coverage)
    accepted = sum(layer.outcome == "accepted" for layer in layers)
    reason = sentence("forward_verdict.layers_agree", count=len(compared), what=what, accepted=accepted)
    return Verdict(Outcome.ALIGNED, reason, coverage)


def no_part_at_fault(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], labels: tuple[str, str]
) -> Iterator[Finding]:
    """Say what was looked for where layers differ and none is at fault by itself, and what to run next.

    `layers` are judged alone too, as far as they can be.
    """
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    if culprits or not wrong:
        return
    alone = [layer.isolated for layer in layers if layer.isolated and layer.isolated.factor is not None]
    largest = max((one.factor or 0.0 for one in alone), default=0.0)
    message = sentence(
        "forward_finding.no_part_at_fault",
        count=len(alone),
        largest=largest,
        unjudged=len(layers) - len(alone),
        next_command=_bisection(labels, wrong[0].batches),
    )
    yield Finding("no-part-at-fault", "note", wrong[0].candidate or labels[1], message)


def _bisection(labels: tuple[str, str], batches: int) -> str:
    """What to run next: a command only if both labels are what it takes; models at hand have the names of classes."""
    if not all(":" in label for label in labels):
        return sentence("forward_next.bisect_models", batches=batches > 1)
    command = shlex.join(["align", "bisect", *labels])
    return sentence("forward_next.bisect_one_batch" if batches > 1 else "forward_next.bisect", command=command)


def _errors(errors: Sequence[Finding]) -> str:
    first = errors[0]
    facts = {"subject": first.subject, "message": first.message, "code": first.code}
    if len(errors) == 1:
        return sentence("forward_verdict.one_error", **facts)
    return sentence("forward_verdict.several_errors", count=len(errors), **facts)


def _is_empty_on_both(layer: LayerComparison) -> bool:
    return layer.reference_shape == layer.candidate_shape and 0 in layer.reference_shape


def _culprit(culprit: Culprit) -> str:
    name = culprit.candidate or sentence("model_part.model_itself")
    batch = culprit.facts.get("batch", "")
    return sentence("forward_place.culprit", name=name, class_name=culprit.candidate_class, batch=batch)


def _named(layer: LayerComparison) -> str:
    mine, theirs = (name or sentence("model_part.output") for name in (layer.reference, layer.candidate))
    return sentence(
        "forward_place.pair",
        reference=mine,
        reference_class=layer.reference_class,
        candidate=theirs,
        candidate_class=layer.candidate_class,
        batch=layer.batch,
        batches=layer.batches,
    )


def read_failure(error: ModelFailedError) -> PortFailure:
    """Take an error apart."""
    place = error.failure
    return PortFailure(place.layer, place.class_name, place.after, place.line, error.kind, error.happened, error.hint)


def failure_finding(error: ModelFailedError, label: str) -> Finding:
    """Say where the port raised and what to do, as an error: nothing behind it was compared."""
    message = sentence("forward_finding.candidate_failed", error=error.message, hint=error.hint)
    return Finding("candidate-failed", "error", error.layer or label, message)


def paired_until(failure: ModelFailedError | None, pair: Callable[[], CallPairs], reference: Trace) -> CallPairs:
    """What `pair` gives; of a run that a failure ended, without the calls of the reference behind its last pair.

    Where there is no pair, the failure is all that is known: it is raised.
    """
    if failure is None:
        return pair()
    try:
        calls = pair()
    except NothingInCommonError:
        raise failure from failure.__cause__
    order = {(one.module, one.call): one.order for one in reference.captures}
    last = max(order[pair.reference.module, pair.reference.call] for pair in calls.pairs)
    reached = (one for one in calls.unpaired if one.side == "candidate" or order.get((one.module, one.call), 0) <= last)
    return replace(calls, unpaired=tuple(reached))


def judge_until_failure(
    layers: Sequence[LayerComparison], unpaired: Sequence[UnpairedLayer], error: ModelFailedError
) -> Verdict:
    """Not compared, whatever ran before; the reason says how that compares."""
    coverage = judge_forward(layers, unpaired, ()).coverage
    wrong = [layer for layer in layers if layer.outcome == "not aligned"]
    before = sentence("forward_verdict.agree_before", count=coverage.compared)
    if wrong:
        first = {"layer": wrong[0].candidate, "class_name": wrong[0].candidate_class}
        before = sentence("forward_verdict.differ_before", total=coverage.compared, count=len(wrong), **first)
    where, error_line = error.failure.where, error.happened.partition("\n")[0]
    reason = sentence("forward_verdict.port_failed", where=where, error=error_line, before=before)
    return Verdict(Outcome.NOT_COMPARED, reason, coverage)


@dataclass(frozen=True, slots=True)
class Deviations:
    """Layers with their outcome after acceptance, the culprits that are left, and what was accepted."""

    layers: tuple[LayerComparison, ...]
    culprits: tuple[Culprit, ...]
    accepted: tuple[AcceptedLayers, ...]


def check_allowances(allowances: Allowances, pairs: Sequence[CallPair]) -> None:
    """Raise UnusedPatternsError naming every glob that fits no layer, with the paths that come closest."""
    paths = sorted({call.module for pair in pairs for call in (pair.reference, pair.candidate)})
    if unused := list(allowances.unused(paths)):
        raise UnusedPatternsError(close_names(unused, paths))


def accept_deviations(
    layers: Sequence[LayerComparison], culprits: Sequence[Culprit], accepted: Sequence[AcceptedDeviation]
) -> Deviations:
    """Call accepted what the user accepts, and what is right alone after it if nothing else is at fault."""
    listed = [_listed(one, layers) for one in accepted]
    left = tuple(one for one in culprits if not _reason(one, accepted))
    judged = [_accepted(row, reason) if (reason := _off(row, accepted)) else row for row in layers]
    first = next((place for place, row in enumerate(judged) if row.outcome == "accepted"), len(judged))
    if not left:
        carried = sentence("forward_note.carries_accepted_on")
        judged[first:] = [_accepted(row, carried) if _is_carried(row) else row for row in judged[first:]]
    return Deviations(tuple(judged), left, tuple(listed))


def _accepted(row: LayerComparison, note: str) -> LayerComparison:
    return replace(row, outcome="accepted", note=note, left_out=())


def _listed(deviation: AcceptedDeviation, layers: Sequence[LayerComparison]) -> AcceptedLayers:
    off = [row for row in layers if _off(row, [deviation])]
    factors = [row.factor for row in off if row.factor is not None]
    return AcceptedLayers(
        deviation.layers,
        deviation.reason,
        tuple(dict.fromkeys(row.candidate for row in off)),
        max(factors, default=None),
    )


def _off(row: LayerComparison, accepted: Sequence[AcceptedDeviation]) -> str:
    alone = row.isolated is not None and row.isolated.outcome == "not aligned"
    return _reason(row, accepted) if alone or row.outcome == "not aligned" else ""


def _reason(one: LayerComparison | Culprit, accepted: Sequence[AcceptedDeviation]) -> str:
    return next((rule.reason for rule in accepted if matches_glob(rule.layers, one.reference, one.candidate)), "")


def _is_carried(row: LayerComparison) -> bool:
    """Right alone, or a module whose inside is."""
    alone = row.isolated
    right = alone is not None and (
        alone.outcome == "aligned" or (alone.outcome == "not comparable" and not row.certain)
    )
    return row.outcome == "not aligned" and right


def coarser_layers(captures: Sequence[Capture], required: str) -> Iterator[Finding]:
    """An error that names the first of the candidate's layers that returns a coarser dtype; none asked for: nothing.

    `captures` are all that its layers returned, with a counterpart or without.
    """
    if not required:
        return
    coarser = [one for one in captures if EPSILON.get(rounded_as(one.dtype), 0.0) > EPSILON[required]]
    if coarser:
        first = coarser[0]
        message = sentence(
            "forward_finding.precision_too_coarse", count=len(coarser), required=required, dtype=first.dtype
        )
        place = first.module or sentence("model_part.output")
        yield Finding("precision-too-coarse", "error", place, message)


# Modules with parameters of which no call was seen: run past their hooks, or never called.
#
# Where they hold most of a model, agreeing outputs are all that was compared: that is no agreement layer by layer.
# Whether they have an effect shows when their parameters are changed, and the model is run.

_KEYS: dict[UnseenState, str] = {
    "bypassed": "forward_finding.modules_bypassed",
    "never called": "forward_finding.modules_never_called",
    "not seen": "forward_finding.modules_not_seen",
}


def unseen_modules(side: SideOf, parameters: ParameterSet, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules of a side that its run does not show, in their order."""
    return tuple(
        UnseenModule(side, module.path, module.class_name, own_elements(module, parameters))
        for module in uncalled_modules(parameters, trace)
    )


def unseen_findings(unseen: Iterable[UnseenModule], label: str) -> Iterator[Finding]:
    """One finding for each state, which names the first modules and counts all."""
    for state, key in _KEYS.items():
        modules = [module for module in unseen if module.state == state]
        if modules:
            listed = [f"{module.module} ({module.class_name})" for module in modules[:MOST_LISTED_PLACES]]
            message = sentence(key, count=len(modules), modules=listed, more=len(modules) - len(listed))
            facts: dict[str, float | int | str] = {"elements": sum(module.elements for module in modules)}
            yield Finding(f"modules-{state.replace(' ', '-')}", "warning", label, message, facts)


def with_unseen(verdict: Verdict, unseen: Sequence[UnseenModule], sides: Iterable[ParameterSet]) -> Verdict:
    """The verdict, with "aligned" taken back where most parameters of a side are in modules that were not seen."""
    for side, parameters in zip(("reference", "candidate"), sides, strict=True):
        modules = [module for module in unseen if module.side == side]
        hidden = sum(module.elements for module in modules)
        share = hidden / max(sum(own_elements(module, parameters) for module in parameters.modules), 1)
        if verdict.outcome is Outcome.ALIGNED and share > MOST_UNSEEN_PARAMETERS:
            names = [module.module for module in modules]
            reason = sentence("forward_verdict.modules_unseen", share=share, side=side, modules=names)
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=reason)
    return verdict


def probe_unseen(role: SideOf, side: Side, inputs: Inputs, trace: Trace) -> tuple[UnseenModule, ...]:
    """The modules that a run did not show, with what a change of their parameters shows; () for a compiled side."""
    if side.compiled:
        return ()
    parameters = side.reader.read_parameters(side.model, side.label)  # a run may rename them
    unseen = unseen_modules(role, parameters, trace)
    if not unseen:
        return ()
    probe = _Probe(side, inputs, trace, parameters)
    together = probe.state(unseen)
    if together != "bypassed" or len(unseen) == 1:
        return tuple(replace(one, state=together) for one in unseen)
    states: list[UnseenState] = [probe.state([one]) for one in unseen[: MOST_PROBE_RUNS - 1]]
    states += ["not seen"] * (len(unseen) - len(states))
    return tuple(replace(one, state=state) for one, state in zip(unseen, states, strict=True))


class _Probe:
    """Runs a side with parameters changed by their own size; it has its values back afterwards."""

    def __init__(self, side: Side, inputs: Inputs, trace: Trace, parameters: ParameterSet) -> None:
        self._side, self._inputs, self._trace, self._parameters = side, inputs, trace, parameters
        self._modules = {module.path: module for module in parameters.modules}

    def state(self, modules: Sequence[UnseenModule]) -> UnseenState:
        """What a run says of these modules, all changed together."""
        known = self._parameters.by_name
        names = {name for one in modules for name in self._modules[one.module].parameters}
        values = live_values(self._side)
        new = perturb_elements(values, {name: values[name] == values[name] for name in sorted(names & values.keys())})
        changed = {name: known[name].tied_to or name for name in values if (known[name].tied_to or name) in new}
        before = SpilledArrays({name: values[name] for name in changed})
        sink = _ChangedOutputs(self._trace)
        put_values(self._side, MadeArrays({name: partial(new.__getitem__, first) for name, first in changed.items()}))
        try:
            self._side.runner.run(self._side.model, self._inputs, sink)
        except UserCodeError:
            return "not seen"
        finally:
            put_values(self._side, before, tuple(values))
        return "bypassed" if sink.changed else "never called"


class _ChangedOutputs:
    """A CaptureSink that finds whether any tensor is not what it was, by more than rounding of its dtype."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._earlier = {capture.key: capture for capture in trace.captures}
        self.changed = False

    def add(self, capture: Capture, value: Array) -> None:
        same = self._earlier.get(capture.key)
        if self.changed or same is None:
            return
        self.changed = same.shape != capture.shape or self._moved(same, value) > 1.0

    def _moved(self, same: Capture, value: Array) -> float:
        measurement = measure(self._trace.value(same), value)
        return smallest_factor(measurement, limit_for(measurement, (same.dtype, same.dtype), None))


_SEED = 1  # no limit: of its own generator


def perturb_elements(values: Mapping[str, Array], masks: Mapping[str, NDArray[np.bool_]]) -> MutableMapping[str, Array]:
    """Those values that have masks, with the masked elements changed at random by the size of their parameter."""
    generator, changed = np.random.default_rng(_SEED), SpilledArrays()
    for name, mask in masks.items():
        value = values[name]
        steps = parameter_rms(value) * generator.standard_normal(mask.shape)
        changed[name] = np.where(mask, value + steps, value).astype(value.dtype)
    return changed


def parameter_rms(value: Array) -> float:
    """Root mean square of a parameter; 1 for one that is all zero or empty, of which no change is relative."""
    return sqrt(sum_of_squares(value) / value.size) or 1.0 if value.size else 1.0


def sum_of_squares(value: Array) -> float:
    """The sum of squares of magnitudes, in float64, piece by piece; large arrays of float32 to five digits."""
    flat = value.reshape(-1)
    pieces = (flat[start : start + SQUARED_PIECE] for start in range(0, flat.size, SQUARED_PIECE))
    return sum(map(_squares, pieces))


def _squares(piece: Array) -> float:
    """What float32 adds up, short sums at a time, where it is in its range: that is many times as fast."""
    if piece.size == SQUARED_PIECE and piece.dtype == np.float32:
        rows = piece.reshape(-1, 1, LONGEST_DOT)
        with np.errstate(all="ignore"):
            total = float(np.matmul(rows, rows.reshape(-1, LONGEST_DOT, 1)).sum(dtype=np.float64))
        if piece.size * SMALLEST_NORMAL["float32"] < EPSILON["float32"] * total < inf:
            return total
    return float(np.square(np.abs(piece).astype(np.float64)).sum())


# A third side beside reference and candidate: at each layer, which of the three deviates from the other two.
#
# All three differences of a layer are held against one limit, that of the layer between reference and candidate,
# which comes from the reference's noise. Two sides that agree are right by majority. Where no two do, the third
# deviates if two are far nearer to each other than either is to it.

_NOBODY = ("none", "unclear")


def compare_witness(
    sides: tuple[Side, Side], witness: Side, run: BothRuns, calls: CallPairs, layers: Sequence[LayerComparison]
) -> WitnessComparison:
    """Run the witness on the reference's inputs and hold its layers against those of both sides.

    `calls` pair reference and candidate, `layers` are their rows. The trace of the witness is kept beside theirs.
    Raises ModelFailedError if the witness fails, and NothingInCommonError if no layer of it pairs with the reference's.
    """
    seen = _Three(run, _run_witness(sides[0], witness, run), calls)
    rows = [found for row in layers if (found := seen.row(row)) is not None]
    judged = sum(row.limit is not None for row in layers)
    first = next((place for place, one in enumerate(rows) if one.deviates not in _NOBODY), None)
    return WitnessComparison(witness.label, tuple(rows), first, judged - len(rows), _conclusion(rows, first))


def without_witness(result: ForwardComparison) -> ForwardComparison:
    """The result of a candidate that failed, which says that the witness was not run."""
    note = Finding("witness-not-run", "note", result.candidate, sentence("witness.not_run"))
    return replace(result, findings=(*result.findings, note))


@dataclass(frozen=True, slots=True)
class _Witnessed:
    """The trace of the witness, its rows against the reference, and its captures by the reference's keys."""

    trace: Trace
    rows: Mapping[str, LayerComparison]
    captures: Mapping[str, Capture]


def _run_witness(reference: Side, witness: Side, run: BothRuns) -> _Witnessed:
    witness = followed_side(witness, reference)
    folder: Path = run.reference.folder.with_name("witness")
    run_fitted(witness, run.inputs[0], partial(trace_run, witness, folder))
    traces = run.reference, TraceFolder(folder)
    both = (
        reference.reader.read_parameters(reference.model, reference.label),
        witness.reader.read_parameters(witness.model, witness.label),
    )
    name_map = choose_map(None, both)
    if not name_map.complete:
        name_map = map_in_order(traces, both, name_map)
    pairs = pair_traces(traces, both, name_map)
    rows = compare_traces(*traces, pairs.pairs, run.noise.accumulated, padding=run.padding)
    return _Witnessed(traces[1], {row.key: row for row in rows}, _captures(pairs))


def _captures(pairs: CallPairs) -> dict[str, Capture]:
    """What stands for each tensor of the reference, by its key."""
    both = (found for pair in pairs.pairs for found in paired_outputs(pair.reference, pair.candidate))
    return {mine.key: theirs for mine, theirs, unlike in both if not unlike or mine.module}


class _Three:
    """The three traces, and a row for each layer that all of them have."""

    def __init__(self, run: BothRuns, witness: _Witnessed, calls: CallPairs) -> None:
        self._run, self._witness = run, witness
        self._candidates = _captures(calls)
        self._references = {one.key: one for one in run.reference.captures}

    def row(self, row: LayerComparison) -> WitnessedLayer | None:
        """Who deviates at one layer; None where it was not judged, or the witness has none such."""
        other = self._witness.rows.get(row.key)
        if row.limit is None or row.factor is None or other is None or other.limit is None or other.factor is None:
            return None
        between = self._between(row.key, row.limit)
        if between is None:
            return None
        factors = row.factor, other.factor, between
        return WitnessedLayer(
            row.reference, row.candidate, other.candidate, row.call, row.output, who_deviates(*factors), *factors
        )

    def _between(self, key: str, limit: Limit) -> float | None:
        """The difference of candidate and witness, as a multiple of the limit."""
        mine, candidate, witness = (
            group.get(key) for group in (self._references, self._candidates, self._witness.captures)
        )
        if mine is None or candidate is None or witness is None:
            return None
        value = self._run.reference.value(mine)
        left = _laid_out(value, self._run.candidate.value(candidate))
        right = _laid_out(value, self._witness.trace.value(witness))
        return None if left is None or right is None else smallest_factor(measure(left, right), limit)


def _laid_out(reference: Array, value: Array) -> Array | None:
    view = find_permuted_layout(reference, value)
    return None if view is None else view.to_reference(value)


def who_deviates(candidate: float, witness: float, between: float) -> Deviates:
    """Which side deviates, by the factors of reference and candidate, reference and witness, candidate and witness.

    >>> who_deviates(0.3, 40.0, 41.0), who_deviates(40.0, 0.3, 41.0), who_deviates(40.0, 41.0, 0.3)
    ('witness', 'candidate', 'reference')
    """
    factors: dict[Deviates, float] = {"witness": candidate, "candidate": witness, "reference": between}
    agree = [third for third, factor in factors.items() if factor <= 1.0]
    if len(agree) == len(factors):
        return "none"
    if len(agree) > 1:
        return "unclear"
    third = agree[0] if agree else min(factors, key=lambda one: factors[one])
    others = min(factor for one, factor in factors.items() if one != third)
    nearer = factors[third] < inf and factors[third] * NEARER_THAN_WITNESS <= others
    return third if agree or nearer else "all"


def _conclusion(rows: Sequence[WitnessedLayer], first: int | None) -> str:
    if not rows:
        return sentence("witness.nothing")
    counts = Counter(row.deviates for row in rows)
    if first is None:
        key = "witness.unclear" if counts["unclear"] else "witness.none"
        return sentence(key, count=len(rows), unclear=counts["unclear"])
    who = rows[first].deviates
    layer = rows[first].reference or sentence("model_part.model_itself")
    return sentence(f"witness.{who}", layer=layer, count=counts[who], total=len(rows))
