"""What two paths say about each other: words, abbreviations and numbers in order.

Used only to choose among layers of equal class and shape; a name alone never pairs anything.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

Tokens = tuple[str, ...]


@lru_cache(maxsize=1 << 16)
def tokens(path: str) -> Tokens:
    """Words and numbers of a path in lower case: `layer1.0.downSample` -> layer, 1, 0, down, sample."""
    return tuple(word.lower() for word in _WORDS.findall(path))


def word_likeness(a: str, b: str) -> float:
    """1 for equal words, 0.8 if one abbreviates the other (`q`, `query`), 0 otherwise; numbers only match exactly."""
    if a == b:
        return 1.0
    if a.isdigit() or b.isdigit():
        return 0.0
    return 0.8 if a.startswith(b) or b.startswith(a) else 0.0


def likeness(a: Tokens, b: Tokens) -> float:
    """Share of words that find a like one on the other side, in [0, 1]; symmetric."""
    if not a or not b:
        return 0.0
    forth = sum(max(word_likeness(x, y) for y in b) for x in a)
    back = sum(max(word_likeness(x, y) for x in a) for y in b)
    return (forth + back) / (len(a) + len(b))


def difference(a: str, b: str) -> tuple[Tokens, Tokens]:
    """What remains of two paths without their common beginning and end."""
    x, y = tokens(a), tokens(b)
    start = 0
    while start < min(len(x), len(y)) and x[start] == y[start]:
        start += 1
    end = 0
    while end < min(len(x), len(y)) - start and x[-1 - end] == y[-1 - end]:
        end += 1
    return x[start : len(x) - end], y[start : len(y) - end]


def number_order(a: str, b: str) -> int:
    """-1, 0 or 1: how two paths compare by the first place where they differ, 0 unless both have a number there."""
    x, y = difference(a, b)
    if x and y and x[0].isdigit() and y[0].isdigit():
        return (int(x[0]) > int(y[0])) - (int(x[0]) < int(y[0]))
    return 0
