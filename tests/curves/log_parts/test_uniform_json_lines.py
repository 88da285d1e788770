"""Lines of JSON objects that are parted without a parser: the same is read as with it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.log_parts.uniform_json_lines import split_uniform_objects
from align.curves.log_sources import LogBlock, LogSource
from align.curves.losslogs.jsonl import PLUGIN
from align.errors import AlignError

VALUES = ("1", "-2.5e-3", "NaN", "null", "nan", "-inf", "true", "1_0", '"x"', '"1"', "[1]", '{"a": 1}', "", " 7", "1 2")
ROW = st.tuples(
    st.sampled_from(("loss lr", "lr loss", "loss", "loss lr lr")),
    st.lists(st.sampled_from(VALUES), min_size=3, max_size=3),
    st.sampled_from((", ", ",", "\x01")),
)


def _block(text: str) -> LogBlock:
    (block,) = LogSource.of_text(text).blocks()
    return block


def _line(step: int, keys: str, values: list[str], comma: str) -> str:
    shown = [f'"{key}": {value}' for key, value in zip(keys.split(), values, strict=False)]
    return "{" + comma.join([f'"step": {step}', *shown]) + "}\n"


def _read(text: str) -> tuple[object, ...]:
    try:
        log = PLUGIN.read(LogSource.of_text(text))
    except AlignError as error:
        return (str(error),)
    found = {
        name: (series.rows.tolist(), list(map(repr, series.values.tolist())), series.resolution.tolist())
        for name, series in log.table.metrics.items()
    }
    return log.table.steps.tolist(), log.table.lines.tolist(), found, log.notes


@given(st.lists(ROW, min_size=1, max_size=3), st.lists(st.sampled_from(VALUES[:6]), min_size=1, max_size=5))
def test_what_is_read_is_what_the_parser_reads(rows: list[tuple[str, list[str], str]], losses: list[str]) -> None:
    alike = [_line(step, "loss lr", [loss, "0.5"], ", ") for step, loss in enumerate(losses)]
    text = "".join(alike) + "".join(_line(9 + place, *row) for place, row in enumerate(rows))
    for lines in (text, "".join(alike)):
        assert _read(lines) == _read(lines + '{"of": "another shape"}\n')


def test_values_stand_under_their_keys_as_printed() -> None:
    text = "".join(json.dumps({"step": step, "loss": step / 8, "lr": 1e-05}) + "\n" for step in range(1, 4))
    assert split_uniform_objects(_block(text)) == {
        "step": ["1", "2", "3"],
        "loss": ["0.125", "0.25", "0.375"],
        "lr": ["1e-05"] * 3,
    }


@pytest.mark.parametrize(
    "second",
    [
        '{"lr": 1, "step": 2}',
        '{"step": 2}',
        '{"step": 2, "lr": }',
        '{"step": 2, "lr": "1"}',
        '{"step": 2, "lr": [1]}',
        "",
    ],
)
def test_lines_of_another_shape_are_for_the_parser(second: str) -> None:
    first = '{"step": 1, "lr": 1}'
    assert split_uniform_objects(_block(f"{first}\n{first}\n")) is not None
    assert split_uniform_objects(_block(f"{first}\n{second}\n{first}\n")) is None


def test_a_mark_that_stands_in_the_log_itself_parts_nothing() -> None:
    assert split_uniform_objects(LogBlock('{"step": 1\x01 2, "lr": 1}', np.array([1]))) is None
