"""What a report shows, before it is drawn: tables, lists of facts and lines, all of text.

One builder a kind of result makes blocks; the terminal and the notebook draw the same blocks, so they cannot
disagree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from align.report.thresholds import LARGEST_FACTOR, LARGEST_PLAIN_NUMBER, LIST_LINES, MOST_SHOWN_DIGITS, SHOWN_DIGITS
from align.words.catalogue import ELLIPSIS, listed, say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence


Tone = Literal["plain", "good", "bad", "open", "quiet"]
TONES: dict[str, Tone] = {
    "aligned": "good",
    "not aligned": "bad",
    "could not compare": "open",
    "within the prediction": "open",
    "not comparable": "open",
    "accepted": "open",
    "not run": "quiet",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Paths are shortened to the room that the others leave, words stand in it on several lines.

    A `wide` column is shown in the notebook only.
    """

    header: str
    kind: Literal["text", "number", "path", "words"] = "text"
    wide: bool = False


def table_columns(headers: str) -> tuple[Column, ...]:
    """Return the columns whose headers have these keys, each with its kind and `wide` behind colons; `#` is no key.

    >>> [column.kind for column in table_columns("#:number word.dtype forward.class:path:wide")]
    ['number', 'text', 'path']
    """
    columns = []
    for header in headers.split():
        key, *form = header.split(":")
        kind: Any = next((name for name in form if name != "wide"), "text")
        columns.append(Column(say(key) if "." in key else key, kind, "wide" in form))
    return tuple(columns)


