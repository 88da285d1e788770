"""What is told of one log: points, gaps, repeats, skipped and not finite steps, and each metric with its meaning."""

from __future__ import annotations

import math

import numpy as np
import pytest

from align.core.json_data import to_json_data
from align.curves.judging.log_summary import summarize_log
from align.curves.loss_log import (
    EPOCH_MEAN,
    RAW,
    SINCE_LAST_PRINT,
    AxisHints,
    LogTable,
    LossLog,
    MetricSummary,
    Series,
)
from align.errors import MetricMissingError


def _series(rows: list[int], values: list[float], unit: float = 0.0, **about: object) -> Series:
    return Series(np.array(rows), np.array(values), np.full(len(rows), unit), **about)


def _log() -> LossLog:
    """A log of 13 records from step 0 that goes back once, lacks steps 5 and 6, and skipped two steps."""
    steps = np.array([0, 1, 2, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12])
    metrics = {
        "loss": _series(list(range(13)), [9.0, 9.0, 9.0, 5.0, math.nan, *range(4, 12)], 0.01, window=SINCE_LAST_PRINT),
        "lr": _series([0, 12], [0.1, 0.2]),
        "val_loss": _series([12], [0.5], window=EPOCH_MEAN, phase="validation"),
    }
    skipped = np.isin(np.arange(13), [1, 5, 6])
    table = LogTable(np.arange(13) + 1, steps, None, metrics, skipped=skipped)
    return LossLog("some.log", "test", table, "loss", "global step", None, ignored_lines=3, notes=("from the reader",))


def test_points_gaps_repeats_and_odd_steps_are_told() -> None:
    summary = summarize_log(_log())
    assert (summary.base, summary.axis, summary.window) == (0, "step", SINCE_LAST_PRINT)
    assert (summary.points, summary.first_step, summary.last_step, summary.cadence) == (11, 1, 13, 1)
    assert (summary.first_value, summary.last_value, summary.resolution) == (9.0, 11.0, 0.01)
    assert (summary.gaps, summary.duplicates) == (((5, 8),), 2)
    assert (summary.non_finite_steps, summary.skipped_steps) == ((3,), ((4, 5, 2),))
    assert summary.ignored_lines == 3
    assert summary.notes[0] == "from the reader"
    assert any("goes back 1 times" in note for note in summary.notes)


def test_each_metric_is_told_with_what_it_is_the_mean_of() -> None:
    assert summarize_log(_log()).metrics == (
        MetricSummary("loss", 13, SINCE_LAST_PRINT, "training"),
        MetricSummary("lr", 2, RAW, "training"),
        MetricSummary("val_loss", 1, EPOCH_MEAN, "validation"),
    )


def test_a_summary_has_a_plain_form() -> None:
    plain = to_json_data(summarize_log(_log(), hints=AxisHints(base=1)))
    assert plain["metrics"][1] == {
        "name": "lr",
        "points": 2,
        "window": {"kind": "raw", "length": 1},
        "phase": "training",
    }
    assert plain["skipped_steps"] == [[4, 5, 2]]


def test_a_metric_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(MetricMissingError, match="loss, lr, val_loss"):
        summarize_log(_log(), "accuracy")
