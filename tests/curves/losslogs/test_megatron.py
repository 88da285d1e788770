"""Megatron's console log: real ones of its training_log, and lines in the forms of other versions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LossLog, Window
from align.curves.losslogs.pretraining import MegatronFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

MEGATRON = MegatronFormat()

DATA = Path(__file__).parents[1] / "data"


def _line(step: int, loss: str | None, skipped: int = 0, start: str = "") -> str:
    """Make one line; without a loss where it is None, as for NaN."""
    printed = "" if loss is None else f" lm loss: {loss} |"
    return (
        f"{start} iteration {step:8d}/{500:8d} | consumed samples: {step * 8:12d} | "
        f"elapsed time per iteration (ms): 412.7 | learning rate: 1.500E-06 | global batch size:     8 |{printed} "
        f"loss scale: 1.0 | grad norm: 21.337 | number of skipped iterations: {skipped:3d} | "
        "number of nan iterations:   0 |\n"
    )


def _read(text: str) -> LossLog:
    return MEGATRON.read(LogSource.of_text(text))


def _real(name: str) -> LossLog:
    return MEGATRON.read(LogSource(name, (DATA / f"megatron_{name}.log").read_bytes()))


def test_values_of_a_real_log_are_the_means_that_the_window_says() -> None:
    every1, every5 = place_on_axis(_real("every1")), place_on_axis(_real("every5"))
    assert every1.window == RAW
    assert every5.window == Window("mean of last", 5)
    assert every5.steps.tolist() == [1, 5, 10, 15, 20]
    means = [every1.values[max(0, step - 5) : step].mean() for step in every5.steps]
    assert every5.values == pytest.approx(means, abs=3e-6)


def test_the_second_line_of_a_run_that_goes_on_adding_is_taken_apart() -> None:
    log = _real("every1")
    printed = (2.454743, 2.337674)
    assert place_on_axis(log).values[:2].tolist() == pytest.approx([printed[0], 2 * printed[1] - printed[0]], abs=1e-9)
    assert "computed from the printed mean" in log.notes[0]


def test_the_second_line_of_versions_without_microseconds_is_left_as_it_is() -> None:
    text = "".join(_line(step, loss, start=" [2025-01-14 10:00:05]") for step, loss in ((1, "4.0E+00"), (2, "3.0E+00")))
    assert place_on_axis(_read(text)).values.tolist() == [4.0, 3.0]


@pytest.mark.parametrize(
    ("first", "second", "losses", "skipped"),
    [
        (("4.0E+00", 0), ("3.0E+00", 0), [4.0, 2.0, 1.0], [0, 0, 0]),
        (("0.0E+00", 1), ("3.0E+00", 1), [3.0, 1.0], [1, 0, 0]),
        (("4.0E+00", 0), ("4.0E+00", 1), [4.0, 1.0], [0, 1, 0]),
        (("0.0E+00", 1), ("0.0E+00", 2), [1.0], [1, 1, 0]),
    ],
)
def test_sums_that_go_on_are_understood_with_skipped_iterations(
    first: tuple[str, int], second: tuple[str, int], losses: list[float], skipped: list[int]
) -> None:
    lines = (first, second, ("1.0E+00", 0))
    start = " [2026-01-14 10:00:05.125000]"
    log = _read("".join(_line(step, *line, start=start) for step, line in enumerate(lines, start=1)))
    assert place_on_axis(log).values.tolist() == losses
    assert (log.table.skipped.tolist() if log.table.skipped is not None else [0] * 3) == skipped


def test_sums_over_an_interval_that_go_on_count_the_skipped_first_iteration_once() -> None:
    start = " [2026-01-14 10:00:05.125000]"
    lines = ((1, "0.0E+00", 1), (10, "3.0E+00", 3), (20, "2.0E+00", 0), (30, "0.0E+00", 10))
    log = _read("".join(_line(*line, start=start) for line in lines))
    assert log.table.skipped is not None
    assert log.table.skipped.tolist() == [1, 2, 0, 10]
    curve = place_on_axis(log)
    assert curve.skips is not None
    assert (curve.skips.starts.tolist(), curve.skips.ends.tolist()) == ([0, 0, 20], [1, 10, 30])
    assert curve.steps.tolist() == [10, 20]


def test_a_resumed_run_that_goes_on_adding_is_taken_apart_too() -> None:
    start = " [2026-01-14 10:00:05.125000]"
    steps = ((5, "4.0E+00"), (6, "3.0E+00"), (7, "2.0E+00"), (6, "3.0E+00"), (7, "2.5E+00"), (8, "1.0E+00"))
    log = _read("".join(_line(step, loss, start=start) for step, loss in steps))
    assert log.table.metrics["lm loss"].values.tolist() == [4.0, 3.0, 2.0, 3.0, 2.0, 1.0]


def test_a_real_log_with_skipped_and_nan_iterations_is_understood() -> None:
    log = _real("skipped")
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 2, 3, 5, 6, 7, 8, 10]
    assert curve.steps[[math.isnan(value) for value in curve.values]].tolist() == [7]
    assert log.table.skipped is not None
    assert log.table.steps[log.table.skipped > 0].tolist() == [4, 9]
    assert len(log.notes) == 3


def test_a_log_of_every_step_holds_raw_losses() -> None:
    log = _read(_line(1, "1.083217E+01") + _line(2, "1.079154E+01"))
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 2]
    assert curve.values.tolist() == [10.83217, 10.79154]
    assert curve.window == RAW
    assert log.table.totals is not None
    assert set(log.table.totals.tolist()) == {500}


def test_a_loss_is_the_mean_over_the_log_interval_and_the_learning_rate_is_not() -> None:
    log = _read("".join(_line(step, "5.0E+00") for step in (100, 200, 300)))
    assert log.table.metrics["lm loss"].window == Window("mean of last", 100)
    assert log.table.metrics["step_time_ms"].window == Window("mean of last", 100)
    assert log.table.metrics["learning rate"].window == RAW


def test_the_extra_line_of_the_first_iteration_does_not_shorten_the_interval() -> None:
    log = _read("".join(_line(step, "5.0E+00") for step in (1, 10, 20, 30)))
    assert log.table.metrics["lm loss"].window == Window("mean of last", 10)


def test_the_interval_of_a_single_line_is_not_known() -> None:
    assert _read(_line(100, "5.0E+00")).table.metrics["lm loss"].window == SINCE_LAST_PRINT


def test_metrics_are_found_under_their_usual_names() -> None:
    log = _read(_line(1, "1.0E+01") + _line(2, "9.0E+00"))
    found = {name: log.series(name) for name in ("loss", "lr", "grad_norm", "loss_scale", "step_time")}
    firsts = {name: series.values[0] for name, series in found.items() if series}
    assert firsts == {"loss": 10.0, "lr": 1.5e-6, "grad_norm": 21.337, "loss_scale": 1.0, "step_time": 0.4127}


def test_a_line_without_a_loss_is_a_nan_point() -> None:
    log = _read(_line(1, "1.0E+01") + _line(2, None) + _line(3, None))
    curve = place_on_axis(log)
    assert curve.steps.tolist() == [1, 2, 3]
    assert [math.isnan(value) for value in curve.values] == [False, True, True]
    assert "2 lines have no loss" in log.notes[0]


def test_a_run_that_is_nan_from_the_beginning_is_read_as_such() -> None:
    assert all(math.isnan(value) for value in place_on_axis(_read(_line(1, None) + _line(2, None))).values)


def test_a_last_record_that_stops_before_its_loss_is_left_out_and_a_lone_one_is_refused() -> None:
    whole, last = _line(1, "1.0E+01"), _line(2, "9.0E+00")
    for stop in (" learning", " lm loss", "9.0E"):
        log = _read(whole + last[: last.index(stop) + 3])
        assert place_on_axis(log).steps.tolist() == [1]
        assert "the last line was cut: it is left out" in log.notes
        with pytest.raises(EmptyLogError):
            _read(last[: last.index(stop) + 3])


@pytest.mark.parametrize("loss", [None, "0.000000E+00"])
def test_skipped_iterations_have_no_loss_and_changed_no_weight(loss: str | None) -> None:
    log = _read(_line(1, "1.0E+01") + _line(2, loss, skipped=1) + _line(3, "9.0E+00"))
    assert place_on_axis(log).steps.tolist() == [1, 3]
    assert log.table.skipped is not None
    assert log.table.skipped.tolist() == [0, 1, 0]


def test_of_an_interval_skipped_iterations_are_counted() -> None:
    skips = [("5.0E+00", 0), ("4.0E+00", 3), ("0.0E+00", 10)]
    log = _read("".join(_line(10 * at, loss, skipped) for at, (loss, skipped) in enumerate(skips, start=1)))
    assert log.table.skipped is not None
    assert log.table.skipped.tolist() == [0, 3, 10]
    assert place_on_axis(log).values.tolist() == [5.0, 4.0]


def test_timestamps_and_prefixes_in_front_change_nothing() -> None:
    stamped = "".join(_line(step, "5.0E+00", start="[default0]: [2026-01-14 10:00:05]") for step in (1, 2))
    assert place_on_axis(_read(stamped)).steps.tolist() == [1, 2]


def test_validation_stands_at_its_iteration_under_names_of_its_own() -> None:
    text = "".join(
        (
            _line(10, "5.0E+00"),
            "-----------\n",
            " validation loss at iteration 10 | lm loss value: 4.5E+00 | lm loss PPL: 9.0E+01 | \n",
            "-----------\n",
            _line(20, "4.0E+00"),
            " validation loss at iteration 20 on validation set | lm loss value: 4.2E+00 | lm loss PPL: 6.6E+01 | \n",
            " validation loss at iteration 20 on test set | lm loss value: 4.9E+00 | lm loss PPL: 1.3E+02 | \n",
        )
    )
    log = _read(text)
    series = log.table.metrics["val/lm loss value"]
    assert log.table.steps[series.rows].tolist() == [10, 20]
    assert series.values.tolist() == [4.5, 4.2]
    assert series.phase == "validation"
    assert log.ignored_lines == 3
    assert place_on_axis(log).values.tolist() == [5.0, 4.0]


def test_other_losses_stand_beside_the_first() -> None:
    line = _line(1, "1.0E+01").replace(" lm loss: 1.0E+01 |", " loss: 2.0E+00 | load_balancing_loss: 1.1E+00 |")
    log = _read(line + line.replace("   1/", "   2/"))
    assert log.loss_name == "loss"
    assert log.table.metrics["load_balancing_loss"].values.tolist() == [1.1, 1.1]


def test_a_validation_alone_is_no_training_log() -> None:
    with pytest.raises(EmptyLogError, match="looked for"):
        _read(" validation loss at iteration 10 | lm loss value: 4.5E+00 | \n")
