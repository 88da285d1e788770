"""Log records gathered in columns, a block of lines at a time.

Only a whole column tells how many digits a log prints; of the texts of numbers nothing is kept but what they add to
that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from align.curves.loss_log import RAW, LogTable, Series
from align.curves.printed_columns import ABSENT, DigitColumn, PrintedColumn, are_filled, take_texts
from align.curves.thresholds import (
    ACCIDENTAL_REPEATS,
    LARGEST_STEP,
    LONGEST_NUMBER,
    REPEATED_TEXTS,
    SHOWN_CHARACTERS,
    SHUFFLED_POINTS,
)
from align.errors import EmptyLogError, NoNumberError, NoStepError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Booleans, Floats, Integers, LogRecord, Phase, Window
    from align.curves.number_forms import NumberColumn
    from align.curves.printed_columns import Printed


N = TypeVar("N", bound=np.generic)
NO_STEP = -2  # format: the mark of a text that is no step


class TableBuilder:
    """Takes blocks of records, in file order or nearly so. `window_of` and `phase_of` tell of a metric by its name.

    What stands for `loss` and is no number is kept as NaN and reported in `notes`; of other metrics it is left out.
    """

    def __init__(
        self,
        window_of: Callable[[str], Window] | None = None,
        phase_of: Callable[[str], Phase] | None = None,
        loss: str | None = None,
        printed_of: Callable[[str], Printed | None] | None = None,
    ) -> None:
        self._window_of, self._phase_of, self._loss, self._printed_of = window_of, phase_of, loss, printed_of
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _USUAL}
        self._named: set[str] = set()
        self._metrics: dict[str, _Column] = {}
        self._count = self.ignored = 0

    def add(  # noqa: PLR0913 - one argument for each column of the table
        self,
        lines: Integers,
        steps: Integers,
        metrics: Mapping[str, Sequence[str]],
        *,
        epochs: Integers | None = None,
        totals: Integers | None = None,
        skipped: Integers | None = None,
        shares: Floats | None = None,
    ) -> None:
        """Take records: `metrics` holds their printed texts by name, "" (or another text) where one has no number.

        All have shape (records,). Records whose step or epoch is NO_STEP are left out; an epoch of -1 is not known, and
        then the table has none. `ignored` counts what was left out.
        """
        columns = dict(zip(_USUAL, (lines, steps, epochs, totals, skipped, shares), strict=True))
        usable = steps != NO_STEP if epochs is None else (steps != NO_STEP) & (epochs != NO_STEP)
        count = int(np.count_nonzero(usable))
        if count < len(steps):
            metrics = {name: _taken(texts, usable) for name, texts in metrics.items()}
            columns = {name: None if column is None else column[usable] for name, column in columns.items()}
            self.ignored += len(steps) - count
        for name, column in columns.items():
            self._columns[name].append(np.broadcast_to(_USUAL[name], count) if column is None else column)
        self._named.update(name for name, column in columns.items() if column is not None)
        rows = np.arange(self._count, self._count + count)
        for name, texts in metrics.items():
            if name not in self._metrics:
                printed = self._printed_of(name) if self._printed_of else None
                self._metrics[name] = _Column(name, keeps_all=name == self._loss, printed=printed)
            self._metrics[name].add(rows, self._columns["lines"][-1], texts)
        self._count += count

    def build(self) -> LogTable:
        """Put everything together in the order of lines; a metric without a single number is left out.

        Nothing can be added afterwards.
        """
        epochs, totals, skipped, shares = map(self._joined, ("epochs", "totals", "skipped", "shares"))
        every = np.arange(self._count)
        table = LogTable(
            np.concatenate([_NO_NUMBERS, *self._columns.pop("lines")]),
            np.concatenate([_NO_NUMBERS, *self._columns.pop("steps")]),
            epochs if epochs is not None and epochs.min() >= 0 else None,
            {name: self._series(name, column, every) for name, column in self._metrics.items() if column.rows},
            _shared(totals) if totals is not None and totals.any() else None,
            skipped if skipped is not None and skipped.any() else None,
            shares if shares is not None and not np.isnan(shares).any() else None,
        )
        return table if (np.diff(table.lines) >= 0).all() else take_rows(table, np.argsort(table.lines, kind="stable"))

    def _joined(self, name: str) -> NDArray[Any] | None:
        """Put a column together, so that its parts can go; None if no record had it."""
        parts = self._columns.pop(name)
        return np.concatenate(parts) if self._count and name in self._named else None

    def refuse_words(self, label: str) -> None:
        """Raise NoNumberError if losses were added, but none is a number; not after `build`."""
        if loss := self._metrics.get(self._loss or ""):
            loss.refuse_words(label)

    def notes(self) -> tuple[str, ...]:
        """Say which losses are null or no number."""
        loss = self._metrics.get(self._loss or "")
        return loss.notes() if loss else ()

    def _series(self, name: str, column: _Column, every: Integers) -> Series:
        values = _shared(_emptied(column.values))
        return Series(
            every if len(values) == len(every) else _emptied(column.rows),
            values,
            column.digits.resolution(self._printed_of(name) if self._printed_of else None),
            self._window_of(name) if self._window_of else RAW,
            self._phase_of(name) if self._phase_of else "training",
        )


class _Column:
    """A loss is measured; learning rates and the like are set, and short numbers of theirs are no rounded ones."""

    def __init__(self, name: str, *, keeps_all: bool = False, printed: Printed | None = None) -> None:
        self.rows: list[Integers] = []
        self.values: list[Floats] = []
        self.digits = DigitColumn(measured="loss" in name.lower(), printed=printed)
        self._keeps_all = keeps_all
        self._null: list[int] = []
        self._strange: list[tuple[int, str]] = []

    def add(self, rows: Integers, lines: Integers, texts: Sequence[str]) -> None:
        """Take the texts of these records."""
        if isinstance(texts, PrintedColumn):
            if not texts.filled.all():
                rows, lines, texts = rows[texts.filled], lines[texts.filled], texts.take(texts.filled)
            if len(rows) and texts.numbers is not None:
                self._take_numbers(rows, texts.numbers)
                return
        if "" in texts or ABSENT in texts:
            filled = [text not in ("", ABSENT) for text in texts]
            rows, lines, texts = rows[filled], lines[filled], list(compress(texts, filled))
        if not len(rows):
            return
        try:
            self._take(rows, texts)
        except ValueError:
            readable = [self._readable(*one) for one in zip(lines.tolist(), texts, strict=True)]
            left = [text != "" for text in readable]
            if any(left):
                self._take(rows[left], list(compress(readable, left)))

    def notes(self) -> tuple[str, ...]:
        """Say which texts are kept as NaN."""
        notes = []
        if self._null:
            notes.append(sentence("logs_note.null_losses", count=len(self._null), line=self._null[0]))
        if self._strange:
            line, text = self._strange[0]
            notes.append(sentence("logs_note.no_numbers", count=len(self._strange), text=text, line=line))
        return tuple(notes)

    def refuse_words(self, label: str) -> None:
        """Raise NoNumberError if there is a text that is no number, and not one number."""
        if self._strange and len(self._strange) + len(self._null) == sum(map(len, self.rows)):
            raise NoNumberError(label, *self._strange[0])

    def _take(self, rows: Integers, texts: Sequence[str]) -> None:
        """Read numbers; of many that are alike, each only once. Raises ValueError if one is none."""
        unlike = set(texts)
        if len(unlike) * REPEATED_TEXTS > len(texts):
            packed, values = _read(texts)
            self.digits.add(packed, values)
        else:
            place = {text: index for index, text in enumerate(unlike)}
            index = np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
            packed, known = _read(list(place))
            values = known[index]
            self.digits.add(packed, known, index)
        self.rows.append(rows)
        self.values.append(values)

    def _take_numbers(self, rows: Integers, numbers: NumberColumn) -> None:
        self.digits.add_numbers(numbers)
        self.rows.append(rows)
        self.values.append(numbers.values)

    def _readable(self, line: int, text: str) -> str:
        """Return a number as it stands, `nan` for what is kept as one, "" for what is left out."""
        text = text.strip()
        if is_number(text):
            return text
        null = is_null(text)
        if self._keeps_all and text:
            if null:
                self._null.append(line)
            else:
                self._strange.append((line, shortened(text)))
            return "nan"
        return "nan" if null else ""


def _taken(texts: Sequence[str], rows: Booleans) -> Sequence[str]:
    return texts.take(rows) if isinstance(texts, PrintedColumn) else list(compress(texts, rows))


def _read(texts: Sequence[str]) -> tuple[NDArray[np.bytes_], Floats]:
    """Pack and read numbers; raises ValueError if one is none, as Python's `1_000` is in no log, or endlessly long."""
    if max(map(len, texts)) > LONGEST_NUMBER:
        msg = "a text so long would make all of the block as long"
        raise ValueError(msg)
    packed = np.array(texts, np.bytes_)
    if b"_" in packed.tobytes():
        msg = "an underscore"
        raise ValueError(msg)
    return packed, np.fromiter(map(float, texts), np.float64, len(texts))


