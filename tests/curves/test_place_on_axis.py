"""Curves paired at common steps; unlike values refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from align.curves.loss_log import EPOCH_MEAN, RAW, SINCE_LAST_PRINT, Curve, Window
from align.curves.place_on_axis import pair_curves
from align.errors import UnlikeCurvesError

NAN = math.nan


def _curve(steps: list[int], values: list[float] | None = None, window: Window = RAW, resolution: float = 0.0) -> Curve:
    at = np.array(steps, np.int64)
    return Curve("some.log", "loss", at, np.array(values or steps, float), np.full(len(at), resolution), window)


def test_curves_pair_at_equal_steps_not_at_equal_places() -> None:
    pairs = pair_curves(_curve([1, 2, 3, 4, 5, 6]), _curve([2, 4, 6, 8]))
    assert pairs.steps.tolist() == [2, 4, 6]
    assert pairs.reference.tolist() == pairs.candidate.tolist() == [2.0, 4.0, 6.0]
    assert (pairs.unmatched_reference, pairs.unmatched_candidate) == (3, 1)


def test_a_nan_shifts_nothing() -> None:
    pairs = pair_curves(_curve([1, 2, 3], [1.0, NAN, 3.0]), _curve([1, 2, 3], [1.0, 2.0, 3.0]))
    assert pairs.steps.tolist() == [1, 2, 3]
    assert pairs.reference[2] == pairs.candidate[2] == 3.0


def test_steps_are_ordered_as_numbers() -> None:
    pairs = pair_curves(_curve([2, 10, 100]), _curve([2, 10, 100]))
    assert pairs.steps.tolist() == [2, 10, 100]


def test_the_last_step_cuts_both() -> None:
    pairs = pair_curves(_curve([1, 2, 3, 4]), _curve([1, 2]), last_step=2)
    assert pairs.steps.tolist() == [1, 2]
    assert pairs.unmatched_reference == 0


def test_printed_digits_widen_by_half_a_unit_of_each_side() -> None:
    pairs = pair_curves(_curve([1], resolution=0.01), _curve([1], resolution=0.001))
    assert pairs.widening.tolist() == pytest.approx([0.0055])


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (_curve([2, 4, 6]), _curve([2, 4, 6], window=EPOCH_MEAN)),
        (_curve([2, 4, 6]), _curve([2, 4, 6], window=SINCE_LAST_PRINT)),
        (_curve([2, 4, 6], window=SINCE_LAST_PRINT), _curve([3, 6], window=EPOCH_MEAN)),
        (_curve([10, 20], window=SINCE_LAST_PRINT), _curve([5, 15, 20], window=SINCE_LAST_PRINT)),
        (_curve([1, 2]), _curve([5], window=EPOCH_MEAN)),
    ],
)
def test_values_over_other_spans_of_steps_are_refused(reference: Curve, candidate: Curve) -> None:
    for one, other in ((reference, candidate), (candidate, reference)):
        with pytest.raises(UnlikeCurvesError, match="the mean"):
            pair_curves(one, other)


def test_a_mean_over_one_step_is_that_step() -> None:
    assert len(pair_curves(_curve([1, 2, 3]), _curve([1, 2, 3], window=SINCE_LAST_PRINT)).steps) == 3


def test_means_over_the_same_steps_are_compared_and_others_left_out_with_a_note() -> None:
    left, right = (_curve(steps, window=SINCE_LAST_PRINT) for steps in ([2, 4, 6, 8], [2, 4, 8]))
    pairs = pair_curves(left, right)
    assert pairs.steps.tolist() == [2, 4]
    assert "1 value of the candidate is left out" in pairs.notes[0]


def test_epochs_against_steps_are_refused_with_the_option_that_helps() -> None:
    by_epoch = replace(_curve([1, 2]), label="epochs.log", axis="epoch")
    with pytest.raises(UnlikeCurvesError, match=r"epochs\.log counts epochs") as caught:
        pair_curves(_curve([1, 2]), by_epoch)
    assert caught.value.hint.endswith("--candidate-steps-per-epoch")


def test_what_the_other_log_tells_of_its_epochs_is_proposed_and_not_borrowed() -> None:
    by_epoch, by_step = replace(_curve([1, 2]), axis="epoch"), replace(_curve([1, 2]), steps_per_epoch=4)
    with pytest.raises(UnlikeCurvesError) as caught:
        pair_curves(by_epoch, by_step)
    assert "--reference-steps-per-epoch 4, if it has as many as the candidate" in caught.value.hint
