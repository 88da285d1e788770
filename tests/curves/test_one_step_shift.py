"""What it means that curves agree one step later depends on the limits in force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.curves.loss_log import Curve, Window
from align.curves.other_axis import Shift, find_shift
from align.curves.place_on_axis import pair_curves
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
    assert f"the {side} is one update behind" in shift.note
    assert "lost its first line" not in shift.note


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_base_that_was_given_wrongly_is_to_be_left_out(side: str) -> None:
    whole = replace(_curve(DESCENT), base_guessed=True)
    moved = replace(whole, steps=whole.steps + 1, base_guessed=False, base_given=0)
    shift = _told(moved, whole) if side == "reference" else _told(whole, moved)
    assert shift.option == f"without --{side}-base 0"
    assert shift.side != side


def test_of_what_is_no_loss_the_steps_are_not_said_to_be_miscounted() -> None:
    ahead = replace(_curve(DESCENT[1:]), metric="lr", base_guessed=True)
    assert _told(replace(_curve(DESCENT), metric="lr"), ahead).note.endswith(
        ": lr is a step ahead in the candidate, unless the losses are a step apart as well"
    )


COURSE = 3.0 * np.exp(-np.arange(801) / 200.0) + 1.0


def _means(values: np.ndarray, length: int = 10) -> Curve:
    made = values.reshape(-1, length).mean(1)
    steps = np.arange(1, len(made) + 1) * length
    return Curve("means.log", "loss", steps, made, np.zeros(len(made)), Window("mean of last", length))


@pytest.mark.parametrize("length", [10, 20])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_means_that_are_taken_a_step_later_are_told(side: str, noise: float, length: int) -> None:
    values = COURSE + noise * np.random.default_rng(3).standard_normal(801)
    right, late = _means(values[:-1], length), _means(values[1:], length)
    shift = _told(late, right) if side == "reference" else _told(right, late)
    assert (shift.side, shift.option, shift.behind) == (side, "", False)
    assert "means over steps that lie a step apart" in shift.note


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("apart", ["nothing", "other batches", "a factor", "an offset", "a drift", "three steps"])
def test_means_that_differ_otherwise_are_not_said_to_be_shifted(apart: str, noise: float) -> None:
    source = np.random.default_rng(4)
    values = COURSE + noise * source.standard_normal(801)
    other = {
        "nothing": values * (1.0 + 1e-7 * source.standard_normal(801)),
        "other batches": COURSE + 0.1 * source.standard_normal(801),
        "a factor": 1.02 * values,
        "an offset": values + 0.05,
        "a drift": values + np.linspace(0.0, 0.3, 801),
        "three steps": np.append(values[3:], values[-3:]),
    }[apart]
    left, right = _means(values[:-1]), _means(other[:-1])
    assert find_shift(left, right, pair_curves(left, right)) is None
