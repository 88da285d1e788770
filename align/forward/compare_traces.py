"""Paired calls turned into rows: what differs, by how much, against which limit; then the first that is not aligned.

Rows say besides their figures the batch, by how much a layer enlarges an error, and the texts that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import EPSILON, rounded_as
from align.errors import UserCodeError
from align.forward.forward_result import NO_ALLOWANCES, LayerComparison
from align.forward.thresholds import LEAST_PADDING_UNITS, LONGEST_SHOWN_TEXT, MOST_NAMED_SAMPLES
from align.measure.limits import coarsest_dtype, judge_tensor, limit_by_noise
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import find_permuted_layout
from align.models.inputs import batches_of
from align.models.live_calls import is_probe
from align.traces.module_calls import batch_ends, batch_number, inputs_of_calls, outermost_calls, pair_inputs, parts_of
from align.words.catalogue import joined, printable, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture, Limit, Measurement, Trace
    from align.forward.forward_result import Allowances, Culprit, IsolatedOutcome, LeftOut
    from align.measure.limits import JudgedTensor, LimitOf, RoundingNoise
    from align.models.open_side import Side
    from align.traces.module_calls import Call, CallPair


# Which elements of the reference's tensors padded positions decide: those that move with what stands there.
#
# An input called an attention mask says by its zeros which positions are padding. Whether they are is seen in a run:
# with other tokens there, what moves is padding, and if more than that moves, the model uses them.

# Names whose zeros stand for padding, whatever comes before them; other masks may mean it the other way round.
NAMES = ("attention_mask", "input_mask")


def find_padding(side: Side, inputs: Inputs, trace: Trace) -> Padding:
    """Run the reference, which has left `trace`, with other tokens at its padded positions, if there are any."""
    batches = batches_of(inputs)
    others = [_other_tokens(batch) for batch in batches]
    if not any(others):
        return NO_PADDING
    given = [other or batch for other, batch in zip(others, batches, strict=True)]
    sink = _MovedSink(
        trace, [max((float(padded.mean()) for padded in _padded(batch)), default=0.0) for batch in batches]
    )
    try:
        side.runner.run(side.model, given[0] if len(given) == 1 else given, sink)
    except UserCodeError:
        return NO_PADDING
    return Padding(sink.moved)


class _MovedSink:
    """An InputSink that keeps which elements are not what they were, of tensors of which no more than a share are."""

    def __init__(self, ordinary: Trace, shares: list[float]) -> None:
        self._ordinary, self._shares, self._ends = ordinary, shares, batch_ends(ordinary)
        self._captures = {one.key: one for one in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.moved: dict[str, NDArray[np.uint8]] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        for name, value in inputs.items():
            self._note(self._inputs.get((module, call, name)), value)

    def add(self, capture: Capture, value: Array) -> None:
        self._note(self._captures.get(capture.key), value)

    def _note(self, same: Capture | None, value: Array) -> None:
        if same is None or same.shape != value.shape or not rounded_as(same.dtype):
            return
        moved = _moved(self._ordinary.value(same), value, EPSILON[rounded_as(same.dtype)])
        share = self._shares[batch_number(self._ends, same.order) - 1]
        if 0 < np.count_nonzero(moved) <= share * moved.size:
            self.moved[same.key] = np.packbits(moved)


def _moved(ordinary: Array, value: Array, unit: float) -> NDArray[np.bool_]:
    finite = np.isfinite(ordinary)
    mine, theirs = (np.where(finite, one, 0).astype(np.float64) for one in (ordinary, value))
    least = LEAST_PADDING_UNITS * unit * float(np.abs(mine).max(initial=0.0))
    found: NDArray[np.bool_] = ~(np.abs(theirs - mine) <= least)
    return found


def _other_tokens(batch: Batch) -> dict[str, Array]:
    """The batch with other values at padded positions of the inputs that have these positions; {} if none can."""
    changed: dict[str, Array] = {}
    for padded in _padded(batch):
        for name, value in batch.items():
            if value.shape[:2] == padded.shape and "mask" not in name.lower():
                changed |= _changed(name, value, padded)
    return {**batch, **changed} if changed else {}


def _changed(name: str, value: Array, padded: NDArray[np.bool_]) -> dict[str, Array]:
    other = value.copy()
    if value.dtype.kind in "iu":
        low, span = value.min(), int(value.max()) - int(value.min()) + 1
        other[padded] = low + (value[padded] - low + span // 2) % span
        return {name: other} if span > 1 else {}
    if not rounded_as(value.dtype.name):
        return {}
    other[padded] = (np.abs(value.astype(np.float64)).max() - value[padded].astype(np.float64)).astype(value.dtype)
    return {name: other}


def _padded(batch: Batch) -> Iterator[NDArray[np.bool_]]:
    """Positions that all masks of one shape call padding, by the shapes."""
    masks: dict[tuple[int, ...], list[Array]] = {}
    for name, value in batch.items():
        if name.lower().endswith(NAMES) and _is_mask(value):
            masks.setdefault(value.shape, []).append(value)
    for own in masks.values():
        padded: NDArray[np.bool_] = np.logical_and.reduce([one == 0 for one in own])
        yield padded


def _is_mask(value: Array) -> bool:
    """Ones and zeros of two axes, samples and positions, both of them."""
    return value.ndim == 2 and value.dtype.kind in "biuf" and set(np.unique(value).tolist()) == {0, 1}


@dataclass(frozen=True, slots=True)
class Padding:
    """Elements of the reference's tensors that padded positions decide, as packed bits by the captures' keys."""

    packed: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)

    def at(self, capture: Capture) -> NDArray[np.bool_] | None:
        """These elements of one tensor, in its shape; None if it has none."""
        bits = self.packed.get(capture.key)
        if bits is None:
            return None
        return np.unpackbits(bits, count=prod(capture.shape)).view(np.bool_).reshape(capture.shape)


NO_PADDING = Padding()


Place = tuple[int, int]  # where two arrays lie in memory


def compare_traces(
    reference: Trace,
    candidate: Trace,
    pairs: Sequence[CallPair],
    noise: RoundingNoise | None,
    allowances: Allowances = NO_ALLOWANCES,
    padding: Padding = NO_PADDING,
) -> Iterator[LayerComparison]:
    """Yield one row for each tensor of each paired call, in the reference's order.

    `noise` is None if it was not measured. At `padding` nothing is compared, but it is reported.
    Outputs of one kind of layer, and of the models, that hold different numbers of elements are not aligned. Inner
    outputs of another layout are compared in the reference's, where the values show which it is; else they, and all
    other outputs of unequal shapes, are not comparable.
    """
    carried = "", ""  # the coarsest dtype so far: the reference's, and that of a candidate which has a coarser one
    for pair in pairs:
        for a, b, unlike in paired_outputs(pair.reference, pair.candidate):
            lost = _not_kept(reference, a, candidate, b)
            row = _row(pair, a, b)
            carried = coarsest_dtype(carried[0], a.dtype), coarser_of(carried[1], a.dtype, b.dtype)
            view = (
                None
                if lost or not _may_be_viewed(pair, a, b)
                else find_permuted_layout(reference.value(a), candidate.value(b))
            )
            if view is None:
                obstacle = unlike or lost
                as_many = len(pair.reference.outputs) == len(pair.candidate.outputs)
                wrong = as_many and prod(a.shape) != prod(b.shape) and same_layer(pair)
                yield replace(row, outcome="not aligned" if wrong else "not comparable", note=obstacle)
                continue
            values = reference.value(a), view.to_reference(candidate.value(b))
            found = judge_tensor(*values, _limit_of((a, b), noise, carried, allowances), padding.at(a))
            judged = _with_places(_judged(row, found), *values)
            yield judged if view.is_same else replace(judged, note=view.note, left_out=())


def _limit_of(
    pair: tuple[Capture, Capture], noise: RoundingNoise | None, carried: tuple[str, str], allowances: Allowances
) -> LimitOf:
    a, b = pair

    def limit_of(measurement: Measurement, part: str) -> Limit | None:
        limit = limit_by_noise(noise, (a.key, part), measurement, (a.dtype, b.dtype), carried)
        return limit and allowances.limit(limit, a.module, b.module)

    return limit_of


def _may_be_viewed(pair: CallPair, a: Capture, b: Capture) -> bool:
    """The models' own outputs must have one shape; where one side returns more tensors, the pairs are not sure."""
    return len(pair.reference.outputs) == len(pair.candidate.outputs) and bool(a.module or a.shape == b.shape)


