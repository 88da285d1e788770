"""The true global step of each value: bases, epochs, what is given, inferred and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.curves.log_parts.table_builder import as_table
from align.curves.loss_log import EPOCH_MEAN, AxisHints, Base, Counting, LogRecord, LossLog, Series
from align.curves.place_on_axis import place_on_axis
from align.errors import StepsPerEpochError


def _log(points: list[tuple[int | None, int]], counting: Counting, base: Base | None = None, length: int | None = None):
    records = (LogRecord(i + 1, step, epoch, {"loss": f"{i}.5"}) for i, (epoch, step) in enumerate(points))
    return LossLog("some.log", "test", as_table(records), "loss", counting, base, length)


def _global(*steps: int, base: Base | None = None) -> LossLog:
    return _log([(None, step) for step in steps], "global step", base)


def test_a_log_from_0_and_one_from_1_come_to_the_same_steps() -> None:
    assert place_on_axis(_global(0, 1, 2)).steps.tolist() == [1, 2, 3]
    assert place_on_axis(_global(1, 2, 3)).steps.tolist() == [1, 2, 3]


def test_the_base_of_the_format_decides_over_the_smallest_step() -> None:
    curve = place_on_axis(_global(1, 11, 21, base=0))
    assert curve.steps.tolist() == [2, 12, 22]
    assert curve.notes == ()


def test_without_a_base_the_smallest_step_decides_and_it_is_noted() -> None:
    curve = place_on_axis(_global(1, 11, 21))
    assert curve.steps.tolist() == [1, 11, 21]
    assert curve.notes == ("counting starts at 1: the format does not say, and the smallest step is 1",)


def test_steps_one_less_than_multiples_are_counted_from_0() -> None:
    curve = place_on_axis(_global(19, 39, 79))
    assert curve.steps.tolist() == [20, 40, 80]
    assert curve.notes == ("counting starts at 0: the steps are one less than multiples of 20",)
    assert place_on_axis(_global(20, 40, 80)).steps.tolist() == [20, 40, 80]


@pytest.mark.parametrize("steps", [(19, 39), (1, 3, 5), (18, 38, 58), (137, 248, 548)])
def test_too_few_steps_too_near_ones_and_others_prove_no_base(steps: tuple[int, ...]) -> None:
    assert place_on_axis(_global(*steps)).steps.tolist() == list(steps)


def test_what_the_user_says_decides_over_all() -> None:
    assert place_on_axis(_global(9, 19, 29, base=1), hints=AxisHints(base=0)).steps.tolist() == [10, 20, 30]


def test_a_step_0_contradicts_a_base_of_1_and_wins() -> None:
    curve = place_on_axis(_global(0, 1, base=1))
    assert curve.steps.tolist() == [1, 2]
    assert "not at 1" in curve.notes[0]


@pytest.mark.parametrize(("epoch", "step"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_steps_inside_epochs_run_on_whatever_both_are_counted_from(epoch: int, step: int) -> None:
    points = [(epoch + e, step + s) for e in range(3) for s in range(4)]
    curve = place_on_axis(_log(points, "step in epoch"))
    assert curve.steps.tolist() == list(range(1, 13))
    assert any("an epoch is taken to have 4 steps" in note for note in curve.notes)


def test_a_given_length_places_sparse_points() -> None:
    curve = place_on_axis(_log([(1, 10), (2, 10), (3, 10)], "step in epoch"), hints=AxisHints(steps_per_epoch=25))
    assert curve.steps.tolist() == [10, 35, 60]


def test_a_resumed_log_that_starts_in_a_later_epoch_keeps_its_place() -> None:
    curve = place_on_axis(_log([(3, 1), (3, 2), (4, 1)], "step in epoch", base=1, length=2))
    assert curve.steps.tolist() == [5, 6, 7]


def test_one_epoch_needs_no_length() -> None:
    assert place_on_axis(_log([(1, 10), (1, 20)], "step in epoch")).steps.tolist() == [10, 20]


@pytest.mark.parametrize(
    ("points", "length", "reason"),
    [
        ([(1, 10), (1, 20), (2, 10), (2, 20)], None, "prints only some steps"),
        ([(3, 1), (3, 2)], None, "no complete epoch"),
        ([(1, 1), (1, 2), (1, 3), (2, 1)], 2, "a step 3 in an epoch, but an epoch should have 2 steps"),
    ],
)
def test_a_length_that_is_open_or_contradicted_is_refused(
    points: list[tuple[int, int]], length: int | None, reason: str
) -> None:
    with pytest.raises(StepsPerEpochError, match=reason) as caught:
        place_on_axis(_log(points, "step in epoch", length=length))
    assert "--reference-steps-per-epoch" in caught.value.hint


def test_epochs_of_unequal_length_are_noted() -> None:
    curve = place_on_axis(_log([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)], "step in epoch"))
    assert curve.steps.tolist() == [1, 2, 3, 4, 5, 7]
    assert any("1 of 2 complete epochs end earlier, at step 2" in note for note in curve.notes)


def test_a_log_of_epochs_stands_on_epochs_or_at_their_last_steps() -> None:
    log = _log([(1, 1), (2, 2)], "epoch", base=1)
    by_epoch = place_on_axis(log)
    assert (by_epoch.axis, by_epoch.steps.tolist()) == ("epoch", [1, 2])
    placed = place_on_axis(log, hints=AxisHints(steps_per_epoch=100))
    assert (placed.axis, placed.steps.tolist()) == ("step", [100, 200])


def _with(log: LossLog, metric: str, rows: list[int], **about: object) -> LossLog:
    """Add a metric at some records."""
    series = Series(np.array(rows), np.arange(len(rows)) * 1.0, np.zeros(len(rows)), **about)
    return replace(log, table=replace(log.table, metrics={**log.table.metrics, metric: series}))


def test_a_validation_before_the_first_step_moves_no_step() -> None:
    log = _with(_log([(None, 0), (None, 1), (None, 2)], "global step", base=1), "loss", [1, 2])
    log = _with(log, "val_loss", [0, 2], phase="validation")
    assert place_on_axis(log).steps.tolist() == [1, 2]
    assert place_on_axis(log, "val_loss").steps.tolist() == [0, 2]


def test_a_sparse_metric_is_counted_as_the_loss_is() -> None:
    log = _with(_log([(None, step) for step in range(6)], "global step"), "lr", [2, 4])
    assert place_on_axis(log, "lr").steps.tolist() == [3, 5]
    in_epochs = _log([(e, s) for e in (1, 2) for s in range(1, 5)], "step in epoch")
    assert place_on_axis(_with(in_epochs, "epoch_time_s", [3, 7]), "epoch_time_s").steps.tolist() == [4, 8]


def _telling(totals: list[int]) -> LossLog:
    log = _log([(at + 1, 1) for at in range(len(totals))], "step in epoch", base=1)
    return replace(log, table=replace(log.table, totals=np.array(totals)))


def test_the_length_that_the_lines_tell_is_taken() -> None:
    curve = place_on_axis(_telling([50, 0, 50]))
    assert (curve.steps.tolist(), curve.steps_per_epoch) == ([1, 51, 101], 50)


def test_epochs_that_the_lines_tell_to_be_uneven_count_on_by_their_own_lengths() -> None:
    curve = place_on_axis(_telling([50, 49, 50]))
    assert (curve.steps.tolist(), curve.steps_per_epoch) == ([1, 51, 100], None)
    assert "epochs have from 49 to 50 steps, as the lines of each show" in curve.notes
    assert place_on_axis(_telling([50, 49]), hints=AxisHints(steps_per_epoch=50)).steps.tolist() == [1, 51]


def test_uneven_epochs_of_which_one_is_not_told_are_refused() -> None:
    log = _telling([50, 49])
    later = replace(log, table=replace(log.table, epochs=np.array([1, 3])))
    with pytest.raises(StepsPerEpochError, match="its epochs have from 49 to 50 steps"):
        place_on_axis(later)


def test_a_step_beyond_its_own_uneven_epoch_is_refused() -> None:
    log = _telling([50, 49])
    beyond = replace(log, table=replace(log.table, steps=np.array([1, 50])))
    with pytest.raises(StepsPerEpochError, match="a step 50 in an epoch, but an epoch should have 49 steps"):
        place_on_axis(beyond)


def test_a_length_given_for_global_steps_is_kept_for_means_over_epochs() -> None:
    plain = place_on_axis(_global(1, 2), hints=AxisHints(steps_per_epoch=2))
    assert any("are not needed" in note for note in plain.notes)
    means = _with(_global(2, 4), "train_loss_epoch", [0, 1], window=EPOCH_MEAN)
    curve = place_on_axis(means, "train_loss_epoch", AxisHints(steps_per_epoch=2))
    assert curve.steps_per_epoch == 2
    assert not any("are not needed" in note for note in curve.notes)
