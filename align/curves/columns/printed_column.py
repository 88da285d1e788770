"""Texts of a column as they stand in the lines of a block, not taken out of them until somebody asks for one.

Of a number the layout of its line tells the form; then it is read without being a text at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from align.curves.columns.number_forms import NumberForm, number_form, read_numbers, read_short
from align.curves.line_layouts import PADDING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from align.curves.columns.number_forms import NumberColumn
    from align.curves.line_layouts import Letters
    from align.curves.loss_log import Booleans, Integers


class Field(NamedTuple):
    """Where lines of a layout have the text of a column, in bytes from where they begin, and that of its sample."""

    start: int
    end: int
    text: str


# Where a number's form begins to tell of its exponent.
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
        filled: Booleans = (self._places[:, 1] > self._places[:, 0])[self.kinds]
        return filled

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
    return (
        {texts.fields[kind].text for kind in np.flatnonzero(np.bincount(texts.kinds)).tolist()}
        if isinstance(texts, PrintedColumn)
        else set(texts)
    )


def without_letter(texts: Sequence[str], letter: str) -> Sequence[str]:
    """Leave out an ASCII letter that is no digit, such as the comma of `1,024`, wherever it stands."""
    if not may_hold(texts, letter):
        return texts
    if not isinstance(texts, PrintedColumn) or not all(field.text.isascii() for field in texts.fields):
        return [text.replace(letter, "") for text in texts]
    places = [[at for at, one in enumerate(field.text) if one != letter and field.end] for field in texts.fields]
    width = max(map(len, places))
    taken = np.array([own + [0] * (width - len(own)) for own in places], np.int64).reshape(-1, width)
    begins = np.array([field.start for field in texts.fields], np.int64)
    shown = texts.letters[(texts.starts + begins[texts.kinds])[:, None] + taken[texts.kinds]]
    letters = np.concatenate(
        [np.full(PADDING, ord(" "), np.uint8), shown.ravel(), np.full(PADDING, ord(" "), np.uint8)]
    )
    fields = [
        Field(0, len(own), field.text.replace(letter, "")) if own else field
        for own, field in zip(places, texts.fields, strict=True)
    ]
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
