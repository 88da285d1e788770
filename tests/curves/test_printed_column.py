"""Texts that stand in the lines of a block: read one by one or all together, they are the same."""

from __future__ import annotations

import re

import pytest

from align.curves.log_sources import LogSource
from align.curves.printed_columns import PrintedColumn, find_columns, without_letter

PATTERN = re.compile(r"(step)(?: tps: +([0-9,.]+))?")
TEXTS = ["999", "1,024", "12,345.5", "", "9,999", "7"] * 4


@pytest.mark.parametrize("around", ["", "é"])
def test_numbers_with_commas_are_read_by_the_column(around: str) -> None:
    lines = [f"{around}step tps: {text}" if text else f"{around}step" for text in TEXTS]
    (block,) = LogSource.of_text("\n".join(lines)).blocks()
    column = find_columns(block, PATTERN).columns[1]
    assert isinstance(column, PrintedColumn)
    assert [column[row] for row in range(len(column))] == TEXTS
    assert (column[-1], list(column)) == (TEXTS[-1], TEXTS)
    bare = without_letter(column, ",")
    assert isinstance(bare, PrintedColumn)
    assert list(bare) == [text.replace(",", "") for text in TEXTS]
    known = bare.take(bare.filled)
    assert known.numbers is not None
    assert known.numbers.values.tolist() == [float(text.replace(",", "")) for text in TEXTS if text]


def test_a_place_beyond_the_end_is_none() -> None:
    (block,) = LogSource.of_text("step tps: 1\n" * 8).blocks()
    column = find_columns(block, PATTERN).columns[1]
    with pytest.raises(IndexError):
        column[8]
