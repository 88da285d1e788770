"""Tables in text: a line of names, and rows of numbers below it that bear no names; an expression by their places.

Columns stand between commas, semicolons, tabs, bars, or spaces. Rows without a number are counted in their order; that
is no guess only where the names say that it is a training's table and all rows stand below its names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING

from align.curves.line_formats.log_words import PART_RANK, counter_kind, is_validation, log_words, loss_rank, words_of
from align.curves.line_formats.write_pattern import VALUE
from align.curves.log_parts.table_reader import PHASE_NAMES
from align.curves.log_parts.text import is_number
from align.curves.thresholds import (
    LINES_OF_NAMES,
    LINES_TO_FIRST_ROW,
    SAMPLE_LINES,
    TEXT_TABLE_ROWS,
    TEXT_TABLE_ROWS_READ,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_sources import LogSource

_BARS = str.maketrans("│┃║¦", "||||")
_BAR = "[|│┃]"
_DELIMITERS = ("|", "\t", ";", ",")
_WIDE, _NARROW = re.compile(r"\s{2,}|\t"), re.compile(r"\s+")
_WHOLE = re.compile(r"([0-9]+)(?:\.0*)?(/[0-9]+)?")
_NAME = re.compile(r"[+-]?[A-Za-z]{2}")
_MARK = re.compile(r"(?i)loss|xent|total")


@dataclass(frozen=True, slots=True)
class HeaderTable:
    """Names of columns in line `header`, and what parts cells: a delimiter, or spaces ("").

    `loss`, `step` and `epoch` are places of columns, None for what there is not; `row` is the first row: line and text.
    `parts` names the parts of a loss that has no whole.
    """

    header: int
    names: tuple[str, ...]
    delimiter: str
    row: tuple[int, str]
    cells: tuple[str, ...]
    loss: int
    step: int | None = None
    epoch: int | None = None
    parts: tuple[str, ...] = ()

    @property
    def numbered(self) -> bool:
        """True if rows tell a step or an epoch."""
        return self.step is not None or self.epoch is not None

    @property
    def counts_epochs(self) -> bool:
        """True if rows without a number are of epochs: a validation stands in each."""
        return any(is_validation(name) for name in self.names)


def find_table(source: LogSource, asked: str = "") -> HeaderTable | None:
    """Return the first table of training losses, or of what is `asked` for; None if nothing numbers its rows."""
    lines = [(number, line) for number, line in islice(source.lines(), SAMPLE_LINES) if line.strip()]
    for index, (number, line) in enumerate(lines):
        for names, delimiter in _names_of(line) if _MARK.search(line) or (asked and asked in line) else ():
            table = _table(number, names, delimiter, lines[index + 1 :][:TEXT_TABLE_ROWS_READ], asked)
            if table is not None and (table.numbered or (index == 0 and _is_of_training(names))):
                return table
    return None


def find_names(source: LogSource) -> tuple[str, ...]:
    """Return the names above the first rows of numbers that count, but for counters; none if there are none."""
    lines = [(number, line) for number, line in islice(source.lines(), SAMPLE_LINES) if line.strip()]
    for index, (number, line) in enumerate(lines[:LINES_OF_NAMES]):
        for names, delimiter in _names_of(line):
            others = tuple(name for name in names if name and not counter_kind(name))
            below = lines[index + 1 :][:TEXT_TABLE_ROWS_READ]
            table = _table(number, names, delimiter, below, others[0]) if 0 < len(others) < len(names) else None
            if table is not None and table.numbered:
                return others
    return ()


def _names_of(line: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names that a line may hold, with what parts them; a `#` in front makes it a comment for others."""
    text = line.translate(_BARS).strip().lstrip("# ")
    for delimiter in _DELIMITERS:
        if delimiter in text:
            yield tuple(part.strip(" \"'#*") for part in text.strip("|").strip("\t").split(delimiter)), delimiter
            return
    yield tuple(_WIDE.split(text)), ""
    yield tuple(_NARROW.split(text)), ""


def _table(
    header: int, names: tuple[str, ...], delimiter: str, below: Sequence[tuple[int, str]], asked: str = ""
) -> HeaderTable | None:
    """Return the table under these names, if a column of them is the loss and rows follow."""
    if any(is_number(name) for name in names):
        return None
    rows = [
        (line, cells)
        for line in below[:TEXT_TABLE_ROWS_READ]
        if _has_all(cells := _cells(line[1], delimiter), names, delimiter)
    ]
    found = [cells for _, cells in rows]
    loss = _loss_column(names, found) if not asked else names.index(asked) if asked in names else None
    rows = [(line, cells) for line, cells in rows if loss is not None and is_number(cells[loss])]
    if loss is None or len(rows) < TEXT_TABLE_ROWS or rows[0][0] not in below[: LINES_TO_FIRST_ROW + 1]:
        return None
    texts = [cells for _, cells in rows]
    if _bear_names(texts):
        return None
    step, epoch = (_counter(names, texts, kinds) for kinds in (("through", "step"), ("epoch",)))
    step = 0 if step is None and epoch is None and _is_index(names, texts) else step
    of_part = not asked and (loss_rank(names[loss]) or 0) >= PART_RANK
    parts = tuple(name for name in names if of_part and loss_rank(name) is not None)
    first = tuple(texts[0][: len(names)])
    return HeaderTable(header, names, delimiter, rows[0][0], first, loss, step, epoch, parts if len(parts) > 1 else ())


