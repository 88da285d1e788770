from __future__ import annotations

import numpy as np
import pytest

from align.errors import InputsError
from align.evaluation.dataset_batches import METRICS, accuracy, mean_squared_error, top5

LOGITS = np.array([[0.1, 0.9, 0.0], [2.0, 1.0, 3.0]])


def test_accuracy_is_one_score_a_sample() -> None:
    assert accuracy(LOGITS, np.array([1, 0])).tolist() == [1.0, 0.0]


def test_accuracy_of_tokens_is_their_share_in_each_sample() -> None:
    logits = np.stack([LOGITS, LOGITS[::-1]])
    assert accuracy(logits, np.array([[1, 2], [2, 2]])).tolist() == [1.0, 0.5]


def test_the_logits_are_found_among_several_outputs() -> None:
    outputs = {"loss": np.zeros(2), "logits": LOGITS}
    assert accuracy(outputs, np.array([1, 2])).tolist() == [1.0, 1.0]
    assert accuracy({"0": LOGITS, "1": np.zeros(2)}, np.array([1, 2])).tolist() == [1.0, 1.0]


def test_top5_looks_at_five_classes_and_ties_do_not_help() -> None:
    rising = np.arange(7.0)[None]
    assert [top5(rising, np.array([label]))[0] for label in (1, 2)] == [0.0, 1.0]
    assert top5(np.zeros((1, 7)), np.array([0])).tolist() == [0.0]


def test_the_mean_squared_error_ignores_axes_of_length_one_and_never_broadcasts() -> None:
    assert mean_squared_error(np.array([[1.0], [3.0]]), np.array([0.0, 1.0])).tolist() == [1.0, 4.0]
    with pytest.raises(InputsError, match=r"equal shapes, and gets outputs float64\[2, 3\] and labels float64\[2\]"):
        mean_squared_error(LOGITS, np.zeros(2))


@pytest.mark.parametrize("labels", [np.zeros(2), np.zeros((2, 3), int), np.zeros(3, int)])
def test_labels_that_are_no_classes_of_the_outputs_are_refused(labels: np.ndarray) -> None:
    with pytest.raises(InputsError, match="the metric needs logits"):
        accuracy(LOGITS, labels)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_the_classes_are_refused(label: int) -> None:
    with pytest.raises(InputsError, match="the outputs have 3 classes"):
        top5(LOGITS, np.array([0, label]))


def test_every_metric_by_name_gives_one_score_a_sample() -> None:
    for name, metric in METRICS.items():
        labels = LOGITS if name == "mean-squared-error" else np.array([0, 1])
        assert metric(LOGITS, labels).shape == (2,), name
