"""How many digits a column of a log prints: what was rounded away widens every limit on it.

A column is rounded if all its numbers have the same number of decimals, or if none has more than seven significant
digits (then trailing zeros were dropped). But `0.0`, `2.0`, `0.5` have all their digits, and so has a learning rate of
`0.1`: without a trailing zero, which only a fixed number of decimals prints, only values that are measured and that no
float holds exactly are evidence. Where it is not enough, all digits count as printed: the strict side. Where a format
is known to round, one number is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from align.curves.thresholds import ALL_DIGITS, EXACT_BITS, PRINTED_VALUES, ROUNDED_DECIMALS, ROUNDED_VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from align.curves.columns.number_forms import NumberColumn
    from align.curves.loss_log import Floats, Integers

FLOAT64_DIGITS = 15  # format: decimal digits that each float64 keeps
_FLOAT64 = 10 ** (FLOAT64_DIGITS - 1)
_ZERO, _ONE, _POINT, _EXPONENT = map(ord, "01.e")
_LOWER_CASE = 0x20  # format: the bit of lower case in ASCII


class Printed(NamedTuple):
    """How a logger rounds a metric, by its source: "fixed" shows trailing zeros (`%.4f`, `%.6E`), but none of a whole.

    "decimals" rounds to `places` decimals (`round(x, 4)`), "significant" to as many digits (`%.4g`); then zeros at the
    end are dropped, and a column with a number that shows more is judged by itself.
    """

    way: Literal["fixed", "decimals", "significant"]
    places: int = 0


FIXED = Printed("fixed")


def all_fixed(_: str) -> Printed:
    """Tell of every metric that it is printed with a fixed number of decimals."""
    return FIXED


class DigitColumn:
    """What the texts of one metric show, gathered block by block; `measured` as above.

    Of numbers that are rounded as it is known of the column (`printed`) only what tells their units is kept.
    """

    def __init__(self, *, measured: bool = True, printed: Printed | None = None) -> None:
        self._measured, self._printed = measured, printed
        self._units_only = False
        self._count = 0
        self._exact = False  # a number with all the digits of a float64 was seen: nothing more to learn
        self._few: list[tuple[NDArray[np.bytes_], Floats, Integers | None]] = []
        self._finite: list[NDArray[np.bool_]] = []
        self._figures: list[NDArray[np.int16]] = []
        self._padded = False
        self._rounded: set[float] = set()

    def add(self, texts: NDArray[np.bytes_], values: Floats, places: Integers | None = None) -> None:
        """Look at numbers as they were printed, without spaces, and as they were read.

        With `places` those of the block are `texts[places]`: of many that are alike, each is looked at once.
        """
        self._count += len(texts) if places is None else len(places)
        if self._count < PRINTED_VALUES:
            self._few.append((texts, values, places))
            return
        self._look_at_few()
        self._look(texts, values, places)

    def _look_at_few(self) -> None:
        """Look at what was left, as so few prove nothing: an object of very many keys has many such columns."""
        few, self._few = self._few, []
        for texts, values, places in few:
            self._look(texts, values, places)

    def _look(self, texts: NDArray[np.bytes_], values: Floats, places: Integers | None) -> None:
        if self._exact:
            return
        finite = np.isfinite(values)
        figures, padded = _look_at(texts, finite)
        self._learn(values, finite, figures, padded, places)

    def add_numbers(self, numbers: NumberColumn) -> None:
        """Look at finite numbers that were read by the column."""
        self._count += len(numbers.values)
        self._look_at_few()
        finite = np.isfinite(numbers.values)
        if finite.all() and self._is_as_known(numbers):
            self._units_only = True
            self._exact |= bool(numbers.too_long.any() or numbers.mantissas.max() >= _FLOAT64)
            self._finite.append(finite)
            self._figures.append(_figures(numbers.exponents, numbers.decimals, numbers.decimals))
        elif not self._exact:
            figures = _figures(numbers.exponents, numbers.significant(), numbers.decimals)
            padded = not self._padded and numbers.has_padded(ROUNDED_DECIMALS)
            self._learn(numbers.values, finite, figures, padded)

    def _is_as_known(self, numbers: NumberColumn) -> bool:
        if self._printed is None or self._printed.way == "significant":
            return False
        return self._printed.way == "fixed" or int(numbers.exponents.min()) >= -self._printed.places

    def _learn(
        self,
        values: Floats,
        finite: NDArray[np.bool_],
        figures: NDArray[np.int16],
        padded: bool,
        places: Integers | None = None,
    ) -> None:
        if (figures[1][finite] >= FLOAT64_DIGITS).any():
            self._exact = True
            self._finite, self._figures = [], []
            return
        self._finite.append(finite if places is None else finite[places])
        self._figures.append(figures if places is None else figures[:, places])
        self._padded |= padded
        if len(self._rounded) < ROUNDED_VALUES:
            known = values[finite & (np.abs(values) < _LARGE)]
            self._rounded.update(np.unique(known[known * 2**EXACT_BITS % 1 != 0])[:ROUNDED_VALUES].tolist())

    def resolution(self, printed: Printed | None = None) -> Floats:
        """Return the unit of the last printed digit of each number, 0.0 where the log prints all digits.

        `printed` is what is known of the format. What was gathered goes with that.
        """
        none = np.zeros(self._count)
        if printed is not None:
            self._look_at_few()
        if self._few or self._exact or not self._count:
            return none
        finite = np.concatenate(self._finite)
        exponents, significant, decimals = np.concatenate(self._figures, axis=1)
        self._figures.clear()
        if printed and (units := _known_units(printed, finite, exponents, significant, decimals)) is not None:
            return units
        significant = np.maximum(1, significant)
        if self._units_only or not self._shows_rounding(finite, decimals):
            return none
        if decimals[finite].min() == decimals[finite].max():
            return _powers_of_ten(exponents, finite)
        if significant[finite].max() >= ALL_DIGITS:
            return none
        leading = exponents + significant - 1
        units = np.maximum(exponents[finite].min(), leading - significant[finite].max() + 1)
        return _powers_of_ten(units, finite)

    def _shows_rounding(self, finite: NDArray[np.bool_], decimals: NDArray[np.int16]) -> bool:
        """Tell by a zero at an end, or by enough unlike values that would be longer with all their digits."""
        if finite.sum() < PRINTED_VALUES:
            return False
        most_decimals = int(decimals[finite].max())
        shown = self._measured and most_decimals >= ROUNDED_DECIMALS and len(self._rounded) >= ROUNDED_VALUES
        return self._padded or shown


def printed_resolution(texts: Sequence[str], measured: bool = True) -> Floats:
    """Return the unit of the last printed digit of each number of a whole column; see the module."""
    column = DigitColumn(measured=measured)
    column.add(np.array(texts, np.bytes_), np.array([float(text) for text in texts], np.float64))
    return column.resolution()


def _figures(*columns: Integers) -> NDArray[np.int16]:
    """Put columns below each other; where each is one number in memory, they are three."""
    if any(any(column.strides) for column in columns):
        return np.stack(columns).astype(np.int16)
    return np.broadcast_to(np.array([column[:1] for column in columns], np.int16), (len(columns), len(columns[0])))


def _look_at(texts: NDArray[np.bytes_], finite: NDArray[np.bool_]) -> tuple[NDArray[np.int16], bool]:
    """Return the exponent of the last printed digit, the significant digits (of 0: none) and the decimals: (3, texts).

    Also whether a number ends in a zero after another decimal, as no shortest form of a number does.
    """
    letters = texts.view(np.uint8).reshape(len(texts), texts.itemsize)
    lengths = np.full(len(texts), texts.itemsize) if letters[:, -1].all() else np.count_nonzero(letters, axis=1)
    exponent = letters | _LOWER_CASE == _EXPONENT
    ends = _first(exponent, lengths) if exponent.any() else lengths
    points = _first(letters == _POINT, ends)
    leading = _first(letters - _ONE < 9, ends)
    decimals = np.maximum(0, ends - points - 1)
    significant = np.where(leading < ends, ends - leading - (points > leading) + (points == ends), 0)
    last_zero = letters[np.arange(len(texts)), np.maximum(ends - 1, 0)] == _ZERO
    padded = bool((last_zero & (decimals >= ROUNDED_DECIMALS) & finite).any())
    exponents = -decimals
    for row in np.flatnonzero((ends < lengths) & finite).tolist():
        exponents[row] += max(-_FAR, min(_FAR, int(texts[row][ends[row] + 1 :])))
    return np.stack([exponents, significant, decimals]).astype(np.int16), padded


_FAR = 9999  # format: an exponent beyond that of any float64
_LARGE = 2.0**52  # format: float64 holds no fractions from there on


def _first(found: NDArray[np.bool_], otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first place of each row where `found`, else `otherwise`."""
    return np.where(found.any(axis=1), found.argmax(axis=1), otherwise)