def excuse_uncertain(layers: Sequence[LayerComparison]) -> tuple[LayerComparison, ...]:
    """Call a pair that is not certain "not comparable" where it differs and the next certain layer agrees.

    So is one of another number of elements: experts may see their own rows, or all. Two modules that hold the same
    parameters need not end at the same place: one may include the activation that the other leaves to its parent. A
    fault inside, on the other hand, reaches what comes after it.
    """
    result = list(layers)
    agrees_after = False
    for index in range(len(result) - 1, -1, -1):
        layer = result[index]
        if layer.certain and not (layer.outcome == "not aligned" and layer.measurement is None):
            agrees_after = layer.outcome == "aligned" or (agrees_after and layer.outcome == "not comparable")
        elif layer.outcome == "not aligned" and agrees_after:
            note = sentence("forward_note.next_layer_agrees")
            result[index] = replace(layer, outcome="not comparable", factor=None, note=note)
    return tuple(result)


def first_divergence(layers: Sequence[LayerComparison]) -> tuple[int | None, int | None]:
    """Index of the first row that is not aligned, and of the last aligned row before it."""
    first = next((index for index, layer in enumerate(layers) if layer.outcome == "not aligned"), None)
    before = range((len(layers) if first is None else first) - 1, -1, -1)
    return first, next((index for index in before if layers[index].outcome == "aligned"), None)


