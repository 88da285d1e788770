"""What an expression finds in lines: in rows, or in columns, once a layout where digits decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import numpy as np

from align.curves.log_sources import PADDING, LogBlock, is_digit_blind
from align.curves.number_forms import NumberForm, number_form, read_numbers, read_short
from align.curves.thresholds import ALL_DIGITS, EXACT_BITS, PRINTED_VALUES, ROUNDED_DECIMALS, ROUNDED_VALUES

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from align.curves.log_sources import Letters, LineLayouts
    from align.curves.loss_log import Booleans, Floats, Integers
    from align.curves.number_forms import NumberColumn


@dataclass(frozen=True, slots=True, eq=False)
class LineColumns:
    """What was found: the places of the lines in the block, and by group the texts, "" for one that took no part."""

    places: Integers
    columns: tuple[Sequence[str], ...]


def find_lines(
    block: LogBlock, pattern: re.Pattern[str], others: Integers | None = None
) -> tuple[Integers, list[tuple[str, ...]]]:
    """Return the line numbers and the groups, "" for one that took no part, of all matches of a pattern in a block.

    The pattern needs two groups or more, and must not reach over a line's end; it is fast if it begins with a fixed
    text. `others` are lines that are known to have no match: where all the rest have one, their numbers cost nothing.
    """
    rows: list[tuple[str, ...]] = pattern.findall(block.text)
    numbers = block.numbers if others is None or not len(others) else np.setdiff1d(block.numbers, others)
    if len(rows) == len(numbers):
        return numbers, rows
    if not rows:
        return block.numbers[:0], rows
    starts = np.fromiter((match.start() for match in pattern.finditer(block.text)), np.int64, len(rows))
    ends = np.flatnonzero(np.frombuffer(block.text.encode("utf-32-le", "surrogatepass"), np.uint32) == ord("\n"))
    return block.numbers[np.searchsorted(ends, starts)], rows


def find_columns(block: LogBlock, pattern: re.Pattern[str], others: Integers | None = None) -> LineColumns:
    """Find all that `find_lines` finds, in columns; without a match there are none.

    `others` are the places of lines that are known to have no match.
    """
    layouts = block.layouts if is_digit_blind(pattern) else None
    found = None if layouts is None else _by_layout(layouts, pattern)
    if found is not None:
        return found
    places, rows = find_lines(LogBlock(block.text, np.arange(len(block.numbers))), pattern, others)
    return LineColumns(places, tuple(zip(*rows, strict=True)))


def _by_layout(layouts: LineLayouts, pattern: re.Pattern[str]) -> LineColumns | None:
    """Search the samples; None if a line has more than one match."""
    of_samples = [list(pattern.finditer(sample)) for sample in layouts.samples]
    if max(map(len, of_samples)) > 1:
        return None
    rows = np.flatnonzero(np.array([bool(matches) for matches in of_samples])[layouts.kinds])
    if not len(rows):
        return LineColumns(rows, ())
    groups = range(1, pattern.groups + 1)
    fields = ([group_field(*matches, group=group) for matches in of_samples] for group in groups)
    return LineColumns(rows, tuple(layout_column(layouts, rows, column) for column in fields))


def layout_column(layouts: LineLayouts, rows: Integers, fields: Sequence[Field]) -> PrintedColumn:
    """Return the texts that some lines have, by layout, at these places."""
    return PrintedColumn(layouts.letters, layouts.starts[rows], layouts.kinds[rows], fields, layouts.varying)


def search_texts(texts: Sequence[str], pattern: re.Pattern[str]) -> Sequence[str]:
    """Return what the first group of an expression finds in each text, "" where it finds nothing."""
    if isinstance(texts, PrintedColumn) and is_digit_blind(pattern):
        found = (pattern.search(field.text) for field in texts.fields)
        return texts.parted([group_field(match, group=1) for match in found])
    return [match[1] if match else "" for match in map(pattern.search, texts)]


def group_field(match: re.Match[str] | None = None, *, group: int | str) -> Field:
    """Tell where a group stands in its line; an empty field if it took no part."""
    if match is None or match.start(group) < 0:
        return NO_FIELD
    return field_at(match.string, *match.span(group))


def field_at(line: str, start: int, end: int) -> Field:
    """Tell where the letters [start, end) of a line stand among its bytes."""
    if line.isascii():
        return Field(start, end, line[start:end])
    first = len(line[:start].encode("utf-8", "surrogatepass"))
    text = line[start:end]
    return Field(first, first + len(text.encode("utf-8", "surrogatepass")), text)


def stripped_field(line: str, start: int, end: int) -> Field:
    """Tell where the letters [start, end) of a line stand among its bytes, without the spaces around them."""
    text = line[start:end]
    start += len(text) - len(text.lstrip())
    return field_at(line, start, start + len(text.strip()))


# Texts of a column as they stand in the lines of a block, not taken out of them until somebody asks for one.
#
# Of a number the layout of its line tells the form; then it is read without being a text at all.


class Field(NamedTuple):
    """Where lines of a layout have the text of a column, in bytes from where they begin, and that of its sample."""

    start: int
    end: int
    text: str


# In place of a text that is not there; no text of a cell, without the spaces around it, is like it.
ABSENT = " "
NO_FIELD, ABSENT_FIELD = Field(0, 0, ""), Field(0, 0, ABSENT)


class PrintedColumn(Sequence[str]):
    """The texts of n lines: line i begins at `letters[starts[i]]` and has its text at `fields[kinds[i]]`."""

    def __init__(
        self,
        letters: Letters,
        starts: Integers,
        kinds: Integers,
        fields: Sequence[Field],
        varying: Sequence[Booleans | None] = (),
    ) -> None:
        self.letters, self.starts, self.kinds, self.fields, self.varying = letters, starts, kinds, fields, varying

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        """Return texts, as a list has them."""
        if isinstance(index, slice) or "_texts" in self.__dict__:
            return self._texts[index]
        return next(iter(self.take(np.array([range(len(self))[index]]))))

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __contains__(self, text: object) -> bool:
        """Tell whether some text is this one; of the lack of one, the layouts tell."""
        if text not in ("", ABSENT):
            return text in self._texts
        lacking = np.array([field.text == text for field in self.fields])
        return bool(lacking.any() and lacking[self.kinds].any())

    @cached_property
    def _texts(self) -> list[str]:
        starts, ends = (self.starts + self._places[self.kinds, side] for side in (0, 1))
        first = int(starts.min(initial=len(self.letters)))
        content = self.letters[first : ends.max(initial=first)].tobytes()
        spans = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
        if content.isascii():
            letters = content.decode("ascii")
            texts = [letters[start:end] for start, end in spans]
        else:
            texts = [content[start:end].decode("utf-8", "surrogatepass") for start, end in spans]
        for row in np.flatnonzero(~self.filled).tolist() if ABSENT in self else ():
            texts[row] = self.fields[self.kinds[row]].text
        return texts

    @cached_property
    def _places(self) -> Integers:
        return np.array([(field.start, field.end) for field in self.fields], np.int64).reshape(-1, 2)

    def parted(self, fields: Sequence[Field]) -> PrintedColumn:
        """Return texts inside of these, at places counted from where these begin."""
        moved = [
            Field(whole.start + part.start, whole.start + part.end, part.text) if part.text.strip() else part
            for whole, part in zip(self.fields, fields, strict=True)
        ]
        return PrintedColumn(self.letters, self.starts, self.kinds, moved, self.varying)

    def take(self, rows: Integers | Booleans) -> PrintedColumn:
        """Return some of the texts."""
        return PrintedColumn(self.letters, self.starts[rows], self.kinds[rows], self.fields, self.varying)

    def by_layout(self, kind: int) -> Integers:
        """Return the rows of a layout."""
        return np.flatnonzero(self.kinds == kind)

    def has_one_text(self, rows: Integers, start: int, end: int) -> bool:
        """Tell whether lines of one layout have the same letters from `start` to `end` in what is theirs here."""
        begins = self.starts[rows] + self._places[self.kinds[rows], 0]
        letters = self.letters[begins[:, None] + np.arange(start, end)]
        return bool((letters == letters[0]).all())

    @cached_property
    def filled(self) -> Booleans:
        """Tell which texts are not empty."""
        return np.asarray((self._places[:, 1] > self._places[:, 0])[self.kinds])

    @cached_property
    def numbers(self) -> NumberColumn | None:
        """All texts as numbers; None unless each has a form that is read by the column."""
        used = np.flatnonzero(np.bincount(self.kinds, minlength=len(self.fields)))
        forms = [number_form(self.fields[kind].text) for kind in used.tolist()]
        known = [form for form in forms if form is not None]
        if not known or len(known) < len(forms):
            return None
        starts = self.starts + (self._places[self.kinds, 0] if len(used) > 1 else self._places[used, 0])
        place = np.zeros(len(self.fields), np.int64)
        place[used] = np.arange(len(used))
        kinds = place[self.kinds]
        short = self._read_short(used.tolist(), starts, kinds, known)
        return read_numbers(self.letters, starts, kinds, known) if short is None else short

    def _read_short(
        self, used: list[int], starts: Integers, kinds: Integers, forms: list[NumberForm]
    ) -> NumberColumn | None:
        """Read short numbers by what of them is the same in all lines; None if they have to be read one by one.

        Where all is the same, one is read.
        """
        texts = [self.fields[kind].text for kind in used]
        if len(set(texts)) == 1 and self._is_same(used, [0] * len(used)):
            return read_numbers(self.letters, starts[:1], np.zeros(1, np.int64), forms[:1]).repeated(len(starts))
        ends = [form.end for form in forms]
        exponents = {text[end:] for text, end in zip(texts, ends, strict=True)}
        if len(exponents) > 1 or (exponents != {""} and not self._is_same(used, ends)):
            return None
        return read_short(self.letters, starts, kinds, forms, int(exponents.pop()[1:] or 0))

    def _is_same(self, used: list[int], begins: list[int]) -> bool:
        """Tell whether the lines of each layout have the same letters here, from a place on."""
        known = [self.varying[kind] if kind < len(self.varying) else None for kind in used]
        fields = [self.fields[kind] for kind in used]
        spans = [slice(field.start + begin, field.end) for field, begin in zip(fields, begins, strict=True)]
        return all(varying is not None and not varying[span].any() for varying, span in zip(known, spans, strict=True))


def take_texts(texts: Sequence[str], rows: Integers) -> Sequence[str]:
    """Return the texts of some rows, in a column if they stand in one."""
    return texts.take(rows) if isinstance(texts, PrintedColumn) else [texts[row] for row in rows.tolist()]


def are_filled(texts: Sequence[str]) -> Booleans:
    """Tell which texts are not empty."""
    return texts.filled if isinstance(texts, PrintedColumn) else np.array([text != "" for text in texts], np.bool_)


def are_word(texts: Sequence[str], word: str) -> Booleans:
    """Tell which texts are a word without digits."""
    if isinstance(texts, PrintedColumn):
        alike: Booleans = np.array([field.text == word for field in texts.fields])[texts.kinds]
        return alike
    return np.array([text == word for text in texts], np.bool_)


def have_word(texts: Sequence[str], word: str) -> Booleans:
    """Tell in which texts a word without digits stands."""
    if isinstance(texts, PrintedColumn):
        having: Booleans = np.array([word in field.text for field in texts.fields])[texts.kinds]
        return having
    return np.array([word in text for text in texts], np.bool_)


def may_hold(texts: Sequence[str], letter: str) -> bool:
    """Tell whether a letter that is no digit stands in a text, or in that of a line like these."""
    return any(letter in text for text in shown_texts(texts))


def shown_texts(texts: Sequence[str]) -> Collection[str]:
    """Return unlike texts; of a column one for each layout, which differ from others like it in digits alone."""
    if not isinstance(texts, PrintedColumn):
        return set(texts)
    return {texts.fields[kind].text for kind in np.flatnonzero(np.bincount(texts.kinds)).tolist()}


def without_letter(texts: Sequence[str], letter: str) -> Sequence[str]:
    """Leave out an ASCII letter that is no digit, such as the comma of `1,024`, wherever it stands."""
    if not may_hold(texts, letter):
        return texts
    if not isinstance(texts, PrintedColumn) or not all(field.text.isascii() for field in texts.fields):
        return [text.replace(letter, "") for text in texts]
    places = [[at for at, one in enumerate(field.text) if one != letter and field.end] for field in texts.fields]
    width = max(map(len, places))
    taken = np.array([kept + [0] * (width - len(kept)) for kept in places], np.int64).reshape(-1, width)
    begins = np.array([field.start for field in texts.fields], np.int64)
    shown = texts.letters[(texts.starts + begins[texts.kinds])[:, None] + taken[texts.kinds]]
    letters = np.pad(shown.ravel(), PADDING, constant_values=ord(" "))
    pairs = zip(places, texts.fields, strict=True)
    fields = [Field(0, len(kept), field.text.replace(letter, "")) if kept else field for kept, field in pairs]
    return PrintedColumn(letters, PADDING + np.arange(len(texts)) * width, texts.kinds, fields)


def bare_texts(texts: Sequence[str], around: str, empty: Collection[str]) -> Sequence[str]:
    """Take letters off both ends of each text, and leave nothing of those that are `empty` then."""
    if not isinstance(texts, PrintedColumn):
        bare = [text.strip(around) for text in texts]
        return ["" if text in empty else text for text in bare]
    fields = [_bare_field(field, around, empty) for field in texts.fields]
    return PrintedColumn(texts.letters, texts.starts, texts.kinds, fields, texts.varying)


def _bare_field(field: Field, around: str, empty: Collection[str]) -> Field:
    text = field.text.strip(around)
    start = field.start + len(field.text) - len(field.text.lstrip(around))
    end = field.end - len(field.text) + len(field.text.rstrip(around))
    return NO_FIELD if not text or text in empty else Field(start, end, text)


# How many digits a column of a log prints: what was rounded away widens every limit on it.
#
# A column is rounded if all its numbers have the same number of decimals, or if none has more than seven significant
# digits (then trailing zeros were dropped). But `0.0`, `2.0`, `0.5` have all their digits, and so has a learning rate
# of `0.1`: without a trailing zero, which only a fixed number of decimals prints, only values that are measured and
# that no float holds exactly are evidence. Where it is not enough, all digits count as printed: the strict side.
# Where a format is known to round, one number is enough.

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
