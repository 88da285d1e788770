"""PaddleDetection's console log: a real one, whose medians are those of the raw losses of its run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.losslogs.paddle import PaddleDetectionFormat
from align.curves.losslogs.tables import JsonlFormat
from align.curves.place_on_axis import pair_curves, place_on_axis
from align.errors import UnlikeCurvesError

PADDLEDETECTION = PaddleDetectionFormat()

JSONL = JsonlFormat()

DATA = Path(__file__).parents[1] / "data"
STEP = "[07/21 14:40:44] ppdet.engine INFO: Epoch: [%d] [ %d/20] learning_rate: 0.000025 loss_xy: 7.0 loss: %s "
STEP += "eta: 27 days, 22:18:02 batch_cost: 18.5 data_cost: 17.9 ips: 1.7 images/s, max_mem_reserved: 426 MB\n"
# The losses of the first steps of the run of which the log is.
FIRST_LOSSES = (1.462313294, 2.324131929, 1.199595332, 1.428948522, 2.182962656)


def _read(text: str) -> LossLog:
    return PADDLEDETECTION.read(LogSource.of_text(text))


def _real() -> LossLog:
    return PADDLEDETECTION.read(LogSource("paddledetection.log", (DATA / "paddledetection.log").read_bytes()))


def test_epochs_and_steps_are_counted_from_0() -> None:
    curve = place_on_axis(_real())
    assert curve.steps.tolist() == [1, 5, 9, 12, 16, 20]
    assert curve.steps_per_epoch == 11


def test_a_loss_is_the_median_of_the_last_steps() -> None:
    series = _real().table.metrics["loss"]
    assert series.window == Window("median of last", 4)
    assert series.values[:2].tolist() == pytest.approx([FIRST_LOSSES[0], np.median(FIRST_LOSSES[1:])], abs=1e-6)


def test_costs_are_means_and_the_learning_rate_is_neither() -> None:
    metrics = _real().table.metrics
    assert metrics["batch_cost_s"].window == metrics["ips"].window == Window("mean of last", 4)
    assert metrics["learning_rate"].window == RAW


def test_medians_compare_with_like_medians() -> None:
    curve = place_on_axis(_real())
    assert pair_curves(curve, curve).steps.tolist() == curve.steps.tolist()


def test_medians_are_never_compared_with_values_of_single_steps() -> None:
    text = "".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(FIRST_LOSSES, start=1))
    raw = place_on_axis(JSONL.read(LogSource.of_text(text)))
    with pytest.raises(UnlikeCurvesError, match="the median of the last 4 steps"):
        pair_curves(raw, place_on_axis(_real()))


def test_a_log_of_every_step_holds_the_losses_themselves() -> None:
    series = _read(STEP % (0, 0, "7.0") + STEP % (0, 1, "6.0")).table.metrics["loss"]
    assert series.window == RAW


def test_where_only_the_first_step_of_epochs_is_printed_the_median_is_over_an_epoch_at_least() -> None:
    log = _read(STEP % (0, 0, "7.0") + STEP % (1, 0, "6.0"))
    assert log.table.metrics["loss"].window == Window("median of last", 20)
    assert place_on_axis(log).steps.tolist() == [1, 21]


def test_numbers_with_units_are_read_and_the_time_that_is_left_is_none() -> None:
    metrics = _read(STEP % (0, 0, "nan")).table.metrics
    assert math.isnan(metrics["loss"].values[0])
    assert set(metrics) == {
        "learning_rate", "loss_xy", "loss", "batch_cost_s", "data_cost_s", "ips", "max_mem_reserved",
    }  # fmt: skip


def test_lines_of_other_programs_of_this_form_are_not_recognised() -> None:
    line = "[03:23:49.95] Epoch: [0]  [1480/1504]  lr: 0.000026  loss: 1.0800 (1.1317)  time: 4.5833\n"
    assert not PADDLEDETECTION.recognizes(LogSource.of_text(line))