def coarser_of(known: str, reference: str, candidate: str) -> str:
    """Return the coarsest dtype so far in which the candidate computed what the reference has in a finer one."""
    mine, theirs = rounded_as(reference), rounded_as(candidate)
    if not mine or not theirs or EPSILON[theirs] <= EPSILON[mine]:
        return known
    return max(known or theirs, theirs, key=EPSILON.__getitem__)


def same_layer(pair: CallPair) -> bool:
    """Tell whether both are layers of one known kind, both probes, or both the model."""
    alike = not pair.reference.module or is_probe(pair.reference.module)
    return alike or pair.reference.kind == pair.candidate.kind != ""


def _judged(row: LayerComparison, judged: JudgedTensor) -> LayerComparison:
    outcome, note = outcome_of(judged)
    row = replace(row, outcome=outcome, note=note)
    if outcome == "not comparable":
        return row
    figures = {"measurement": judged.measurement, "limit": judged.limit, "factor": judged.factor}
    return replace(row, **figures, left_out=left_out_of(judged))  # type: ignore[arg-type]


def _with_places(row: LayerComparison, reference: Array, candidate: Array) -> LayerComparison:
    """A row that is off as a whole, with the number of its elements beyond the limit, and the samples that have them.

    Where the root mean square alone is beyond its limit, elements are held against that.
    """
    if row.outcome != "not aligned" or row.measurement is None or row.limit is None or row.note:
        return row
    bound = row.limit.max_abs if row.measurement.max_abs > row.limit.max_abs else row.limit.rmse
    wide = np.complex128 if "c" in (reference.dtype.kind, candidate.dtype.kind) else np.float64
    own, other = (one.astype(wide) for one in (reference, candidate))
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(own - other) <= bound) | (own == other) | (np.isnan(own) & np.isnan(other)))
    samples = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1)) if wrong.ndim > 1 else np.empty(0, int)
    return replace(row, outside=int(wrong.sum()), samples=tuple(map(int, samples[:MOST_NAMED_SAMPLES])))


