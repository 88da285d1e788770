"""Names that differ only in their numbers, as one: the layers of a model repeat, and a list of all tells no more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

ELLIPSIS = "…"
WILD = re.compile(r"[*?\[]")  # what makes a name a glob
NUMBER = re.compile(r"[0-9]{1,18}")  # longer ones, which only a hostile file has, count as several


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
    groups: dict[tuple[str, Hashable], list[int]] = {}
    numbers: list[list[str]] = []
    for place, (name, alike) in enumerate(rows):
        template = NUMBER.sub("#", name.replace("#", "\0"))
        groups.setdefault((template, alike), []).append(place)
        numbers.append(NUMBER.findall(name))
    return [
        (_folded(template, [numbers[place] for place in places]), places) for (template, _), places in groups.items()
    ]


def common_glob(names: Sequence[str]) -> str:
    """The glob over names that differ only in their numbers: `layers.*.weight`.

    >>> common_glob(["layers.0.fc1", "layers.1.fc1"])
    'layers.*.fc1'
    """
    texts = [as_literal(text) for text in NUMBER.split(names[0])]
    values = [set(column) for column in zip(*(NUMBER.findall(name) for name in names), strict=True)]
    slots = ["*" if len(column) > 1 else column.pop() for column in values]
    return texts[0] + "".join(slot + text for slot, text in zip(slots, texts[1:], strict=True))


def _folded(template: str, numbers: list[list[str]]) -> str:
    parts = template.split("#")
    slots = [_slot(sorted(set(map(int, values)))) for values in zip(*numbers, strict=True)]
    text = parts[0] + "".join(slot + part for slot, part in zip(slots, parts[1:], strict=True))
    return text.replace("\0", "#")


def _slot(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{{{values[0]}{ELLIPSIS}{values[-1]}}}"


def as_literal(name: str) -> str:
    """Write a name so that it is no glob."""
    return WILD.sub(lambda wild: f"[{wild[0]}]", name)
