"""How much a layer may differ: a multiple of the reference's own rounding noise, never less than its dtype can tell.

The noise of a layer is what its output moves by when the reference runs in float64 instead of its own precision, on
the same inputs. Another implementation adds in another order: its error has the same size but not the same value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.dtypes import EPSILON, is_float
from align.core.measurements import Limit

if TYPE_CHECKING:
    from align.core.measurements import LimitSource, Measurement

# Over the clean real pairs of docs/forward.md the candidate's error stays below 11 times the reference's own noise:
# other kernels add in another order, and sometimes in a worse one.
NOISE_FACTOR = 20.0
# An operation without noise of its own (ReLU, pooling, softmax) may still differ by some units in the last place of its
# scale: typically by few, in the worst of a million elements by more.
TYPICAL_UNITS = 8.0
WORST_UNITS = 64.0
# Relative to the layer's scale, where noise cannot be measured: what a deep net in this dtype usually keeps.
RELATIVE_BY_DTYPE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


def limit_for(measurement: Measurement, dtypes: tuple[str, str], noise: Measurement | None) -> Limit:
    """Limit of one tensor, in its own units.

    `measurement` gives the scale (largest and root-mean-square value of the reference), `dtypes` are those of both
    sides: the coarser one counts. `noise` compares the reference's float64 run with its ordinary one; None if it could
    not be run.
    """
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    if not floats:
        return Limit(0.0, 0.0, "exact")
    coarsest = max(floats, key=EPSILON.__getitem__)
    largest, typical = measurement.reference_max, measurement.reference_rms
    if noise is None or coarsest != dtypes[0]:  # the reference's noise says nothing of a coarser candidate
        share = RELATIVE_BY_DTYPE.get(coarsest, EPSILON[coarsest])
        return Limit(share * largest, share * typical, "dtype")
    by_noise = NOISE_FACTOR * noise.max_abs, NOISE_FACTOR * noise.rmse
    by_rounding = WORST_UNITS * EPSILON[coarsest] * largest, TYPICAL_UNITS * EPSILON[coarsest] * typical
    source: LimitSource = "noise" if by_noise[1] > by_rounding[1] else "rounding"
    return Limit(max(by_noise[0], by_rounding[0]), max(by_noise[1], by_rounding[1]), source)