def take_rows(table: LogTable, rows: Integers) -> LogTable:
    """Return some records of a table, in this order; a metric that none of them has is left out."""
    place = np.full(len(table.lines), -1)
    place[rows] = np.arange(len(rows))
    columns: dict[str, Any] = {name: getattr(table, name) for name in _USUAL}
    taken: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
    there = {name: series for name, series in table.metrics.items() if (place[series.rows] >= 0).any()}
    return replace(table, **taken, metrics={name: _moved(series, place) for name, series in there.items()})


def _moved(series: Series, place: Integers) -> Series:
    """Put a series at new places, in their order; what has none goes."""
    places = place[series.rows]
    order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
    return replace(series, rows=places[order], values=series.values[order], resolution=series.resolution[order])


def _shared(column: NDArray[N]) -> NDArray[N]:
    """Let a column of equal numbers, as totals mostly are, share one in memory."""
    return np.broadcast_to(column[0], len(column)) if column.min() == column.max() else column


def _emptied(parts: list[NDArray[N]]) -> NDArray[N]:
    joined = np.concatenate(parts)
    parts.clear()
    return joined


_NO_NUMBERS = np.zeros(0, np.int64)


# The columns of a table beside its metrics, with what stands where a block does not tell them.
_USUAL = {"lines": 0, "steps": 0, "epochs": -1, "totals": 0, "skipped": 0, "shares": np.nan}


