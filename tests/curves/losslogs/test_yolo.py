"""The table of epochs that YOLO trainers write, of which only the parts of the loss are known."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import EPOCH_MEAN, RAW, AxisHints, LossLog
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

TEXT = (Path(__file__).parents[1] / "data" / "yolo_results.csv").read_text(encoding="utf-8")  # Ultralytics 8.4.190
FORMAT = log_formats()["yolo"]
# Quoted: nobody ran YOLOv5 here.
YOLOV5 = (
    "               epoch,      train/box_loss,      train/obj_loss,      train/cls_loss,     metrics/mAP_0.5,"
    "        val/box_loss,               x/lr0\n"
    "                   0,             0.12109,            0.040541,            0.031226,           0.0002182,"
    "             0.11652,              0.0967\n"
    "                   1,             0.11377,            0.043316,            0.027839,            0.000413,"
    "             0.10778,              0.0893\n"
)


def _read(text: str) -> LossLog:
    return FORMAT.read(LogSource.of_text(text))


@pytest.mark.parametrize("text", [TEXT, YOLOV5], ids=["ultralytics", "yolov5"])
def test_it_is_recognised_by_this_format_alone(text: str) -> None:
    source = LogSource.of_text(text)
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["yolo"]


def test_the_loss_of_an_epoch_is_the_sum_of_its_parts() -> None:
    log = _read(TEXT)
    curve = place_on_axis(log)
    assert (curve.axis, curve.window) == ("epoch", EPOCH_MEAN)
    assert curve.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert curve.values[0] == 3.1157 + 1.8018 + 1.93578
    assert log.notes[0] == "the loss is the sum of train/box_loss, train/cls_loss, train/dfl_loss"
    assert place_on_axis(log, "train/box_loss").values[1] == 4.75336


def test_the_rounding_of_the_parts_adds_up() -> None:
    assert place_on_axis(_read(TEXT)).resolution.tolist() == pytest.approx([3e-5] * 6)


def test_epochs_become_steps_where_their_length_is_given() -> None:
    assert place_on_axis(_read(TEXT), "loss", AxisHints(steps_per_epoch=2)).steps.tolist() == [2, 4, 6, 8, 10, 12]


def test_validation_and_learning_rates_are_kept_with_their_meaning() -> None:
    metrics = _read(TEXT).table.metrics
    assert (metrics["val/box_loss"].phase, metrics["val/box_loss"].window) == ("validation", RAW)
    assert metrics["metrics/mAP50(B)"].values.tolist() == [0.0] * 6
    assert place_on_axis(_read(TEXT), "lr").values[0] == 0.000333333
    assert place_on_axis(_read(YOLOV5), "lr").values.tolist() == [0.0967, 0.0893]


def test_epochs_of_yolov5_count_from_0() -> None:
    log = _read(YOLOV5)
    assert log.base == 0
    assert place_on_axis(log).steps.tolist() == [1, 2]


def test_a_part_that_is_nan_makes_the_loss_nan() -> None:
    values = place_on_axis(_read(TEXT.replace("2.73261", "nan"))).values
    assert [math.isnan(value) for value in values] == [False, False, True, False, False, False]


def test_a_row_without_a_part_has_no_loss() -> None:
    assert place_on_axis(_read(TEXT.replace("2.73261", ""))).steps.tolist() == [1, 2, 4, 5, 6]


def test_a_table_cut_anywhere_gives_only_points_of_the_whole() -> None:
    whole = place_on_axis(_read(TEXT)).values.tolist()
    for cut in range(len(TEXT)):
        source = LogSource.of_text(TEXT[:cut])
        if FORMAT.recognizes(source):
            try:
                log = FORMAT.read(source)
            except EmptyLogError:
                continue
            found = place_on_axis(log).values.tolist()
            assert found == whole[: len(found)]


def test_a_table_that_names_its_loss_is_not_taken() -> None:
    source = LogSource.of_text("epoch,train/loss,train/aux_loss\n1,2.0,0.5\n")
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["csv"]
