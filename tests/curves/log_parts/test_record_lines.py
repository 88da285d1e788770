"""Lines that writers of one file ran together: each record is read, none takes another's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_sources import LogSource, log_formats

DATA = Path(__file__).parents[1] / "data"
START = r"step [0-9]+: "
LOGS = [
    "lossmonitor:mindspore_lossmonitor.log",
    "megatron:megatron_every5.log",
    "megatron:megatron_skipped.log",
    "mindcv:mindcv_rank0.log",
    "mindformers:mindformers_overflow.log",
    "mmengine:mmengine_epoch.log",
    "mmengine:mmengine_iter.log",
    "paddle_hapi:paddle_hapi_costs.log",
    "paddle_hapi:paddle_hapi_every2.log",
    "paddleclas:paddleclas.log",
    "paddledetection:paddledetection.log",
    "paddlenlp:paddlenlp_trainer.log",
    "torchtitan:torchtitan_every5.log",
]


def _lines(text: str) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    lines = RecordLines(LogSource.of_text(text), START, twice(START))
    return [line for block in lines.blocks() for line in block.lines()], lines.notes()


def test_each_record_of_a_line_gets_one_of_its_own_under_the_same_number() -> None:
    lines, notes = _lines("begun\nstep 1: a step 2: bstep 3: c\nstep 4: d\n")
    assert lines == [(1, "begun"), (2, "step 1: a "), (2, "step 2: b"), (2, "step 3: c"), (3, "step 4: d")]
    assert notes == ("1 line holds more than one record (first: line 2): they were taken apart",)


@pytest.mark.parametrize(
    "stamp",
    ["2026/11/20 08:34:15 - INFO - ", "2026-11-20T08:34:15 ", "[2026-11-20 08:34:15] a.b: ", "[11/20 08:34:15] "],
)
def test_a_time_stamp_belongs_to_the_record_after_it(stamp: str) -> None:
    lines, _ = _lines(f"{stamp}step 1: 0.2922{stamp}step 2: 0.1711\n")
    assert [line for _, line in lines] == [f"{stamp}step 1: 0.2922", f"{stamp}step 2: 0.1711"]


def test_lines_with_one_record_stay_as_they_are() -> None:
    assert _lines("step 1: a\nor not\nstep 2: b") == (
        [(1, "step 1: a"), (2, "or not"), (3, "step 2: b")],
        ("the last line has no line end: it may be cut",),
    )


@settings(max_examples=15)
@given(st.data())
@pytest.mark.parametrize("log", LOGS)
def test_a_real_log_some_of_whose_lines_ran_together_has_the_same_points(log: str, data: st.DataObject) -> None:
    name, file = log.split(":")
    plugin, whole = log_formats()[name], (DATA / file).read_bytes()
    lines = whole.splitlines(keepends=True)
    joined = data.draw(st.sets(st.integers(0, len(lines) - 2), max_size=len(lines) // 2))
    text = b"".join(line.rstrip(b"\r\n") if place in joined else line for place, line in enumerate(lines))
    expected, found = plugin.read(LogSource("log", whole)), plugin.read(LogSource("log", text))
    assert found.ignored_lines >= 0
    for metric, series in expected.table.metrics.items():
        again = found.table.metrics[metric]
        assert found.table.steps[again.rows].tolist() == expected.table.steps[series.rows].tolist()
        assert list(map(str, again.values)) == list(map(str, series.values))
