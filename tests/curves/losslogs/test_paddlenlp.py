"""PaddleNLP's logs: real ones of its Trainer, plain and with progress bars, and lines of its example scripts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LossLog
from align.curves.losslogs.paddle import PaddleNlpFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

PADDLENLP = PaddleNlpFormat()

DATA = Path(__file__).parents[1] / "data"
SCRIPT = "global step %d, epoch: %d, batch: %d, loss: %s, avg_reader_cost: 0.01 sec, speed: 2.10 step/s, "
SCRIPT += "ips: 67 tokens/s, learning rate: 5.00000e-05\n"


def _log(name: str) -> LossLog:
    return PADDLENLP.read(LogSource(name, (DATA / name).read_bytes()))


def _read(text: str) -> LossLog:
    return PADDLENLP.read(LogSource.of_text(text))


@pytest.mark.parametrize("name", ["paddlenlp_trainer.log", "paddlenlp_bar.log"])
def test_losses_of_the_trainer_are_means_since_the_last_print(name: str) -> None:
    curve = place_on_axis(_log(name))
    assert curve.steps.tolist() == [1, 3, 6, 9, 12, 15]
    assert curve.values[:2].tolist() == [1.41530406, 1.87084389]
    assert curve.window == SINCE_LAST_PRINT


@pytest.mark.parametrize("name", ["paddlenlp_trainer.log", "paddlenlp_bar.log"])
def test_evaluations_are_told_from_training(name: str) -> None:
    log = _log(name)
    assert log.table.metrics["eval_accuracy"].values.tolist() == [0.375, 0.25]
    assert log.table.metrics["eval_accuracy"].phase == "validation"
    assert place_on_axis(log, "eval_loss").steps.tolist() == [6, 15]


def test_the_learning_rate_is_that_of_its_step() -> None:
    metrics = _log("paddlenlp_trainer.log").table.metrics
    assert metrics["learning_rate"].window == RAW
    assert metrics["interval_steps_per_second"].window == SINCE_LAST_PRINT
    assert not metrics.keys() & {"global_step", "epoch", "progress_or_epoch"}


def test_scripts_print_the_loss_of_the_step_and_that_is_noted() -> None:
    log = _read(SCRIPT % (10, 0, 10, "0.7") + SCRIPT % (20, 1, 3, "0.5"))
    assert place_on_axis(log).steps.tolist() == [10, 20]
    assert log.table.metrics["loss"].window == RAW
    assert "PaddleNLP's examples" in log.notes[0]


def test_scripts_may_count_from_0() -> None:
    assert place_on_axis(_read(SCRIPT % (0, 0, 0, "0.7") + SCRIPT % (1, 0, 1, "0.5"))).steps.tolist() == [1, 2]


def test_numbers_before_units_are_read() -> None:
    metrics = _read(SCRIPT % (10, 0, 10, "nan")).table.metrics
    assert math.isnan(metrics["loss"].values[0])
    assert {name: series.values[0] for name, series in metrics.items() if name != "loss"} == {
        "avg_reader_cost_s": 0.01,
        "speed": 2.1,
        "ips": 67.0,
        "learning rate": 5e-5,
    }


def test_an_evaluation_alone_and_other_trainers_lines_are_not_recognised() -> None:
    for text in ("eval_loss: 0.5, eval_accuracy: 0.9\n", "{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n"):
        assert not PADDLENLP.recognizes(LogSource.of_text(text))
        with pytest.raises(EmptyLogError, match="looked for"):
            _read(text)
