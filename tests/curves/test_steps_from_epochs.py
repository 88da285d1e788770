"""Steps of a log that prints only shares of epochs: told by the digits, else by an even distance, else not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.global_steps import steps_from_shares
from align.curves.loss_log import SINCE_LAST_PRINT, AxisHints, LogTable, LossLog, Series
from align.curves.place_on_axis import place_on_axis
from align.errors import StepsPerEpochError


def _log(shares: list[float]) -> LossLog:
    rows = np.arange(len(shares))
    series = Series(rows, rows + 0.5, np.zeros(len(rows)), SINCE_LAST_PRINT)
    table = LogTable(rows + 1, rows, None, {"loss": series}, shares=np.array(shares))
    return LossLog("stdout.log", "test", table, "loss", "share of epochs", 1)


def _steps(shares: list[float], length: float) -> list[int]:
    return place_on_axis(_log(shares), hints=AxisHints(steps_per_epoch=length)).steps.tolist()


@given(st.integers(1, 100), st.sets(st.integers(1, 400), min_size=1, max_size=30), st.sampled_from([2, 4, 16]))
def test_shares_with_enough_digits_tell_their_steps(length: int, steps: set[int], digits: int) -> None:
    assert _steps([round(step / length, digits) for step in sorted(steps)], length) == sorted(steps)


@given(st.integers(1, 300), st.integers(1, 60), st.integers(5, 60))
def test_shares_of_four_significant_digits_tell_their_steps_or_are_refused(
    length: int, distance: int, count: int
) -> None:
    steps = [distance * (at + 1) for at in range(count)]
    try:
        found = _steps([float(f"{step / length:.4g}") for step in steps], length)
    except StepsPerEpochError:
        assert length * 10 ** np.floor(np.log10(steps[-1] / length) - 3) > 1
    else:
        assert found == steps


@given(st.integers(150, 5000), st.integers(5, 500), st.integers(8, 60))
def test_coarse_shares_tell_an_even_distance_or_are_refused(length: int, distance: int, count: int) -> None:
    steps = [distance * (at + 1) for at in range(count)]
    try:
        found = _steps([round(step / length, 2) for step in steps], length)
    except StepsPerEpochError:
        assert distance <= 0.01 * length or 0.005 * length > count / 2
    else:
        assert found == steps


def test_a_lost_line_of_coarse_shares_is_never_counted_over() -> None:
    with pytest.raises(StepsPerEpochError, match="so coarsely that 3 steps in a row print the same") as caught:
        _steps([round(step / 300, 2) for step in range(10, 301, 10) if step != 50], 300)
    assert "progress bars" in caught.value.hint


def test_shares_that_are_no_steps_of_such_an_epoch_are_refused() -> None:
    with pytest.raises(StepsPerEpochError, match=r"0\.33 epochs of 4 steps are no whole number of steps"):
        _steps([0.33, 0.67, 1.0], 4)


def test_without_the_length_of_an_epoch_the_option_is_named() -> None:
    with pytest.raises(StepsPerEpochError, match="counts only epochs") as caught:
        place_on_axis(_log([0.5, 1.0]))
    assert "--candidate-steps-per-epoch" in caught.value.hint


def _shares(batches: int, size: int, epochs: int) -> list[float]:
    """Share of epochs after each step of `size` batches; the last step of an epoch has what is left."""
    ends = [*range(size, batches, size), batches]
    return [epoch + end / batches for epoch in range(epochs) for end in ends]


@pytest.mark.parametrize("digits", [4, 16])
def test_a_fraction_of_steps_per_epoch_tells_each_step(digits: int) -> None:
    shares = [round(share, digits) for share in _shares(1001, 8, 3)]
    assert _steps(shares, 1001 / 8) == list(range(1, 3 * 126 + 1))


def test_whole_steps_per_epoch_tell_an_even_distance_beside_a_short_last_step() -> None:
    shares = [float(f"{share:.4g}") for share in _shares(2235, 4, 3)[9::10]]
    assert _steps(shares, 559) == list(range(10, 1671, 10))
    with pytest.raises(StepsPerEpochError, match="no whole number of steps"):
        _steps([*shares[:40], *shares[41:]], 559)


def test_a_fraction_is_refused_where_steps_are_counted() -> None:
    log = replace(_log([1.0, 2.0]), counting="epoch")
    with pytest.raises(StepsPerEpochError, match=r"2\.5 of them are no epoch"):
        place_on_axis(log, hints=AxisHints(steps_per_epoch=2.5))


def test_coarse_shares_that_begin_anew_are_counted_from_the_first_again() -> None:
    shares = np.round(0.015 * np.arange(1, 101) + 1e-9, 2)
    once, _ = steps_from_shares("log", shares, 1000)
    twice, notes = steps_from_shares("log", np.tile(shares, 2), 1000)
    assert once.tolist() == list(range(15, 1501, 15))
    assert twice.tolist() == [*once.tolist(), *once.tolist()]
    assert notes == ("the steps are known by their even distance: every 15 steps",)


@pytest.mark.parametrize("shares", [[0.01, 0.02, 0.05, 0.1, 1.5], [0.01, 0.01, 0.02, 0.02, 0.03]])
def test_points_without_the_length_of_an_epoch_stand_in_the_order_of_their_shares(shares: list[float]) -> None:
    curve = place_on_axis(_log(shares), hints=AxisHints(assumed=True))
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 2, 3, 4, 5], [0.5, 1.5, 2.5, 3.5, 4.5])


def test_a_run_begun_anew_and_lines_out_of_order_share_the_places_of_their_shares() -> None:
    anew = place_on_axis(_log([0.01, 0.02, 0.05, 0.1, 0.01, 0.02]), hints=AxisHints(assumed=True))
    assert (anew.steps.tolist(), anew.values.tolist()) == ([1, 2], [4.5, 5.5])
    mixed = place_on_axis(_log([0.05, 0.01, 0.1, 0.02]), hints=AxisHints(assumed=True))
    assert mixed.values.tolist() == [1.5, 3.5, 0.5, 2.5]
