"""A format of lines as data: an expression with named groups, and what it cannot say by itself."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from align.core.documents import LimitedPattern
from align.curves.log_parts.line_roles import (
    PART_RANK,
    counter_kind,
    is_loss_name,
    is_validation,
    log_words,
    loss_rank,
    named_numbers,
    numbers_of_line,
    roles_of_line,
    words_of,
)
from align.curves.log_parts.table_builder import is_number
from align.curves.log_parts.table_reader import PHASE_NAMES
from align.curves.thresholds import (
    LINES_OF_NAMES,
    LINES_TO_FIRST_ROW,
    SAMPLE_LINES,
    SUGGESTION_CHARACTERS,
    SUGGESTION_LINES,
    TEXT_TABLE_ROWS,
    TEXT_TABLE_ROWS_READ,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_parts.line_roles import LineRoles, NumberInLine
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Base, Window


@dataclass(frozen=True)
class LineFormat:
    r"""Lines in which `pattern` is searched, each by itself.

    Groups: `loss`; `step` or `epoch` or both; `total`, the steps of an epoch; `validation`, which takes part in what is
    not of training; `overflow` or `skipped`, how many steps were skipped; any other name is a metric. One with `\n` is
    searched in the whole text. A line may hold only a counter or `validation`
    (`Epoch (?P<epoch>\d+)$|train_loss (?P<loss>\S+)`): it then speaks for the lines that follow. An empty group
    `(?P<step>)` or `(?P<epoch>)` numbers the records in their order, anew below each line without a loss that is found.
    `window` None: single steps, or the mean of the epoch where only epochs are counted. `base` and `steps_per_epoch` as
    in LossLog. `of_user` says that a user wrote the pattern, which may take for ever. `keeps_all`: all other numbers of
    a record are metrics too, by what stands in front of them, or by the `columns` between a `delimiter` (spaces if "").
    """

    name: str
    summary: str
    pattern: str
    window: Window | None = None
    base: Base | None = None
    steps_per_epoch: int | None = None
    of_user: bool = False
    keeps_all: bool = False
    columns: tuple[str, ...] = ()
    delimiter: str = ""

    def others(self, line: str, match: re.Match[str]) -> dict[str, tuple[int, int]]:
        """Return where the other numbers of a record stand, by their names."""
        if not self.keeps_all or not match["loss"]:
            return {}
        taken = [match.span(name) for name in match.re.groupindex if match[name]]
        spans = (
            self._cells(line)
            if self.columns
            else {number.label: (number.start, number.end) for number in named_numbers(line)}
        )

        def is_free(span: tuple[int, int]) -> bool:
            return not any(span[0] < end and start < span[1] for start, end in taken)

        return {name: span for name, span in spans.items() if name not in match.re.groupindex and is_free(span)}

    def _cells(self, line: str) -> dict[str, tuple[int, int]]:
        cells = re.finditer(rf"[^{re.escape(self.delimiter)}]+" if self.delimiter.strip() else r"\S+", line)
        spans = {name: cell.span() for name, cell in zip(self.columns, cells, strict=False) if name}
        return {name: span for name, span in spans.items() if is_number(line[slice(*span)].strip())}

    @property
    def numbers_rows(self) -> bool:
        """True if records are numbered in their order."""
        return "(?P<step>)" in self.pattern or "(?P<epoch>)" in self.pattern

    @property
    def spans_lines(self) -> bool:
        """True if a record stands in several lines."""
        return r"\n" in self.pattern or "\n" in self.pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The expression, ready for use; raises re.error if it is none."""
        return re.compile(self.pattern, re.MULTILINE if self.spans_lines else 0)

    def searched(self) -> re.Pattern[str] | LimitedPattern:
        """Return what to search with; a pattern of the user's has its time from now on."""
        return LimitedPattern(self.compiled) if self.of_user else self.compiled


# Writes the expression that finds the numbers of lines of one shape: what stands in front of each, in their order.

_COUNT = r"\d+"
VALUE = r"(?i:[-+]?(?:\d*\.?\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)|none|null)"
_END = r"(?!\.?\d)"
_SPACES = re.compile(r"\s+")
USUAL_PATTERN = r"step (?P<step>\d+) .*loss (?P<loss>\S+)"
_NUMBER = re.compile(r"[0-9]+")
_SIGNS = re.compile(r"[^\w.+-]*$")


