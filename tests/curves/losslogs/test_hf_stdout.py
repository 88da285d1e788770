"""What the Hugging Face Trainer prints, of both versions, against the state file of the same run."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, AxisHints, LossLog
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError

DATA = Path(__file__).parents[1] / "data"
FORMAT = log_formats()["hf_stdout"]
LOGS = ("hf_stdout_4.log", "hf_stdout_5.log")
every_log = pytest.mark.parametrize("file", LOGS)


def _read(text: str) -> LossLog:
    return FORMAT.read(LogSource.of_text(text))


def _text(file: str) -> str:
    return (DATA / file).read_bytes().decode()


def _without_bars(text: str) -> str:
    return "".join(found + "\n" for found in re.findall(r"\{[^}]*\}", text))


def _dict(loss: object, epoch: float, **more: object) -> str:
    return str({"loss": loss, "grad_norm": 1.5, "learning_rate": 0.1, **more, "epoch": epoch})


def _bar(done: int, total: int) -> str:
    return f"\r {done * 100 // total:3}%|##   | {done}/{total} [00:01<00:01,  3.9it/s]"


@every_log
def test_a_real_log_is_recognised_by_this_format_alone(file: str) -> None:
    source = LogSource.of_text(_text(file))
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == ["hf_stdout"]


@every_log
def test_the_bar_after_each_dict_tells_its_step(file: str) -> None:
    log = _read(_text(file))
    assert log.counting == "global step"
    assert place_on_axis(log).steps.tolist() == [2, 4, 6, 8]
    assert place_on_axis(log, "eval_loss").steps.tolist() == [4, 8]
    assert set(log.table.totals.tolist()) == {8}  # type: ignore[union-attr]
    assert log.table.shares.tolist() == [0.5, 1.0, 1.0, 1.5, 2.0, 2.0]  # type: ignore[union-attr]


@every_log
def test_the_printed_values_are_those_of_the_state_file_to_their_printed_digits(file: str) -> None:
    state = log_formats()["hf_trainer_state"].read(LogSource.of_text(_text("hf_stdout_5_state.json")))
    for metric in ("loss", "grad_norm", "learning_rate", "eval_loss"):
        exact, printed = place_on_axis(state, metric), place_on_axis(_read(_text(file)), metric)
        np.testing.assert_array_equal(printed.steps, exact.steps)
        assert printed.window == exact.window
        assert np.all(np.abs(printed.values - exact.values) <= printed.resolution / 2 + 1e-12)


def test_the_state_file_tells_phases_and_leaves_the_summary_of_the_run_out() -> None:
    entries = (
        '{"step": 2, "loss": 0.5}, {"step": 2, "eval_loss": 0.5}, {"step": 2, "train_runtime": 1.0, "train_loss": 9.0}'
    )
    log = log_formats()["hf_trainer_state"].read(LogSource.of_text('{"log_history": [' + entries + "]}"))
    assert {name: series.phase for name, series in log.table.metrics.items()} == {
        "loss": "training",
        "eval_loss": "validation",
    }
    assert log.ignored_lines == 1


def test_steps_are_told_by_the_bar_whatever_part_of_an_epoch_they_are() -> None:
    assert place_on_axis(_read(_text("hf_stdout_5_every_third.log"))).steps.tolist() == [3, 6]


def test_only_the_loss_is_a_mean_and_evaluations_are_of_another_phase() -> None:
    metrics = _read(_text("hf_stdout_5.log")).table.metrics
    assert metrics["loss"].window == SINCE_LAST_PRINT
    assert metrics["learning_rate"].window == metrics["grad_norm"].window == RAW
    assert (metrics["loss"].phase, metrics["eval_loss"].phase) == ("training", "validation")
    assert "train_loss" not in metrics  # the mean of the whole run


def test_version_5_prints_four_digits_and_version_4_four_decimals() -> None:
    new, old = (_read(_text(f"hf_stdout_{version}.log")).table.metrics for version in (5, 4))
    np.testing.assert_allclose(new["loss"].resolution, 1e-3)
    np.testing.assert_allclose(new["learning_rate"].resolution, [1e-5, 1e-5, 1e-5, 1e-6])
    np.testing.assert_allclose(old["loss"].resolution, 1e-4)
    assert set(old["eval_loss"].resolution.tolist()) == {0.0}


@every_log
def test_without_bars_there_are_only_shares_of_epochs(file: str) -> None:
    log = _read(_without_bars(_text(file)))
    assert log.counting == "share of epochs"
    assert log.table.shares.tolist() == [0.5, 1.0, 1.0, 1.5, 2.0, 2.0]  # type: ignore[union-attr]
    assert place_on_axis(log, "loss", AxisHints(steps_per_epoch=4)).steps.tolist() == [2, 4, 6, 8]


def test_an_old_bar_before_a_dict_does_not_tell_its_step() -> None:
    text = "".join(f"{_bar(step - 2, 90)}\r{_dict(1 / step, step / 9)}\n{_bar(step, 90)}" for step in (3, 6, 9))
    assert place_on_axis(_read(text)).steps.tolist() == [3, 6, 9]


def test_a_last_loss_without_a_bar_is_left_out_with_a_note() -> None:
    log = _read(f"{_dict(0.5, 0.5)}\n{_bar(1, 2)}\n{_dict(0.25, 1.0)}\n")
    assert place_on_axis(log).steps.tolist() == [1]
    assert any("left out" in note for note in log.notes)


def test_bars_of_other_things_tell_no_step() -> None:
    described = "\rMap: 100%|##| 32/32 [00:00<00:00, 9it/s]"
    text = "".join(f"{_dict(1 / step, step / 9)}\n{described}{_bar(step, 90)}" for step in (3, 6, 9))
    assert place_on_axis(_read(text)).steps.tolist() == [3, 6, 9]


def test_a_log_whose_carriage_returns_are_lost_is_read_the_same() -> None:
    text = _text("hf_stdout_5.log")
    assert place_on_axis(_read(text.replace("\r", ""))).steps.tolist() == [2, 4, 6, 8]
    assert place_on_axis(_read(text.replace("\r", "\n"))).steps.tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("printed", [math.nan, "nan", None])
def test_a_loss_of_nan_is_a_point(printed: object) -> None:
    curve = place_on_axis(_read(f"{_dict(0.5, 0.5)}\n{_bar(1, 2)}\n{_dict(printed, 1.0)}\n{_bar(2, 2)}\n"))
    assert curve.steps.tolist() == [1, 2]
    assert math.isnan(curve.values[1])


def test_values_that_are_no_numbers_are_left_out() -> None:
    log = _read(f"{_dict(0.5, 0.5, note='a string', flags=[1, 2])}\n{_bar(1, 2)}\n{_dict(0.25, 1.0)}\n{_bar(2, 2)}\n")
    assert set(log.table.metrics) == {"loss", "grad_norm", "learning_rate"}


@every_log
def test_a_log_cut_anywhere_gives_only_points_of_the_whole(file: str) -> None:
    data = _text(file).encode()
    whole = place_on_axis(_read(_text(file)))
    points = dict(zip(whole.steps.tolist(), whole.values.tolist(), strict=True))
    for cut in range(0, len(data), 5):
        source = LogSource("cut", data[:cut])
        if FORMAT.recognizes(source):
            log = FORMAT.read(source)
            found = place_on_axis(log, "loss", AxisHints(steps_per_epoch=4))
            assert dict(zip(found.steps.tolist(), found.values.tolist(), strict=True)).items() <= points.items()


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=9), st.integers(1, 50))
def test_a_curve_printed_and_read_back_is_the_same(values: list[float], every: int) -> None:
    total = every * len(values)
    steps = range(every, total + 1, every)
    text = "".join(
        f"{_dict(round(value, 4), step / total)}\n{_bar(step, total)}"
        for step, value in zip(steps, values, strict=True)
    )
    curve = place_on_axis(_read(text))
    assert curve.steps.tolist() == list(steps)
    assert curve.values.tolist() == [round(value, 4) for value in values]


def test_a_dict_of_something_else_is_no_such_log() -> None:
    source = LogSource.of_text("{'loss': 0.5, 'step': 1}\n{'lr': 0.1, 'epoch': 1}\n")
    assert not FORMAT.recognizes(source)
    with pytest.raises(EmptyLogError, match="looked for"):
        FORMAT.read(source)


def test_a_bar_that_stands_apart_tells_the_length_of_an_epoch() -> None:
    bars = "".join(map(_bar, range(1, 1678, 40), [1677] * 42)) + "".join(map(_bar, range(281), [280] * 281))
    dicts = "".join(_dict(2 - step / 1000, round(step / 559, 4)) + "\n" for step in range(10, 1678, 10))
    end = "{'train_runtime': 2918.0, 'train_loss': 0.7331, 'epoch': 3.0}\n"
    log = _read(bars + "\n" + dicts + end)
    assert place_on_axis(log).steps.tolist() == list(range(10, 1678, 10))
    assert any("1677, which are 3 epochs" in note for note in log.notes)
    assert _read(dicts + end).steps_per_epoch is None
    twice = place_on_axis(_read((bars + "\n" + dicts + end) * 2))
    assert twice.steps.tolist() == list(range(10, 1678, 10))
    assert any("printed twice" in note for note in twice.notes)
    assert _read(bars.replace("/1677", "/1600") + "\n" + dicts + end).steps_per_epoch is None
