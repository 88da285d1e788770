"""Jobs mixed in one log are told apart by their totals; a resume, a longer run and uneven epochs are one job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.jobs import choose_job, split_jobs
from align.curves.log_sources import LogSource
from align.curves.loss_log import Counting, LogTable, LossLog, Series
from align.curves.losslogs.mindspore import MindformersFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import MixedJobsError, UsageError

MINDFORMERS = MindformersFormat()

# Each quoted from another job: unlike numbers of steps in an epoch.
QUOTED = """\
- INFO - { Epoch:[  1/  2], step:[    1/   19], loss: 10.649, per_step_time: 103328ms, lr: 0.0, overflow cond: False
print_output_info: Epoch:[  1/  1], step:[  116/  125], loss:[2.220/2.220], time:1951.612 ms, lr:[2.4499998e-06]
- INFO - { Epoch:[  1/  2], step:[    1/ 6500], loss: 0.000, per_step_time: 166756ms, lr: 0.0, overflow cond: False
print_output_info: Epoch:[  1/  2], step:[    2/29134], loss: 0.744, time:68580.279 ms, lr:8e-08
"""


def _log(records: list[tuple[int, int, int]], counting: Counting = "step in epoch") -> LossLog:
    """Make a log of (epoch, step, total); the loss tells the record, every third has a learning rate."""
    epochs, steps, totals = (np.array(column, np.int64) for column in zip(*records, strict=True))
    rows = np.arange(len(records))
    metrics = {
        "loss": Series(rows, rows + 0.5, np.zeros(len(rows))),
        "lr": Series(rows[::3], rows[::3] * 1.0, np.zeros(len(rows[::3]))),
    }
    return LossLog("some.log", "test", LogTable(rows + 1, steps, epochs, metrics, totals), "loss", counting, 1)


def _run(total: int, epochs: int = 1, first: int = 1) -> list[tuple[int, int, int]]:
    return [(epoch, step, total) for epoch in range(first, first + epochs) for step in range(1, total + 1)]


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(1, 3)), min_size=1, max_size=6))
def test_jobs_that_were_joined_are_split_and_joined_again_to_the_same(runs: list[tuple[int, int]]) -> None:
    jobs = [
        _run(total, epochs) for index, (total, epochs) in enumerate(runs) if index == 0 or total != runs[index - 1][0]
    ]
    log = _log([record for job in jobs for record in job])
    parts = split_jobs(log)
    assert [len(part.table.lines) for part in parts] == [len(job) for job in jobs]
    for column in ("lines", "steps", "epochs", "totals"):
        assert (
            np.concatenate([getattr(part.table, column) for part in parts]).tolist()
            == getattr(log.table, column).tolist()
        )
    for name, series in log.table.metrics.items():
        found = [part.table.metrics[name] for part in parts if name in part.table.metrics]
        starts = [part.table.lines[0] - 1 for part in parts if name in part.table.metrics]
        assert np.concatenate([one.values for one in found]).tolist() == series.values.tolist()
        assert (
            np.concatenate([one.rows + at for one, at in zip(found, starts, strict=True)]).tolist()
            == series.rows.tolist()
        )


@pytest.mark.parametrize(
    ("records", "counting"),
    [
        (_run(5) + _run(5), "step in epoch"),
        (_run(5)[:4] + _run(5)[2:], "step in epoch"),
        (_run(5) + _run(7, first=2), "step in epoch"),
        ([(1, 1, 0), (1, 2, 5), (1, 3, 0)], "step in epoch"),
        ([(0, step, 10) for step in range(1, 11)] + [(0, step, 20) for step in range(11, 21)], "global step"),
    ],
)
def test_a_resume_a_longer_run_and_uneven_epochs_are_one_job(
    records: list[tuple[int, int, int]], counting: Counting
) -> None:
    log = _log(records, counting)
    assert choose_job(log) is log


def test_a_run_of_another_length_that_goes_back_is_another_job() -> None:
    log = _log([(0, step, 10) for step in range(1, 11)] + [(0, step, 20) for step in range(1, 6)], "global step")
    assert len(split_jobs(log)) == 2


def test_a_mixed_log_is_refused_with_its_lines_and_totals_and_never_placed() -> None:
    log = MINDFORMERS.read(LogSource.of_text(QUOTED, "quoted.log"))
    with pytest.raises(MixedJobsError) as caught:
        place_on_axis(log)
    assert "quoted.log mixes 4 jobs" in caught.value.message
    assert "job 2: lines 2 to 2, 125 steps" in caught.value.message
    assert "--job" in caught.value.hint


def test_one_job_of_a_mixed_log_is_chosen_by_its_number() -> None:
    curve = place_on_axis(choose_job(MINDFORMERS.read(LogSource.of_text(QUOTED)), 2))
    assert (curve.steps.tolist(), curve.values.tolist(), curve.steps_per_epoch) == ([116], [2.22], 125)
    assert any("job 2 of 4" in note for note in curve.notes)


@pytest.mark.parametrize("job", [0, 5, -1])
def test_a_job_that_is_not_there_is_refused(job: int) -> None:
    with pytest.raises(UsageError, match=f"has no job {job}") as caught:
        choose_job(MINDFORMERS.read(LogSource.of_text(QUOTED)), job)
    assert "1 to 4" in caught.value.hint


def test_many_jobs_are_counted_and_not_all_listed() -> None:
    with pytest.raises(MixedJobsError) as caught:
        choose_job(_log([record for total in range(2, 12) for record in _run(total)]))
    assert "mixes 10 jobs" in caught.value.message
    assert "and 4 more" in caught.value.message
