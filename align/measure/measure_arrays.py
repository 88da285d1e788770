"""All figures of one comparison of two arrays, from a single pass with float64 sums and bounded memory.

Multi-pass float32 figures, as usual elsewhere, give cosines above 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.measure.numpy_kernel import BLOCK, NumpyKernel
from align.measure.running_sums import RunningSums

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.measurements import Measurement


def measure(reference: Array, candidate: Array) -> Measurement:
    """Compare two arrays of one shape and any dtypes, element by element.

    Raises ValueError if the shapes differ: nothing is ever broadcast. Temporary memory is about a megabyte unless an
    array is not contiguous, which is then copied.
    """
    if reference.shape != candidate.shape:
        msg = f"shapes differ: {reference.shape} and {candidate.shape}"
        raise ValueError(msg)
    sums = RunningSums()
    NumpyKernel(min(BLOCK, 2 * max(reference.size, 1))).add(sums, reference.ravel(), candidate.ravel())
    return sums.result(reference.shape)
