"""Parameters and their gradients of two dumps, paired by the name map.

The gradient of a bias is the sum of what comes back to its layer's output, that of a weight a sum of products with the
input. Where the terms cancel, as they do in front of a BatchNorm, what is left is the rounding of the terms: a gradient
may differ by some units of the sum of their sizes, however small it is itself.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, is_float
from align.core.transforms import IDENTITY
from align.forward.dumps.judge_figures import judge_figures, raised
from align.forward.forward_result import LayerComparison
from align.forward.layers.compare_traces import outcome_of, shapes_differ
from align.forward.thresholds import GRADIENT_SUM_UNITS
from align.measure.judge_tensors import judge_tensor
from align.measure.limits import coarsest_dtype, limit_for
from align.traces.compare_weights import paired_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.measurements import Limit, Measurement
    from align.core.name_map import NameMap, Pairing
    from align.core.traces import DumpedTensor, TensorPart
    from align.forward.allowances import Allowances
    from align.traces.dumped_side import DumpedSide

Sides = tuple["DumpedSide", "DumpedSide"]


def parameter_rows(
    sides: Sides, name_map: NameMap, part: TensorPart, allowances: Allowances
) -> Iterator[LayerComparison]:
    """One row for each parameter, or gradient of one, that both sides dumped."""
    mine, theirs = (side.of_parameters(part) for side in sides)
    for pairing in name_map.pairings:
        if pairing.source in mine and pairing.target in theirs:
            one, other = mine[pairing.source], theirs[pairing.target]
            floor = _floor(sides, one) if part == "parameter gradient" else 0.0
            yield _judged(_row(one, other, part), pairing, (one, other), floor, allowances)


def _judged(
    row: LayerComparison,
    pairing: Pairing,
    pair: tuple[DumpedTensor, DumpedTensor],
    floor: float,
    allowances: Allowances,
) -> LayerComparison:
    one, other = pair
    if one.load is None or other.load is None:
        return judge_figures(row, one, other, floor, same_order=pairing.transform is IDENTITY)
    meant, held, _ = paired_values(pairing, {pairing.source: one.load()}, {pairing.target: other.load()})
    if unlike := shapes_differ(meant.shape, held.shape):
        return replace(row, outcome="not comparable", note=unlike)

    def limit_of(measurement: Measurement, label: str) -> Limit | None:
        if label:
            return None
        limit = limit_for(measurement, (one.dtype, other.dtype), None)
        return allowances.limit(raised(limit, floor), one.module, other.module)

    found = judge_tensor(meant, held, limit_of)
    outcome, note = outcome_of(found)
    judged = replace(row, outcome=outcome, note=note)
    if outcome == "not comparable":
        return judged
    return replace(judged, measurement=found.measurement, limit=found.limit, factor=found.factor)


def _floor(sides: Sides, gradient: DumpedTensor) -> float:
    """What rounding alone makes of a gradient, by the size of the terms that it is the sum of; 0 where none is known.

    The error of a sum is a few units in the last place of the sum of the sizes of its terms (N. Higham, Accuracy and
    Stability of Numerical Algorithms, 4.2), and each term brings its own.
    """
    reference = sides[0]
    if not is_float(gradient.dtype):
        return 0.0
    back = [one for one in reference.by_part.get("output gradient", ()) if one.module == gradient.module]
    sums = sum(_largest_sum(one, gradient) for one in back)
    if len(gradient.shape) > 1:
        given = [one for one in reference.by_part.get("input", ()) if one.module == gradient.module]
        sums *= max((_largest(one) for one in given), default=0.0)
    return GRADIENT_SUM_UNITS * EPSILON[coarsest_dtype(gradient.dtype)] * sums


def _largest_sum(back: DumpedTensor, gradient: DumpedTensor) -> float:
    """The largest sum of sizes over all but the axis of the layer's channels, or a bound on it.

    Figures bound it: a sum of n sizes is at most sqrt(n) times the norm of all.
    """
    channels = gradient.shape[0] if gradient.shape else 1
    axes = [
        axis
        for axis in {min(1, len(back.shape) - 1), len(back.shape) - 1}
        if axis >= 0 and back.shape[axis] == channels
    ]
    if not axes or not prod(back.shape):
        return 0.0
    if back.load is None:
        rms = back.statistics.rms if back.statistics else None
        count = prod(back.shape)
        return 0.0 if rms is None else sqrt(count / channels) * sqrt(count) * rms
    sizes = np.abs(back.load().astype(np.float64))
    return max(float(sizes.sum(axis=tuple(one for one in range(sizes.ndim) if one != axis)).max()) for axis in axes)


def _largest(one: DumpedTensor) -> float:
    if not one.item.isdecimal() or not is_float(one.dtype):
        return 0.0
    if one.load is not None:
        return float(np.abs(one.load()).max(initial=0.0))
    known = (one.statistics.min, one.statistics.max) if one.statistics else ()
    return max((abs(value) for value in known if value is not None), default=0.0)


def _row(one: DumpedTensor, other: DumpedTensor, part: TensorPart) -> LayerComparison:
    return LayerComparison(
        order=one.order,
        reference=one.module,
        candidate=other.module,
        reference_class=one.class_name,
        candidate_class=other.class_name,
        call=one.call,
        output=one.item,
        reference_shape=one.shape,
        candidate_shape=other.shape,
        reference_dtype=one.dtype,
        candidate_dtype=other.dtype,
        outcome="not comparable",
        measurement=None,
        limit=None,
        factor=None,
        depth=one.depth,
        part=part,
    )
