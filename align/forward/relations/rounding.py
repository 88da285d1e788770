"""Whether the candidate, or what it is made from, was computed in a lower precision.

Values that a narrower dtype holds exactly were rounded to it: seen in its bits, and no size of error can say it as
well. Where only the errors have the size of such rounding, and no relation to the values, it is a hint and no more.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, numpy_dtype
from align.core.measurements import Limit, smallest_factor
from align.forward.relations.relation import Relation
from align.forward.thresholds import CHANCE_CORRELATION_OF_ERRORS, ENOUGH_BITS, LEAST_ROUNDED_ELEMENTS
from align.measure.measure_arrays import measure
from align.measure.thresholds import TYPICAL_UNITS, WORST_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question

NARROW = ("bfloat16", "float16")


def explain_rounding(question: Question) -> Iterator[Relation]:
    """Yield the dtype that the bits show: `rounded` (the output only) or `lower-precision` (what is before it too)."""
    dtype = next((one for one in NARROW if is_exact_in(question.candidate, one)), None)
    if dtype is None or is_exact_in(question.reference, dtype) or question.wrong * question.bits < ENOUGH_BITS:
        return
    measured, unit = measure(question.reference, question.candidate), EPSILON[dtype]
    for name, typical, worst in (("rounded", 1.0, 1.0), ("lower-precision", TYPICAL_UNITS, WORST_UNITS)):
        limit = Limit(worst * unit * measured.reference_max, typical * unit * measured.reference_rms, "dtype")
        if (left := smallest_factor(measured, limit)) <= 1.0:
            yield Relation(name, left, facts={"dtype": dtype})
            return


def explain_error_size(question: Question) -> Iterator[Relation]:
    """Yield `rounding-sized`: errors of the size of a few roundings, with no mean and no relation to the values."""
    reference, error = question.sample, question.candidate_sample - question.sample
    size, typical = (sqrt(float(np.mean(one**2))) for one in (error, reference))
    dtype = next((one for one in NARROW[::-1] if EPSILON[one] / 8 <= size / (typical or 1.0) <= EPSILON[one]), None)
    if dtype is None or reference.size < LEAST_ROUNDED_ELEMENTS or question.bits == 0.0:
        return
    with np.errstate(invalid="ignore"):
        related = [np.corrcoef(error, one)[0, 1] for one in (reference, np.abs(reference), reference**2)]
    apart = [float(error.mean()) / float(error.std()), *related]
    if max(map(abs, apart)) * sqrt(reference.size) < CHANCE_CORRELATION_OF_ERRORS:
        facts: dict[str, Fact] = {"dtype": dtype, "relative_error": size / typical}
        yield Relation("rounding-sized", question.factor, 0.0, facts=facts)


def is_exact_in(values: Array, dtype: str) -> bool:
    """Whether a narrower dtype holds these values exactly, a thousand of them first."""
    with np.errstate(over="ignore", under="ignore"):
        return all(
            np.array_equal(part.astype(numpy_dtype(dtype)).astype(values.dtype), part)
            for part in (values.reshape(-1)[:1000], values.reshape(-1))
        )
