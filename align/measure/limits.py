"""How much a layer may differ: a multiple of the reference's own rounding noise, never less than its dtype can tell.

The noise of a layer is what its output moves by when the reference runs in float64 instead of its own precision, on
the same inputs. Another implementation adds in another order: its error has the same size but not the same value.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from scipy.special import chdtri

from align.core.dtypes import EPSILON, rounded_as
from align.core.measurements import Limit

if TYPE_CHECKING:
    from align.core.measurements import LimitSource, Measurement

# Over the clean pairs of docs/forward.md the candidate is up to 4.4 times as noisy as the reference: other kernels add
# in another order, and sometimes in a worse one.
NOISE_FACTOR = 10.0
# How sure the measured noise is to be no stroke of luck: few elements tell little of it.
CONFIDENCE = 0.99
# An operation without noise of its own (ReLU, pooling, softmax) may still differ by some units in the last place of its
# scale: typically by up to 10 (ELU in MindSpore), in the worst of a million elements by more.
TYPICAL_UNITS = 16.0
WORST_UNITS = 64.0
# Relative to the layer's scale, where noise cannot be measured: what a deep net in this dtype usually keeps.
RELATIVE_BY_DTYPE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


def limit_for(measurement: Measurement, dtypes: tuple[str, str], noise: Measurement | None, coarser: str = "") -> Limit:
    """Limit of one tensor, in its own units.

    `measurement` gives the scale (largest and root-mean-square value of the reference), `dtypes` are those of both
    sides: the coarser one counts. `noise` compares the reference's float64 run with its ordinary one; None if it could
    not be run. `coarser` is the dtype in which the candidate computed something before that the reference had in a
    finer one: its rounding is in all that follows, whatever the dtype.
    """
    floats = [dtype for name in (*dtypes, coarser) if (dtype := rounded_as(name))]
    if not floats:
        return Limit(0.0, 0.0, "exact")
    coarsest = max(floats, key=EPSILON.__getitem__)
    largest, typical = measurement.reference_max, measurement.reference_rms
    if noise is None:
        share = RELATIVE_BY_DTYPE.get(coarsest, EPSILON[coarsest])
        return Limit(share * largest, share * typical, "dtype")
    factor = NOISE_FACTOR * _luck(noise) * EPSILON[coarsest] / EPSILON[rounded_as(dtypes[0]) or coarsest]
    by_noise = factor * noise.max_abs, factor * noise.rmse
    by_rounding = WORST_UNITS * EPSILON[coarsest] * largest, TYPICAL_UNITS * EPSILON[coarsest] * typical
    source: LimitSource = "noise" if by_noise[1] > by_rounding[1] else "rounding"
    return Limit(max(by_noise[0], by_rounding[0]), max(by_noise[1], by_rounding[1]), source)


def _luck(noise: Measurement) -> float:
    """By how much the true noise may exceed the measured one: the upper end of its confidence interval.

    For n independent normal errors it is sqrt(n / chi2), with chi2 the quantile of 1 - CONFIDENCE for n degrees of
    freedom: 80 for one element, 2 for ten, 1.1 for five hundred. A few large errors that dominate all others count as
    few: n is the number of elements of the largest error that would give the measured root mean square.
    """
    if noise.max_abs == 0.0:
        return 1.0
    independent = max(1.0, noise.count * (noise.rmse / noise.max_abs) ** 2)
    return sqrt(independent / float(chdtri(independent, CONFIDENCE)))
