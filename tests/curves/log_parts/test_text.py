"""Lines as they were meant, numbers as they were printed."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.log_parts.table_builder import is_number, read_step
from align.curves.log_sources import LogSource
from align.curves.printed_columns import FIXED, DigitColumn, Printed


def printed_resolution(texts: list[str], measured: bool = True) -> np.ndarray:
    """The unit of the last printed digit of each number of a whole column."""
    column = DigitColumn(measured=measured)
    column.add(np.array(texts, np.bytes_), np.array(list(map(float, texts))))
    return column.resolution()


def test_colour_codes_go_and_carriage_returns_end_lines_without_counting() -> None:
    assert list(LogSource.of_text("\x1b[1;31mred\x1b[0m\nold\rnew\r\nlast").lines()) == [
        (1, "red"), (2, "old"), (2, "new"), (3, "last"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1", "-1.", ".5", "1e-3", "NaN", "-inf", "Infinity", "+2.5E+10"])
def test_a_number_is_a_number(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", ["", "-", "1,5", "0x10", "nano", "1_000", "tensor(1.0)", "1.5 "])
def test_what_is_no_number_is_none(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize(
    ("text", "step"), [("10", 10), (" 10 ", 10), ("10.0", 10), ("1e3", 1000), ("007", 7), ("9" * 5000, None),
                       ("1.5", None), ("-1", None), ("", None), ("nan", None), ("inf", None)]
)  # fmt: skip
def test_a_step_is_an_integer_from_0(text: str, step: int | None) -> None:
    assert read_step(text) == step


def test_losses_with_three_decimals_are_known_to_the_last_of_them() -> None:
    assert printed_resolution(["2.303", "2.300", "2.287", "nan", "2.250", "1.999"]).tolist() == [
        1e-3, 1e-3, 1e-3, 0.0, 1e-3, 1e-3,
    ]  # fmt: skip


def test_dropped_trailing_zeros_do_not_make_a_log_coarser() -> None:
    assert set(printed_resolution(["2.303", "2.3", "2.287", "2.25", "1.999"])) == {1e-3}


def test_significant_digits_give_each_number_its_own_unit() -> None:
    assert printed_resolution(["10.25", "1.125", "0.1375", "0.2512", "0.3999"]).tolist() == [
        1e-2,
        1e-3,
        1e-4,
        1e-4,
        1e-4,
    ]


def test_scientific_numbers_are_known_to_the_last_digit_of_the_mantissa() -> None:
    assert printed_resolution(["1.25e-02", "1.50e-02", "9.75e-03", "1.00e-03", "2.00e+01"]).tolist() == pytest.approx(
        [1e-4, 1e-4, 1e-5, 1e-5, 1e-1]
    )


def test_short_numbers_that_were_set_and_not_measured_are_no_rounded_ones() -> None:
    assert set(printed_resolution(["0.001", "0.002", "0.003", "0.003", "0.001"], measured=False)) == {0.0}
    assert set(printed_resolution(["0.001", "0.002", "0.010", "0.003", "0.001"], measured=False)) == {1e-3}


def test_a_loss_of_zero_among_rounded_ones_is_rounded_too() -> None:
    assert set(printed_resolution(["0.020", "0.013", "0.004", "0.001", "0.000"])) == {1e-3}


@pytest.mark.parametrize(
    "texts",
    [
        ["1.2554317712783813", "0.5", "1.5896836519241333", "1.25", "0.91"],
        ["2.3025851", "2.25", "2.1", "2.00125", "1.5"],
        ["0.5", "0.4"],
        ["0.0"] * 60,
        ["2.0", "0.0", "1.0", "3.0", "2.0"],
        ["0", "0", "0", "0", "1"],
        ["0.5", "0.25", "2.0", "0.125", "1.5"],
        ["0.9", "0.8", "0.7", "0.6", "0.4"],
        ["2.303"] * 20,
    ],
)
def test_full_precision_and_too_few_numbers_are_not_taken_as_rounded(texts: list[str]) -> None:
    assert set(printed_resolution(texts)) == {0.0}


@pytest.mark.parametrize(
    ("printed", "texts", "units"),
    [
        (FIXED, ["0.2922", "0.000", "12", "nan", "2.5E-03"], [1e-4, 1e-3, 0.0, 0.0, 1e-4]),
        (Printed("decimals", 4), ["0.25", "0.0", "12", "nan", "3e-4"], [1e-4, 1e-4, 0.0, 0.0, 1e-4]),
        (Printed("significant", 4), ["0.25", "0.0", "0", "nan", "1695", "1.234e+04", "1e-05"],
         [1e-4, 0.0, 0.0, 0.0, 1.0, 10.0, 1e-8]),
        (Printed("decimals", 4), ["0.25", "0.12345"], [0.0, 0.0]),
        (Printed("significant", 4), ["0.25", "12345"], [0.0, 0.0]),
    ],
)  # fmt: skip
def test_where_a_format_is_known_to_round_one_number_is_enough_unless_it_shows_more(
    printed: Printed, texts: list[str], units: list[float]
) -> None:
    column = DigitColumn()
    column.add(np.array(texts, np.bytes_), np.array(list(map(float, texts))))
    assert column.resolution(printed).tolist() == units
