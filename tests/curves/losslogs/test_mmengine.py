"""mmengine's console log and its scalars.json, real ones of the same runs, and mmcv's older lines."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.losslogs import openmmlab as mmengine
from align.curves.losslogs import openmmlab as mmengine_scalars
from align.curves.place_on_axis import place_on_axis

DATA = Path(__file__).parents[1] / "data"
TEN = Window("mean of last", 10)
HEAD = "2026/11/20 08:34:15 - mmengine - INFO - "
STEP = HEAD + "Epoch(train)  [%d][%2d/25]  base_lr: 1.0000e-02 lr: 2.0000e-03  eta: 1 day, 3:00:00  time: 0.0014  %s\n"
OLDER = "2020-05-08 18:56:16,649 - mmdet - INFO - "


def _console(name: str) -> LossLog:
    return mmengine.MmengineFormat().read(LogSource(name, (DATA / name).read_bytes()))


def _scalars(name: str) -> LossLog:
    return mmengine_scalars.MmengineScalarsFormat().read(LogSource(name, (DATA / name).read_bytes()))


def _read(text: str) -> LossLog:
    return mmengine.MmengineFormat().read(LogSource.of_text(text))


def test_a_log_by_epochs_has_its_steps_on_the_global_axis() -> None:
    curve = place_on_axis(_console("mmengine_epoch.log"))
    assert curve.steps.tolist() == [10, 20, 35, 45]
    assert curve.steps_per_epoch == 25
    assert curve.window == TEN


def test_a_log_by_iterations_counts_them_through() -> None:
    curve = place_on_axis(_console("mmengine_iter.log"))
    assert curve.steps.tolist() == [10, 20, 30, 40]
    assert curve.values.tolist() == [0.2922, 0.1711, 0.5908, 0.1387]


@pytest.mark.parametrize("run", ["epoch", "iter"])
def test_both_logs_of_a_run_are_one_curve(run: str) -> None:
    console = place_on_axis(_console(f"mmengine_{run}.log"))
    scalars = place_on_axis(_scalars(f"mmengine_{run}_scalars.json"))
    assert console.steps.tolist() == scalars.steps.tolist()
    assert np.all(np.abs(console.values - scalars.values) <= console.resolution / 2)
    assert console.window == scalars.window == TEN


def test_losses_and_times_are_averaged_and_learning_rates_are_not() -> None:
    metrics = _console("mmengine_epoch.log").table.metrics
    assert {name for name, series in metrics.items() if series.window == TEN} == {
        "loss", "loss1", "loss2", "time_s", "data_time_s",
    }  # fmt: skip
    assert metrics["lr"].window == RAW


@pytest.mark.parametrize("log", ["mmengine_epoch.log", "mmengine_iter.log"])
def test_every_other_line_of_a_real_log_is_counted(log: str) -> None:
    filled = sum(bool(line.strip()) for line in (DATA / log).read_text(encoding="utf-8").splitlines())
    read = _console(log)
    assert len(read.table.lines) == 6
    assert read.ignored_lines == filled - 6


def test_a_validation_stands_at_the_end_of_its_epoch() -> None:
    log = _console("mmengine_epoch.log")
    accuracy = log.table.metrics["val/toy/acc"]
    assert accuracy.values.tolist() == [0.738, 0.7709]
    assert accuracy.phase == "validation"
    assert place_on_axis(log, "val/toy/acc").steps.tolist() == [25, 50]


def test_a_validation_between_iterations_stands_at_the_last_training_line() -> None:
    assert place_on_axis(_console("mmengine_iter.log"), "val/toy/acc").steps.tolist() == [20, 40]
    assert place_on_axis(_scalars("mmengine_iter_scalars.json"), "val/toy/acc").steps.tolist() == [20, 40]
    assert place_on_axis(_scalars("mmengine_epoch_scalars.json"), "val/toy/acc").steps.tolist() == [20, 45]


def test_a_validation_whose_iteration_is_told_stands_there() -> None:
    training = '{"lr": 0.1, "data_time": 0.1, "loss": 0.5, "time": 0.2, "iter": 20, "step": 20}\n'
    log = mmengine_scalars.MmengineScalarsFormat().read(LogSource.of_text(training + '{"toy/acc": 0.5, "step": 24}\n'))
    assert place_on_axis(log, "val/toy/acc").steps.tolist() == [24]


def test_the_configuration_in_the_log_tells_the_window() -> None:
    config = "log_processor = dict(by_epoch=True, type='LogProcessor', window_size=50)\n"
    log = _read(config + STEP % (1, 10, "loss: 0.5000"))
    assert log.table.metrics["loss"].window == Window("mean of last", 50)
    assert log.notes == ()


def test_the_window_of_another_metric_in_the_configuration_is_not_that_of_the_loss() -> None:
    other = "custom_cfg=[dict(data_src='loss', log_name='loss_large', window_size=100)]"
    for inside, length in ((f"{other}, window_size=50", 50), (f"window_size=50, {other}", 50), (other, 10)):
        log = _read(f"log_processor = dict(\n    by_epoch=True, {inside})\n" + STEP % (1, 10, "loss: 0.5000"))
        assert log.table.metrics["loss"].window == Window("mean of last", length)


def test_an_assumed_window_is_noted() -> None:
    for log in (_console("mmengine_epoch.log"), _scalars("mmengine_epoch_scalars.json")):
        assert "the last 10 steps" in log.notes[0]


def test_learning_rates_side_by_side_and_a_long_eta_are_told_apart() -> None:
    metrics = _read(STEP % (1, 10, "grad_norm: 4.9155  coco/AP (M): 0.5000  loss: 0.5000")).table.metrics
    assert {name: series.values.tolist() for name, series in metrics.items()} == {
        "base_lr": [0.01], "lr": [0.002], "time_s": [0.0014], "grad_norm": [4.9155], "coco/AP (M)": [0.5],
        "loss": [0.5],
    }  # fmt: skip


def test_nan_is_a_point_and_lines_between_change_nothing() -> None:
    text = STEP % (1, 10, "loss: nan") + "[W] some warning\n" + STEP % (1, 20, "loss: 0.5000")
    curve = place_on_axis(_read(text))
    assert curve.steps.tolist() == [10, 20]
    assert math.isnan(curve.values[0])


def test_mmcv_averages_over_its_print_interval() -> None:
    line = OLDER + "Epoch [%d][%d/120]\tlr: 1.978e-03, eta: 1 day, 0:11:22, time: 0.595, memory: 6836, loss: 0.4890\n"
    log = _read("".join(line % (epoch, step) for epoch in (1, 2) for step in (50, 100)))
    assert place_on_axis(log).steps.tolist() == [50, 100, 170, 220]
    assert log.table.metrics["loss"].window == Window("mean of last", 50)
    assert log.table.metrics["lr"].window == log.table.metrics["memory"].window == RAW
    assert log.notes == ()


def test_mmcv_that_prints_once_an_epoch_averages_over_what_it_counts_to() -> None:
    line = OLDER + "Epoch [%d][50/60]\tlr: 1.978e-03, time: 0.595, loss: 0.4890\n"
    log = _read("".join(line % epoch for epoch in (1, 2, 3)))
    assert log.table.metrics["loss"].window == Window("mean of last", 50)


def test_mmcv_validates_under_names_of_its_own() -> None:
    text = OLDER + "Epoch [1][120/120]\tlr: 1.9e-03, loss: 0.4890\n" + OLDER + "Epoch(val) [1][625]\tbbox_mAP: 0.3650, "
    assert place_on_axis(_read(text + "bbox_mAP_50: 0.5770\n"), "val/bbox_mAP").steps.tolist() == [120]


def test_lines_of_other_programs_are_not_recognised() -> None:
    for text in (
        "Epoch [1/10] lr: 0.1 loss: 0.5\n",
        "Epoch [1][10/25]  loss: 0.5\n",
        "Epoch(val) [1][25/25]  acc: 0.5\n",
    ):
        assert not mmengine.MmengineFormat().recognizes(LogSource.of_text(text))
    assert not mmengine_scalars.MmengineScalarsFormat().recognizes(
        LogSource.of_text('{"step": 1, "loss": 0.5, "time": 0.1}\n')
    )


def test_scalars_under_a_hierarchy_of_names_are_read() -> None:
    text = '{"train/lr": 0.1, "train/data_time": 0.1, "train/loss": 0.5, "train/time": 0.2, "iter": 10, "step": 10}\n'
    source = LogSource.of_text(text)
    assert mmengine_scalars.MmengineScalarsFormat().recognizes(source)
    log = mmengine_scalars.MmengineScalarsFormat().read(source)
    assert place_on_axis(log).values.tolist() == [0.5]
    assert log.table.metrics["train/time_s"].window == TEN
