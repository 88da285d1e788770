"""Lines of JSON objects that are parted without a parser: the same is read as with it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.log_sources import LogBlock, LogSource
from align.curves.losslogs.tables import JsonlFormat, split_uniform_objects
from align.curves.thresholds import LINES_PER_LAYOUT
from align.errors import AlignError

JSONL = JsonlFormat()

VALUES = ("1", "-2.5e-3", "NaN", "null", "nan", "-inf", "true", "1_0", '"x"', '"1"', "[1]", '{"a": 1}', "", " 7", "1 2")
ROW = st.tuples(
    st.sampled_from(("loss lr", "lr loss", "loss", "loss lr lr")),
    st.lists(st.sampled_from(VALUES), min_size=3, max_size=3),
    st.sampled_from((", ", ",", "\x01")),
)


def _block(*lines: str) -> LogBlock:
    (block,) = LogSource.of_text("\n".join(lines * 2 * LINES_PER_LAYOUT)).blocks()
    return block


def _line(step: int, keys: str, values: list[str], comma: str) -> str:
    shown = [f'"{key}": {value}' for key, value in zip(keys.split(), values, strict=False)]
    return "{" + comma.join([f'"step": {step}', *shown]) + "}\n"


def _read(text: str) -> tuple[object, ...]:
    try:
        log = JSONL.read(LogSource.of_text(text))
    except AlignError as error:
        return (str(error),)
    found = {
        name: (series.rows.tolist(), list(map(repr, series.values.tolist())), series.resolution.tolist())
        for name, series in log.table.metrics.items()
    }
    return log.table.steps.tolist(), log.table.lines.tolist(), found, log.notes


@given(st.lists(ROW, min_size=1, max_size=3), st.lists(st.sampled_from(VALUES[:6]), min_size=1, max_size=5))
def test_what_is_read_is_what_the_parser_reads(rows: list[tuple[str, list[str], str]], losses: list[str]) -> None:
    alike = [_line(step, "loss lr", [loss, "0.5"], ", ") for step, loss in enumerate(losses)] * 2 * LINES_PER_LAYOUT
    text = "".join(alike) + "".join(_line(9, *row) for row in rows)
    for lines in (text, "".join(alike)):
        assert _read(lines) == _read(lines + '{"of": "another shape", "than": [1]}\n')


def test_values_stand_under_their_keys_as_printed() -> None:
    lines = [json.dumps({"step": step, "loss": step / 8, "lr": 1e-05, "at": f"{step} pm"}) for step in (2, 4, 6)]
    found = split_uniform_objects(_block(*lines))
    assert found is not None
    assert {name: list(texts)[:3] for name, texts in found.columns.items()} == {
        "step": ["2", "4", "6"],
        "loss": ["0.25", "0.5", "0.75"],
        "lr": ["1e-05"] * 3,
        "at": ["2 pm", "4 pm", "6 pm"],
    }


def test_objects_of_other_keys_lack_the_value() -> None:
    found = split_uniform_objects(_block('{"step": 1, "loss": 2.5}', '{"step": 1, "top5": 0.5}', ""))
    assert found is not None
    assert found.lines.tolist()[:4] == [1, 2, 4, 5]
    assert [list(found.columns[name])[:2] for name in ("loss", "top5")] == [["2.5", " "], [" ", "0.5"]]


@pytest.mark.parametrize(
    "second",
    ['{"step": 2, "lr": }', '{"step": 2, "lr": [1]}', '{"step": 2, "step": 3}', "[2]", '{"step": 2, "lr": "\\n"}', "x"],
)
def test_lines_of_another_shape_are_for_the_parser(second: str) -> None:
    first = '{"step": 1, "lr": 1}'
    assert split_uniform_objects(_block(first, first)) is not None
    assert split_uniform_objects(_block(first, second)) is None


def test_keys_that_differ_in_a_digit_are_for_the_parser() -> None:
    assert split_uniform_objects(_block('{"step": 1, "loss1": 1}', '{"step": 2, "loss1": 2}')) is not None
    assert split_uniform_objects(_block('{"step": 1, "loss1": 1}', '{"step": 2, "loss2": 2}')) is None
