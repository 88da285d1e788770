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

# Clean pairs of real models stay below 4 times the noise; docs/forward.md has the figures.
NOISE_FACTOR = 10.0
# An operation without noise of its own (ReLU, pooling) may still differ by some units in the last place of its scale.
UNITS_IN_LAST_PLACE = 8.0
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
    if noise is None:
        share = RELATIVE_BY_DTYPE.get(coarsest, EPSILON[coarsest])
        return Limit(share * largest, share * typical, "dtype")
    floor = UNITS_IN_LAST_PLACE * EPSILON[coarsest]
    by_noise = NOISE_FACTOR * noise.max_abs, NOISE_FACTOR * noise.rmse
    by_rounding = floor * largest, floor * typical
    source: LimitSource = "noise" if by_noise[1] > by_rounding[1] else "rounding"
    return Limit(max(by_noise[0], by_rounding[0]), max(by_noise[1], by_rounding[1]), source)
