"""CSV and JSON lines: names in use, rows without a loss, other phases, damage."""

from __future__ import annotations

import math

import pytest

from align.losslogs.csv_table import PLUGIN as CSV
from align.losslogs.jsonl import PLUGIN as JSONL
from align.steps.curves import place_on_axis


@pytest.mark.parametrize("step", ["step", "global_step", "iter", "Iteration", " iters ", "trainer/global_step"])
@pytest.mark.parametrize("loss", ["loss", "train_loss", "train/loss", "Train Loss", "loss/train"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_columns_go_by_the_names_in_use(step: str, loss: str, delimiter: str) -> None:
    rows = [[step, "lr", loss], ["1", "0.1", "2.5"], ["2", "0.1", "2.25"]]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    assert CSV.recognizes(text)
    log = CSV.read(text, "log")
    assert place_on_axis(log).values == (2.5, 2.25)
    assert place_on_axis(log, "lr").values == (0.1, 0.1)


@pytest.mark.parametrize("step", ["step", "global_step", "iter"])
@pytest.mark.parametrize("loss", ["loss", "train_loss", "train/loss"])
def test_jsonl_keys_go_by_the_names_in_use(step: str, loss: str) -> None:
    text = f'{{"{step}": 1, "{loss}": 2.5, "lr": 1e-3}}\n{{"{step}": 2, "{loss}": 2.25, "lr": 1e-3}}\n'
    assert JSONL.recognizes(text)
    assert place_on_axis(JSONL.read(text, "log")).values == (2.5, 2.25)


@pytest.mark.parametrize("printed", ["nan", "NaN", "NAN", "-nan", "inf", "-Infinity"])
def test_a_loss_that_is_not_finite_stays_at_its_step_in_csv(printed: str) -> None:
    curve = place_on_axis(CSV.read(f"step,loss\n1,0.5\n2,{printed}\n3,0.25\n", "log"))
    assert curve.steps == (1, 2, 3)
    assert not math.isfinite(curve.values[1])
    assert curve.values[2] == 0.25


@pytest.mark.parametrize("printed", ["NaN", "Infinity", "-Infinity", "null"])
def test_a_loss_that_is_not_finite_stays_at_its_step_in_jsonl(printed: str) -> None:
    text = f'{{"step": 1, "loss": 0.5}}\n{{"step": 2, "loss": {printed}}}\n{{"step": 3, "loss": 0.25}}\n'
    curve = place_on_axis(JSONL.read(text, "log"))
    assert curve.steps == (1, 2, 3)
    assert not math.isfinite(curve.values[1])
    assert curve.values[2] == 0.25


def test_a_row_with_nothing_but_a_step_is_a_nan_as_pandas_writes_it() -> None:
    curve = place_on_axis(CSV.read("step,loss\n1,0.5\n2,\n3,0.25\n", "log"))
    assert curve.steps == (1, 2, 3)
    assert math.isnan(curve.values[1])


def test_rows_without_a_loss_but_with_other_metrics_are_noted_with_their_line() -> None:
    log = CSV.read("step,loss,val_loss\n1,0.5,\n1,,0.7\n2,0.25,\n", "log")
    assert place_on_axis(log).steps == (1, 2)
    assert "1 rows have no loss (first: line 3)" in " ".join(log.notes)


def test_a_loss_that_is_no_number_is_kept_as_nan_and_noted() -> None:
    curve = place_on_axis(CSV.read("step,loss\n1,0.5\n2,oops\n3,0.25\n", "log"))
    assert math.isnan(curve.values[1])
    assert any("'oops' in line 3" in note for note in curve.notes)


def test_rows_of_other_phases_are_no_training_losses() -> None:
    text = "phase,step,loss\ntrain,1,0.5\nval,1,0.9\ntrain,2,0.25\n"
    log = CSV.read(text, "log")
    assert place_on_axis(log).values == (0.5, 0.25)
    assert log.ignored_lines == 1


def test_a_header_again_is_no_row() -> None:
    assert place_on_axis(CSV.read("step,loss\n1,0.5\nstep,loss\n2,0.25\n", "log")).steps == (1, 2)


def test_steps_that_start_again_with_each_epoch_are_told_from_global_ones() -> None:
    inside = CSV.read("epoch,step,loss\n0,0,1.5\n0,1,1.4\n1,0,1.3\n1,1,1.2\n", "inside")
    through = CSV.read("epoch,step,loss\n0,0,1.5\n0,1,1.4\n1,2,1.3\n1,3,1.2\n", "through")
    assert (inside.counting, through.counting) == ("step in epoch", "global step")
    assert place_on_axis(inside).steps == place_on_axis(through).steps == (1, 2, 3, 4)


def test_a_table_of_epochs_holds_epoch_means() -> None:
    curve = place_on_axis(CSV.read("epoch,loss\n1,1.5\n2,1.4\n", "log"))
    assert (curve.axis, curve.window) == ("epoch", "epoch mean")


def test_steps_printed_as_floats_are_steps_and_others_are_not() -> None:
    log = CSV.read("step,loss\n1.0,1.5\n2.0,1.4\n2.5,1.3\n-1,1.2\n1e40,1.1\n", "log")
    assert place_on_axis(log).steps == (1, 2)
    assert log.ignored_lines == 3


def test_a_line_cut_in_the_middle_is_noted() -> None:
    assert any("no line end" in note for note in CSV.read("step,loss\n1,0.5\n2,0.2", "log").notes)
    log = JSONL.read('{"step": 1, "loss": 0.5}\n{"step": 2, "lo', "log")
    assert any("no line end" in note for note in log.notes)
    assert any("1 lines are no JSON object (first: line 2)" in note for note in log.notes)


def test_nested_and_long_json_does_not_break_the_reader() -> None:
    text = '{"step": 1, "loss": 0.5, "extra": {"a": [1, 2]}, "flag": true}\n' + "{" * 100_000 + "\n"
    log = JSONL.read(text, "log")
    assert place_on_axis(log).values == (0.5,)
    assert "extra" not in log.table.metrics


def test_means_over_ten_steps_are_not_read_as_raw_losses() -> None:
    assert not JSONL.recognizes('{"data_time": 0.1, "loss": 0.2, "time": 0.1, "iter": 10, "step": 10}\n')
