"""Runs with unlike numbers of samples a step: several steps as one are what the other side's logger would print."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.loss_log import EPOCH_MEAN, RAW, SINCE_LAST_PRINT, Curve, Skips, Window
from align.curves.place_on_axis import group_sizes, group_steps, pair_curves
from align.errors import GroupedStepsError, UsageError

values = st.lists(st.floats(0.01, 20.0), min_size=24, max_size=60)


def _curve(steps: list[int], losses: list[float], window: Window = RAW, metric: str = "loss") -> Curve:
    at = np.array(steps, np.int64)
    return Curve("some.log", metric, at, np.array(losses, float), np.zeros(len(at)), window, steps_per_epoch=12)


def _dense(losses: list[float], metric: str = "loss") -> Curve:
    return _curve(list(range(1, len(losses) + 1)), losses, metric=metric)


def _means(losses: list[float], every: int) -> list[float]:
    return [float(np.mean(losses[at : at + every])) for at in range(0, len(losses) - every + 1, every)]


@given(values, st.integers(2, 5))
def test_two_steps_of_half_the_samples_are_one(losses: list[float], size: int) -> None:
    grouped = group_steps(_dense(losses), size)
    assert grouped.steps.tolist() == list(range(1, len(losses) // size + 1))
    np.testing.assert_allclose(grouped.values, _means(losses, size), rtol=1e-12)
    assert grouped.window == RAW


@given(values, st.integers(2, 4), st.integers(1, 6))
def test_printed_means_are_grouped_to_what_the_other_side_prints(losses: list[float], size: int, every: int) -> None:
    steps = list(range(every, len(losses) + 1, every))
    grouped = group_steps(_curve(steps, _means(losses, every), SINCE_LAST_PRINT), size)
    pairs = pair_curves(grouped, group_steps(_dense(losses), size))
    assert pairs.steps.tolist() == grouped.steps.tolist() == [step // size for step in steps if step % size == 0]
    np.testing.assert_allclose(pairs.reference, pairs.candidate, rtol=1e-12)


@pytest.mark.parametrize("metric", ["lr", "learning_rate", "loss_scale", "grad_norm"])
def test_what_is_set_at_a_step_is_that_of_the_last_of_the_group(metric: str) -> None:
    assert group_steps(_dense([1.0, 2.0, 3.0, 4.0, 5.0], metric), 2).values.tolist() == [2.0, 4.0]


def test_a_validation_is_no_mean_over_steps() -> None:
    validated = replace(_curve([4, 8], [1.0, 2.0]), phase="validation")
    grouped = group_steps(validated, 4)
    assert (grouped.steps.tolist(), grouped.values.tolist()) == ([1, 2], [1.0, 2.0])


def test_a_group_that_lacks_a_step_is_left_out() -> None:
    dense = _dense([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert group_steps(dense.take(dense.steps != 3), 2).steps.tolist() == [1, 3]


def test_a_group_keeps_the_samples_of_a_step_that_changed_no_weight() -> None:
    grouped = group_steps(
        replace(_dense([1.0, 3.0, 5.0, 7.0]), skips=Skips(np.array([0]), np.array([1]), np.array([1]))), 2
    )
    assert (grouped.values.tolist(), grouped.skips.ends.tolist()) == ([2.0, 6.0], [1])


def test_windows_and_epochs_are_counted_in_groups() -> None:
    grouped = group_steps(_curve([10, 20], [1.0, 2.0], Window("mean of last", 10)), 2)
    assert (grouped.window, grouped.steps.tolist(), grouped.steps_per_epoch) == (Window("mean of last", 5), [5, 10], 6)
    assert group_steps(_curve([12, 24], [1.0, 2.0], EPOCH_MEAN), 3).steps.tolist() == [4, 8]


def test_epochs_have_the_same_samples_on_both_sides() -> None:
    by_epoch = replace(_curve([1, 2, 3], [1.0, 2.0, 3.0], EPOCH_MEAN), axis="epoch")
    assert group_steps(by_epoch, 2) is by_epoch


SPARSE = _curve([5, 10, 15], [1.0] * 3)


@pytest.mark.parametrize(
    ("curve", "size", "why", "hint"),
    [
        (SPARSE, 2, "single steps that are 5 apart", "log every step, or means"),
        (SPARSE, 16, "its last step is 15", "--steps-per says"),
        (_curve([5, 15], [1.0] * 2, SINCE_LAST_PRINT), 2, "no value is of such", "multiples of 2"),
        (_curve([3, 9], [1.0] * 2, metric="lr"), 2, "no value is of such", "multiples of 2"),
        (_curve([20, 40], [1.0] * 2, Window("median of last", 20)), 2, "no value is of such", "multiples of 2"),
    ],
)
def test_without_a_whole_group_it_is_refused_with_what_would_help(curve: Curve, size: int, why: str, hint: str) -> None:
    with pytest.raises(GroupedStepsError, match=f"{size} steps as one: .*{why}") as caught:
        group_steps(curve, size)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("given_", "sizes"), [((2, 1), (2, 1)), ((4, 2), (2, 1)), ((3, 2), (3, 2)), ((5, 5), (1, 1))])
def test_a_ratio_is_reduced(given_: tuple[int, int], sizes: tuple[int, int]) -> None:
    assert group_sizes(given_) == sizes


@pytest.mark.parametrize("ratio", [(0, 1), (2, -1)])
def test_a_ratio_without_steps_is_refused(ratio: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="cannot be matched"):
        group_sizes(ratio)