def _known_units(
    printed: Printed,
    finite: NDArray[np.bool_],
    exponents: NDArray[np.int16],
    significant: NDArray[np.int16],
    decimals: NDArray[np.int16],
) -> Floats | None:
    """Return the units of numbers that are rounded in a known way; None if one of them shows that it was not."""
    if printed.way == "fixed":
        return _powers_of_ten(exponents, finite & (decimals > 0))
    if printed.way == "decimals":
        known, shown = finite & (exponents < 0), -exponents
        units = np.full_like(exponents, -printed.places)
    else:
        known, shown = finite & (significant > 0), significant
        units = exponents + significant - printed.places
    return None if (shown[known] > printed.places).any() else _powers_of_ten(units, known)


def _powers_of_ten(exponents: NDArray[np.int16], finite: NDArray[np.bool_]) -> Floats:
    """Return 10 to each exponent, correctly rounded (numpy's power is not), and 0.0 where it is not finite.

    Where all are the same they share one number in memory.
    """
    if finite.all() and exponents.min() == exponents.max():
        return np.broadcast_to(float(f"1e{exponents[0]}"), len(exponents))
    whole = np.where(finite, exponents, 0)
    least = int(whole.min())
    powers = np.array([float(f"1e{exponent}") for exponent in range(least, int(whole.max()) + 1)])
    return np.where(finite, powers[whole - least], 0.0)
