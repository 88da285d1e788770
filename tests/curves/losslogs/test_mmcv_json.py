"""mmcv's .log.json, in the form in which it prints training and validation."""

from __future__ import annotations

import math

from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.losslogs.openmmlab import MmcvJsonFormat
from align.curves.place_on_axis import place_on_axis

MMCV_JSON = MmcvJsonFormat()

HEAD = '{"env_info": "Python: 3.9", "seed": 0, "exp_name": "mask_rcnn.py"}\n'
STEP = '{"mode": "train", "epoch": %d, "iter": %d, "lr": 0.1, "memory": 3100, "data_time": 0.01, '
STEP += '"loss": %s, "time": 0.4}\n'
VALIDATION = '{"mode": "val", "epoch": %d, "iter": 625, "lr": 0.1, "bbox_mAP": 0.365}\n'


def _read(text: str) -> LossLog:
    return MMCV_JSON.read(LogSource.of_text(text))


def _epochs(count: int) -> str:
    return "".join(STEP % (epoch, step, f"0.{step}") for epoch in range(1, count + 1) for step in (50, 100))


def test_it_is_no_log_of_raw_losses() -> None:
    source = LogSource.of_text(HEAD + _epochs(2))
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["mmcv_json"]
    assert MMCV_JSON.read(source).table.metrics["loss"].window == Window("mean of last", 50)


def test_iterations_that_start_again_count_inside_the_epoch() -> None:
    log = _read(_epochs(2))
    assert log.counting == "step in epoch"
    assert log.table.epochs is not None
    assert log.table.epochs.tolist() == [1, 1, 2, 2]


def test_iterations_that_go_on_count_through() -> None:
    log = _read(STEP % (1, 50, "0.7") + STEP % (2, 100, "NaN"))
    curve = place_on_axis(log)
    assert log.counting == "global step"
    assert curve.steps.tolist() == [50, 100]
    assert math.isnan(curve.values[1])


def test_settings_are_no_means() -> None:
    metrics = _read(_epochs(1)).table.metrics
    assert metrics["lr"].window == metrics["memory"].window == RAW
    assert metrics["time_s"].window == metrics["data_time_s"].window == Window("mean of last", 50)


def test_a_validation_stands_at_the_last_training_line_under_names_of_its_own() -> None:
    log = _read(HEAD + _epochs(1) + VALIDATION % 1)
    series = log.table.metrics["val/bbox_mAP"]
    assert log.table.steps[series.rows].tolist() == [100]
    assert series.phase == "validation"
    assert log.ignored_lines == 1