def read_steps(texts: Sequence[str]) -> Integers:
    """Read steps or epochs, also when printed as `10.0`; NO_STEP for what is no integer in [0, 2^31)."""
    values = read_printed_numbers(texts)
    with np.errstate(invalid="ignore"):
        valid = (values >= 0) & (values < LARGEST_STEP) & (values == np.floor(values))
    return np.where(valid, values, NO_STEP).astype(np.int64)


def read_printed_steps(texts: Sequence[str]) -> Integers:
    """Read the steps of a column in which some texts may be empty; NO_STEP there."""
    filled = are_filled(texts)
    if filled.all():
        return read_steps(texts)
    steps, rows = np.full(len(filled), NO_STEP), np.flatnonzero(filled)
    if len(rows):
        steps[rows] = read_steps(take_texts(texts, rows))
    return steps


def read_printed_numbers(texts: Sequence[str]) -> Floats:
    """Read numbers; NaN for a text that is none."""
    if isinstance(texts, PrintedColumn) and texts.numbers is not None:
        return texts.numbers.values
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array([float(own) if is_number(own := text.strip()) else np.nan for text in texts], np.float64)


def read_step(text: str) -> int | None:
    """Read one step or epoch; None if it is none."""
    step = int(read_steps([text])[0])
    return None if step == NO_STEP else step


def as_table(
    records: Iterable[LogRecord],
    window_of: Callable[[str], Window] | None = None,
    phase_of: Callable[[str], Phase] | None = None,
    printed_of: Callable[[str], Printed | None] | None = None,
) -> LogTable:
    """Put records that were made one by one into columns: for formats whose lines are few."""
    listed = list(records)
    names = dict.fromkeys(name for record in listed for name in record.texts)
    builder = TableBuilder(window_of, phase_of, printed_of=printed_of)
    builder.add(
        np.array([record.line for record in listed], np.int64),
        np.array([record.step for record in listed], np.int64),
        {name: [record.texts.get(name, "") for record in listed] for name in names},
        epochs=np.array([-1 if record.epoch is None else record.epoch for record in listed], np.int64),
    )
    return builder.build()


