"""What paddle.Model.fit prints: real logs of one training in its three forms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog
from align.curves.losslogs.paddle import PaddleHapiFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

PADDLE_HAPI = PaddleHapiFormat()

DATA = Path(__file__).parents[1] / "data"


def _log(name: str) -> LossLog:
    return PADDLE_HAPI.read(LogSource(name, (DATA / f"paddle_hapi_{name}.log").read_bytes()))


def _read(text: str) -> LossLog:
    return PADDLE_HAPI.read(LogSource.of_text(text))


def test_steps_go_on_over_epochs_and_the_last_of_each_is_printed() -> None:
    curve = place_on_axis(_log("every2"))
    assert curve.steps.tolist() == [2, 4, 6, 8, 10, 12, 13, 15, 17, 19, 21, 23, 25, 26]
    assert curve.values[:3].tolist() == [2.1448, 1.132, 1.376]
    assert curve.steps_per_epoch == 13


@pytest.mark.parametrize(
    ("form", "steps"), [("bar", [4, 8, 12, 13, 17, 21, 25, 26]), ("costs", [5, 10, 13, 18, 23, 26])]
)
def test_all_forms_of_printing_show_the_same_run(form: str, steps: list[int]) -> None:
    curve, every2 = place_on_axis(_log(form)), place_on_axis(_log("every2"))
    assert curve.steps.tolist() == steps
    known = dict(zip(every2.steps.tolist(), every2.values.tolist(), strict=True))
    both = [(value, known[step]) for step, value in zip(steps, curve.values.tolist(), strict=True) if step in known]
    assert len(both) >= 4
    assert all(here == there for here, there in both)


def test_only_the_loss_is_of_one_step() -> None:
    windows = {
        name: series.window for name, series in _log("costs").table.metrics.items() if series.phase == "training"
    }
    assert windows == {
        "loss": RAW,
        "acc": EPOCH_SO_FAR,
        "avg_reader_cost_s": SINCE_LAST_PRINT,
        "avg_batch_cost_s": SINCE_LAST_PRINT,
        "ips": SINCE_LAST_PRINT,
        "step_time_ms": EPOCH_SO_FAR,
    }


def test_times_come_in_one_unit_whichever_is_printed() -> None:
    times = _log("bar").table.metrics["step_time_ms"].values.tolist()
    assert times == [7.0, 4.0, 3.0, 3.0, 0.627, 0.55, 0.523, 0.521]


def test_the_end_of_an_evaluation_stands_at_the_end_of_its_epoch() -> None:
    log = _log("every2")
    accuracy = place_on_axis(log, "val/acc")
    assert accuracy.steps.tolist() == [13, 26]
    assert accuracy.values.tolist() == [0.4, 0.4]
    assert log.table.metrics["val/acc"].phase == "validation"


def test_all_that_is_no_record_is_counted() -> None:
    log = _log("every2")
    lines = (DATA / "paddle_hapi_every2.log").read_text(encoding="utf-8").splitlines()
    assert log.ignored_lines == len(lines) - len(log.table.lines)


def test_a_nan_loss_is_a_point() -> None:
    curve = place_on_axis(_read("Epoch 1/1\nstep 1/2 - loss: nan - 3ms/step\nstep 2/2 - loss: 0.5000 - 3ms/step\n"))
    assert math.isnan(curve.values[0])
    assert curve.steps.tolist() == [1, 2]


def test_steps_whose_epoch_was_cut_off_are_left_out_and_told() -> None:
    log = _read("step 9/10 - loss: 0.7000 - 3ms/step\nEpoch 2/2\nstep 1/10 - loss: 0.5000 - 3ms/step\n")
    assert log.table.metrics["loss"].values.tolist() == [0.5]
    assert log.notes == ("1 step before the first line of an epoch is left out",)


def test_an_epoch_of_unknown_length_is_read() -> None:
    log = _read("Epoch 1/1\nstep  10 - loss: [0.7000] - 3ms/step\nstep  20 - loss: [0.5000] - 3ms/step\n")
    assert place_on_axis(log).values.tolist() == [0.7, 0.5]
    assert log.table.totals is None


def test_a_prediction_has_no_loss() -> None:
    text = "Epoch 1/1\nPredict begin...\nstep 5/5 [==============================] - 1ms/step\n"
    assert not PADDLE_HAPI.recognizes(LogSource.of_text(text))
    with pytest.raises(EmptyLogError, match="looked for"):
        _read(text)
