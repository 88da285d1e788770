"""Names that differ only in their numbers, as one: the layers of a model repeat, and a list of all tells no more.

For the eye a fold is `layers.{0…11}.weight`. In a file it is `layers.{0..11}.weight`, of which nothing is lost: a run
is a full range in each of its numbers, and names that stand side by side (a source and its target) run together, each
range of one along the same range of the other or along one that is shifted. A name that itself holds such a text is
written with one more brace before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from align.names.thresholds import MOST_NAMES_OF_RANGES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

ELLIPSIS = "…"
WILD = re.compile(r"[*?\[]")  # what makes a name a glob
NUMBER = re.compile(r"[0-9]{1,18}")  # longer ones, which only a hostile file has, count as several
RANGE = re.compile(r"(\{+)([0-9]{1,9})\.\.([0-9]{1,9})\}")
# Numbers with leading zeros are words: `07` and `7` are two names.
PLAIN_NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9])")
TextParts = tuple[str, ...]


def fold_names(names: Iterable[str]) -> list[str]:
    """Put names that differ only in their numbers into one line each: `layers.{0…11}.weight (12)`."""
    return [
        name + (f" ({len(places)})" if len(places) > 1 else "")
        for name, places in fold_alike((name, None) for name in names)
    ]


def fold_alike(rows: Iterable[tuple[str, Hashable]]) -> list[tuple[str, list[int]]]:
    """Fold the names of rows that differ only in their numbers and are alike in all else, given beside the name.

    Returns each folded name, such as `layers.{0…11}.weight`, with the places of its rows.
    """
    groups: dict[tuple[str, Hashable], tuple[list[int], list[set[str]]]] = {}
    for place, (name, alike) in enumerate(rows):
        numbers = NUMBER.findall(name)
        template = NUMBER.sub("#", name.replace("#", "\0"))
        if (template, alike) not in groups:
            groups[template, alike] = ([], [set() for _ in numbers])
        places, slots = groups[template, alike]
        places.append(place)
        for slot, number in zip(slots, numbers, strict=True):
            slot.add(number)
    return [(_folded(template, slots), places) for (template, _), (places, slots) in groups.items()]


def common_glob(names: Sequence[str]) -> str:
    """The glob over names that differ only in their numbers: `layers.*.weight`.

    >>> common_glob(["layers.0.fc1", "layers.1.fc1"])
    'layers.*.fc1'
    """
    texts = [as_literal(text) for text in NUMBER.split(names[0])]
    values = [set(column) for column in zip(*(NUMBER.findall(name) for name in names), strict=True)]
    slots = ["*" if len(column) > 1 else column.pop() for column in values]
    return texts[0] + "".join(slot + text for slot, text in zip(slots, texts[1:], strict=True))


def _folded(template: str, numbers: list[set[str]]) -> str:
    parts = template.split("#")
    slots = [_slot(sorted(set(map(int, values)))) for values in numbers]
    text = parts[0] + "".join(slot + part for slot, part in zip(slots, parts[1:], strict=True))
    return text.replace("\0", "#")


def _slot(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{{{values[0]}{ELLIPSIS}{values[-1]}}}"


def as_literal(name: str) -> str:
    """Write a name so that it is no glob."""
    return WILD.sub(lambda wild: f"[{wild[0]}]", name)


def quote_ranges(name: str) -> str:
    """Write a name so that it is read as this name alone.

    >>> quote_ranges("a{0..3}"), expand_ranges(["a{{0..3}"])
    ('a{{0..3}', [('a{0..3}',)])
    """
    return RANGE.sub(lambda found: "{" + found[0], name)


def expand_ranges(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names that texts stand for, side by side; raises ValueError for ranges that do not go together.

    >>> expand_ranges(["a.{0..1}.w", "b{1..2}"])
    [('a.0.w', 'b1'), ('a.1.w', 'b2')]
    """
    read = [_read(text) for text in texts]
    lengths = [[last - first + 1 for first, last in ranges] for _, ranges in read]
    if any(length < 1 for length in lengths[0]):
        msg = f"a range in {texts[0]} ends before it begins"
        raise ValueError(msg)
    for text, other in zip(texts[1:], lengths[1:], strict=True):
        if other != lengths[0]:
            msg = f"the ranges of {texts[0]} and {text} are not equally many, or not equally long"
            raise ValueError(msg)
    if prod(lengths[0]) > MOST_NAMES_OF_RANGES:
        msg = f"{texts[0]} stands for {prod(lengths[0]):,} names, more than {MOST_NAMES_OF_RANGES:,}"
        raise ValueError(msg)
    return [tuple(_at(one, steps) for one in read) for steps in product(*map(range, lengths[0]))]


