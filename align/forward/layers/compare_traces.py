"""Paired calls turned into rows: what differs, by how much, against which limit; then the first that is not aligned.

Rows say besides their figures the batch, by how much a layer enlarges an error, and the texts that it was given.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, rounded_as
from align.forward.allowances import NO_ALLOWANCES
from align.forward.forward_result import LayerComparison
from align.forward.layers.padding import NO_PADDING, Padding
from align.forward.thresholds import LONGEST_SHOWN_TEXT, MOST_NAMED_SAMPLES
from align.measure.judge_tensors import judge_tensor
from align.measure.limits import coarsest_dtype, limit_by_noise
from align.measure.measure_arrays import measure
from align.measure.tensor_layouts import find_permuted_layout
from align.models.probe import is_probe
from align.traces.module_calls import batch_ends, batch_number, inputs_of_calls, outermost_calls, pair_inputs
from align.traces.returned_parts import parts_of
from align.words.catalogue import joined, sentence
from align.words.message_words import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement
    from align.core.traces import Capture, Trace
    from align.forward.allowances import Allowances
    from align.forward.forward_result import Culprit, IsolatedOutcome
    from align.measure.judge_tensors import JudgedTensor, LimitOf
    from align.measure.limits import RoundingNoise
    from align.traces.module_calls import Call, CallPair

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
            yield judged if view.is_same else replace(judged, note=view.note)


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


def _judged(row: LayerComparison, found: JudgedTensor) -> LayerComparison:
    outcome, note = outcome_of(found)
    if outcome == "not comparable":
        return replace(row, outcome=outcome, note=note)
    return replace(
        row, outcome=outcome, measurement=found.measurement, limit=found.limit, factor=found.factor, note=note
    )


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


def outcome_of(found: JudgedTensor) -> tuple[IsolatedOutcome, str]:
    """Return the outcome and a note: NaN and Inf that are alike on both sides are left out."""
    measurement = found.measurement
    alike = _alike_non_finite(measurement)
    if alike == measurement.count:
        return "not comparable", sentence("forward_note.no_finite_values" if alike else "forward_note.no_elements")
    notes: list[str] = [sentence("forward_note.non_finite_left_out", count=alike)] if alike else []
    notes += [sentence("forward_note.judged_apart", part=found.part)] if found.part else []
    notes += [sentence("forward_note.padded")] if (found.left_out or 0.0) > 1.0 else []
    return "aligned" if found.factor <= 1.0 else "not aligned", joined("; ", notes) if notes else ""


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
    orders = {(one.module, one.call): one.order for one in candidate.captures}
    numbered = []
    for one in culprits:
        order = orders.get((one.candidate, one.call))
        if order is None:
            numbered.append(one)
            continue
        batch = sentence("forward_place.batch", batch=batch_number(ends, order), batches=len(ends))
        numbered.append(replace(one, facts={**one.facts, "batch": batch}))
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
    """The texts that a model returned, by call and name."""
    parts = parts_of(trace)
    found = {}
    for one in (one for call in outermost_calls(trace.captures) for one in call):
        if one.call in parts and parts[one.call].kinds.get(one.output) == "text" and trace.holds(one):
            text = printable(trace.value(one).tobytes().decode("utf-8", "replace"))
            found[one.call, one.output] = (
                f'"{text[:LONGEST_SHOWN_TEXT]}{"..." if len(text) > LONGEST_SHOWN_TEXT else ""}"'
            )
    return found


def _with_amplification(
    layers: Sequence[LayerComparison], reference: Trace, candidate: Trace
) -> tuple[LayerComparison, ...]:
    """Relative error (L2) of each output over the largest of the inputs of its call, both accumulated.

    None where the inputs are equal, were not kept, or have another form.
    """
    known: dict[Place, float | None] = {}
    given = inputs_of_calls(reference), inputs_of_calls(candidate)
    made = []
    for layer in layers:
        mine, theirs = given[0].get((layer.reference, layer.call), []), given[1].get((layer.candidate, layer.call), [])
        error = layer.measurement.relative_l2 if layer.measurement else None
        before = max(_errors(mine, theirs, (reference, candidate), known), default=0.0) if error else 0.0
        made.append(replace(layer, amplification=error / before if error and before else None))
    return tuple(made)


def _errors(
    mine: Sequence[Capture], theirs: Sequence[Capture], traces: tuple[Trace, Trace], known: dict[Place, float | None]
) -> Iterator[float]:
    """Relative errors of the inputs; an array that is the input of several calls is measured once."""
    held = {one.output: traces[1].value(one) for one in theirs if rounded_as(one.dtype)}
    for name, capture in pair_inputs(mine, held).items():
        if capture.shape != held[name].shape:
            continue
        value = traces[0].value(capture)
        place = _address(value), _address(held[name])
        if place not in known:
            known[place] = measure(value, held[name]).relative_l2
        if (error := known[place]) is not None:
            yield error


def _address(value: Array) -> int:
    return int(value.__array_interface__["data"][0])
