"""What it means that curves agree one step later depends on the limits in force."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.curves import Curve
from align.steps.curves import pair_curves
from align.steps.loss_limits import PRESETS
from align.steps.loss_shift import find_shift

DESCENT = 3.0 * np.exp(-np.arange(60) / 15.0) + 1.0
WOBBLE = np.sin(np.arange(60) * 2.0)


def _curve(values: np.ndarray, resolution: float = 0.0) -> Curve:
    return Curve("some.log", "loss", np.arange(1, len(values) + 1), values, np.full(len(values), resolution))


@pytest.mark.parametrize(
    ("preset", "agreeing", "differing"),
    [("guide", 2e-3, 4e-2), ("openrlhf", 2e-3, 4e-2), ("reprod_log", 1e-7, 1e-3), ("exact", 0.0, 1e-7)],
)
def test_curves_agree_one_step_later_within_the_limits_of_the_preset(
    preset: str, agreeing: float, differing: float
) -> None:
    for size, found in ((agreeing, "candidate"), (differing, None)):
        reference, late = _curve(DESCENT), _curve((DESCENT + size * WOBBLE)[1:])
        shift = find_shift(reference, late, pair_curves(reference, late), PRESETS[preset])
        assert (shift and shift.side) == found


def test_printed_digits_widen_an_exact_agreement() -> None:
    reference, late = _curve(DESCENT), _curve(np.round(DESCENT[1:], 3), 1e-3)
    shift = find_shift(reference, late, pair_curves(reference, late), PRESETS["exact"])
    assert shift is not None
    assert shift.side == "candidate"
