"""torchtitan's console log: a real one with colour codes, printed at step 1 and every 5th, and its older forms."""

from __future__ import annotations

import math
from pathlib import Path

from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, SINCE_LAST_PRINT
from align.curves.losslogs.pretraining import TorchtitanFormat
from align.curves.place_on_axis import place_on_axis

TORCHTITAN = TorchtitanFormat()

DATA = Path(__file__).parents[1] / "data"
OLD = "[rank0]:2024-07-01 10:00:00,123 - root - INFO - step: %2d  loss: %s  memory:  0.90GiB(1.25%%)  wps: 1,234  "
OLD += "mfu: 0.50%%\n"


def _every5() -> LogSource:
    return LogSource("titan.log", (DATA / "torchtitan_every5.log").read_bytes())


def test_a_coloured_log_gives_the_losses_of_the_printed_steps() -> None:
    log = TORCHTITAN.read(_every5())
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 5, 10]
    assert curve.values.tolist() == [2.45474, 2.39077, 2.29642]
    assert curve.window == RAW
    assert log.notes == ()


def test_the_validation_loss_is_no_training_loss_of_its_step() -> None:
    series = TORCHTITAN.read(_every5()).table.metrics["val/loss"]
    assert series.values.tolist() == [2.3964]
    assert series.phase == "validation"


def test_the_other_metrics_are_kept_and_thousands_have_commas() -> None:
    metrics = TORCHTITAN.read(_every5()).table.metrics
    assert metrics["tps"].values.tolist() == [157, 2364, 2236]
    assert metrics["tps"].window == SINCE_LAST_PRINT
    assert metrics["grad_norm"].values.tolist() == [0.7858, 0.7085, 0.7529]
    assert metrics["memory_gib"].values.tolist() == [0.9, 0.9, 0.9]


def test_lines_of_other_kinds_are_counted() -> None:
    assert TORCHTITAN.read(_every5()).ignored_lines == 2


def test_versions_that_print_no_tflops_averaged_the_loss() -> None:
    log = TORCHTITAN.read(LogSource.of_text(OLD % (1, " 8.1309") + OLD % (10, " 7.5000")))
    assert log.table.metrics["loss"].window == SINCE_LAST_PRINT
    assert "means since the last print" in log.notes[0]


def test_the_same_line_of_every_rank_is_one_point() -> None:
    line = OLD % (1, " 8.1309")
    curve = place_on_axis(
        TORCHTITAN.read(LogSource.of_text(line + line.replace("rank0", "rank1") + OLD % (2, " 7.5000")))
    )
    assert curve.steps.tolist() == [1, 2]


def test_nan_is_a_point_and_an_unknown_mfu_no_end_of_the_line() -> None:
    line = (OLD % (1, "     nan")).replace("0.50%", "N/A")
    assert math.isnan(place_on_axis(TORCHTITAN.read(LogSource.of_text(line))).values[0])


def test_a_step_and_a_loss_of_another_program_are_not_recognised() -> None:
    assert not TORCHTITAN.recognizes(LogSource.of_text("step: 1  loss: 8.1\n"))
    assert not TORCHTITAN.recognizes(LogSource.of_text("validate step: 1\n"))
