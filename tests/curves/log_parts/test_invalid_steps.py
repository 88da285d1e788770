"""Tables with steps that are none, losses that are words, decimal commas, or no training loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.log_sources import LogSource
from align.curves.losslogs.tables import CsvFormat, JsonlFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import EmptyLogError, MetricMissingError, NoNumberError, NoStepError

if TYPE_CHECKING:
    from align.curves.log_sources import LogFormat

JSONL = JsonlFormat()

CSV = CsvFormat()


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_decimal_comma_is_a_point_where_commas_part_no_cells(delimiter: str) -> None:
    rows = [["step", "loss", "lr"], ["1", "10,25", "1e-3"], ["2", "2,5e-1", "0,1"]]
    log = CSV.read(LogSource.of_text("".join(delimiter.join(row) + "\n" for row in rows)))
    assert place_on_axis(log).values.tolist() == [10.25, 0.25]
    assert place_on_axis(log, "lr").values.tolist() == [0.001, 0.1]
    assert "a comma inside a number is read as its decimal point" in log.notes


def test_lines_may_end_with_nothing_but_carriage_returns() -> None:
    log = CSV.read(LogSource.of_text("# a run\rstep,loss\r1,2.5\r2,2.25\r"))
    assert place_on_axis(log).values.tolist() == [2.5, 2.25]


def test_a_comma_in_a_step_is_no_decimal_point() -> None:
    log = CSV.read(LogSource.of_text("step;loss\n999;2,5\n1,000;2,25\n"))
    assert log.table.steps.tolist() == [999]
    assert any("1 row is left out" in note and "'1,000' in line 3" in note for note in log.notes)


@pytest.mark.parametrize(
    ("plugin", "text", "shown"),
    [
        (CSV, 'step,loss\n1,"11,064.50"\n2,"10,258.33"\n', r"'11,064\.50' in line 2"),
        (JSONL, '{"step": 1, "loss": "11 064"}\n{"step": 2, "loss": null}\n', "'11 064' in line 1"),
    ],
)
def test_losses_of_which_none_is_a_number_are_refused(plugin: LogFormat, text: str, shown: str) -> None:
    source = LogSource.of_text(text)
    assert plugin.recognizes(source)
    with pytest.raises(NoNumberError, match=shown):
        plugin.read(source)


def test_a_loss_that_is_no_number_beside_an_empty_one_is_nan() -> None:
    assert len(place_on_axis(CSV.read(LogSource.of_text("step,loss\n1,\n2,oops\n3,None\n"))).steps) == 3


@pytest.mark.parametrize("step", ["0.5", "-1", "100000000000000000", "x"])
def test_a_log_without_one_whole_step_says_what_stands_there(step: str) -> None:
    with pytest.raises(NoStepError, match=f"the first is '{step}' in line 3"):
        CSV.read(LogSource.of_text(f"# a run\nstep,loss\n{step},1.5\n{step},1.25\n"))


def test_steps_below_zero_are_left_out_with_a_note_and_lines_between_are_not_told() -> None:
    log = JSONL.read(LogSource.of_text('{"step": 1, "loss": 2}\n{"step": -1, "loss": 2.5}\n{"config": 1}\n'))
    assert log.table.steps.tolist() == [1]
    assert [note for note in log.notes if "left out" in note] == [
        "1 row is left out: their step is no whole number from 0 to 2^31 - 1 (first: '-1' in line 2)"
    ]
    assert CSV.read(LogSource.of_text("step,loss\n1,2.5\nsaving weights\n2,2.25\n")).notes == ()


def test_a_log_with_nothing_but_losses_of_validation_has_those() -> None:
    for plugin, text in ((CSV, "step,val_loss\n1,2.5\n"), (JSONL, '{"step": 1, "eval/loss": 2.5, "lr": 1}\n')):
        assert plugin.recognizes(LogSource.of_text(text))
        log = plugin.read(LogSource.of_text(text))
        with pytest.raises(MetricMissingError, match="val"):
            place_on_axis(log)
        assert place_on_axis(log, next(iter(log.table.metrics))).values.tolist() == [2.5]
    later = JSONL.read(LogSource.of_text('{"step": 0, "val_loss": 9}\n{"step": 1, "loss": 2.5}\n'))
    assert place_on_axis(later).values.tolist() == [2.5]


def test_a_table_without_steps_or_numbers_has_no_loss() -> None:
    with pytest.raises(EmptyLogError):
        CSV.read(LogSource.of_text("step,val_loss\n,\n"))