def record_pattern(roles: LineRoles, *, rate: bool = True, overflow: bool = False) -> str:
    """Return an expression with the groups step, total, epoch, loss and lr, as far as the line has them.

    With `overflow` also that of an overflow behind them.
    """
    parts = [("step", roles.step), ("epoch", roles.epoch), ("loss", roles.loss), ("lr", roles.rate if rate else None)]
    placed = sorted(((name, number) for name, number in parts if number), key=lambda part: part[1].start)
    pieces, end = "", None
    for name, number in placed:
        begins = name == "step" and roles.place == "first" and not roles.line[: number.start].strip()
        piece = rf"^\s*{_number_group(name, number)}\s+" if begins else _piece(roles.line, number, name)
        joined = name == "step" and roles.place == "ratio" and end is not None and number.after >= end
        pieces += (
            piece if not pieces or (joined and not _WORDS.search(roles.line[end : number.start])) else f".*?{piece}"
        )
        end = number.end
    named = _OVERFLOW.search(roles.line, end or 0) if overflow else None
    return pieces + (rf".*?{_escaped(named[1])}(?P<overflow>True|False)" if named else "")


_OVERFLOW = re.compile(r"\b(overflow(?: cond)?\s*(?:is|:|=)\s*)(?:True|False)\b")


_WORDS = re.compile(r"[A-Za-z0-9|]")


def counter_pattern(roles: LineRoles) -> str:
    """Return an expression for a line that tells only where what follows belongs, with its counters."""
    parts = [(name, number) for name, number in (("step", roles.step), ("epoch", roles.epoch)) if number]
    placed = sorted(parts, key=lambda part: part[1].start)
    joined = ""
    for name, number in placed:
        between = roles.line[max(number.after, 0) : number.start]
        directly = name == "step" and roles.place == "ratio" and not _WORDS.search(between)
        joined += ("" if not joined or directly else ".*?") + _piece(roles.line, number, name)
    return joined


def loss_pattern(roles: LineRoles) -> str:
    """Return an expression for the loss alone."""
    return "" if roles.loss is None else _piece(roles.line, roles.loss, "loss")


def _number_group(name: str, one: NumberInLine) -> str:
    total = rf"{_escaped(one.ratio)}(?P<total>\d+)" if name == "step" and one.total else ""
    return (f"(?P<{name}>{VALUE})" if name in ("loss", "lr") else f"(?P<{name}>{_COUNT}){_END}") + total


def _piece(line: str, number: NumberInLine, name: str) -> str:
    group = _number_group(name, number)
    if not _LETTERS.search(number.label):
        glued = rf"(?<![\w.])(?P<{name}>{_COUNT}){re.escape(number.unit)}"
        return glued if number.unit and name in ("step", "epoch") else _unnamed_piece(line, number, group)
    words = _known_words(number.label, name)
    glue = line[number.label_end : number.start]
    start = line.rfind(words[0], number.label_start, number.label_end) if len(words) == 1 else -1
    start = start if start >= 0 else number.label_end - len(number.label[number.label.rfind(words[0]) :])
    boundary = r"(?<![\w./-])"
    if name == "loss" and not re.search(r"[A-Za-z]\s$", line[:start]):
        boundary += r"(?<![A-Za-z]\s)"
    return boundary + r"\s+".join(map(re.escape, words)) + _escaped(glue) + group


_LETTERS = re.compile(r"[A-Za-z\u4e00-\u9fff]")


def _known_words(label: str, name: str) -> list[str]:
    """Return the words of a label that the expression asks for: of a counter the last, with its phase in front."""
    words = label.split()
    if name in ("step", "epoch"):
        before = words[-2:-1]
        phase = before and (set(words_of(before[0])) & {"train", "training"} or is_validation(before[0]))
        return words[-2:] if phase else words[-1:]
    known = log_words().names["loss.plain"] | log_words().names["loss.means"] | log_words().names["loss.words"]
    while len(words) > 1 and not set(words_of(words[0])) & known and any(map(is_loss_name, words[1:])):
        words = words[1:]
    return words