def fold_ranges(rows: Sequence[tuple[tuple[str, ...], Hashable]]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Fold rows of names that stand side by side, and are alike in all else, which is given beside the names.

    The names behind the first of a row (the pieces of one source) run together in the same place, or not at all.
    Returns each run as texts, with the places of its rows, in the order of their first rows.

    >>> fold_ranges([(("a.0", "b.1"), None), (("a.1", "b.2"), None), (("c", "d"), None)])
    [(('a.{0..1}', 'b.{1..2}'), [0, 1]), (('c', 'd'), [2])]
    """
    groups: dict[tuple[tuple[TextParts, ...], Hashable], list[_Box]] = {}
    for place, (names, alike) in enumerate(rows):
        parts, box = _parts(names, place)
        groups.setdefault((parts, alike), []).append(box)
    folded = [
        (_texts(parts, box), sorted(box.places))
        for (parts, _), boxes in groups.items()
        for box in _merged(boxes, [len(words) - 1 for words in parts])
    ]
    return sorted(folded, key=lambda run: run[1][0])


@dataclass(frozen=True, slots=True)
class _Box:
    """Rows that fill a box: a range for each number of each name, and which numbers run together."""

    slots: tuple[tuple[tuple[int, int], ...], ...]
    places: tuple[int, ...]
    links: tuple[tuple[int, ...], ...] = ()


def _parts(names: tuple[str, ...], place: int) -> tuple[tuple[TextParts, ...], _Box]:
    """The words between the numbers of each name, and the numbers; a name with braces keeps its numbers as words."""
    if any("{" in name or "}" in name for name in names):
        return tuple((quote_ranges(name),) for name in names), _Box(((),) * len(names), (place,))
    slots = tuple(tuple((int(n), int(n)) for n in PLAIN_NUMBER.findall(name)) for name in names)
    return tuple(tuple(PLAIN_NUMBER.split(name)) for name in names), _Box(slots, (place,))


def _merged(boxes: list[_Box], counts: list[int]) -> list[_Box]:
    heads, same = counts[:2], len(set(counts[1:])) < 2
    for ends in product(*(range(count - 1, -1, -1) for count in heads)) if same else ():
        link = (*ends, *ends[1:] * (len(counts) - 2))
        if len(boxes) > 1:
            boxes = list(_merge_along(boxes, link))
    return boxes


def _merge_along(boxes: list[_Box], link: tuple[int, ...]) -> Iterator[_Box]:
    """Join boxes that follow each other in the linked numbers, one of each name, and are equal in the others."""
    rows: dict[Hashable, list[_Box]] = {}
    for box in boxes:
        if not _goes_with(link, box.links):
            yield box
            continue
        first = [slots[i][0] for slots, i in zip(box.slots, link, strict=True)]
        others = tuple((*slots[:i], *slots[i + 1 :]) for slots, i in zip(box.slots, link, strict=True))
        rows.setdefault((others, box.links, tuple(n - first[0] for n in first)), []).append(box)
    for row in rows.values():
        yield from _joined(sorted(row, key=lambda box: box.slots[0][link[0]]), link)


def _goes_with(link: tuple[int, ...], links: tuple[tuple[int, ...], ...]) -> bool:
    """Ranges are read in the order in which they stand, so links must not cross, or share a number."""
    signs = [{(a > b) - (a < b) for a, b in zip(link, other, strict=True)} for other in links]
    return all(sign in ({1}, {-1}) for sign in signs)


def _joined(row: list[_Box], link: tuple[int, ...]) -> Iterator[_Box]:
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end - 1].slots[0][link[0]][1] + 1 != row[end].slots[0][link[0]][0]:
            yield _linked(row[start:end], link)
            start = end


def _linked(row: list[_Box], link: tuple[int, ...]) -> _Box:
    """Boxes that follow each other as one."""
    slots = tuple(
        (*mine[:i], (mine[i][0], theirs[i][1]), *mine[i + 1 :])
        for mine, theirs, i in zip(row[0].slots, row[-1].slots, link, strict=True)
    )
    first, last = slots[0][link[0]]
    links = (*row[0].links, link) if last > first else row[0].links
    return _Box(slots, tuple(place for box in row for place in box.places), links)


def _texts(parts: tuple[TextParts, ...], box: _Box) -> tuple[str, ...]:
    return tuple(
        words[0]
        + "".join((f"{{{a}..{b}}}" if b > a else str(a)) + word for (a, b), word in zip(slots, words[1:], strict=True))
        for words, slots in zip(parts, box.slots, strict=True)
    )


def _read(text: str) -> tuple[TextParts, list[tuple[int, int]]]:
    """The words between the ranges of a text, and the ranges."""
    words, ranges, start, word = [], [], 0, ""
    for found in RANGE.finditer(text):
        word += text[start : found.start()]
        start = found.end()
        if len(found[1]) == 1:
            words.append(word)
            ranges.append((int(found[2]), int(found[3])))
            word = ""
        else:
            word += found[0][1:]
    return (*words, word + text[start:]), ranges


def _at(read: tuple[TextParts, list[tuple[int, int]]], steps: tuple[int, ...]) -> str:
    words, ranges = read
    numbers = (str(first + step) for (first, _), step in zip(ranges, steps, strict=True))
    return words[0] + "".join(number + word for number, word in zip(numbers, words[1:], strict=True))
