"""Lists of names and numbers in columns, and what stands between the lines of training."""

from __future__ import annotations

import re

import numpy as np
import pytest

from align.curves.log_parts.record_lines import by_phase, carry_forward, named_validation, pair_columns
from align.curves.thresholds import MOST_COLUMNS

PAIR = re.compile(r"(\w+): ([0-9.]+)")


def test_lists_that_name_the_same_become_columns() -> None:
    assert pair_columns(["a: 1 b: 2", "a: 3 b: 4"], PAIR) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize(
    ("lists", "columns"),
    [
        (["a: 1 b: 2", "b: 4", ""], {"a": ["1", "", ""], "b": ["2", "4", ""]}),
        (["a: 1 b: 2", "b: 3 a: 4"], {"a": ["1", "4"], "b": ["2", "3"]}),
        (["", "a: 1"], {"a": ["", "1"]}),
        # As many numbers as lists of the first kind would have, but not in the same lists.
        (["a: 1 b: 2", "a: 3", "b: 4 a: 5 b: 6"], {"a": ["1", "3", "5"], "b": ["2", "", "6"]}),
        (["a: 1", "a: 2 a: 3"], {"a": ["1", "3"]}),
        ([], {}),
    ],
)
def test_a_number_never_moves_to_another_list(lists: list[str], columns: dict[str, list[str]]) -> None:
    assert pair_columns(lists, PAIR) == columns


@pytest.mark.parametrize("others", [[], ["a: 5"]])
def test_of_a_list_that_has_no_end_only_the_first_numbers_are_read(others: list[str]) -> None:
    endless = " ".join(f"a{place}: {place}" for place in range(10 * MOST_COLUMNS))
    columns = pair_columns([endless, *others], PAIR)
    assert {f"a{place}" for place in range(MOST_COLUMNS)} == columns.keys() - {"a"}
    assert columns[f"a{MOST_COLUMNS - 1}"] == [str(MOST_COLUMNS - 1), *("" for _ in others)]


def test_a_value_is_carried_forward_to_where_none_is_known() -> None:
    known = np.array([False, True, False, True, False])
    assert carry_forward(np.array([9, 10, 9, 20, 9]), known, -2).tolist() == [-2, 10, 10, 20, 20]


def test_rows_are_told_apart_by_phase() -> None:
    found = {phase: rows.tolist() for phase, rows in by_phase(np.array([False, True, False]))}
    assert found == {False: [0, 2], True: [1]}
    assert [phase for phase, _ in by_phase(np.array([True]))] == [True]


def test_validation_has_names_of_its_own_once() -> None:
    assert named_validation({"acc": 1, "val/loss": 2}) == {"val/acc": 1, "val/loss": 2}
