"""What it means that curves agree one step later depends on the limits in force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.curves.axis.place_on_axis import pair_curves
from align.curves.criteria.one_step_shift import Shift, find_shift
from align.curves.loss_log import Curve
from align.curves.presets import PRESETS

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


def _told(reference: Curve, candidate: Curve) -> Shift:
    shift = find_shift(reference, candidate, pair_curves(reference, candidate))
    assert shift is not None
    return shift


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_where_step_1_is_alike_no_line_is_lost_and_one_side_is_an_update_behind(side: str) -> None:
    behind = replace(_curve(np.append(DESCENT[:1], DESCENT[:-1])), base_guessed=True)
    whole = replace(_curve(DESCENT), base_guessed=True)
    shift = _told(behind, whole) if side == "reference" else _told(whole, behind)
    assert (shift.behind, shift.option) == (True, "")
    assert f"the {side} is an update behind" in str(shift)
    assert "lost its first line" not in str(shift)


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_base_that_was_given_wrongly_is_to_be_left_out(side: str) -> None:
    whole = replace(_curve(DESCENT), base_guessed=True)
    moved = replace(whole, steps=whole.steps + 1, base_guessed=False, base_given=0)
    shift = _told(moved, whole) if side == "reference" else _told(whole, moved)
    assert shift.option == f"without --{side}-base 0"
    assert shift.side != side


def test_of_what_is_no_loss_the_steps_are_not_said_to_be_miscounted() -> None:
    ahead = replace(_curve(DESCENT[1:]), metric="lr", base_guessed=True)
    assert str(_told(replace(_curve(DESCENT), metric="lr"), ahead)).endswith(
        ": lr is a step ahead in the candidate, unless the losses are a step apart as well"
    )
