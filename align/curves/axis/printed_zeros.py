"""A loss that is exactly 0 to the end of a log: NaN or Inf, as Hugging Face's Trainer prints it.

Its `logging_nan_inf_filter` leaves such losses out of the mean that it prints, so that nothing is left but 0. A loss
that comes down to 0 does not do so from one print to the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.metric_names import is_loss
from align.curves.thresholds import NEAR_ZERO, ZEROS_AT_THE_END
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Curve


def zeros_as_nan(curve: Curve, grad_norm: Curve | None, other: Curve | None = None) -> tuple[Curve, str]:
    """Put NaN in place of zeros at the end, and return what is to be said of that, "" where there are none.

    A `grad_norm` that is a number above 0 there shows that the loss is one, too. A curve of zeros alone is taken so if
    the `other` one is far from 0.
    """
    first = _first_zero(curve, other)
    if first is None or (grad_norm is not None and _goes_on(grad_norm, int(curve.steps[first]))):
        return curve, ""
    values = curve.values.copy()
    values[first:] = np.nan
    count, last = len(values) - first, float(curve.values[first - 1]) if first else None
    said = sentence("zeros_note.as_nan", label=curve.label, step=curve.steps[first], count=count, last=last)
    return replace(curve, values=values), said


def _first_zero(curve: Curve, other: Curve | None) -> int | None:
    if not is_loss(curve.metric) or curve.phase != "training" or not len(curve.values):
        return None
    others = np.flatnonzero(curve.values != 0.0)
    first = int(others[-1]) + 1 if len(others) else 0
    if len(curve.values) - first < ZEROS_AT_THE_END:
        return None
    if not first:
        return 0 if other is not None and np.any(np.abs(other.values) > NEAR_ZERO) else None
    before = np.abs(curve.values[others])
    known = before[np.isfinite(before)]
    return first if len(known) and before[-1] >= NEAR_ZERO * np.median(known) else None


def _goes_on(grad_norm: Curve, step: int) -> bool:
    later = grad_norm.values[grad_norm.steps >= step]
    return bool(len(later) and np.all(np.isfinite(later) & (later > 0.0)))
