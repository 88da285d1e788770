"""CSV and JSON lines: names in use, rows without a loss, other phases, damage."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import describe_log
from align.curves.log_sources import LogSource
from align.curves.loss_log import EPOCH_MEAN
from align.curves.losslogs.tables import CsvFormat, JsonlFormat
from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.curves.thresholds import MOST_COLUMNS
from align.errors import RepeatedColumnError

if TYPE_CHECKING:
    from pathlib import Path

JSONL = JsonlFormat()

CSV = CsvFormat()


@pytest.mark.parametrize("step", ["step", "global_step", "iter", "Iteration", " iters ", "trainer/global_step"])
@pytest.mark.parametrize("loss", ["loss", "train_loss", "train/loss", "Train Loss", "loss/train"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_columns_go_by_the_names_in_use(step: str, loss: str, delimiter: str) -> None:
    rows = [[step, "lr", loss], ["1", "0.1", "2.5"], ["2", "0.1", "2.25"]]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    assert CSV.recognizes(LogSource.of_text(text))
    log = CSV.read(LogSource.of_text(text))
    assert place_on_axis(log).values.tolist() == [2.5, 2.25]
    assert place_on_axis(log, "lr").values.tolist() == [0.1, 0.1]


@pytest.mark.parametrize("text", [",step,acc\n0,1,0.9\n1,2,0.8\n2,3,0.7\n", "epoch,acc,\n1,0.9,\n2,0.8,\n3,0.7,\n"])
def test_a_column_without_a_name_is_no_loss(text: str) -> None:
    assert not CSV.recognizes(LogSource.of_text(text))


@pytest.mark.parametrize("step", ["step", "global_step", "iter"])
@pytest.mark.parametrize("loss", ["loss", "train_loss", "train/loss"])
def test_jsonl_keys_go_by_the_names_in_use(step: str, loss: str) -> None:
    text = f'{{"{step}": 1, "{loss}": 2.5, "lr": 1e-3}}\n{{"{step}": 2, "{loss}": 2.25, "lr": 1e-3}}\n'
    assert JSONL.recognizes(LogSource.of_text(text))
    assert place_on_axis(JSONL.read(LogSource.of_text(text))).values.tolist() == [2.5, 2.25]


@pytest.mark.parametrize("printed", ["nan", "NaN", "NAN", "-nan", "inf", "-Infinity"])
def test_a_loss_that_is_not_finite_stays_at_its_step_in_csv(printed: str) -> None:
    curve = place_on_axis(CSV.read(LogSource.of_text(f"step,loss\n1,0.5\n2,{printed}\n3,0.25\n")))
    assert curve.steps.tolist() == [1, 2, 3]
    assert not math.isfinite(curve.values[1])
    assert curve.values[2] == 0.25


@pytest.mark.parametrize(
    "printed",
    ["NaN", "Infinity", "-Infinity", "null", "nan", "-nan", "inf", "-inf", "+Inf", "None", "1.#QNAN", '"nan"', "[2.5]"],
)
def test_a_loss_that_is_not_finite_stays_at_its_step_in_jsonl(printed: str) -> None:
    text = f'{{"step": 1, "loss": 0.5}}\n{{"step": 2, "loss": {printed}}}\n{{"step": 3, "loss": 0.25}}\n'
    curve = place_on_axis(JSONL.read(LogSource.of_text(text)))
    assert curve.steps.tolist() == [1, 2, 3]
    assert not math.isfinite(curve.values[1])
    assert curve.values[2] == 0.25


@pytest.mark.parametrize("printed", ["NaN", "-nan", "Infinity", "null", "None"])
def test_a_log_of_nothing_but_nan_has_points_in_any_table(printed: str) -> None:
    rows = "".join(f'{{"step": {step}, "loss": {printed}, "lr": 0.1}}\n' for step in (1, 2))
    for plugin, text in ((JSONL, rows), (CSV, f"step,loss,lr\n1,{printed},0.1\n2,{printed},0.1\n")):
        assert plugin.recognizes(LogSource.of_text(text))
        curve = place_on_axis(plugin.read(LogSource.of_text(text)))
        assert curve.steps.tolist() == [1, 2]
        assert not any(map(math.isfinite, curve.values))


def test_bare_words_inside_texts_and_escaped_quotes_are_left_alone() -> None:
    text = '{"step": 1, "loss": nan, "note": "a \\"quoted\\": nan, {x"}\n{"step": 2, "loss": 0.5}\n'
    log = JSONL.read(LogSource.of_text(text))
    assert place_on_axis(log).steps.tolist() == [1, 2]
    assert log.ignored_lines == 0


def test_null_and_unreadable_losses_are_nan_with_a_note_beside_other_metrics() -> None:
    text = '{"step": 1, "loss": 0.5, "lr": 1}\n{"step": 2, "loss": null, "lr": 1}\n{"step": 3, "loss": "-", "lr": 1}\n'
    curve = place_on_axis(JSONL.read(LogSource.of_text(text)))
    assert curve.steps.tolist() == [1, 2, 3]
    assert all(map(math.isnan, curve.values[1:]))
    assert "1 loss is null (first: line 2), kept as NaN" in curve.notes
    assert "1 loss is no number (first: '-' in line 3), kept as NaN" in curve.notes


def test_an_absent_key_and_an_empty_cell_beside_other_metrics_are_no_loss_in_this_row() -> None:
    lines = '{"step": 1, "loss": 0.5}\n{"step": 1, "val_loss": 0.7}\n{"step": 2, "loss": 0.25}\n'
    assert place_on_axis(JSONL.read(LogSource.of_text(lines))).values.tolist() == [0.5, 0.25]
    assert place_on_axis(CSV.read(LogSource.of_text("step,loss,acc\n1,0.5,\n1,,0.7\n2,0.25,\n"))).values.tolist() == [
        0.5,
        0.25,
    ]


def test_an_explicit_null_of_another_metric_is_nan_too() -> None:
    text = '{"step": 1, "loss": 2, "grad_norm": 8.5}\n{"step": 2, "loss": 2, "grad_norm": null}\n'
    log = JSONL.read(LogSource.of_text(text))
    assert math.isnan(place_on_axis(log, "grad_norm").values[1])


def test_two_unlike_values_of_one_name_are_refused_where_they_are_needed() -> None:
    with pytest.raises(RepeatedColumnError, match=r"'loss' \(first: line 2\)"):
        CSV.read(LogSource.of_text("step,loss,loss\n1,2.0,9\n2,1.9,9\n"))
    lines = '{"step": 1, "loss": 1}\n{"step": 2, "loss": 1.0, "loss": 2.0}\n{"step": 3, "step": 4, "loss": 1}\n'
    with pytest.raises(RepeatedColumnError, match=r"'loss' \(first: line 2\), 'step' \(first: line 3\)"):
        JSONL.read(LogSource.of_text(lines))


def test_two_values_of_another_name_are_noted_and_equal_ones_are_one() -> None:
    log = CSV.read(LogSource.of_text("step,loss,loss,lr,lr\n1,2.0,2.0,0.1,0.2\n2,1.9,1.9,0.1,0.2\n"))
    assert place_on_axis(log).values.tolist() == [2.0, 1.9]
    assert "column 'lr' occurs twice with different values (first: line 2); the last of them is read" in log.notes


def test_a_second_column_that_could_be_the_loss_is_told() -> None:
    log = CSV.read(LogSource.of_text("step,train_loss,loss\n1,2.0,9\n2,1.9,9\n"))
    assert log.notes == ("the loss is read from 'loss'; also in the log: train_loss",)


def test_a_row_with_nothing_but_a_step_is_a_nan_as_pandas_writes_it() -> None:
    curve = place_on_axis(CSV.read(LogSource.of_text("step,loss\n1,0.5\n2,\n3,0.25\n")))
    assert curve.steps.tolist() == [1, 2, 3]
    assert math.isnan(curve.values[1])


def test_rows_without_a_loss_but_with_other_metrics_are_noted_with_their_line() -> None:
    log = CSV.read(LogSource.of_text("step,loss,val_loss\n1,0.5,\n1,,0.7\n2,0.25,\n"))
    assert place_on_axis(log).steps.tolist() == [1, 2]
    assert "1 row has no loss (first: line 3)" in " ".join(log.notes)


def test_a_loss_that_is_no_number_is_kept_as_nan_and_noted() -> None:
    curve = place_on_axis(CSV.read(LogSource.of_text("step,loss\n1,0.5\n2,oops\n3,0.25\n")))
    assert math.isnan(curve.values[1])
    assert any("'oops' in line 3" in note for note in curve.notes)


@pytest.mark.parametrize("endless", ["1e" + "0" * 5000, "1." + "0" * 5000, "9" * 5000])
def test_a_number_of_thousands_of_digits_is_nan_and_noted_in_short(endless: str) -> None:
    log = CSV.read(LogSource.of_text(f"step,loss,lr\n1,0.5,0.1\n2,{endless},{endless}\n3,0.25,0.1\n"))
    curve = place_on_axis(log)
    assert math.isnan(curve.values[1])
    assert any("1 loss is no number (first: '" in note and len(note) < 120 for note in curve.notes)
    assert place_on_axis(log, "lr").steps.tolist() == [1, 3]


def test_rows_of_other_phases_are_no_training_losses() -> None:
    text = "phase,step,loss\ntrain,1,0.5\nval,1,0.9\ntrain,2,0.25\n"
    log = CSV.read(LogSource.of_text(text))
    assert place_on_axis(log).values.tolist() == [0.5, 0.25]
    assert place_on_axis(log, "val/loss").values.tolist() == [0.9]
    assert (log.table.metrics["val/loss"].phase, log.ignored_lines) == ("validation", 1)


def test_a_header_again_is_no_row() -> None:
    assert place_on_axis(CSV.read(LogSource.of_text("step,loss\n1,0.5\nstep,loss\n2,0.25\n"))).steps.tolist() == [1, 2]


def test_steps_that_start_again_with_each_epoch_are_told_from_global_ones() -> None:
    inside = CSV.read(LogSource.of_text("epoch,step,loss\n0,0,1.5\n0,1,1.4\n1,0,1.3\n1,1,1.2\n", "inside"))
    through = CSV.read(LogSource.of_text("epoch,step,loss\n0,0,1.5\n0,1,1.4\n1,2,1.3\n1,3,1.2\n", "through"))
    assert (inside.counting, through.counting) == ("step in epoch", "global step")
    assert place_on_axis(inside).steps.tolist() == place_on_axis(through).steps.tolist() == [1, 2, 3, 4]


def test_a_table_of_epochs_holds_epoch_means() -> None:
    curve = place_on_axis(CSV.read(LogSource.of_text("epoch,loss\n1,1.5\n2,1.4\n")))
    assert (curve.axis, curve.window) == ("epoch", EPOCH_MEAN)


def test_steps_printed_as_floats_are_steps_and_others_are_not() -> None:
    log = CSV.read(LogSource.of_text("step,loss\n1.0,1.5\n2.0,1.4\n2.5,1.3\n-1,1.2\n1e40,1.1\n"))
    assert place_on_axis(log).steps.tolist() == [1, 2]
    assert log.ignored_lines == 4  # the header too


def test_a_line_cut_in_the_middle_is_noted() -> None:
    assert any("no line end" in note for note in CSV.read(LogSource.of_text("step,loss\n1,0.5\n2,0.2")).notes)
    log = JSONL.read(LogSource.of_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo'))
    assert any("no line end" in note for note in log.notes)
    assert any("1 line is no JSON object (first: line 2)" in note for note in log.notes)


def test_nested_and_long_json_does_not_break_the_reader() -> None:
    text = '{"step": 1, "loss": 0.5, "extra": {"a": [1, 2]}, "flag": true}\n' + "{" * 100_000 + "\n"
    log = JSONL.read(LogSource.of_text(text))
    assert place_on_axis(log).values.tolist() == [0.5]
    assert "extra" not in log.table.metrics


def test_means_over_ten_steps_are_not_read_as_raw_losses() -> None:
    assert not JSONL.recognizes(
        LogSource.of_text('{"data_time": 0.1, "loss": 0.2, "time": 0.1, "iter": 10, "step": 10}\n')
    )


def test_a_row_of_very_many_columns_keeps_its_loss_and_the_first_ones_with_a_note() -> None:
    names = [f"k{place}" for place in range(2 * MOST_COLUMNS)]
    rows = [{**dict.fromkeys(names, 0.5), "step": step, "loss": 1.0 / step} for step in (1, 2)]
    log = JSONL.read(LogSource.of_text("\n".join(map(json.dumps, rows)) + "\n"))
    assert log.table.metrics["loss"].values.tolist() == [1.0, 0.5]
    assert log.table.metrics.keys() == {"loss", *names[:MOST_COLUMNS]}
    assert any(f"{MOST_COLUMNS} of the columns are left out: --metric NAME reads one" in note for note in log.notes)


def test_of_very_many_columns_the_one_that_is_asked_for_and_the_learning_rate_are_read(tmp_path: Path) -> None:
    names = [f"k{place}" for place in range(2 * MOST_COLUMNS)]
    rows = [{**dict.fromkeys(names, step / 8), "learning_rate": 0.1, "step": step, "loss": 1.0} for step in (1, 2)]
    log = tmp_path / "train.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    table = tmp_path / "train.csv"
    cells = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    table.write_text("\n".join(cells) + "\n", encoding="utf-8")
    last = names[-1]
    for path in (log, table):
        assert last not in read_log(path).table.metrics
        asked = read_log(path, metric=last)
        assert asked.table.metrics[last].values.tolist() == [0.125, 0.25]
        assert asked.table.metrics["learning_rate"].values.tolist() == [0.1, 0.1]
        assert describe_log(path, metric=last).last_value == 0.25