def _bear_names(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether each row begins with a name of its own: a table that compares models."""
    names = {cells[0] for cells in rows}
    return len(names) == len(rows) and all(_NAME.match(name) for name in names)


def _has_all(cells: Sequence[str], names: Sequence[str], delimiter: str) -> bool:
    """Tell whether a line has a cell for each name; behind spaces a bar may follow, but not below a lone name."""
    return len(cells) == len(names) or (not delimiter and len(cells) > len(names) > 1)


def _cells(line: str, delimiter: str) -> list[str]:
    text = line.translate(_BARS).strip()
    if not delimiter:
        return text.split()
    text = text.strip("|") if delimiter == "|" else text.strip("\t")
    return [cell.strip().strip('"') for cell in text.split(delimiter)]


def _loss_column(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int | None:
    """Return the column of the whole loss: by its name, or the one called a total that is the sum of those before."""
    ranked = sorted((rank, place) for place, name in enumerate(names) if (rank := loss_rank(name)) is not None)
    if ranked and ranked[0][0] < PART_RANK:
        return ranked[0][1]
    totals = [place for place, name in enumerate(names) if words_of(name) == ("total",)]
    whole = next((place for place in totals if rows and _is_sum_in_all(rows, place)), None)
    return ranked[0][1] if whole is None and ranked else whole


def _is_sum_in_all(rows: Sequence[Sequence[str]], place: int) -> bool:
    return all(_is_sum(row, place) for row in rows if is_number(row[place]))


def _is_sum(row: Sequence[str], place: int) -> bool:
    """Tell whether two or more cells right before a total make it, to its rounding."""
    if not is_number(row[place]):
        return False
    total, found, count = float(row[place]), 0.0, 0
    unit = 10.0 ** -len(row[place].partition(".")[2])
    for cell in reversed(row[:place]):
        if not is_number(cell):
            break
        found, count = found + float(cell), count + 1
        if count > 1 and abs(found - total) <= unit * (count + 1):
            return True
    return False


def _counter(names: Sequence[str], rows: Sequence[Sequence[str]], kinds: tuple[str, ...]) -> int | None:
    """Return the column that counts so in whole numbers."""
    for place, name in enumerate(names):
        if counter_kind(name) in kinds and all(_WHOLE.fullmatch(cells[place]) for cells in rows):
            return place
    return None


def _is_index(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first column has no name and counts rows, as tables of pandas do."""
    if names[0] or not all(row[0].isdecimal() for row in rows):
        return False
    places = [int(row[0]) for row in rows]
    return all(second in (first + 1, places[0]) for first, second in pairwise(places))


def _is_of_training(names: Sequence[str]) -> bool:
    """Tell whether most names are such as trainings have."""
    known = log_words().names["table.words"]
    texts = [not known.isdisjoint(words_of(name)) for name in names if name]
    return sum(texts) * 2 > len(texts)


def table_pattern(table: HeaderTable) -> str:
    """Return the expression that finds the counters and the loss of a row by their places."""
    groups = {place: _group(name, table.cells[place]) for name, place in _placed(table)}
    phase = next((place for place, name in enumerate(table.names) if name.lower() in PHASE_NAMES), None)
    if phase is not None:
        words = "|".join(sorted(log_words().names["validation.words"], key=len, reverse=True))
        groups[phase] = rf"(?:(?P<validation>(?i:{words}))|{_other(table)})"
    last = len(table.names) if not table.numbered else max(groups) + 1
    cells = [groups.get(place) or _cell(table, place) for place in range(last)]
    head = "" if table.numbered else rf"^\W*{re.escape(table.names[0])}\b|"
    return head + _start(table) + _joined(cells, table.delimiter) + _end(table, last)


def _placed(table: HeaderTable) -> list[tuple[str, int]]:
    places = (("loss", table.loss), ("step", table.step), ("epoch", table.epoch))
    return [(name, place) for name, place in places if place is not None]


def _group(name: str, cell: str) -> str:
    if name == "loss":
        return f"(?P<loss>{VALUE})"
    total = r"\s*/\s*(?P<total>\d+)" if name == "step" else r"\s*/\s*\d+"
    return rf"(?P<{name}>\d+)(?:\.0*)?" + (total if "/" in cell else "")


def _cell(table: HeaderTable, place: int) -> str:
    """Return an expression for a cell that is not taken: a number where rows have nothing else that tells them."""
    return VALUE if not table.numbered and is_number(table.cells[place]) else _other(table)


def _other(table: HeaderTable) -> str:
    other = "|│┃" if table.delimiter == "|" else table.delimiter
    return rf"[^{other}]*?" if other.strip() else r"[^\t]*?" if table.delimiter else r"\S+"


def _start(table: HeaderTable) -> str:
    empty = "" if table.numbered else "(?P<epoch>)" if table.counts_epochs else "(?P<step>)"
    return rf"^\s*{_BAR}?\s*" + empty if table.delimiter == "|" else r"^\s*\"?" + empty


def _joined(cells: Sequence[str], delimiter: str) -> str:
    """Put the expressions of cells in a row; those that are alike and follow each other are counted."""
    between = rf"\"?\s*{_delimiter(delimiter)}\s*\"?" if delimiter.strip() else r" *\t *" if delimiter else r"\s+"
    runs = [(cell + between, len(list(run))) for cell, run in groupby(cells[:-1])]
    return "".join(one if count == 1 else f"(?:{one}){{{count}}}" for one, count in runs) + cells[-1]


def _end(table: HeaderTable, last: int) -> str:
    if last < len(table.names):
        return rf"\"?\s*{_delimiter(table.delimiter)}" if table.delimiter.strip() else r"(?!\S)"
    return rf"\s*{_BAR}?\s*$" if table.delimiter == "|" else r"\"?\s*$" if table.delimiter else r"(?!\S)"


def _delimiter(delimiter: str) -> str:
    return _BAR if delimiter == "|" else re.escape(delimiter)
