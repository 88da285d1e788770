"""LossMonitor in its variants: intervals over epochs, data sinking, the stop at NaN, older releases, noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from align.curves.log_sources import LogSource
from align.curves.losslogs.mindspore import LossMonitorFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import StepsPerEpochError

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog

LOSSMONITOR = LossMonitorFormat()


def _text(points: list[tuple[int, int]]) -> str:
    return "".join(f"epoch: {epoch} step: {step}, loss is {0.123456789 * step}\n" for epoch, step in points)


def _read(points: list[tuple[int, int]]) -> LossLog:
    return LOSSMONITOR.read(LogSource.of_text(_text(points)))


def _printed(length: int, interval: int, total: int) -> list[tuple[int, int]]:
    return [((step - 1) // length + 1, (step - 1) % length + 1) for step in range(interval, total + 1, interval)]


@pytest.mark.parametrize(("length", "interval"), [(24, 10), (25, 10), (1875, 1000), (7, 3), (10, 5), (4, 1)])
def test_the_length_of_an_epoch_follows_from_the_interval_over_epochs(length: int, interval: int) -> None:
    curve = place_on_axis(_read(_printed(length, interval, 4 * length)))
    assert curve.steps.tolist() == list(range(interval, 4 * length + 1, interval))


def test_a_loss_after_a_second_name_is_a_number() -> None:
    text = (
        "epoch: 2, step: 250, loss is loss:0.090041, epoch time: 60457.911ms\nepoch: 3, step: 250, loss is loss:0.5\n"
    )
    assert LOSSMONITOR.read(LogSource.of_text(text)).table.metrics["loss"].values.tolist() == [0.090041, 0.5]


def test_data_sinking_prints_the_last_step_of_each_epoch() -> None:
    curve = place_on_axis(_read([(1, 1875), (2, 1875), (3, 1875)]))
    assert curve.steps.tolist() == [1875, 3750, 5625]


def test_an_interval_longer_than_an_epoch_leaves_its_length_open() -> None:
    log = _read(_printed(24, 30, 200))
    with pytest.raises(StepsPerEpochError, match="prints only some steps"):
        place_on_axis(log)


def test_the_line_that_stops_training_at_nan_is_a_point() -> None:
    text = _text([(1, 1), (1, 2)]) + (
        "Traceback (most recent call last):\n"
        '    raise ValueError("In epoch: {} step: {}, loss is NAN or INF, training process cannot continue, "\n'
        "ValueError: In epoch: 1 step: 3, loss is NAN or INF, training process cannot continue, terminating training.\n"
    )
    curve = place_on_axis(LOSSMONITOR.read(LogSource.of_text(text)))
    assert curve.steps.tolist() == [1, 2, 3]
    assert math.isnan(curve.values[-1])


@pytest.mark.parametrize("printed", ["None", "nan", "-nan", "inf", "-inf", "[nan]", "NaN.", "1.#QNAN", "Tensor(x)"])
def test_a_loss_that_is_no_finite_number_stays_at_its_step(printed: str) -> None:
    text = _text([(1, 1)]) + f"epoch: 1 step: 2, loss is {printed}\n" + _text([(1, 3)])
    curve = place_on_axis(LOSSMONITOR.read(LogSource.of_text(text)))
    assert curve.steps.tolist() == [1, 2, 3]
    assert not math.isfinite(curve.values[1])


def test_a_loss_that_is_no_number_is_noted_and_one_that_was_cut_is_none() -> None:
    text = _text([(1, 1)]) + "epoch: 1 step: 2, loss is None\nepoch: 1 step: 3, loss is n"
    log = LOSSMONITOR.read(LogSource.of_text(text))
    assert place_on_axis(log).steps.tolist() == [1, 2]
    assert "1 loss is null (first: line 2), kept as NaN" in log.notes


@pytest.mark.parametrize(
    "line",
    [
        "epoch: 1 step 1, loss is 2.302585",
        "epoch: 1 step: 1, loss is [2.302585]",
        "[1,0]<stdout>:epoch: 1 step: 1, loss is 2.302585",
        "\x1b[32mepoch: 1 step: 1, loss is 2.302585\x1b[0m\r",
        "50%|#####     | 1/2\repoch: 1 step: 1, loss is 2.302585",
    ],
)
def test_older_forms_prefixes_and_terminal_codes_are_read(line: str) -> None:
    assert LOSSMONITOR.recognizes(LogSource.of_text(line + "\n"))
    assert place_on_axis(LOSSMONITOR.read(LogSource.of_text(line + "\n"))).values.tolist() == [2.302585]


def test_times_that_contradict_each_other_tell_no_length() -> None:
    times = "Train epoch time: 68.097 ms, per step time: 17.024 ms\nTrain epoch time: 40.0 ms, per step time: 20.0 ms\n"
    log = LOSSMONITOR.read(LogSource.of_text(_text([(1, 1), (1, 2), (2, 1), (2, 2)]) + times))
    assert log.steps_per_epoch == 2


def test_evaluation_times_are_not_training_times() -> None:
    text = _text([(1, 1), (1, 2)]) + "Eval epoch time: 68.097 ms, per step time: 17.024 ms\n"
    log = LOSSMONITOR.read(LogSource.of_text(text))
    assert "step_time_ms" not in log.table.metrics
    assert log.ignored_lines == 1


def test_times_beyond_all_numbers_tell_no_length() -> None:
    times = f"Train epoch time: {'9' * 5000}.0 ms, per step time: 20.0 ms\n"
    log = LOSSMONITOR.read(LogSource.of_text(_text([(1, 1), (1, 2), (2, 1), (2, 2)]) + times))
    assert log.steps_per_epoch == 2
