"""Tables of known loggers: each gives the points that stand beside its sample; others are read as any table."""

from __future__ import annotations

import pytest

from align.curves.log_parts.table_reader import known_table, known_tables
from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import RAW, Window
from align.curves.losslogs.tables import CsvFormat
from align.curves.place_on_axis import place_on_axis
from align.errors import SeveralLossesError

CSV = CsvFormat()

TABLES = {table.name: table for table in known_tables()}


@pytest.mark.parametrize("name", TABLES)
def test_a_sample_is_read_by_one_format_with_its_points_and_window(name: str) -> None:
    table, source = TABLES[name], LogSource.of_text(TABLES[name].sample)
    (plugin,) = [one for one in log_formats().values() if one.recognizes(source)]
    log = plugin.read(source)
    curve = place_on_axis(log)
    assert [*zip(curve.steps.tolist(), curve.values.tolist(), strict=True)] == [*table.points]
    assert curve.window == table.window
    assert any(table.summary in note for note in log.notes)


def test_a_table_of_the_usual_names_is_of_no_known_logger() -> None:
    assert known_table(["step", "loss", "lr", "total_steps"]) is None
    log = CSV.read(LogSource.of_text("step,total_loss,time\n19,2.5,1\n39,2.25,1\n"))
    assert log.base is None
    assert log.table.metrics["total_loss"].window == RAW
    assert log.notes == ()


def test_an_export_of_several_runs_is_refused() -> None:
    header, *rows = TABLES["wandb"].sample.splitlines()
    second = header.replace('"Step",', ",").replace("warm-sun-3", "cold-moon-4")
    text = "\n".join([header + second, *(row + ',"1.5","1.5","1.5"' for row in rows)])
    with pytest.raises(SeveralLossesError, match="warm-sun-3 - train/loss, cold-moon-4 - train/loss"):
        CSV.read(LogSource.of_text(text + "\n"))


def test_medians_of_a_detector_are_not_compared_with_single_steps() -> None:
    source = LogSource.of_text(TABLES["detectron2"].sample)
    (plugin,) = [one for one in log_formats().values() if one.recognizes(source)]
    series = plugin.read(source).table.metrics
    assert series["total_loss"].window == series["loss_cls"].window == Window("median of last", 20)
    assert series["lr"].window == RAW
