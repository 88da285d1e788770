"""Numbers read by the column: where sign, point and exponent stand is known from the layout, only digits are looked at.

Values are what Python's `float` makes of the text, to the last bit. A whole number below 2^53 over a power of ten up to
10^22 needs one division, which is rounded correctly (Clinger, "How to read floating point numbers accurately", 1990).
Longer ones are divided with the rest carried along; where that cannot tell which way to round, `float` does.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from align.curves.log_sources import Letters
    from align.curves.loss_log import Booleans, Floats, Integers

    Words = NDArray[np.uint64]


T = TypeVar("T", bound=np.generic)

_NUMBER = re.compile(r"([-+]?)([0-9]*)(?:(\.)([0-9]*))?(?:[eE]([-+]?)([0-9]{1,3}))?")
TO_ZEROS = str.maketrans("123456789", "0" * 9)
_WORD = 8  # format: bytes of a word of 64 bits
_LOW_DIGITS = 2 * _WORD
# More have to be read one by one.
_MOST_DIGITS, _MOST_DECIMALS = 18, 22  # format: digits that 64 bits hold, and powers of ten that float64 holds
_MOST_HIGH = 900  # format: with more of it, a third word of a mantissa does not fit into 64 bits
_EXACT = 2**53  # format: whole numbers that float64 holds
_TENS = 10.0 ** np.arange(_MOST_DECIMALS + 1)
_WHOLE_TENS = 10 ** np.arange(_MOST_DIGITS + 1, dtype=np.uint64)
_KEPT = np.array([(2**64 - 1) >> 8 * (8 - count) << 8 * (8 - count) for count in range(_WORD + 1)], np.uint64)
_ZEROS = np.uint64(0x3030303030303030)
_SPLIT = 2.0**27 + 1  # format: splits a float64 into halves of 26 bits (Dekker)
_DOUBT = 2.0**-40  # format: the rest of a long division is known to better than that share of it


class NumberForm(NamedTuple):
    """How a printed number is built: places are counted in bytes from where it begins."""

    negative: bool
    whole_end: int
    whole: int
    end: int
    decimals: int
    exponent_end: int
    exponent: int
    exponent_sign: int


def number_form(text: str) -> NumberForm | None:
    """Take a number apart; None if it is none, or needs a look of its own: `nan`, or very many digits."""
    return _form_of(text.translate(TO_ZEROS)) if text.isascii() else None


@functools.lru_cache(maxsize=1024)
def _form_of(text: str) -> NumberForm | None:
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    whole, decimals = len(match[2]), len(match[4] or "")
    if whole > _LOW_DIGITS or decimals > _MOST_DECIMALS:
        return None
    end = match.end(4) if match[3] else match.end(2)
    exponent, sign = len(match[6] or ""), -1 if match[5] == "-" else 1
    return NumberForm(match[1] == "-", match.end(2), whole, end, decimals, match.end(), exponent, sign)


class NumberColumn(NamedTuple):
    """Numbers of shape (n,): `values`; `mantissas`, their digits as whole numbers; `exponents` of the last digit."""

    values: Floats
    mantissas: Words
    decimals: Integers
    exponents: Integers
    too_long: Booleans

    def repeated(self, count: int) -> NumberColumn:
        """Return one number so many times."""
        return NumberColumn(*(np.broadcast_to(column[0], count) for column in self))

    def significant(self) -> Integers:
        """Count the digits from the first that is not 0."""
        counts = _WHOLE_TENS.searchsorted(self.mantissas, "right")
        return np.where(self.too_long, _MOST_DIGITS + 1, counts) if self.too_long.any() else counts

    def has_padded(self, least_decimals: int) -> bool:
        """Tell whether a number of so many decimals or more ends in 0."""
        rows = np.flatnonzero(self.decimals >= least_decimals)
        return bool((self.mantissas[rows] % np.uint64(10) == 0).any())


def read_short(
    letters: Letters, starts: Integers, kinds: Integers, forms: Sequence[NumberForm], exponent: int
) -> NumberColumn | None:
    """Read numbers of short forms, `exponent` the same in all: the digits of each in one word. None if they do not fit.

    Number i has the form `forms[kinds[i]]`.
    """
    sizes = np.array([form.whole + (form.decimals > 0) + form.decimals for form in forms])
    digits = np.array([form.decimals for form in forms])
    if (
        sizes.max() > _WORD
        or np.abs(digits - exponent).max() > _MOST_DECIMALS
        or digits.min() < exponent < digits.max()
    ):
        return None
    ends = np.array([form.end if form.decimals else form.whole_end for form in forms]) - _WORD
    words: Words = np.ndarray((len(letters) - _WORD + 1,), "<u8", letters.data, strides=(1,))
    word = words[starts + _by_row(ends, kinds)] ^ _ZEROS
    before, point = _KEPT[sizes] ^ _KEPT[np.where(digits, digits + 1, 0)], np.where(digits, 8, 0).astype(np.uint64)
    whole = (word & _by_row(before, kinds)) << _by_row(point, kinds)
    mantissas = _joined_digits((word & _by_row(_KEPT[digits], kinds)) | whole)
    decimals, values = _by_row(digits, kinds), mantissas.astype(np.float64)
    places = decimals - exponent
    if places.any():
        values = values / _TENS[places] if places.min() >= 0 else values * _TENS[-places]
    if any(form.negative for form in forms):
        values = np.where(_by_row(np.array([form.negative for form in forms]), kinds), -values, values)
    shown, exponents, short = (np.broadcast_to(one, len(starts)) for one in (decimals, -places, np.zeros(1, np.bool_)))
    return NumberColumn(values, mantissas, shown, exponents, short)


def read_numbers(letters: Letters, starts: Integers, kinds: Integers, forms: Sequence[NumberForm]) -> NumberColumn:
    """Read the numbers that begin at `starts`, number i in the form `forms[kinds[i]]`; PADDING bytes stand before."""
    words: Words = np.ndarray((len(letters) - _WORD + 1,), "<u8", letters.data, strides=(1,))
    table = np.array(forms, np.int64)
    columns = [_by_row(table[:, place], kinds) for place in range(table.shape[1])]
    negative, whole_end, whole, end, decimals, exponent_end, exponent, exponent_sign = columns
    mantissas, too_long = _mantissas(words, (starts + whole_end, whole), (starts + end, decimals))
    powers = _read_digits(words, starts + exponent_end, exponent).astype(np.int64) * exponent_sign - decimals
    values, unsure = _divided(mantissas, -powers)
    values = np.where(negative != 0, -values, values) if table[:, 0].any() else values
    for row in np.flatnonzero(unsure | too_long).tolist():
        form = forms[kinds[row]]
        values[row] = float(letters[starts[row] : starts[row] + form.exponent_end].tobytes())
    return NumberColumn(values, mantissas, np.broadcast_to(decimals, len(starts)), powers, too_long)


def _by_row(column: NDArray[T], kinds: Integers) -> NDArray[T]:
    """Return what each row has; one number for all where they have the same."""
    return column[:1] if len(column) == 1 or (column == column[0]).all() else column[kinds]


def _mantissas(
    words: Words, whole: tuple[Integers, Integers], fraction: tuple[Integers, Integers]
) -> tuple[Words, Booleans]:
    """Put the digits before and after the point together; both given by their ends and counts. Also which overflow."""
    ends, decimals = fraction
    before, after = _read_digits(words, *whole), _read_digits(words, ends, np.minimum(decimals, _LOW_DIGITS))
    digits = whole[1] + decimals
    if digits.max() <= _MOST_DIGITS:
        if decimals.max() > _LOW_DIGITS:
            after = after + _high_digits(words, ends, decimals) * _WHOLE_TENS[_LOW_DIGITS]
        return before * _WHOLE_TENS[decimals] + after, np.zeros(len(before), np.bool_)
    high = _high_digits(words, ends, decimals)
    too_long = (high >= _MOST_HIGH) | ((before > 0) & (digits > _MOST_DIGITS))
    scaled = before * _WHOLE_TENS[np.minimum(decimals, _MOST_DIGITS)]
    return np.where(too_long, 0, scaled + after + high * _WHOLE_TENS[_LOW_DIGITS]).astype(np.uint64), too_long


def _high_digits(words: Words, ends: Integers, decimals: Integers) -> Words:
    return _read_digits(words, ends - _LOW_DIGITS, np.maximum(decimals - _LOW_DIGITS, 0))


def _read_digits(words: Words, ends: Integers, counts: Integers) -> Words:
    """Read so many digits before each end, 24 at most, as whole numbers."""
    total = np.zeros(len(ends), np.uint64)
    for place in range(0, int(counts.max()), _WORD):
        # The last digits of eight letters at once: pairs, then fours, then all (the first is the lowest byte).
        kept = _KEPT[np.minimum(np.maximum(counts - place, 0), _WORD)]
        part = _joined_digits((words[ends - (place + _WORD)] ^ _ZEROS) & kept)
        total = part * _WHOLE_TENS[place] + total if place else part
    return total


def _joined_digits(word: Words) -> Words:
    word = (word * np.uint64(10 * 2**8 + 1)) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100 * 2**16 + 1)) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return (word * np.uint64(10000 * 2**32 + 1)) >> np.uint64(32)


def _divided(mantissas: Words, places: Integers) -> tuple[Floats, Booleans]:
    """Return mantissas / 10^places, and which of them are not sure to be rounded correctly."""
    values, long = mantissas.astype(np.float64), mantissas >= _EXACT
    if not places.any():
        return values, np.zeros(len(values), np.bool_)
    tens = _TENS[np.minimum(np.abs(places), _MOST_DECIMALS)]
    far = np.abs(places) > _MOST_DECIMALS
    unsure = far | (long & (places < 0))
    values = np.where(places < 0, values * tens, values / tens) if (places < 0).any() else values / tens
    rows = np.flatnonzero(long & (places > 0) & ~far)
    if len(rows):
        tens = np.broadcast_to(tens, len(values))
        values[rows], unsure[rows] = _long_division(mantissas[rows], tens[rows])
    return values, unsure


def _long_division(mantissas: Words, tens: Floats) -> tuple[Floats, Booleans]:
    """Divide numbers of more than 53 bits by exact powers of ten; also whether the rounding is in doubt.

    Dekker's product gives the rest of the division exactly ("A floating-point technique for extending the available
    precision", 1971); the quotient and the share of the rest are then rounded once.
    """
    near = mantissas.astype(np.float64)
    lost = (mantissas.astype(np.int64) - near.astype(np.int64)).astype(np.float64)
    quotient = near / tens
    (high, low), (ten_high, ten_low) = _halves(quotient), _halves(tens)
    product = quotient * tens
    error = ((high * ten_high - product) + high * ten_low + low * ten_high) + low * ten_low
    share = ((near - product) - error + lost) / tens
    values = quotient + share
    left = share - (values - quotient)
    doubt = np.abs(share) * _DOUBT
    return values, (values + (left + doubt) != values) | (values + (left - doubt) != values)


def _halves(numbers: Floats) -> tuple[Floats, Floats]:
    """Split numbers into two of 26 bits."""
    large = numbers * _SPLIT
    high = large - (large - numbers)
    return high, numbers - high