class InvalidSteps:
    """What was left out of a log, block by block; lines between the rows, which are neither, are none of it."""

    def __init__(self) -> None:
        self._count = 0
        self._first: tuple[int, str] = (0, "")

    def look(self, lines: Integers, steps: Integers, texts: Sequence[str], losses: Sequence[str]) -> None:
        """Look at the steps of a block, as read and as printed; texts are empty where the block has none."""
        for row in np.flatnonzero(steps == NO_STEP).tolist() if len(texts) else ():
            text = texts[row].strip()
            if is_number(text) or (text and row < len(losses) and is_number(losses[row].strip())):
                self._first = self._first if self._count else (int(lines[row]), shortened(text))
                self._count += 1

    def notes(self) -> tuple[str, ...]:
        """Say how many rows are left out."""
        line, text = self._first
        return (sentence("logs_note.invalid_steps", count=self._count, text=text, line=line),) if self._count else ()

    def refuse(self, label: str) -> None:
        """Raise NoStepError if anything was left out: for a log of which nothing else is left."""
        if self._count:
            raise NoStepError(label, *self._first)


# One point a step, the latest, out of what a log tells in the order of its lines.
#
# A log that goes back tells the same points again, goes on with a resumed training, or has its lines out of order;
# where it hardly goes on without going back, several processes wrote into it. What it tells of a step again decides:
# equal values prove nothing by themselves, as a resumed training may well come to some of them. Lines out of order
# that tell unlike values of a step do not show which is the later one.

Unclear = Literal["", "unlike values", "counters above", "steps between"]


@dataclass(frozen=True, slots=True, eq=False)
class KeptPoints:
    """Which points of a log stand on the curve, in the order of steps; `resumed`: the log went back before these.

    `each` is how many values the log has of a step, 1 unless it tells unlike ones of most steps: then they are of
    several processes, not of a resumed run. `unclear` says why the order of lines does not show which points are the
    latest, "" where it does. `whole`: the points stand there as they are.
    """

    index: Integers
    notes: tuple[str, ...] = ()
    resumed: Booleans | None = None
    each: int = 1
    unclear: Unclear = ""
    whole: bool = False


def deduplicate_steps(steps: Integers, values: Floats, *, headed: bool = False) -> KeptPoints:
    """Keep one point a step, the latest, in the order of steps.

    Where the log goes back to an earlier step and tells another value of one before it goes back again, the training
    was resumed: what stood before from there on belongs to the abandoned run, be it equal or not. Where nothing is
    contradicted, what is printed again is dropped and what is out of order is sorted, unless the log is `headed`: then
    lines out of order stand below the counters of others.
    """
    if np.all(steps[1:] > steps[:-1]):
        return KeptPoints(np.arange(len(steps)), whole=True)
    at_once, same = np.diff(steps) == 0, _same(values[1:], values[:-1])
    again = np.unique(steps[1:][at_once & ~same])
    index = np.flatnonzero(np.append(~at_once, True))
    resumed = _resumed_at(steps[index], values[index])
    standing = _not_replaced(steps[index], resumed)
    kept = standing[np.unique(steps[index][standing], return_index=True)[1]]
    back, distinct = steps[index][resumed], len(np.unique(steps))
    repeats = int(np.count_nonzero(at_once & same)) + len(standing) - len(kept)
    notes = []
    if repeats:
        notes.append(sentence("logs_note.repeated", count=repeats))
    if len(again):
        notes.append(sentence("logs_note.printed_again", count=len(again), step=again[0]))
    if len(back):
        abandoned = distinct - len(kept)
        notes.append(sentence("logs_note.goes_back", count=len(back), step=int(back[0]), abandoned=abandoned))
    if np.any(np.diff(kept) < 0):
        notes.append(sentence("logs_note.sorted"))
    otherwise = len(np.union1d(again, back))
    each = round((len(steps) - repeats) / distinct)
    numbers = len(np.unique(steps[1:][at_once & (np.abs(np.diff(values)) > 0)]))
    often = otherwise >= max(ACCIDENTAL_REPEATS, distinct / 2) or numbers == distinct
    crowded = numbers * 2 >= distinct and each > ACCIDENTAL_REPEATS
    return KeptPoints(
        index[kept],
        tuple(notes),
        np.isin(kept, resumed) if len(resumed) else None,
        max(2, each) if often else 1,
        "" if often else "unlike values" if crowded else _unclear(steps[index], kept, again, resumed, headed=headed),
    )


