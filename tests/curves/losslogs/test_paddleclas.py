"""PaddleClas' console log: a real one of its own training loop, and lines of an evaluation."""

from __future__ import annotations

import math
from pathlib import Path

from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog
from align.curves.losslogs.paddle import PaddleClasFormat
from align.curves.place_on_axis import place_on_axis

PADDLECLAS = PaddleClasFormat()

DATA = Path(__file__).parents[1] / "data"
STEP = "[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch %d/2][Iter: %d/6]lr(Cosine): 0.1, loss: %s, batch_cost: 0.3s, "
STEP += "reader_cost: 0.1, ips: 20.1 samples/s, eta: 3 days, 1:00:00\n"
EVALUATION = "[2026/11/20 23:36:16] ppcls INFO: [Eval][Epoch %d]%s\n"


def _read(text: str) -> LossLog:
    return PADDLECLAS.read(LogSource.of_text(text))


def _real() -> LossLog:
    return PADDLECLAS.read(LogSource("paddleclas.log", (DATA / "paddleclas.log").read_bytes()))


def test_iterations_from_0_are_steps_from_1() -> None:
    curve = place_on_axis(_real())
    assert curve.steps.tolist() == [1, 6, 11, 12, 17, 22]
    assert curve.values[:3].tolist() == [1.94957, 1.49276, 1.60066]
    assert curve.steps_per_epoch == 11


def test_the_average_of_an_epoch_is_its_last_mean_so_far() -> None:
    series = _real().table.metrics["loss"]
    assert series.window == EPOCH_SO_FAR
    assert series.values[2] == series.values[3]


def test_costs_and_learning_rate_are_no_means_of_the_epoch() -> None:
    metrics = _real().table.metrics
    assert metrics["top1"].window == EPOCH_SO_FAR
    assert metrics["batch_cost_s"].window == metrics["reader_cost_s"].window == SINCE_LAST_PRINT
    assert metrics["lr"].window == RAW
    assert metrics["lr"].values[:2].tolist() == [0.1, 0.05]


def test_units_and_the_time_that_is_left_are_no_metrics() -> None:
    metrics = _read(STEP % (1, 0, "0.5")).table.metrics
    assert {name: series.values[0] for name, series in metrics.items()} == {
        "lr": 0.1,
        "loss": 0.5,
        "batch_cost_s": 0.3,
        "reader_cost_s": 0.1,
        "ips": 20.1,
    }


def test_an_evaluation_stands_at_the_end_of_its_epoch() -> None:
    text = STEP % (1, 0, "0.7") + EVALUATION % (1, "[Iter: 0/9]loss: 0.9, top1: 0.1") + STEP % (2, 0, "0.5")
    log = _read(text + EVALUATION % (2, "[Avg]loss: 0.6, top1: 0.8") + EVALUATION % (2, "[best metric: 0.8]"))
    accuracy = place_on_axis(log, "val/top1")
    assert accuracy.steps.tolist() == [12]
    assert accuracy.values.tolist() == [0.8]
    assert log.ignored_lines == 2
    assert place_on_axis(log).steps.tolist() == [1, 7]


def test_nan_is_a_point() -> None:
    assert math.isnan(place_on_axis(_read(STEP % (1, 0, "nan"))).values[0])


def test_an_evaluation_alone_is_no_training_log() -> None:
    assert not PADDLECLAS.recognizes(LogSource.of_text(EVALUATION % (0, "[Avg]loss: 0.6, top1: 0.8")))
