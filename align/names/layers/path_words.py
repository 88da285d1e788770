"""What paths say: their words and numbers, what stands above them, and what two say about each other.

Used only to choose among layers of equal class and shape; a name alone never pairs anything.
"""

from __future__ import annotations

import re
from functools import lru_cache

from align.names.thresholds import AGAINST_ORDER_SHARE, LIKENESS_OF_PARTS, LONGEST_END

_SEPARATORS = re.compile(r"[._\-\s]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# A part of a path that begins so is attention to what the encoder made.
_CROSS = re.compile(
    r"(?<![^.])(?:enc(?:oder)?_?(?:dec(?:oder)?_?)?att(?:n|ention)|crossatt(?:n|ention))", re.IGNORECASE
)
_INDEXED = re.compile(r"([A-Za-z]*)(\d+)")
# An index is a whole part of a path (`blocks.0`) or the number at the end of a word (`fc1`, `ln_1`): 9 digits at most.
_NUMBERED = re.compile(r"((?:.*[^\W\d])?_?)([0-9]{1,9})")
_NUMBER = re.compile(r"[0-9]{1,9}")

_LETTERED = re.compile(r"(.*\d)[a-z]")
# `attn_norm` stands beside what is in `attn`, `dw_bn` beside `dw_conv`.
_TYPED = re.compile(r"(?!layer_)(.+?)_(?:layer_?norm|norm|ln|bn|conv)", re.IGNORECASE)
_COUNTED = re.compile(r"(.*?)_?\d+")

Tokens = tuple[str, ...]
# Words for the place of a layer beside others, the first before the last.
PLACES = {"input": 0, "pre": 1, "before": 1, "post": 2, "after": 2}
_OF = "·"
# What single letters stand for in the names of attention layers, by the beginning of the word.
LETTERS = {"q": "que", "k": "key", "v": "val", "o": "out"}
# The weights of attention layers are also called after the matrices of the formula, norms after what they norm.
_SHORT = {
    "wq": "q",
    "wk": "k",
    "wv": "v",
    "wo": "o",
    "ln": "norm",
    "bn": "norm",
    "attn": "attention",
    "ffw": "feedforward",
    "ffn": "feedforward",
}


@lru_cache(maxsize=1 << 16)
def tokens(path: str) -> Tokens:
    """Words and index numbers of a path in lower case: `layer1.0.downSample` -> layer, 1, 0, down, sample.

    A number counts as an index only at the end of a part; `branch5x5` and `conv2d` are words.
    """
    found: list[str] = []
    for part in filter(None, _SEPARATORS.split(_CROSS.sub("cross_attention", path))):
        if indexed := _INDEXED.fullmatch(part):
            found += [word.lower() for word in _CAMEL.findall(indexed[1])] + [indexed[2]]
        elif part.isalpha() and part.isascii():
            found += [word.lower() for word in _CAMEL.findall(part)]
        else:
            found.append(part.lower())
    return _placed([_SHORT.get(word, word) for word in found])


def _placed(found: list[str]) -> Tokens:
    """The words with what stands before or after something as one: the norm `post_attention` is not the attention's."""
    joined: list[str] = []
    for word in found:
        if joined and joined[-1] in PLACES and word.isalpha() and "norm" not in word:
            joined[-1] += _OF + word
        else:
            joined.append(word)
    return tuple(joined)


@lru_cache(maxsize=1 << 17)
def numbered(path: str) -> tuple[tuple[str, str, str], ...]:
    """Each numbered list that a path goes through (`blocks.` of `blocks.0`, `fc` of `fc1`), the index, its child.

    The outermost comes first.
    """
    parts = path.split(".")
    return tuple(
        (".".join([*parts[:place], indexed[1]]), indexed[2], ".".join(parts[: place + 1]))
        for place, part in enumerate(parts)
        if part[-1:].isdigit() and (indexed := _NUMBERED.fullmatch(part))
    )


def is_number(token: str) -> bool:
    """Tell whether a token of a path is an index."""
    return _NUMBER.fullmatch(token) is not None


@lru_cache(maxsize=1 << 16)
def modules_above(path: str) -> tuple[str, ...]:
    """Paths of the modules above, the nearest first, the root ("") last."""
    parts = path.split(".")
    return tuple(".".join(parts[:length]) for length in range(len(parts) - 1, -1, -1))


@lru_cache(maxsize=1 << 16)
def containers(path: str) -> tuple[str, ...]:
    """Modules and numbered lists around a layer, the nearest first, the root ("") last.

    >>> containers("mixed.branch3x3_2a.conv")
    ('mixed.branch3x3_2a', 'mixed.branch3x3_2', 'mixed.branch3x3', 'mixed', '')
    """
    parts = path.split(".")
    found: list[str] = []
    for place in range(len(parts) - 1, -1, -1):
        above = "".join(f"{part}." for part in parts[:place])
        found += [above + stem for stem in _stems(parts[place])]
        found.append(above[:-1])
    return tuple(dict.fromkeys(found))


def _stems(part: str) -> list[str]:
    """The part without its letter (`2a`), without its number, without what a layer is: the like belong together."""
    if typed := _TYPED.fullmatch(part):
        return [typed[1]]
    lettered = _LETTERED.fullmatch(part)
    stems = [lettered[1]] if lettered else []
    counted = _COUNTED.fullmatch(lettered[1] if lettered else part)
    return stems + ([counted[1]] if counted and counted[1] else [])


@lru_cache(maxsize=1 << 16)
def path_ends(path: str) -> tuple[str, ...]:
    """The last part of a path, the last two, and the last three.

    >>> path_ends("layer.0.attn.q")
    ('q', 'attn.q', '0.attn.q')
    """
    parts = path.split(".")
    return tuple(".".join(parts[-length:]) for length in range(1, min(LONGEST_END, len(parts)) + 1))


@lru_cache(maxsize=1 << 16)
def unnumbered_ends(path: str) -> tuple[str, ...]:
    """The same ends, with what is a number left open."""
    return path_ends(".".join("#" if is_number(part) else part for part in path.split(".")))


def words(path: str) -> Tokens:
    """Words of a path without its numbers: the same index at different levels of two paths is a coincidence."""
    return tuple(token for token in tokens(path) if not token.isdigit())


def word_likeness(a: str, b: str) -> float:
    """1 for equal words, LIKENESS_OF_PARTS if one begins or ends with the other (`emb`, `embedding`), else 0.

    A single letter begins too many words by chance: those that LETTERS knows are alike, no others.
    """
    if a == b:
        return 1.0
    if _OF in a or _OF in b:
        (place, _, word), (other_place, _, other) = a.partition(_OF), b.partition(_OF)
        return word_likeness(word, other) if place == other_place and word and other else 0.0
    short, long = sorted((a, b), key=len)
    if len(short) == 1:
        return LIKENESS_OF_PARTS if long.startswith(LETTERS.get(short, " ")) else 0.0
    return LIKENESS_OF_PARTS if long.startswith(short) or long.endswith(short) else 0.0


def contained(a: Tokens, b: Tokens) -> float:
    """Share of the words of `a` that find a like one in `b`, in [0, 1]; 0 if `a` has no words."""
    return sum(max((word_likeness(x, y) for y in b), default=0.0) for x in a) / len(a) if a else 0.0


def likeness(a: Tokens, b: Tokens) -> float:
    """Share of the words of both that find a like one on the other side, in [0, 1]; symmetric."""
    total = len(a) + len(b)
    return (contained(a, b) * len(a) + contained(b, a) * len(b)) / total if total else 0.0


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


@lru_cache(maxsize=1 << 17)
def unshared_words(a: str, b: str) -> tuple[Tokens, Tokens]:
    """Return the words of each of two paths that the other does not have."""
    x, y = words(a), words(b)
    return tuple(word for word in x if word not in y), tuple(word for word in y if word not in x)


@lru_cache(maxsize=1 << 17)
def number_order(a: str, b: str) -> int:
    """-1, 0 or 1: how two paths compare by the first place where they differ, 0 unless both have a number there."""
    x, y = difference(a, b)
    if x and y and is_number(x[0]) and is_number(y[0]):
        return (int(x[0]) > int(y[0])) - (int(x[0]) < int(y[0]))
    return 0


@lru_cache(maxsize=1 << 17)
def place_order(a: str, b: str) -> int:
    """-1, 0 or 1: how two paths compare whose only difference is a number, or a word for a place (`before`, `after`).

    `pre_attention` and `post_attention` compare, `pre_mlp` and `post_attention` do not; an input is before all.
    """
    x, y = difference(a, b)
    if len(x) != 1 or len(y) != 1:
        return number_order(a, b)
    (place, _, of), (other, _, other_of) = x[0].partition(_OF), y[0].partition(_OF)
    if place not in PLACES or other not in PLACES or (of != other_of and "input" not in (place, other)):
        return number_order(a, b)
    return (PLACES[place] > PLACES[other]) - (PLACES[place] < PLACES[other])


def compare_names(sources: tuple[str, str], targets: tuple[str, str], order: float) -> tuple[float, float]:
    """What the places and the other words of two paths on each side say for them, each with the one at its index.

    `order` is 1 if both stand in one order of registration, -1 if not. Both benefits lie in [-2, 2].
    """
    return _compare_places(sources, targets, order), _compare_words(sources, targets, order)


def _compare_places(sources: tuple[str, str], targets: tuple[str, str], order: float) -> float:
    """What words for places (`pre`, `post`) say beside others, or beside numbers.

    Numbers against the order of registration tell less: the first norm of a block may be the one behind its attention.
    """
    numbers = number_order(*sources), number_order(*targets)
    benefit = float(place_order(*sources) * place_order(*targets))
    return 0.0 if all(numbers) else benefit * (AGAINST_ORDER_SHARE if any(numbers) and benefit * order < 0 else 1)


def _compare_words(sources: tuple[str, str], targets: tuple[str, str], order: float) -> float:
    """What the words that tell the paths of a side apart say.

    Where the order of registration contradicts them, they count only if nothing but the better pairing is alike.
    """
    (x, x2), (y, y2) = unshared_words(*sources), unshared_words(*targets)
    kept, exchanged = (likeness(x, y), likeness(x2, y2)), (likeness(x, y2), likeness(x2, y))
    benefit = sum(kept) - sum(exchanged)
    worse, better = sorted((kept, exchanged), key=sum)
    clear = not max(worse) and (min(better) if benefit > 0 else max(better)) >= LIKENESS_OF_PARTS
    return benefit if clear or benefit * order > 0 else 0.0
