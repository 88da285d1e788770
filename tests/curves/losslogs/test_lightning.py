"""Lightning's table, of which each row is one thing that was logged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, MetricMissingError

DATA = Path(__file__).parents[1] / "data"
FORMAT = log_formats()["lightning"]


def _text(file: str) -> str:
    return (DATA / file).read_text(encoding="utf-8")


def _read(text: str) -> LossLog:
    return FORMAT.read(LogSource.of_text(text))


@pytest.mark.parametrize("file", ["lightning_metrics.csv", "lightning_rates.csv", "lightning_epochs.csv"])
def test_it_is_recognised_by_this_format_alone(file: str) -> None:
    source = LogSource.of_text(_text(file))
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["lightning"]


@pytest.mark.parametrize("text", ["epoch,step,train_loss\n0,0,2.5\n", "epoch,loss_epoch,loss_step\n0,2.5,2.0\n"])
def test_a_table_that_may_be_anybodys_is_left_to_csv(text: str) -> None:
    source = LogSource.of_text(text)
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["csv"]


def test_steps_count_from_0_through_all_epochs() -> None:
    log = _read(_text("lightning_rates.csv"))
    assert log.base == 0
    assert place_on_axis(log).steps.tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    assert place_on_axis(log, "train_loss_epoch").steps.tolist() == [8, 16]
    assert place_on_axis(log, "val_loss").steps.tolist() == [8, 16]
    assert log.ignored_lines == 1  # the header


def test_a_metric_logged_both_ways_is_there_raw_and_as_the_mean_of_the_epoch() -> None:
    log = _read(_text("lightning_rates.csv"))
    metrics = log.table.metrics
    assert log.loss_name == "train_loss_step"
    assert (metrics["train_loss_step"].window, metrics["train_loss_epoch"].window) == (RAW, EPOCH_MEAN)
    assert (metrics["val_loss"].phase, metrics["train_loss_epoch"].phase) == ("validation", "training")
    assert log.notes == ("the loss is read from 'train_loss_step'; also in the log: train_loss_epoch",)


def test_a_loss_that_comes_after_the_validation_of_its_step_is_the_mean_of_the_epoch() -> None:
    curve = place_on_axis(_read(_text("lightning_epochs.csv")))
    assert (curve.window, curve.steps.tolist()) == (EPOCH_MEAN, [8, 16])
    assert curve.values.tolist() == [3.0735435485839844, 1.4044504165649414]


def test_a_loss_without_validation_is_one_step_with_a_note() -> None:
    log = _read("epoch,lr-SGD,step,train_loss\r\n,0.1,7,\r\n0,,7,3.5\r\n,0.1,15,\r\n1,,15,1.5\r\n")
    assert place_on_axis(log).window == RAW
    assert any("means of epochs look the same" in note for note in log.notes)


def test_learning_rates_belong_to_the_epoch_and_the_step_after_them() -> None:
    log = _read(_text("lightning_rates.csv"))
    assert log.table.epochs.tolist() == [0] * 10 + [1] * 10  # type: ignore[union-attr]
    rates = place_on_axis(log, "lr")
    assert rates.steps.tolist() == place_on_axis(log).steps.tolist()
    assert rates.values.tolist() == [0.05, 0.025, 0.025, 0.0125, 0.00625, 0.00625, 0.003125, 0.0015625]


@pytest.mark.parametrize("name", ["train_loss", "train/loss", "loss", "Train Loss", "training_loss"])
def test_the_loss_goes_by_the_names_in_use(name: str) -> None:
    log = _read(f"epoch,{name}_epoch,{name}_step,step\n0,,2.5,0\n0,2.5,,0\n")
    assert log.loss_name == f"{name}_step"


def test_a_table_without_a_loss_still_has_its_other_metrics() -> None:
    log = _read("epoch,lr-Adam,reward,step\n,0.1,,0\n0,,2.5,0\n")
    assert place_on_axis(log, "reward").values.tolist() == [2.5]
    with pytest.raises(MetricMissingError, match="reward"):
        place_on_axis(log)


def test_a_header_alone_holds_no_loss() -> None:
    with pytest.raises(EmptyLogError, match="looked for"):
        _read("epoch,loss_epoch,loss_step,step\n")


def test_nan_is_a_point_and_an_empty_cell_is_none() -> None:
    curve = place_on_axis(_read("epoch,loss_epoch,loss_step,step\n0,,2.5,0\n0,,nan,1\n0,,,2\n0,2.5,,2\n"))
    assert curve.steps.tolist() == [1, 2]
    assert math.isnan(curve.values[1])


def test_a_table_cut_anywhere_gives_only_points_of_the_whole_and_says_so() -> None:
    text = _text("lightning_epochs.csv")
    whole = place_on_axis(_read(text)).values.tolist()
    for cut in range(len(text)):
        source = LogSource.of_text(text[:cut])
        if FORMAT.recognizes(source):
            try:
                curve = place_on_axis(FORMAT.read(source))
            except (EmptyLogError, MetricMissingError):
                continue
            ends_inside_a_line = any("cut" in note for note in curve.notes)
            sure = curve.values.tolist()[: -1 if ends_inside_a_line else None]
            assert sure == whole[: len(sure)]