def outcome_of(judged: JudgedTensor) -> tuple[IsolatedOutcome, str]:
    """Return the outcome and a note: NaN and Inf that are alike on both sides are left out."""
    measurement = judged.measurement
    alike, left_out = _alike_non_finite(measurement), left_out_of(judged)
    if alike == measurement.count:
        return "not comparable", sentence("forward_note.no_finite_values" if alike else "forward_note.no_elements")
    notes: list[str] = [sentence("forward_note.non_finite_left_out", count=alike)] if alike else []
    notes += [sentence("forward_note.judged_apart", part=judged.part)] if judged.part else []
    notes += [sentence("forward_note.padded")] if "padding" in left_out else []
    return "aligned" if judged.factor <= 1.0 else "not aligned", joined("; ", notes) if notes else ""


def left_out_of(judged: JudgedTensor) -> tuple[LeftOut, ...]:
    """What of a tensor was not judged with the rest."""
    found: dict[LeftOut, bool] = {"non-finite": _alike_non_finite(judged.measurement) > 0, "part": bool(judged.part)}
    found["padding"] = (judged.left_out or 0.0) > 1.0
    return tuple(name for name, is_so in found.items() if is_so)


def _alike_non_finite(measurement: Measurement) -> int:
    """How many elements are NaN or Inf on both sides, provided that all of them are alike."""
    return 0 if measurement.non_finite_mismatch else measurement.nan_reference + measurement.inf_reference


def paired_outputs(mine: Call, theirs: Call) -> Iterator[tuple[Capture, Capture, str]]:
    """Pair outputs by name where both sides have it, the others by position; say what keeps a pair from comparison."""
    others = {capture.output: capture for capture in theirs.outputs}
    common = {capture.output for capture in mine.outputs} & set(others)
    if len(common) < len(others):  # positions are no names: the first of two tensors may be "1" after a None
        common = {name for name in common if not name.rpartition(".")[2].isdigit()}
    as_many = len(mine.outputs) == len(others)
    count = "" if as_many else sentence("forward_note.other_count", reference=len(mine.outputs), candidate=len(others))
    rest = iter([capture for capture in theirs.outputs if capture.output not in common])
    for a in mine.outputs:
        b = others[a.output] if a.output in common else next(rest, theirs.outputs[0])
        yield a, b, count or shapes_differ(a.shape, b.shape)


def shapes_differ(reference: Sequence[int], candidate: Sequence[int]) -> str:
    """Say that two shapes differ; "" if they do not."""
    if reference == candidate:
        return ""
    return sentence("forward_note.shapes_differ", reference=list(reference), candidate=list(candidate))


def _not_kept(reference: Trace, a: Capture, candidate: Trace, b: Capture) -> str:
    kept = {"reference": reference.holds(a), "candidate": candidate.holds(b)}
    lacking = [side for side, there in kept.items() if not there]
    return sentence("forward_note.not_kept", sides=lacking) if lacking else ""


def _row(pair: CallPair, a: Capture, b: Capture) -> LayerComparison:
    given_on = a.role == "input"  # what a layer gives the activation inside of it
    return LayerComparison(
        order=a.order,
        reference=pair.reference.module if given_on else a.module,
        candidate=b.module,
        reference_class=pair.reference.class_name if given_on else a.class_name,
        candidate_class=b.class_name,
        call=a.call,
        output="" if given_on else a.output,
        reference_shape=a.shape,
        candidate_shape=b.shape,
        reference_dtype=a.dtype,
        candidate_dtype=b.dtype,
        outcome="not comparable",
        measurement=None,
        limit=None,
        factor=None,
        depth=a.depth,
        certain=pair.certain,
    )


def described_rows(layers: Sequence[LayerComparison], traces: tuple[Trace, Trace]) -> tuple[LayerComparison, ...]:
    """Rows in the order of the reference's run: doubtful ones excused, with amplification and number of the batch."""
    return _in_batches(_with_amplification(excuse_uncertain(layers), *traces), traces[0])