def _unnamed_piece(line: str, number: NumberInLine, group: str) -> str:
    """Return an expression by the signs alone in front of a number: a bracket, or the end of a bar."""
    signs = re.search(r"[^\w.]*$", line[max(number.after, 0) : number.start])
    glue = signs[0] if signs else ""
    if "|" in glue:
        return r"\|" + _escaped(glue[glue.rfind("|") + 1 :]) + group
    return _escaped(glue.lstrip() if number.after < 0 else glue) + group


def _escaped(glue: str) -> str:
    """Escape signs; spaces may be many or, beside a sign, none."""
    if glue and not glue.strip():
        return r"\s+"
    parts = _SPACES.split(glue) if glue.strip() == glue else ["", *glue.split(), ""]
    return r"\s*".join(map(re.escape, parts))


class SuggestedPattern(NamedTuple):
    """A line of a log by its number, and an expression that finds two of its numbers."""

    number: int
    line: str
    pattern: str


def suggest_pattern(source: LogSource) -> SuggestedPattern | None:
    """Return the line that looks most like a record, and an expression for it; None for what is no text."""
    if source.is_binary:
        return None
    filled = ((number, line.strip()) for number, line in source.lines() if line.strip())
    lines = list(islice(filled, SUGGESTION_LINES))
    if not lines:
        return None
    shapes = Counter(_NUMBER.sub("#", line) for _, line in lines)
    number, line = max(lines, key=lambda one: _worth(one[1], shapes))
    return SuggestedPattern(number, line[:SUGGESTION_CHARACTERS], _suggested(line) or USUAL_PATTERN)


def _worth(line: str, shapes: Counter[str]) -> tuple[int, bool, int]:
    """Lines of training that tell a loss and a counter come first, then those that repeat."""
    numbers = numbers_of_line(line) if len(line) < SUGGESTION_CHARACTERS * 2 else []
    if not numbers:
        return (0, False, shapes[_NUMBER.sub("#", line)])
    named = roles_of_line(0, line).counted + any(is_loss_name(one.label) for one in numbers)
    return (named + (len(numbers) > 1), not is_validation(line), shapes[_NUMBER.sub("#", line)])


def _suggested(line: str) -> str:
    """Return an expression for a counter and a loss: those known by their names, else the first and the last number."""
    numbers, roles = numbers_of_line(line), roles_of_line(0, line)
    step = roles.step or roles.epoch or next((one for one in numbers if one.whole), None)
    others = [one for one in numbers if one is not step and one.start != (step.start if step else -1)]
    named = [one for one in others if is_loss_name(one.label)]
    of_training = [one for one in others if "." in one.text and not is_validation(one.label)]
    loss = roles.loss or next(iter(named or of_training), None)
    if step is None or loss is None or step.start == loss.start:
        return ""
    counter = "epoch" if step is roles.epoch else "step"
    groups = {step.start: (step, rf"(?P<{counter}>\d+)"), loss.start: (loss, r"(?P<loss>[-+.\w]+)")}
    pattern = ".*?".join(_usual_piece(line, *groups[start]) for start in sorted(groups))
    match = re.search(pattern, line)
    return pattern if match and (match[counter], match["loss"]) == (step.text, loss.text) else ""


def _usual_piece(line: str, one: NumberInLine, group: str) -> str:
    """Return the words or signs in front of a number, and the group."""
    words = map(re.escape, one.label.split()[-2:])
    signs = _SIGNS.search(line[max(one.label_end, one.after, 0) : one.start])
    glue = (signs[0] if signs else "").strip()
    return r"\s+".join(words) + (rf"\s*{re.escape(glue)}\s*" if glue else r"\s*") + group


# Tables in text: a line of names, and rows of numbers below it that bear no names; an expression by their places.
#
# Columns stand between commas, semicolons, tabs, bars, or spaces. Rows without a number are counted in their order;
# that is no guess only where the names say that it is a training's table and all rows stand below its names.

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


