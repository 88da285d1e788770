from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.evaluation.dataset_batches import MOST_FLIPPED_INDEXES, MOST_WORST_SAMPLES
from align.evaluation.validate_models import SampleTally

if TYPE_CHECKING:
    from align.evaluation.validate_models import OutputDifference

LABELS = np.array([0, 1, 2, 0])
LOGITS = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 4.0], [1.0, 0.0, 0.5]], np.float32)


def compared(candidate: np.ndarray, reference: np.ndarray = LOGITS, noise: float = 0.0) -> OutputDifference:
    tally = SampleTally()
    wide = reference.astype(np.float64) + noise
    tally.add(reference, candidate, wide, LABELS)
    return tally.result()


def test_equal_outputs_differ_nowhere() -> None:
    result = compared(LOGITS.copy())
    assert (result.samples, result.factor, result.flipped, result.worst) == (4, 0.0, 0, ())


def test_another_class_by_more_than_rounding_is_named_with_both_predictions() -> None:
    candidate = LOGITS.copy()
    candidate[1] = [0.0, 1.0, 2.0]
    result = compared(candidate)
    assert (result.flipped, result.ties, result.indexes) == (1, 0, (1,))
    (worst,) = result.worst
    assert (worst.index, worst.label, worst.reference, worst.candidate, worst.margin) == (1, 1, 1, 2, 1.0)
    assert result.factor > 1000


def test_another_class_within_the_noise_is_a_tie() -> None:
    reference = LOGITS.copy()
    reference[3] = [1.0, 1.0 - 1e-6, 0.0]
    candidate = reference.copy()
    candidate[3] = [1.0 - 1e-6, 1.0, 0.0]
    result = compared(candidate, reference, noise=1e-6)
    assert (result.flipped, result.ties) == (1, 1)
    assert result.worst[0].tie
    assert result.factor < 1


def test_the_same_lead_is_no_tie_where_rounding_is_smaller() -> None:
    reference = np.array([[1.0, 0.99, 0.0]] * 4, np.float32)
    candidate = reference[:, [1, 0, 2]]
    result = compared(candidate, reference)
    assert (result.flipped, result.ties) == (4, 0)


def test_samples_are_counted_over_batches_and_the_gravest_come_first() -> None:
    tally = SampleTally()
    flipped = LOGITS[:, [1, 0, 2]] * np.float32(0.5)
    tally.add(LOGITS, LOGITS + np.float32(9.0), None, LABELS)
    tally.add(LOGITS, flipped, None, LABELS)
    result = tally.result()
    assert result.samples == 8
    assert result.indexes == (4, 5, 7)
    assert [sample.index for sample in result.worst[:4]] == [4, 5, 7, 0]


def test_memory_is_bounded_however_many_samples_differ() -> None:
    tally = SampleTally()
    reference = np.tile(LOGITS[:1], (2 * MOST_FLIPPED_INDEXES, 1))
    tally.add(reference, reference[:, [1, 0, 2]], None, np.zeros(len(reference), int))
    result = tally.result()
    assert (result.flipped, len(result.indexes), len(result.worst)) == (
        2 * MOST_FLIPPED_INDEXES,
        MOST_FLIPPED_INDEXES,
        MOST_WORST_SAMPLES,
    )


def test_nan_on_one_side_is_the_largest_difference_of_all() -> None:
    candidate = LOGITS + np.float32(1.0)
    candidate[2, 0] = np.nan
    result = compared(candidate)
    assert result.factor == np.inf
    assert (result.worst[0].index, result.worst[0].difference) == (2, np.inf)


def test_outputs_that_are_no_classes_are_compared_without_predictions() -> None:
    tally = SampleTally()
    tally.add(LOGITS, LOGITS[:, [1, 0, 2]], None, None)
    result = tally.result()
    assert result.flipped == 0
    assert {sample.reference for sample in result.worst} == {None}


def test_close_calls_of_the_reference_are_counted() -> None:
    tally = SampleTally()
    reference = np.array([[1.0, 1.0 + 1e-7], [1.0, 2.0]], np.float32)
    tally.add(reference, reference, None, np.array([0, 0]))
    assert tally.near == 1


def test_nothing_compared_has_no_result() -> None:
    with pytest.raises(ValueError, match="no batch"):
        SampleTally().result()