def _in_batches(layers: Sequence[LayerComparison], reference: Trace) -> tuple[LayerComparison, ...]:
    """Rows with the number of their batch, counted from 1, where the reference ran on several."""
    ends = batch_ends(reference)
    if len(ends) < 2:
        return tuple(layers)
    return tuple(replace(layer, batch=batch_number(ends, layer.order), batches=len(ends)) for layer in layers)


def culprits_in_batches(culprits: Sequence[Culprit], candidate: Trace) -> tuple[Culprit, ...]:
    """Culprits with the batch of the call that shows them among their facts, where the candidate ran on several."""
    ends = batch_ends(candidate)
    if len(ends) < 2:
        return tuple(culprits)
    orders = {(capture.module, capture.call): capture.order for capture in candidate.captures}
    numbered = []
    for culprit in culprits:
        order = orders.get((culprit.candidate, culprit.call))
        if order is None:
            numbered.append(culprit)
            continue
        batch = sentence("forward_place.batch", batch=batch_number(ends, order), batches=len(ends))
        numbered.append(replace(culprit, facts={**culprit.facts, "batch": batch}))
    return tuple(numbered)


def with_texts(layers: Iterable[LayerComparison], traces: tuple[Trace, Trace]) -> Iterator[LayerComparison]:
    """Rows with the text of both sides in their notes, where both returned one."""
    texts = [_texts(trace) for trace in traces]
    for layer in layers:
        place = layer.call, layer.output
        mine, theirs = (own.get(place) for own in texts)
        if layer.reference or mine is None or theirs is None:
            yield layer
        else:
            unlike = sentence("forward_note.texts_differ", reference=mine, candidate=theirs)
            yield replace(layer, note=mine if mine == theirs else unlike)


def _texts(trace: Trace) -> dict[tuple[int, str], str]:
    parts = parts_of(trace)
    by_output = {}
    for capture in (capture for call in outermost_calls(trace.captures) for capture in call):
        if capture.call in parts and parts[capture.call].kinds.get(capture.output) == "text" and trace.holds(capture):
            text = printable(trace.value(capture).tobytes().decode("utf-8", "replace"))
            by_output[capture.call, capture.output] = (
                f'"{text[:LONGEST_SHOWN_TEXT]}{"..." if len(text) > LONGEST_SHOWN_TEXT else ""}"'
            )
    return by_output


def _with_amplification(
    layers: Sequence[LayerComparison], reference: Trace, candidate: Trace
) -> tuple[LayerComparison, ...]:
    """Relative error (L2) of each output over the largest of the inputs of its call, both accumulated.

    None where the inputs are equal, were not kept, or have another form.
    """
    known: dict[Place, float | None] = {}
    given = inputs_of_calls(reference), inputs_of_calls(candidate)
    amplified = []
    for layer in layers:
        mine, theirs = given[0].get((layer.reference, layer.call), []), given[1].get((layer.candidate, layer.call), [])
        error = layer.measurement.relative_l2 if layer.measurement else None
        before = max(_errors(mine, theirs, (reference, candidate), known), default=0.0) if error else 0.0
        amplified.append(replace(layer, amplification=error / before if error and before else None))
    return tuple(amplified)


def _errors(
    mine: Sequence[Capture], theirs: Sequence[Capture], traces: tuple[Trace, Trace], known: dict[Place, float | None]
) -> Iterator[float]:
    """Relative errors of the inputs; an array that is the input of several calls is measured once."""
    values = {one.output: traces[1].value(one) for one in theirs if rounded_as(one.dtype)}
    for name, capture in pair_inputs(mine, values).items():
        if capture.shape != values[name].shape:
            continue
        value = traces[0].value(capture)
        place = _address(value), _address(values[name])
        if place not in known:
            known[place] = measure(value, values[name]).relative_l2
        if (error := known[place]) is not None:
            yield error


def _address(value: Array) -> int:
    return int(value.__array_interface__["data"][0])