def _same(one: Floats, other: Floats) -> Booleans:
    """Tell which values are equal; NaN equals NaN."""
    same: Booleans = (one == other) | (np.isnan(one) & np.isnan(other))
    return same


def _resumed_at(steps: Integers, values: Floats) -> Integers:
    """Return where the log goes back and, before it does so again, contradicts what it last said of a step."""
    order = np.argsort(steps, kind="stable")
    otherwise = order[1:][(np.diff(steps[order]) == 0) & ~_same(values[order][1:], values[order][:-1])]
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    resumed: Integers = back[np.unique(np.searchsorted(back, otherwise, "right")) - 1]
    return resumed


def _unclear(steps: Integers, kept: Integers, again: Integers, resumed: Integers, *, headed: bool) -> Unclear:
    """Tell why the latest points are not known; `kept` are the places of those that stand, in the order of steps."""
    moved, back = (int(np.count_nonzero(np.diff(places) < 0)) for places in (kept, steps))
    if (len(resumed) or len(again)) and (moved >= SHUFFLED_POINTS or _is_shuffled(steps)):
        return "unlike values"
    if headed and (moved or len(again) * 2 >= len(np.unique(steps))):
        return "counters above"
    return "steps between" if moved > ACCIDENTAL_REPEATS * back else ""


def _is_shuffled(steps: Integers) -> bool:
    """Tell whether the log hardly ever goes on to the next step that it tells, as each pass of a resumed run does."""
    moves = np.diff(np.unique(steps, return_inverse=True)[1])
    back = int(np.count_nonzero(moves < 0))
    often_back = back * ACCIDENTAL_REPEATS >= len(moves) or len(moves) < SHUFFLED_POINTS
    return often_back and int(np.count_nonzero(moves == 1)) * 2 < len(moves)


def _not_replaced(steps: Integers, resumed: Integers) -> Integers:
    """Return the points that no run resumed later replaces, as it begins at their step or an earlier one."""
    earliest = np.full(len(steps), np.iinfo(np.int64).max)
    earliest[resumed - 1] = steps[resumed]
    return np.flatnonzero(steps < np.minimum.accumulate(earliest[::-1])[::-1])


# What all loss-log readers share: numbers as they are printed, and how a log ends.
#
# `null` or `None` in place of a number is what writers make of NaN.

T = TypeVar("T")

NUMBER = r"[-+]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:nan|inf(?:inity)?)\b)"


_WHOLE = re.compile(NUMBER)
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+(?:[eE][-+]?[0-9]+)?")


def known(result: T | None, source: LogSource, expected: str) -> T:
    """Return what a format found in a log; raises EmptyLogError with what it expected if that is nothing."""
    if result is None:
        raise EmptyLogError(source.label, [expected])
    return result


def is_number(text: str) -> bool:
    """Tell whether a text is one decimal number, NaN or infinity."""
    return len(text) <= LONGEST_NUMBER and _WHOLE.fullmatch(text) is not None


def with_point(text: str) -> str:
    """Return a number with a decimal comma as one with a point, all else as it is."""
    return text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text


def shortened(text: str) -> str:
    """Return a text as messages show it, which may have any length in a log."""
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def is_null(text: str) -> bool:
    """Tell whether a text stands explicitly for no value."""
    return text.lower() in ("null", "none")


def end_notes(source: LogSource) -> tuple[str, ...]:
    """Say so if the text stops in the middle of a line: its last number may have been cut."""
    return (sentence("logs_note.no_line_end"),) if source.was_cut else ()
