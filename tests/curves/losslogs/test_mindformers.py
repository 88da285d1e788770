"""MindFormers' console log: a real one of a run that overflows twice, and quoted lines of other versions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_SO_FAR, RAW
from align.curves.losslogs.mindspore import MindformersFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

MINDFORMERS = MindformersFormat()

DATA = Path(__file__).parents[1] / "data"
STEP = (
    "{ Epoch:[  1/  2], step:[%5d/    4], loss: %s, per_step_time: 9ms, lr: 0.1, overflow cond: False, loss_scale: 1.0"
)


def _source(name: str) -> LogSource:
    return LogSource(name, (DATA / name).read_bytes())


def test_steps_of_a_real_run_go_on_over_epochs_of_the_printed_length() -> None:
    curve = place_on_axis(MINDFORMERS.read(_source("mindformers_overflow.log")))
    assert curve.steps.tolist() == list(range(1, 13))
    assert curve.steps_per_epoch == 6
    assert curve.window == RAW
    assert curve.values[:3].tolist() == [0.919, 1.333, 1.807]


def test_overflown_steps_changed_no_weight_and_keep_their_infinite_loss() -> None:
    curve = place_on_axis(MINDFORMERS.read(_source("mindformers_overflow.log")))
    assert curve.skips is not None
    assert curve.skips.ends.tolist() == [4, 10]
    assert curve.values[np.isin(curve.steps, curve.skips.ends)].tolist() == [math.inf, math.inf]


def test_the_second_loss_is_the_mean_of_the_epoch_so_far() -> None:
    log = MINDFORMERS.read(_source("mindformers_overflow.log"))
    last, mean = log.table.metrics["loss"].values, log.table.metrics["loss_so_far"].values
    assert log.table.metrics["loss_so_far"].window == EPOCH_SO_FAR
    assert mean[:3] == pytest.approx([last[:1].mean(), last[:2].mean(), last[:3].mean()], abs=1.1e-3)
    assert mean[6] == last[6]


def test_where_the_second_loss_always_equals_the_first_it_started_anew_with_each_data_sink() -> None:
    text = "\n".join(STEP % (step, "[2.220/2.220]") for step in (1, 2)) + "\n"
    assert MINDFORMERS.read(LogSource.of_text(text)).table.metrics["loss_so_far"].window == RAW


def test_values_in_brackets_are_read_under_their_usual_names() -> None:
    log = MINDFORMERS.read(_source("mindformers_overflow.log"))
    found = {name: log.series(name) for name in ("lr", "grad_norm", "loss_scale", "step_time")}
    firsts = {name: series.values[0] for name, series in found.items() if series}
    assert firsts == {"lr": 2.4499998e-06, "grad_norm": 2.9718595, "loss_scale": 1024.0, "step_time": 0.972}


def test_every_quoted_line_of_other_versions_is_read() -> None:
    log = MINDFORMERS.read(_source("mindformers_quoted.log"))
    assert log.ignored_lines == 0
    assert log.table.metrics["loss"].values.tolist() == [10.649, 2.22, 0.0, 0.744]
    assert log.table.metrics["time_ms"].values.tolist() == [1951.612, 68580.279]
    assert log.table.metrics["train_throughput_per_npu"].values.tolist() == [2.896, 2.849]


def test_lines_of_several_jobs_are_told_apart_by_the_announced_length_of_an_epoch() -> None:
    totals = MINDFORMERS.read(_source("mindformers_quoted.log")).table.totals
    assert totals is not None
    assert totals.tolist() == [19, 125, 6500, 29134]


def test_a_damaged_value_is_left_out_and_told() -> None:
    log = MINDFORMERS.read(_source("mindformers_quoted.log"))
    assert log.table.metrics["global_norm"].values.tolist() == [44.313248]
    assert log.notes == ("1 value of global_norm is no number (first: '1 31049' in line 1): it is left out",)


def test_values_that_a_run_has_not_are_no_damage() -> None:
    log = MINDFORMERS.read(LogSource.of_text(STEP % (1, "2.5") + ", global_norm: None\n"))
    assert "global_norm" not in log.table.metrics
    assert log.notes == ()


def test_separate_parts_of_the_loss_are_metrics_of_their_own() -> None:
    log = MINDFORMERS.read(LogSource.of_text(STEP % (1, "[7.3/7.3], lm_loss: 7.100000, mtp_loss: 2.200000") + "\n"))
    assert log.table.metrics["lm_loss"].values.tolist() == [7.1]
    assert log.table.metrics["mtp_loss"].values.tolist() == [2.2]


def test_nan_is_a_point_and_lines_between_are_counted() -> None:
    between = "[WARNING] something else\n   25.0% |█    | 0.1 samples/s/p }\n\n"
    text = f"{STEP % (1, '  nan')}\n{between}{STEP % (2, '1.250')}\n"
    log = MINDFORMERS.read(LogSource.of_text(text))
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 2]
    assert math.isnan(curve.values[0])
    assert log.ignored_lines == 2


def test_a_line_of_another_monitor_is_no_step() -> None:
    source = LogSource.of_text("Epoch:[  1/  2], step:[    1/    4] local_norm: 0.1234\n")
    assert not MINDFORMERS.recognizes(source)
    with pytest.raises(EmptyLogError, match="looked for"):
        MINDFORMERS.read(source)
