"""One tensor against its limit, as a whole and in the parts that are judged apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

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

    `left_out` is the factor of what was left out, by the limit of the whole; None if nothing was.
    """

    measurement: Measurement
    limit: Limit
    factor: float
    part: str = ""
    left_out: float | None = None


def judge_tensor(
    reference: Array, candidate: Array, limit_of: LimitOf, left_out: NDArray[np.bool_] | None = None
) -> JudgedTensor:
    """Measure two arrays of one shape; `limit_of` gives the limit of the whole (""), and of parts that have one.

    `left_out` are elements that do not count, in the same shape: the candidate's are judged as if they were right.
    """
    if left_out is not None:
        return _without((reference, candidate), limit_of, left_out)
    whole = measure(reference, candidate)
    limit = limit_of(whole, "")
    if limit is None:
        msg = "the whole tensor has no limit"
        raise ValueError(msg)
    judged = JudgedTensor(whole, limit, smallest_factor(whole, limit))
    if whole.max_abs == 0.0:
        return judged
    for part in slices_of(reference):
        own = measure(part.of(reference), part.of(candidate))
        bound = limit_of(own, part.label)
        factor = 0.0 if bound is None else smallest_factor(own, bound)
        if bound is not None and factor > max(1.0, judged.factor):
            place = np.unravel_index(part.elements[own.worst[0]], reference.shape) if own.worst else ()
            judged = JudgedTensor(replace(own, worst=tuple(map(int, place))), bound, factor, part.label)
    return judged


def _without(arrays: tuple[Array, Array], limit_of: LimitOf, left_out: NDArray[np.bool_]) -> JudgedTensor:
    reference, candidate = arrays
    rest = measure(reference[left_out], candidate[left_out])
    if rest.non_finite_mismatch:  # NaN is nobody's padding
        return judge_tensor(*arrays, limit_of)
    right = np.where(left_out, reference.astype(np.float64), candidate.astype(np.float64))
    judged = judge_tensor(reference, right, limit_of)
    return replace(judged, left_out=smallest_factor(rest, judged.limit))


def measure_parts(key: str, reference: Array, ordinary: Array) -> dict[str, Measurement]:
    """What a tensor moves by, by its key, and each part of the `ordinary` one by its `part_key`."""
    found = {key: measure(reference, ordinary)}
    if found[key].max_abs == 0.0:
        return found
    for part in slices_of(ordinary):
        found[part_key(key, part.label)] = measure(part.of(reference), part.of(ordinary))
    return found
