"""Means that do not say so are asked for, with the option that settles it; single steps of a sparse log are not."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves

STEPS = 600
COURSE = 2.0 * np.exp(-4.0 * np.arange(STEPS) / STEPS) + 1.0


def _curve(values: np.ndarray, every: int = 1) -> Curve:
    return Curve("some.log", "loss", np.arange(1, len(values) + 1) * every, values, np.zeros(len(values)))


def _noise(seed: int) -> np.ndarray:
    return 0.2 * np.random.default_rng(seed).standard_normal(STEPS)


def _running(values: np.ndarray, length: int) -> np.ndarray:
    sums = np.cumsum(np.append(0.0, values))
    starts = np.maximum(np.arange(STEPS) + 1 - length, 0)
    return (sums[1:] - sums[starts]) / (np.arange(STEPS) + 1 - starts)


def _told(reference: Curve, candidate: Curve) -> tuple[str, str, list[str]]:
    found = judge_curves(reference, candidate, pair_curves(reference, candidate))
    return found.trouble, found.next_command, [note for note in found.notes if "looks like means" in note]


@pytest.mark.parametrize("other_batches", [False, True])
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_means_of_ten_against_single_steps_ask_for_the_window(side: str, other_batches: bool) -> None:
    steps = COURSE + _noise(1)
    own = COURSE + _noise(2) if other_batches else steps
    every_tenth, every_step = _curve(own.reshape(-1, 10).mean(1), 10), _curve(_running(own, 10))
    # Running means of other batches are alike from step to step: their noise shows no length.
    for means in (every_tenth,) if other_batches else (every_tenth, every_step):
        single = _curve(steps)
        trouble, command, notes = _told(*((means, single) if side == "reference" else (single, means)))
        assert trouble == "means against single steps"
        assert command.startswith(f"align loss REFERENCE CANDIDATE --{side}-window 'mean of last 10' #")
        assert len(notes) == 1


@pytest.mark.parametrize("other_batches", [False, True])
def test_every_tenth_single_step_is_no_mean(other_batches: bool) -> None:
    own = COURSE + _noise(2 if other_batches else 1)
    trouble, command, notes = _told(_curve(COURSE + _noise(1)), _curve(own[9::10], 10))
    assert trouble != "means against single steps"
    assert "-window" not in command
    assert not notes


def test_a_fault_in_a_sparse_log_is_no_mean() -> None:
    steps = COURSE + _noise(1)
    assert not _told(_curve(steps), _curve(1.1 * steps[9::10], 10))[2]
    assert not _told(_curve(steps), _curve(1.1 * steps))[2]
