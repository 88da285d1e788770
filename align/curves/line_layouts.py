"""The lines of a block by their layout: what they look like but for the values of their digits.

Loggers print few layouts, a million times each: what an expression finds in one line, it finds at the same places in
all lines of that layout, as long as it takes no digit for another (`is_digit_blind`). So it need be asked only once a
layout, and numbers can be read by the column.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.loss_log import Integers

    Letters = NDArray[np.uint8]
else:
    Letters = Any

# Lines of a block, as a rule, for each layout: with fewer there is little to win.
LEAST_ALIKE = 4
# Numbers are read eight digits at a time, backwards from their end: so many bytes stand before the first line.
PADDING = 24
_ZERO, _DIGITS, _LINE_END = ord("0"), 10, ord("\n")
# What an expression may say of digits without telling one from another: classes, counts, names of groups.
_ALL_DIGITS = re.compile(r"(?<!\\)\{[0-9]*,?[0-9]*\}|\(\?P<\w+>")
_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])+\]", re.DOTALL)
_RANGE = re.compile("(?<!-)0-9")
_ONE_DIGIT = re.compile(r"[0-9]|\\N|\(\?P=")


@dataclass(frozen=True, slots=True, eq=False)
class LineLayouts:
    """Lines as bytes: line i begins at `letters[starts[i]]` and has the layout of the line `samples[kinds[i]]`."""

    letters: Letters
    starts: Integers
    kinds: Integers
    samples: tuple[str, ...]

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


def find_layouts(text: str) -> LineLayouts | None:
    """Part the lines of a text by layout; None if there are too many layouts to be worth it."""
    content = text.encode("utf-8", "surrogatepass")
    lines = _without_values(content).split(b"\n")
    known = {line: kind for kind, line in enumerate(dict.fromkeys(lines))}
    if len(known) * LEAST_ALIKE > len(lines):
        return None
    kinds = np.fromiter(map(known.__getitem__, lines), np.int64, len(lines))
    letters = np.frombuffer(b"".join((b" " * PADDING, content, b"\n")), np.uint8)
    ends = np.flatnonzero(letters == _LINE_END)
    starts = np.append(PADDING, ends[:-1] + 1)
    firsts = np.zeros(len(known), np.int64)
    firsts[kinds[::-1]] = np.arange(len(lines))[::-1]
    spans = zip(starts[firsts].tolist(), ends[firsts].tolist(), strict=True)
    samples = tuple(letters[start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in spans)
    return LineLayouts(letters, starts, kinds, samples)


def _without_values(content: bytes) -> bytes:
    """Put 0 in place of each digit."""
    letters = np.frombuffer(content, np.uint8)
    values = np.less(letters - _ZERO, _DIGITS).view(np.uint8)
    values *= 0x0F
    np.invert(values, out=values)
    values &= letters
    return values.tobytes()


@functools.lru_cache(maxsize=256)
def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Tell whether an expression surely treats all ASCII digits alike, so that their values decide nothing."""
    rest = _CLASS.sub(_class_without_range, pattern.pattern)
    return _ONE_DIGIT.search(_ALL_DIGITS.sub("", rest)) is None


def _class_without_range(found: re.Match[str]) -> str:
    """Take the range of all digits out of a class; another one, such as `[1-9]`, keeps its digits."""
    return _RANGE.sub("", found[0]) if found[0].startswith("[") else found[0]
