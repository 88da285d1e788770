"""One tensor against its limit, as a whole and in the parts that are judged apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.measurements import smallest_factor
from align.measure.limits import part_key
from align.measure.measure_arrays import measure
from align.measure.slices import slices_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement

    LimitOf = Callable[[Measurement, str], Limit | None]


@dataclass(frozen=True, slots=True)
class JudgedTensor:
    """Figures, limit and factor of a tensor, or of the `part` of it that is above its own limit by more.

    `left_out` is the factor of what was left out, by the limit of the whole; None if nothing was. `left_out_alike`
    elements of it are NaN or Inf on both sides.
    """

    measurement: Measurement
    limit: Limit
    factor: float
    part: str = ""
    left_out: float | None = None
    left_out_alike: int = 0


def judge_tensor(
    reference: Array, candidate: Array, limit_of: LimitOf, left_out: NDArray[np.bool_] | None = None
) -> JudgedTensor:
    """Measure two arrays of one shape; `limit_of` gives the limit of the whole (""), and of parts that have one.

    `left_out` are positions (samples, positions) that do not count, in a floating tensor that has both axes and is no
    mask itself.
    """
    axis = 0 if left_out is None or not is_float(reference.dtype.name) else _axis_of(left_out.shape, reference.shape)
    if left_out is not None and axis and not _is_mask(reference):
        return _without((reference, candidate), limit_of, left_out, axis)
    whole = measure(reference, candidate)
    limit = limit_of(whole, "")
    if limit is None:
        msg = "the whole tensor has no limit"
        raise ValueError(msg)
    judged = JudgedTensor(whole, limit, smallest_factor(whole, limit))
    if whole.max_abs == 0.0:
        return judged
    flat = reference.reshape(-1), candidate.reshape(-1)
    for part in slices_of(reference):
        own = measure(flat[0][part.elements], flat[1][part.elements])
        bound = limit_of(own, part.label)
        factor = 0.0 if bound is None else smallest_factor(own, bound)
        if bound is not None and factor > max(1.0, judged.factor):
            place = np.unravel_index(part.elements[own.worst[0]], reference.shape) if own.worst else ()
            judged = JudgedTensor(replace(own, worst=tuple(map(int, place))), bound, factor, part.label)
    return judged


def _is_mask(values: Array) -> bool:
    """Tell whether a tensor holds two values at most: what it says of padded positions is what it is for."""
    others = values[values != values.flat[0]]
    return not others.size or bool((others == others[0]).all())


def _axis_of(positions: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The first axis behind that of the samples which is as long as there are positions; 0 if there is none."""
    if not shape or shape[0] != positions[0]:
        return 0
    return next((axis for axis, length in enumerate(shape) if axis and length == positions[1]), 0)


def _without(arrays: tuple[Array, Array], limit_of: LimitOf, left_out: NDArray[np.bool_], axis: int) -> JudgedTensor:
    """Judge what is left, in which the place of the worst element is that of the whole."""
    reference, candidate = (np.moveaxis(one, axis, 1) for one in arrays)
    rest = measure(reference[left_out], candidate[left_out])
    if rest.non_finite_mismatch:  # NaN is nobody's padding
        return judge_tensor(*arrays, limit_of)
    judged = judge_tensor(reference[~left_out], candidate[~left_out], limit_of)
    place = judged.measurement.worst
    if place:
        sample, position = (int(one) for one in np.argwhere(~left_out)[place[0]])
        place = (sample, *place[1:axis], position, *place[axis:])
    measurement = replace(judged.measurement, worst=place)
    alike = rest.nan_reference + rest.inf_reference
    factor = smallest_factor(rest, judged.limit)
    return replace(judged, measurement=measurement, left_out=factor, left_out_alike=alike)


def measure_parts(key: str, reference: Array, ordinary: Array) -> dict[str, Measurement]:
    """What a tensor moves by, by its key, and each part of the `ordinary` one by its `part_key`."""
    found = {key: measure(reference, ordinary)}
    if found[key].max_abs == 0.0:
        return found
    flat = reference.reshape(-1), ordinary.reshape(-1)
    for part in slices_of(ordinary):
        found[part_key(key, part.label)] = measure(flat[0][part.elements], flat[1][part.elements])
    return found