def find_table(source: LogSource, metric: str = "") -> HeaderTable | None:
    """Return the first table of training losses, or of the `metric` if it is given; None if nothing counts rows."""
    lines = [(number, line) for number, line in islice(source.lines(), SAMPLE_LINES) if line.strip()]
    for index, (number, line) in enumerate(lines):
        for names, delimiter in _names_of(line) if _MARK.search(line) or (metric and metric in line) else ():
            table = _table(number, names, delimiter, lines[index + 1 :][:TEXT_TABLE_ROWS_READ], metric)
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
    header: int, names: tuple[str, ...], delimiter: str, below: Sequence[tuple[int, str]], metric: str = ""
) -> HeaderTable | None:
    """Return the table under these names, if a column of them is the loss and rows follow."""
    if any(is_number(name) for name in names):
        return None
    rows = [(line, _cells(line[1], delimiter)) for line in below[:TEXT_TABLE_ROWS_READ]]
    # Behind spaces a bar may follow the cells, but not below a lone name.
    open_end = not delimiter and len(names) > 1
    rows = [row for row in rows if len(row[1]) == len(names) or (open_end and len(row[1]) > len(names))]
    found = [cells for _, cells in rows]
    loss = _loss_column(names, found) if not metric else names.index(metric) if metric in names else None
    rows = [(line, cells) for line, cells in rows if loss is not None and is_number(cells[loss])]
    if loss is None or len(rows) < TEXT_TABLE_ROWS or rows[0][0] not in below[: LINES_TO_FIRST_ROW + 1]:
        return None
    texts = [cells for _, cells in rows]
    of_rows = {cells[0] for cells in texts}
    if len(of_rows) == len(texts) and all(map(_NAME.match, of_rows)):  # such a table compares models
        return None
    step, epoch = (_counter(names, texts, kinds) for kinds in (("through", "step"), ("epoch",)))
    step = 0 if step is None and epoch is None and _is_index(names, texts) else step
    of_part = not metric and (loss_rank(names[loss]) or 0) >= PART_RANK
    parts = tuple(name for name in names if of_part and loss_rank(name) is not None)
    first = tuple(texts[0][: len(names)])
    return HeaderTable(header, names, delimiter, rows[0][0], first, loss, step, epoch, parts if len(parts) > 1 else ())


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

    def is_whole(place: int) -> bool:
        return bool(rows) and all(_is_sum(row, place) for row in rows if is_number(row[place]))

    whole = next(filter(is_whole, totals), None)
    return ranked[0][1] if whole is None and ranked else whole


def _is_sum(row: Sequence[str], place: int) -> bool:
    """Tell whether two or more cells right before a total make it, to its rounding."""
    total, summed, count = float(row[place]), 0.0, 0
    unit = 10.0 ** -len(row[place].partition(".")[2])
    for cell in reversed(row[:place]):
        if not is_number(cell):
            break
        summed, count = summed + float(cell), count + 1
        if count > 1 and abs(summed - total) <= unit * (count + 1):
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
    places = (("loss", table.loss), ("step", table.step), ("epoch", table.epoch))
    groups = {place: _cell_group(name, table.cells[place]) for name, place in places if place is not None}
    phase = next((place for place, name in enumerate(table.names) if name.lower() in PHASE_NAMES), None)
    if phase is not None:
        words = "|".join(sorted(log_words().names["validation.words"], key=len, reverse=True))
        groups[phase] = rf"(?:(?P<validation>(?i:{words}))|{_other(table)})"
    last = len(table.names) if not table.numbered else max(groups) + 1
    # A cell that is not taken is a number where rows have nothing else that tells them.
    numbers = [not table.numbered and is_number(cell) for cell in table.cells]
    cells = [groups.get(place) or (VALUE if numbers[place] else _other(table)) for place in range(last)]
    head = "" if table.numbered else rf"^\W*{re.escape(table.names[0])}\b|"
    return head + _start(table) + _joined(cells, table.delimiter) + _end(table, last)


def _cell_group(name: str, cell: str) -> str:
    if name == "loss":
        return f"(?P<loss>{VALUE})"
    total = r"\s*/\s*(?P<total>\d+)" if name == "step" else r"\s*/\s*\d+"
    return rf"(?P<{name}>\d+)(?:\.0*)?" + (total if "/" in cell else "")


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
