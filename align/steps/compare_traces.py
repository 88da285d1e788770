"""Paired calls turned into rows: what differs, by how much, against which limit; then the first that is not aligned."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from align.core.comparisons import LayerComparison
from align.core.measurements import smallest_factor
from align.steps.limits import limit_for
from align.steps.measure import measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.comparisons import LayerOutcome
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace
    from align.steps.pair_calls import Call, CallPair


def compare_traces(
    reference: Trace, candidate: Trace, pairs: Sequence[CallPair], noise: Mapping[str, Measurement] | None
) -> Iterator[LayerComparison]:
    """Yield one row for each tensor of each paired call, in the reference's order.

    `noise` maps a reference capture's key to its float64-against-ordinary measurement; None if it was not measured.
    Layers of one known kind whose outputs hold different numbers of elements are not aligned; other outputs of unequal
    shapes (another layout) are not comparable.
    """
    for mine, theirs in pairs:
        for a, b, obstacle in _paired_outputs(mine, theirs):
            row = _row(mine, theirs, a, b)
            if obstacle:
                same_layer = mine.kind == theirs.kind != ""
                wrong = same_layer and prod(a.shape) != prod(b.shape)
                yield replace(row, outcome="not aligned" if wrong else "not comparable", note=obstacle)
                continue
            measurement = measure(reference.value(a), candidate.value(b))
            yield _judged(row, measurement, None if noise is None else noise.get(a.key))


def excuse_containers(layers: Sequence[LayerComparison]) -> list[LayerComparison]:
    """Call containers that differ "not comparable" where every layer after them, and the model's output, agrees.

    Two modules that hold the same parameters need not end at the same place: one may include the activation that
    the other leaves to its parent. A fault inside a container, on the other hand, reaches what comes after it.
    """
    result = list(layers)
    faulty_after = False
    for index in range(len(result) - 1, -1, -1):
        layer = result[index]
        if not layer.container:
            faulty_after = faulty_after or layer.outcome == "not aligned"
        elif layer.outcome == "not aligned" and not faulty_after:
            note = "the two modules end at different places: all layers after them agree"
            result[index] = replace(layer, outcome="not comparable", note=note)
    return result


def first_divergence(layers: Sequence[LayerComparison]) -> tuple[int | None, int | None]:
    """Index of the first row that is not aligned, and of the last aligned row before it."""
    first = next((index for index, layer in enumerate(layers) if layer.outcome == "not aligned"), None)
    before = range((len(layers) if first is None else first) - 1, -1, -1)
    return first, next((index for index in before if layers[index].outcome == "aligned"), None)


def _judged(row: LayerComparison, measurement: Measurement, noise: Measurement | None) -> LayerComparison:
    limit = limit_for(measurement, (row.reference_dtype, row.candidate_dtype), noise)
    factor = smallest_factor(measurement, limit)
    alike = _alike_non_finite(measurement)
    if alike == measurement.count:
        note = "no finite values on either side" if alike else "no elements"
        return replace(row, outcome="not comparable", note=note)
    note = f"{alike} equal NaN or Inf on both sides are left out" if alike else ""
    outcome: LayerOutcome = "aligned" if factor <= 1.0 else "not aligned"
    return replace(row, outcome=outcome, measurement=measurement, limit=limit, factor=factor, note=note)


def _alike_non_finite(measurement: Measurement) -> int:
    """How many elements are NaN or Inf on both sides, provided that all of them are alike."""
    return 0 if measurement.non_finite_mismatch else measurement.nan_reference + measurement.inf_reference


def _paired_outputs(mine: Call, theirs: Call) -> Iterator[tuple[Capture, Capture, str]]:
    """Pair outputs by name if both sides have the same names, else by position if both have as many."""
    ours, others = list(mine.outputs), {capture.output: capture for capture in theirs.outputs}
    if {capture.output for capture in ours} != set(others):
        others = {a.output: b for a, b in zip(ours, theirs.outputs, strict=False)}
    count = f"{len(ours)} outputs against {len(theirs.outputs)}" if len(ours) != len(theirs.outputs) else ""
    for a in ours:
        b = others.get(a.output)
        if b is None or count:
            yield a, b or theirs.outputs[0], count
        else:
            yield a, b, _obstacle(a, b)


def _obstacle(a: Capture, b: Capture) -> str:
    return "" if a.shape == b.shape else f"shapes {list(a.shape)} and {list(b.shape)} differ"


def _row(mine: Call, theirs: Call, a: Capture, b: Capture) -> LayerComparison:
    return LayerComparison(
        order=a.order,
        reference=mine.module,
        candidate=theirs.module,
        reference_class=mine.class_name,
        candidate_class=theirs.class_name,
        call=mine.call,
        output=a.output,
        reference_shape=a.shape,
        candidate_shape=b.shape,
        reference_dtype=a.dtype,
        candidate_dtype=b.dtype,
        outcome="not comparable",
        measurement=None,
        limit=None,
        factor=None,
        depth=a.depth,
        container=mine.container or theirs.container,
    )
