"""Numbers, shapes, names and paths as a reader wants them; non-finite numbers arrive as strings and are shown."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from align.report.texts import say

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

Figure = float | int | str | None

NONE = "-"
ELLIPSIS = "…"
LONGEST_PLAIN = 1e6
NUMBER = re.compile(r"[0-9]{1,18}")  # longer ones, which only a hostile file has, count as several


def number(value: Figure, digits: int = 3) -> str:
    """Show a number in `digits` significant digits; None is "-", integers keep all their digits."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".removeprefix("+")
    if 10.0**digits <= abs(value) < LONGEST_PLAIN:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{digits}g}"


def as_float(value: Figure) -> float:
    """Read a number of a document back; None becomes NaN."""
    return math.nan if value is None else float(value)


def share(part: int, whole: int) -> str:
    """Show a part of a whole in percent; never "0 %" for a part that is there nor "100 %" for one that lacks some."""
    if whole == 0:
        return NONE
    percent = 100.0 * part / whole
    if 0 < part < whole:
        percent = min(max(percent, 0.001), 99.999)
    return f"{percent:.3g} %" if percent < 99.9 or percent == 100.0 else f"{percent:.3f} %"


def shape(dimensions: Sequence[int]) -> str:
    """Show a shape as NumPy does, `()` for a 0-d tensor."""
    return str(tuple(dimensions))


def visible(text: str, longest: int) -> str:
    """Show text of a file: control characters, which could steer a terminal, are escaped, and what is long is cut."""
    cut = text if len(text) <= longest else text[:longest] + ELLIPSIS
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


def layer_name(module: str, call: int = 0, output: str = "") -> str:
    """Name a tensor of a run: the module's path, the call where it is not the first, the output where it has a name."""
    path = module or say("word.whole_model")
    return path + (f"#{call}" if call else "") + (f":{output}" if output else "")


def layer_title(layer: dict[str, Any], width: int) -> str:
    """Name a compared layer in a plot: its name on the reference's side, shortened, and its class."""
    name = shorten(layer_name(layer["reference"], layer["call"], layer["output"]), width)
    return f"{name} ({layer['reference_class']})" if layer["reference_class"] else name


def shorten(text: str, width: int) -> str:
    """Shorten a path from its middle until it fits; its numbers, which tell layers apart, go last.

    Words between dots become their first letter, middle ones before the outer ones; what is still longer than
    `width` loses its middle, and two thirds of what stays are its end.
    """
    words = text.split(".")
    for index in (*range(1, len(words) - 1), 0):
        if len(".".join(words)) <= width:
            break
        words[index] = words[index][:1] if words[index].isidentifier() else words[index]
    return _cut_middle(".".join(words), width)


def _cut_middle(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    head = (width - 1) // 3
    tail = width - 1 - head
    return text[:head] + ELLIPSIS + text[len(text) - tail :]


def size(nbytes: int) -> str:
    """Show a number of bytes in binary units, as `ls -h` does."""
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}"


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


def _folded(template: str, numbers: list[list[str]]) -> str:
    parts = template.split("#")
    slots = [_slot(sorted(set(map(int, values)))) for values in zip(*numbers, strict=True)]
    text = parts[0] + "".join(slot + part for slot, part in zip(slots, parts[1:], strict=True))
    return text.replace("\0", "#")


def _slot(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{{{values[0]}{ELLIPSIS}{values[-1]}}}"
