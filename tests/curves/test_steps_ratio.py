"""Logs of unlike numbers of steps that tell the same course: found if the lengths and the losses say so, else not."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, Curve, Window
from align.curves.other_axis import find_ratio
from align.curves.place_on_axis import group_steps, pair_curves

SHAPES = {
    "exponential": lambda done: 2.0 * np.exp(-4.0 * done) + 0.5,
    "power law": lambda done: 9.0 / np.sqrt(1.0 + 40.0 * done) + 1.0,
    "straight": lambda done: 3.0 - 2.0 * done,
}


def _curve(values: np.ndarray, every: int = 1, window: Window = RAW) -> Curve:
    steps = every * np.arange(1, len(values) + 1)
    return Curve("some.log", "loss", steps, np.asarray(values, float), np.zeros(len(values)), window)


def _many_and_few(shape: str, times: int, count: int = 240, noise: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    batches = 1.0 + noise * np.random.default_rng(times).standard_normal(count * times)
    many = SHAPES[shape](np.arange(count * times) / (count * times)) * batches
    few = many.reshape(count, times).mean(1)
    return many, few * (1.0 + 1e-4 * np.random.default_rng(9).standard_normal(count))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [2, 3, 8])
@pytest.mark.parametrize("left_over", [0, 1])
def test_several_steps_of_one_log_as_one_are_told_with_the_option(shape: str, times: int, left_over: int) -> None:
    many, few = _many_and_few(shape, times)
    long, short = _curve(np.append(many, many[-1:].repeat(left_over))), _curve(few)
    for sides, option in (((long, short), f"{times}:1"), ((short, long), f"1:{times}")):
        comparison = judge_curves(*sides, pair_curves(*sides))
        assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, "steps of unlike batches")
        assert f"--steps-per {option} #" in comparison.next_command
        assert any(f"with --steps-per {option} the curves agree at 240 steps" in note for note in comparison.notes)


@pytest.mark.parametrize("shape", SHAPES)
def test_means_are_taken_together_too(shape: str) -> None:
    many, few = _many_and_few(shape, 2)
    means = [_curve(values.reshape(-1, 10).mean(1), 10, SINCE_LAST_PRINT) for values in (many, few)]
    ratio = find_ratio(*means, pair_curves(*means))
    assert ratio is not None
    assert ratio.option == "--steps-per 2:1"


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_taken_together_already_counts_as_well(shape: str) -> None:
    many, few = _many_and_few(shape, 4)
    sides = group_steps(_curve(many), 2), _curve(few)
    ratio = find_ratio(*sides, pair_curves(*sides))
    assert ratio is not None
    assert ratio.option == "--steps-per 4:1"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_that_broke_off_or_goes_another_way_is_not_said_to_have_other_batches(shape: str) -> None:
    many, few = _many_and_few(shape, 2)
    for reference, candidate in ((many, many[:240]), (many, few * 1.2), (many, few[:230]), (many[:8], few[:4])):
        sides = _curve(reference), _curve(candidate)
        assert find_ratio(*sides, pair_curves(*sides)) is None
