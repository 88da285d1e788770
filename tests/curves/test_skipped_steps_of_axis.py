"""Steps that changed no weight are counted alike, whether a log tells of each or only how many since the last print."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.global_steps import compare_skips, group_skips, printed_steps, skipped_runs
from align.curves.loss_log import RAW, Curve, LogTable, LossLog, Series, Skips, Window
from align.curves.place_on_axis import cut_after, place_on_axis

LAST = 40
steps = st.sets(st.integers(1, LAST))


def _told(skipped: set[int], every: int) -> Skips | None:
    """Tell of skipped steps as a log does that prints every so many steps."""
    ends = np.arange(every, LAST + 1, every)
    counts = np.array([sum(end - every < step <= end for step in skipped) for end in ends.tolist()])
    ends, counts = ends[counts > 0], counts[counts > 0]
    return Skips(ends - every, ends, counts) if len(ends) else None


def _curve(skips: Skips | None, without_value: set[int] = frozenset()) -> Curve:
    at = np.array([step for step in range(1, LAST + 1) if step not in without_value], np.int64)
    return Curve("some.log", "loss", at, np.ones(len(at)), np.zeros(len(at)), skips=skips)


def _log(rows: list[tuple[int, float | None, int]], window: Window = RAW) -> LossLog:
    """Make a log of (step, loss or None, skipped steps)."""
    told = [at for at, (_, loss, _) in enumerate(rows) if loss is not None]
    loss = Series(np.array(told), np.array([rows[at][1] for at in told], float), np.zeros(len(told)), window)
    at, skipped = np.array([row[0] for row in rows]), np.array([row[2] for row in rows])
    table = LogTable(np.arange(len(rows)) + 1, at, None, {"loss": loss}, skipped=skipped)
    return LossLog("some.log", "test", table, "loss", "global step", 1)


@given(steps, steps)
def test_single_steps_are_compared_as_sets(left: set[int], right: set[int]) -> None:
    apart = compare_skips(_told(left, 1), _told(right, 1))
    assert apart.shared == len(left & right)
    for own, other, lone in ((left, right, apart.reference), (right, left, apart.candidate)):
        assert lone == (len(own - other), min(own - other, default=0), True)


@given(steps, steps, st.sampled_from([1, 2, 4, 5]), st.sampled_from([2, 4, 10, 20]))
def test_of_counts_as_many_are_shared_as_there_can_be_and_each_is_counted_once(
    left: set[int], right: set[int], fine: int, wide: int
) -> None:
    one, other = _told(left, min(fine, wide)), _told(right, wide)
    apart, swapped = compare_skips(one, other), compare_skips(other, one)
    assert (apart.reference.steps + apart.shared, apart.candidate.steps + apart.shared) == (len(left), len(right))
    assert apart == (swapped.candidate, swapped.reference, swapped.shared)
    assert apart.shared >= len(left & right)
    for own, lone in ((left, apart.reference), (right, apart.candidate)):
        assert not lone.steps or min(own) <= lone.first
        assert not (lone.steps and lone.exact) or lone.first in own


@given(steps, steps)
def test_steps_in_a_row_are_one_run_whether_they_have_a_value_or_not(skipped: set[int], without: set[int]) -> None:
    curve = _curve(_told(skipped, 1), without & skipped)
    runs = skipped_runs(curve)
    expected = [
        [step for _, step in run] for _, run in groupby(enumerate(sorted(skipped)), lambda one: one[1] - one[0])
    ]
    assert list(zip(runs.first.tolist(), runs.last.tolist(), runs.counts.tolist(), strict=True)) == [
        (run[0], run[-1], len(run)) for run in expected
    ]
    assert printed_steps(curve).tolist() == list(range(1, LAST + 1))


def test_a_part_of_a_print_ends_a_run() -> None:
    runs = skipped_runs(_curve(_told({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12}, 4)))
    assert (runs.first.tolist(), runs.last.tolist(), runs.counts.tolist()) == ([1, 5, 9], [4, 8, 12], [4, 3, 4])
    assert (runs.whole.tolist(), runs.steps.tolist()) == ([True, False, True], [1, 8, 9])


def test_a_group_is_skipped_with_any_of_its_steps() -> None:
    grouped = group_skips(_told({1, 2, 3, 9}, 1), 2)
    assert grouped is not None
    assert (grouped.starts.tolist(), grouped.ends.tolist(), grouped.counts.tolist()) == (
        [0, 1, 4],
        [1, 2, 5],
        [1, 1, 1],
    )


def test_a_step_without_a_loss_is_no_point_and_stays_known() -> None:
    curve = place_on_axis(_log([(1, 5.0, 0), (2, None, 1), (3, 4.0, 0)]))
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 3], [5.0, 4.0])
    assert printed_steps(curve).tolist() == [1, 2, 3]
    assert curve.skips is not None
    assert curve.skips.ends.tolist() == [2]
    assert cut_after(curve, 2).skips is not None
    assert cut_after(curve, 1).skips is None


def test_a_resumed_run_replaces_what_the_abandoned_one_skipped_and_skips_anew() -> None:
    curve = place_on_axis(
        _log([(1, 5.0, 0), (2, 4.0, 0), (3, None, 1), (4, 3.0, 0), (2, None, 1), (3, 3.5, 0), (4, 3.1, 0)])
    )
    assert (curve.steps.tolist(), curve.values.tolist()) == ([1, 3, 4], [5.0, 3.5, 3.1])
    assert curve.skips is not None
    assert curve.skips.ends.tolist() == [2]


def test_a_log_of_which_each_loss_was_replaced_by_a_skipped_step_has_no_number() -> None:
    curve = place_on_axis(_log([(1, 5.0, 0), (1, None, 1)]))
    assert np.isnan(curve.values).tolist() == [True]


@pytest.mark.parametrize(("window", "starts"), [(RAW, [19]), (Window("mean of last", 10), [10])])
def test_the_loss_tells_of_how_many_steps_a_count_is(window: Window, starts: list[int]) -> None:
    curve = place_on_axis(_log([(10, 5.0, 0), (20, 4.0, 1), (30, 3.0, 0)], window))
    assert curve.skips is not None
    assert curve.skips.starts.tolist() == starts