@dataclass(frozen=True, slots=True)
class Row:
    """One row; as many cells as the table has columns."""

    cells: tuple[str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. What is `folded` shows its title only in the notebook, until it is opened."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    folded: bool = False

    @property
    def used_columns(self) -> list[int]:
        """Indices of the columns that hold anything; all of them if there are no rows."""
        return [i for i in range(len(self.columns)) if not self.rows or any(row.cells[i] for row in self.rows)]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labelled facts about one thing, drawn as a panel."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Lines:
    """A list of sentences under a title ("" for none).

    What stands behind a line break in one of them is to be pasted, and is never broken; all of those that have none
    where they are `commands`.
    """

    title: str
    lines: tuple[str, ...]
    tone: Tone = "plain"
    commands: bool = False


Block = Table | Facts | Lines


def verdict_block(verdict: dict[str, object], sides: tuple[str, str] = ("reference", "candidate")) -> Lines:
    """Return the closing lines of a result: outcome, reason, and how much of the two sides it rests on."""
    outcome = str(verdict["outcome"])
    headline = say("verdict.line", outcome=word("outcome", outcome), reason=verdict["reason"])
    caveats = verdict.get("caveats")
    but = [say("verdict.caveats", caveats=listed(caveats, "; "))] if isinstance(caveats, list) and caveats else []
    return Lines("", (headline, *but, coverage_line(verdict["coverage"], sides)), TONES.get(outcome, "plain"))


def findings_blocks(findings: list[dict[str, Any]]) -> list[Block]:
    """Return a line for each finding of a result, or nothing."""
    lines = []
    for finding in findings:
        texts = {key: finding[key] for key in ("subject", "message")}
        line = say("forward.finding", severity=word("severity", finding["severity"]), **texts)
        facts = format_facts(finding["facts"])
        lines.append(say("word.in_brackets", text=line, more=facts) if facts else line)
    return [Lines(say("forward.findings"), tuple(lines), "open")] if lines else []


def coverage_line(coverage: object, sides: tuple[str, str]) -> str:
    """Say how much was compared, left out and unmatched."""
    first, second = (word("word", side) for side in sides)
    facts = coverage if isinstance(coverage, dict) else {}
    shown = {key: format_number(value) if isinstance(value, int) else value for key, value in facts.items()}
    shown["unit"] = word("unit", str(shown.get("unit", "")))
    return say("verdict.coverage", first=first, second=second, **shown)


# Numbers, shapes, names and paths as a reader wants them; non-finite numbers arrive as strings and are shown.

Figure = float | int | str | None

NONE = "-"
LOWEST_DECADE = -16  # format: the power of ten of the first of `align.core.measurements.Measurement.decades`
APART = " vs "  # between the values of both sides in a fact
NON_FINITE = ("NaN", "Infinity", "-Infinity")  # as documents hold them


def format_number(value: Figure, digits: int = SHOWN_DIGITS) -> str:
    """Show a number in `digits` significant digits; None is "-", integers keep all their digits."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".removeprefix("+")
    if 10.0**digits <= abs(value) < LARGEST_PLAIN_NUMBER:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{digits}g}"


def as_float(value: Figure) -> float:
    """Read a number of a document back; None becomes NaN."""
    return math.nan if value is None else float(value)


def format_facts(facts: Mapping[str, Figure]) -> str:
    """List the facts of a document: numbers, non-finite ones as text, and words."""
    return listed([" ".join((word("fact", key), format_fact(value))) for key, value in facts.items()])


def format_fact(value: Figure) -> str:
    """Show a number, or a word as it is; one beside a whole number in the digits that show the two unlike."""
    if isinstance(value, str) and value not in NON_FINITE:
        return listed(value.split(APART), APART)
    return format_number(value, _distinguishing_digits(value) if isinstance(value, float) else SHOWN_DIGITS)


def _distinguishing_digits(value: float) -> int:
    """More digits for 1.0004 and 0.9996, which would be 1 in three; what only rounding makes unlike 1 is 1."""
    if not 0.5 < abs(value) < LARGEST_FACTOR:
        return SHOWN_DIGITS
    digits_that_show = (
        digits for digits in range(SHOWN_DIGITS, MOST_SHOWN_DIGITS + 1) if float(f"{value:.{digits}g}") != round(value)
    )
    return next(digits_that_show, SHOWN_DIGITS)


def format_percentage(part: int, whole: int) -> str:
    """Show a part of a whole in percent; never "0 %" for a part that is there nor "100 %" for one that lacks some."""
    if whole == 0:
        return NONE
    percent = 100.0 * part / whole
    if 0 < part < whole:
        percent = min(max(percent, 0.001), 99.999)
    return f"{percent:.3g} %" if percent < 99.9 or percent == 100.0 else f"{percent:.3f} %"


def format_shape(dimensions: Sequence[int]) -> str:
    """Show a shape as NumPy does, `()` for a 0-d tensor."""
    return str(tuple(dimensions))


def escape_control_characters(text: str, longest: int) -> str:
    """Show text of a file: control characters, which could steer a terminal, are escaped, and what is long is cut."""
    cut = text if len(text) <= longest else text[:longest] + ELLIPSIS
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


def first_names(names: Sequence[str], most: int) -> str:
    """List the first names, and say how many more there are."""
    rest = len(names) - most
    return listed(names[:most]) + (say("word.and_more", count=rest) if rest > 0 else "")


Item = TypeVar("Item")


def fold_rows(items: Sequence[Item], naming: Callable[[Item], tuple[str, Hashable]]) -> list[tuple[str, list[Item]]]:
    """Put items together whose names differ in their numbers alone: the folded name of each group, and its items.

    `naming` gives the name of an item, and what all of its group have in common.
    """
    from align.names.user_rules import fold_alike  # which a result without names to fold does not need

    folded = fold_alike([naming(item) for item in items])
    return [(name, [items[place] for place in places]) for name, places in folded]


def renamed(tensor: dict[str, Any]) -> str:
    """Name a tensor of two sides, by both names where they differ."""
    ours, theirs = tensor["reference"], tensor["candidate"]
    return str(ours) if ours == theirs else f"{ours} -> {theirs}"


def layer_name(module: str, call: int = 0, output: str = "") -> str:
    """Name a tensor of a run: the module's path, the call where it is not the first, the output where it has a name."""
    path = module or say("word.whole_model")
    return path + (f"#{call}" if call else "") + (f":{output}" if output else "")


def row_name(layer: dict[str, Any]) -> str:
    """Name what a row compares, on the reference's side: of a dump also inputs, parameters and gradients."""
    part = layer.get("part", "output")
    if part == "output":
        return layer_name(layer["reference"], layer["call"], layer["output"])
    key = f"row_name.{part.replace(' ', '_')}"
    return say(key, layer=layer_name(layer["reference"], layer["call"]), item=layer["output"]).rstrip()


def layer_title(layer: dict[str, Any], width: int) -> str:
    """Name a compared layer in a plot: its name on the reference's side, shortened, and its class."""
    name = shorten_path(row_name(layer), width)
    return f"{name} ({layer['reference_class']})" if layer["reference_class"] else name


def shorten_path(text: str, width: int) -> str:
    """Shorten a path from its middle until it fits; its numbers, which distinguish layers, go last.

    Words between dots become their first letter, middle ones before the outer ones; what is still longer than
    `width` columns loses its middle, and two thirds of what stays are its end.
    """
    words = re.split(r"(?<!\.)\.(?!\.)", text)  # not at those of a run, {0..11}
    for index in (*range(1, len(words) - 1), 0):
        if text_width(".".join(words)) <= width:
            break
        words[index] = words[index][:1] if words[index].isidentifier() else words[index]
    return _cut_middle(".".join(words), width)


def _cut_middle(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    head = (width - 1) // 3
    tail = width - 1 - head
    return text[: _fitting(text, head)] + ELLIPSIS + text[len(text) - _fitting(text[::-1], tail) :]


def _fitting(text: str, width: int) -> int:
    """How many of the first characters of a text fit so many columns."""
    if text.isascii():
        return width
    ends = accumulate(map(text_width, text))
    return sum(1 for _ in takewhile(lambda end: end <= width, ends))


def text_width(text: str) -> int:
    """The columns that a text takes in a terminal: two for each Chinese character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def format_bytes(nbytes: int) -> str:
    """Show a number of bytes in binary units, as `ls -h` does."""
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}"


def format_ranges(found: Sequence[int]) -> str:
    """Whole numbers as ranges: `0-6, 8`; steps of one width as `0, 100, ... 900`."""
    ranges: list[list[int]] = []
    for number in sorted(found):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    texts = [str(own[0]) if len(own) == 1 else f"{own[0]}-{own[-1]}" for own in ranges]
    return ", ".join(texts) if len(texts) <= LIST_LINES else f"{texts[0]}, {texts[1]}, ... {texts[-1]}"
