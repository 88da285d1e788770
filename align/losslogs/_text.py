"""What all loss-log readers share: lines as they were meant, numbers as they were printed, records in columns.

A terminal's colour codes and carriage returns are taken off. Numbers stay text until a whole column is known, since
only the column tells how many digits a log prints. `null` or `None` in place of a number is what writers make of NaN.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import LogTable, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from align.core.curves import Floats, LogRecord, Window

NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?)\b)"
# An epoch of so many steps, so many times, still fits into 64 bits.
LARGEST_STEP = 2**31
ENOUGH_VALUES = 5
# So many unlike values, of at least so many decimals, that no binary float holds exactly show that a loss was rounded.
ENOUGH_ROUNDED = 2
LEAST_DECIMALS = 2
EXACT_BITS = 12
# Nine digits tell every float32, fifteen every float64; rounded columns show less, the others as a rule more.
ALL_DIGITS = 8
FLOAT64_DIGITS = 15

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PRINTED = re.compile(r"[-+]?(\d*)\.?(\d*)(?:[eE]([-+]?\d+))?")
_WHOLE = re.compile(NUMBER)


def clean_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, content), without colour codes; a carriage return ends a line but counts none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if "\x1b" in line:
            line = _ANSI.sub("", line)  # noqa: PLW2901
        if "\r" not in line:
            yield number, line
            continue
        for part in line.split("\r"):
            if part:
                yield number, part


def is_number(text: str) -> bool:
    """Tell whether a text is one decimal number, NaN or infinity."""
    return _WHOLE.fullmatch(text) is not None


def read_step(text: str) -> int | None:
    """Read a step or epoch, also when printed as `10.0`; None if it is no integer in [0, 2^31)."""
    text = text.strip()
    if not is_number(text):
        return None
    value = float(text)
    return int(value) if 0 <= value < LARGEST_STEP and value.is_integer() else None


def is_null(text: str) -> bool:
    """Tell whether a text stands explicitly for no value."""
    return text.lower() in ("null", "none")


def as_table(records: Iterable[LogRecord], window_of: Callable[[str], Window] | None = None) -> LogTable:
    """Put records into columns. Metrics whose text is no number are left out; epochs are kept if every record has one.

    `window_of` tells for the name of a metric what its values are means of; None: all are raw.
    """
    lines, steps, epochs = [], [], []
    columns: dict[str, tuple[list[int], list[str]]] = {}
    for row, record in enumerate(records):
        lines.append(record.line)
        steps.append(record.step)
        epochs.append(record.epoch)
        for name, text in record.texts.items():
            if is_number(text):
                rows, texts = columns.setdefault(name, ([], []))
                rows.append(row)
                texts.append(text)
    known = [epoch for epoch in epochs if epoch is not None]
    return LogTable(
        np.array(lines, np.int64),
        np.array(steps, np.int64),
        np.array(known, np.int64) if known and len(known) == len(epochs) else None,
        {name: _series(name, column, window_of(name) if window_of else "raw") for name, column in columns.items()},
    )


def printed_resolution(texts: Sequence[str], measured: bool = True) -> Floats:
    """Return the unit of the last printed digit of each number of a column, 0.0 where the log prints all digits.

    A column is rounded if all its numbers have the same number of decimals, or if none has more than seven
    significant digits (then trailing zeros were dropped). But `0.0`, `2.0`, `0.5` have all their digits, and so has a
    learning rate of `0.1`: without a trailing zero, which only a fixed number of decimals prints, only values that are
    `measured` and that no float holds exactly are evidence. Where it is not enough: 0.0, the strict side.
    """
    exponents, significant, decimals = _digits(texts)
    finite = np.isfinite(exponents)
    if finite.sum() < ENOUGH_VALUES or significant[finite].max() >= FLOAT64_DIGITS:
        return np.zeros(len(texts))
    if not (_padded(texts) or (measured and _was_rounded(texts, decimals[finite]))):
        return np.zeros(len(texts))
    if len(np.unique(decimals[finite])) == 1:
        units = exponents
    elif significant[finite].max() >= ALL_DIGITS:
        return np.zeros(len(texts))
    else:
        leading = exponents + significant - 1
        units = np.maximum(exponents[finite].min(), leading - significant[finite].max() + 1)
    return _powers_of_ten(units, finite)


def end_notes(text: str) -> tuple[str, ...]:
    """Say so if the text stops in the middle of a line: its last number may have been cut."""
    if text and not text.endswith(("\n", "\r")):
        return ("the last line has no line end: it may be cut",)
    return ()


def _series(name: str, column: tuple[list[int], list[str]], window: Window) -> Series:
    """A loss is measured; learning rates and the like are set, and short numbers of theirs are no rounded ones."""
    rows, texts = column
    values = np.array([float(text) for text in texts], np.float64)
    return Series(np.array(rows, np.int64), values, printed_resolution(texts, "loss" in name.lower()), window)


def _padded(texts: Sequence[str]) -> bool:
    """Tell whether a number ends in a zero after another decimal, as no shortest form of a number does."""
    fractions = (match[2] for text in texts if (match := _PRINTED.fullmatch(text)))
    return any(len(fraction) >= LEAST_DECIMALS and fraction.endswith("0") for fraction in fractions)


def _was_rounded(texts: Sequence[str], decimals: Floats) -> bool:
    """Tell whether enough unlike values could not have been printed so short with all their digits."""
    if decimals.max() < LEAST_DECIMALS:
        return False
    short = {text for text in texts if not (float(text) * 2**EXACT_BITS).is_integer() and np.isfinite(float(text))}
    return len(short) >= ENOUGH_ROUNDED


def _powers_of_ten(exponents: Floats, finite: NDArray[np.bool_]) -> Floats:
    """Return 10 to each exponent, correctly rounded (numpy's power is not), and 0.0 where it is not finite."""
    known, place = np.unique(exponents[finite], return_inverse=True)
    powers = np.zeros(len(exponents))
    powers[finite] = np.array([float(f"1e{int(exponent)}") for exponent in known])[place]
    return powers


def _digits(texts: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    """Return the exponent of the last printed digit, the significant digits and the decimals; NaN for NaN and Inf."""
    found = np.full((3, len(texts)), np.nan)
    for index, text in enumerate(texts):
        match = _PRINTED.fullmatch(text)
        if match is not None:
            whole, fraction, exponent = match.groups()
            digits = (whole + fraction).lstrip("0")
            found[:, index] = int(exponent or 0) - len(fraction), max(1, len(digits)), len(fraction)
    return found[0], found[1], found[2]
