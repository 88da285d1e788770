"""The lines of a block by their layout: what they look like but for the values of their digits.

Loggers print few layouts, a million times each: what an expression finds in one line, it finds at the same places in
all lines of that layout, as long as it takes no digit for another (`is_digit_blind`). So it need be asked only once a
layout, and numbers can be read by the column.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from align.curves.thresholds import LAYOUTS_ONE_BY_ONE, LINES_PER_LAYOUT, ROWS_TOGETHER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.curves.loss_log import Booleans, Integers

    Letters = NDArray[np.uint8]
else:
    Letters = Any

PADDING = 24  # format: bytes before the first line, as numbers are read in up to three words backwards from their end
_ZERO, _NINE, _DIGITS, _LINE_END = np.uint8(ord("0")), np.uint8(ord("9")), 10, ord("\n")
_SHORT = 1 << 16  # format: what uint16 holds
# What an expression may say of digits without telling one from another: classes, counts, names of groups.
_ALL_DIGITS = re.compile(r"(?<!\\)\{[0-9]*,?[0-9]*\}|\(\?P<\w+>")
_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])+\]", re.DOTALL)
_RANGE = re.compile("(?<!-)0-9")
_ONE_DIGIT = re.compile(r"[0-9]|\\N|\(\?P=")


@dataclass(frozen=True, slots=True, eq=False)
class LineLayouts:
    """Lines as bytes: line i begins at `letters[starts[i]]` and has the layout of the line `samples[kinds[i]]`.

    `varying[kind]` tells which bytes of its lines are not the same in all; None where nobody looked.
    """

    letters: Letters
    starts: Integers
    kinds: Integers
    samples: tuple[str, ...]
    varying: tuple[Booleans | None, ...]

    def count_filled(self) -> int:
        """Count the lines that are not blank."""
        filled = np.array([bool(sample.strip()) for sample in self.samples])
        return int(np.count_nonzero(filled[self.kinds]))

    def first_lines(self, most: int) -> Integers:
        """Return the places of the first lines of each layout, `most` of them, in their order."""
        order = np.argsort(self.kinds, kind="stable")
        begins = np.flatnonzero(np.diff(self.kinds[order], prepend=-1))
        ranks = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        return np.sort(order[ranks < most])


class PaddedText(NamedTuple):
    """The bytes of a text behind `PADDING` spaces, with a line end behind it, and where its lines end."""

    letters: Letters
    ends: Integers


def pad_text(text: str) -> PaddedText:
    """Make the bytes of a text ready for numbers to be read out of them."""
    content = text.encode("utf-8", "surrogatepass")
    letters = np.frombuffer(b"".join((b" " * PADDING, content, b"\n")), np.uint8)
    return PaddedText(letters, np.flatnonzero(letters == _LINE_END))


def find_layouts(text: str | PaddedText) -> LineLayouts | None:
    """Part the lines of a text by layout; None if there are too many layouts to be worth it."""
    letters, ends = pad_text(text) if isinstance(text, str) else text
    starts = np.append(PADDING, ends[:-1] + 1)
    found = list(islice(_layouts(letters, starts, ends - starts), len(starts) // LINES_PER_LAYOUT + 1))
    if len(found) * LINES_PER_LAYOUT > len(starts):
        return None
    found.sort(key=lambda layout: int(layout.rows[0]))
    kinds = np.zeros(len(starts), np.int64)
    for kind, layout in enumerate(found):
        kinds[layout.rows] = kind
    firsts = [int(layout.rows[0]) for layout in found]
    spans = zip(starts[firsts].tolist(), ends[firsts].tolist(), strict=True)
    samples = tuple(letters[start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in spans)
    return LineLayouts(letters, starts, kinds, samples, tuple(layout.varying for layout in found))


class _Layout(NamedTuple):
    """The places of the lines of a layout, rising, and which of their bytes vary."""

    rows: Integers
    varying: Booleans | None


def _layouts(letters: Letters, starts: Integers, lengths: Integers) -> Iterator[_Layout]:
    """Find the lines of each layout: those of one length stand below each other, and are held against the first."""
    order = np.argsort(lengths.astype(np.uint16) if lengths.max() < _SHORT else lengths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[rows[0]])
        if not length:
            yield _Layout(rows, np.zeros(0, np.bool_))
            continue
        windows = as_strided(letters, (len(letters) - length, length), (1, 1), writeable=False)
        yield from _layouts_of_length(rows, windows[starts[rows]])


def _layouts_of_length(rows: Integers, lines: Letters) -> Iterator[_Layout]:
    """Part lines by the few columns of letters that are neither the same nor digits in all of them."""
    least, most = _extreme(np.minimum, lines), _extreme(np.maximum, lines)
    varying = least != most
    unlike = np.flatnonzero(varying & ((least < _ZERO) | (most > _NINE)))
    if not len(unlike):
        yield _Layout(rows, varying)
        return
    for own, shown in _alike(np.arange(len(rows)), np.ascontiguousarray(lines[:, unlike])):
        layout = varying.copy()
        layout[unlike] = (shown >= _ZERO) & (shown <= _NINE)
        yield _Layout(rows[own], layout)


def _alike(rows: Integers, lines: Letters) -> Iterator[tuple[Integers, Letters]]:
    """Take the lines like the first, then those like the first of the rest, and so on; each with one of them."""
    for _ in range(LAYOUTS_ONE_BY_ONE):
        digits = np.less(lines[0] - _ZERO, _DIGITS)
        most = np.where(digits, _DIGITS - 1, 0).astype(np.uint8)
        whole = (lines - np.where(digits, _ZERO, lines[0]) <= most).all(axis=1)
        yield rows[whole], lines[0]
        rows, lines = rows[~whole], lines[~whole]
        if not len(rows):
            return
    digits = np.less(lines - _ZERO, _DIGITS)
    places: dict[bytes, list[int]] = {}
    for place, text in enumerate(map(bytes, np.where(digits, _ZERO, lines))):
        places.setdefault(text, []).append(place)
    yield from ((rows[own], lines[own[0]]) for own in places.values())


def _extreme(which: np.ufunc, lines: Letters) -> Letters:
    """Return the least or the largest letter of each column."""
    few, width = len(lines) % ROWS_TOGETHER, lines.shape[1]
    rest: Letters = which.reduce(lines[:few], axis=0) if few else lines[0]
    if few == len(lines):
        return rest
    joined = which.reduce(lines[few:].reshape(-1, ROWS_TOGETHER * width), axis=0)
    extreme: Letters = which(which.reduce(joined.reshape(ROWS_TOGETHER, width), axis=0), rest)
    return extreme


@functools.lru_cache(maxsize=256)
def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Tell whether an expression surely treats all ASCII digits alike, so that their values decide nothing."""
    rest = _CLASS.sub(_class_without_range, pattern.pattern)
    return _ONE_DIGIT.search(_ALL_DIGITS.sub("", rest)) is None


def _class_without_range(found: re.Match[str]) -> str:
    """Take the range of all digits out of a class; another one, such as `[1-9]`, keeps its digits."""
    return _RANGE.sub("", found[0]) if found[0].startswith("[") else found[0]
