"""Numbers read by the column are those that Python's `float` reads, and show the digits that their texts show."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from align.curves.log_sources import LogBlock, find_layouts, is_digit_blind
from align.curves.printed_columns import DigitColumn, Printed, PrintedColumn, find_columns
from align.curves.thresholds import LINES_PER_LAYOUT

FORMS = ("{:.4f}", "{:.6E}", "{!r}", "{:.17g}", "{:.3g}", "{:.20f}", "+{:.1f}", "{:.0f}.")
HARD = ("9007199254740993", "0.1", ".5", "5.", "-0.0", "1e22", "1E-23", "2.5e-320", "1e+300", "7.0000000000000004")
HALFWAY = ("1.00000000000000011102230246251565", "9007199254740993.0", "0.500000000000000055511151231258", "8.5e0")


def _column(texts: list[str]) -> PrintedColumn:
    lines = texts * LINES_PER_LAYOUT
    block = LogBlock("\n".join(f"x= {text}" for text in lines), np.arange(len(lines)))
    column = find_columns(block, re.compile(r"(x)= (\S+)")).columns[1]
    assert isinstance(column, PrintedColumn)
    assert list(column) == lines
    return column


def _same_bits(values: np.ndarray[tuple[int], np.dtype[np.float64]], texts: list[str]) -> bool:
    return values.tobytes() == np.array([float(text) for text in texts], np.float64).tobytes()


@given(st.lists(st.tuples(st.floats(-1e15, 1e15) | st.floats(-1.0, 1.0), st.sampled_from(FORMS)), min_size=1))
def test_values_and_printed_digits_are_those_of_the_texts(numbers: list[tuple[float, str]]) -> None:
    texts = [form.format(abs(number)) for number, form in numbers]
    column = _column(texts)
    for kind in set(column.kinds.tolist()):
        alike = column.take(column.by_layout(kind))
        if alike.numbers is None:
            continue
        assert _same_bits(alike.numbers.values, list(alike))
        by_text, by_column = DigitColumn(), DigitColumn()
        by_text.add(np.array(list(alike), np.bytes_), alike.numbers.values)
        by_column.add_numbers(alike.numbers)
        assert by_text.resolution().tolist() == by_column.resolution().tolist()


@given(st.lists(st.floats(1e-4, 1e4), min_size=2), st.booleans())
def test_numbers_rounded_as_is_known_show_what_their_texts_show(values: list[float], one_has_more: bool) -> None:
    five = Printed("decimals", 5)
    texts = [repr(round(value, 5)) for value in values] + ["0.1234567"] * one_has_more
    numbers = _column(texts).numbers
    assert numbers is not None
    by_text, by_column = DigitColumn(), DigitColumn(printed=five)
    by_text.add(np.array(texts * LINES_PER_LAYOUT, np.bytes_), numbers.values)
    by_column.add_numbers(numbers)
    assert by_text.resolution(five).tolist() == by_column.resolution(five).tolist()


def test_a_block_with_more_decimals_than_are_known_makes_all_digits_count() -> None:
    five = Printed("decimals", 5)
    column = DigitColumn(printed=five)
    for texts in (["0.12345", "2.5"], ["0.1234567", "0.2"]):
        numbers = _column(texts).numbers
        assert numbers is not None
        column.add_numbers(numbers)
    assert not column.resolution(five).any()


def test_numbers_that_are_hard_to_round_are_read_to_the_last_bit() -> None:
    for text in (*HARD, *HALFWAY):
        numbers = _column([text, text]).numbers
        assert numbers is None or _same_bits(numbers.values, [text] * 2 * LINES_PER_LAYOUT), text


def test_words_have_no_form() -> None:
    assert _column(["1.5", "2.5"]).numbers is not None
    assert _column(["1.5", "nan"]).numbers is None


@pytest.mark.parametrize("pattern", [r"step ([0-9]+), (\S+)", r"[0-9]{4}-(?P<loss1>[^0-9,]+)\d", r"a{1,3}[\d.]", "x"])
def test_expressions_for_which_digits_are_alike_are_known(pattern: str) -> None:
    assert is_digit_blind(re.compile(pattern))


@pytest.mark.parametrize("pattern", ["loss1: (.)", "[1-9]", r"(.)\1", r"\x30", "(?P<a>.)(?P=a)", "[+-0-9]", r"\[0-9\]"])
def test_expressions_that_tell_a_digit_from_another_are_known(pattern: str) -> None:
    assert not is_digit_blind(re.compile(pattern))


def test_lines_of_very_many_layouts_are_read_one_by_one() -> None:
    unlike = [f"{'a' * count}" for count in range(12)]
    assert find_layouts("\n".join(unlike)) is None
    layouts = find_layouts("\n".join(["step 1", "step 2"] * 4 + ["end"]))
    assert layouts is not None
    assert (layouts.samples, layouts.kinds.tolist()) == (("step 1", "end"), [0] * 8 + [1])
    assert layouts.first_lines(2).tolist() == [0, 1, 8]
