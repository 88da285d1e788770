"""The lines of a log with one record in each, also where writers that share a file ran together on one line.

A record that is not the first of its line begins at its time stamp, else at the words that all of its kind begin with;
from there on it is a line of its own, under the same number. That is rare, so that whole blocks are asked first.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import numpy as np

from align.curves.log_parts.table_builder import end_notes
from align.curves.log_sources import LogBlock, LogSource, is_digit_blind
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.number_forms import TO_ZEROS
from align.curves.printed_columns import NO_FIELD, PrintedColumn, field_at, take_texts
from align.curves.thresholds import (
    CUT_LINE_BYTES,
    CUT_LINE_EXAMPLES,
    CUT_LINE_RECORDS,
    ENDS_OF_A_PASS,
    MOST_COLUMNS,
    PROVING_MULTIPLES,
    SHUFFLED_POINTS,
    SURELY_NEARER,
)
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from align.curves.log_parts.table_builder import TableBuilder
    from align.curves.log_sources import LogFormat
    from align.curves.loss_log import Booleans, Floats, Integers, Phase
    from align.curves.printed_columns import Field


# A time stamp, and the names of a logger between it and the record.
_STAMP = r"(?:(?:\[?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T]|\[[0-9]{2}/[0-9]{2} )[^\n]{0,150}?)?"


class RecordReading(Protocol):
    """What takes the lines of a format into columns; `ignored` counts what is no record, but for the builder's own."""

    builder: TableBuilder
    ignored: int

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        ...


class RecordLines:
    """The blocks of a log: `start` is found where a record starts, one of `together` in each line that holds two.

    Both are regular expressions. `together` may be found in other lines too; it is fast if it begins with a fixed text.
    """

    def __init__(self, source: LogSource, start: str, *together: str) -> None:
        self._source = source
        self._start, self._together = re.compile(_STAMP + f"(?:{start})"), [re.compile(one) for one in together]
        self._found: list[int] = []

    def blocks(self) -> Iterator[LogBlock]:
        """Give the lines in order."""
        for block in self._source.blocks():
            yield self._taken_apart(block) if self._may_hold_two(block) else block

    def notes(self) -> tuple[str, ...]:
        """Say where records were taken apart, and whether the end of the text was cut."""
        at_end = end_notes(self._source)
        if not self._found:
            return at_end
        return (sentence("logs_note.taken_apart", count=len(self._found), line=self._found[0]), *at_end)

    def read(self, plugin: LogFormat, reading: RecordReading) -> LossLog:
        """Hand all blocks to `reading`, and make a log of global steps from 1; raises EmptyLogError without a loss."""
        for block in self.blocks():
            reading.add(block)
        table = reading.builder.build()
        if "loss" not in table.metrics:
            raise EmptyLogError(self._source.label, [plugin.summary])
        ignored = reading.ignored + reading.builder.ignored
        return LossLog(
            self._source.label, plugin.name, table, "loss", "global step", 1, ignored_lines=ignored, notes=self.notes()
        )

    def _may_hold_two(self, block: LogBlock) -> bool:
        layouts = block.layouts if all(map(is_digit_blind, self._together)) else None
        texts = (block.text,) if layouts is None else layouts.samples
        return any(one.search(text) for one in self._together for text in texts)

    def _taken_apart(self, block: LogBlock) -> LogBlock:
        pieces: list[str] = []
        numbers: list[int] = []
        for number, line in block.lines():
            later = [found.start() for found in self._start.finditer(line)][1:]
            pieces += [line[first:last] for first, last in pairwise((0, *later, len(line)))]
            numbers += [number] * (len(later) + 1)
            self._found += [number] * bool(later)
        return LogBlock("\n".join(pieces), np.array(numbers, np.int64))


def twice(start: str) -> str:
    """Make an expression that finds two of a kind in a line."""
    return f"{start}[^\n]*{start}"


# Lines that are lists of `name: number`, read into columns.
#
# Neighbouring lines name the same things, as a rule: then one search over all of them is enough. It looks for the
# ends of lines too, so that no number can move to another line.

_END = "\n"


def pair_columns(lists: Sequence[str], pair: re.Pattern[str]) -> dict[str, Sequence[str]]:
    """Return the numbers of each list, as printed, by name: "" where a list has none, the last where it has two.

    Of a list with more than `MOST_COLUMNS` numbers only so many are read.
    `pair` has two groups, the name and the number, and must not reach over a line's end.
    """
    if not lists:
        return {}
    if isinstance(lists, PrintedColumn) and is_digit_blind(pair):
        columns = _by_layout(lists, pair)
        if columns is not None:
            return columns
    pair_or_end = re.compile(rf"{pair.pattern}|({_END})", pair.flags)
    matches = pair_or_end.findall(_END.join((*lists, "")))
    names = [name for name, _, _ in matches]
    first = names[: names.index("")]
    if len(first) <= MOST_COLUMNS and names == [*first, ""] * len(lists):
        return {name: [number for _, number, _ in matches[at :: len(first) + 1]] for at, name in enumerate(first)}
    rows = [dict(pair.findall(text)[:MOST_COLUMNS]) for text in lists]
    return {name: [row.get(name, "") for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _by_layout(lists: PrintedColumn, pair: re.Pattern[str]) -> dict[str, Sequence[str]] | None:
    """Search one list of each layout; None if names in others have other digits, or there are very many."""
    known: dict[int, dict[str, Field]] = {}
    for kind in dict.fromkeys(lists.kinds.tolist()):
        text = lists.fields[kind].text
        spans = _spans(pair, text.translate(TO_ZEROS))
        numbered = [name for name, _ in spans if any(map(str.isdigit, text[slice(*name)]))]
        rows = lists.by_layout(kind) if numbered else lists.kinds[:0]
        spelled = [field_at(text, *name) for name in numbered]
        if len(spans) > MOST_COLUMNS or not all(lists.has_one_text(rows, one.start, one.end) for one in spelled):
            return None
        known[kind] = {text[slice(*name)]: field_at(text, *number) for name, number in spans}
    names = dict.fromkeys(name for fields in known.values() for name in fields)
    kinds = range(len(lists.fields))
    return {name: lists.parted([known.get(kind, {}).get(name, NO_FIELD) for kind in kinds]) for name in names}


@lru_cache(maxsize=4096)
def _spans(pair: re.Pattern[str], text: str) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Where names and numbers stand in a text of which each digit is 0; blocks of a log have the same layouts."""
    return tuple((match.span(1), match.span(2)) for match in pair.finditer(text))


# The last line of a log that stops in the middle of it: left out where the lines before show that it was longer.
#
# A number that lost its last digits is a wrong one: a loss, or a step that seems to go back. Of any text two lines
# like it are asked for; where the lines of the format are known, one more is enough.

_NUMBER = re.compile(r"[-+]?[0-9][0-9.eE+-]*")
_TAIL = re.compile(r"[-+.0-9eE]*[0-9.]$")


def without_cut_line(
    source: LogSource, is_record: Callable[[str], object] | None = None
) -> tuple[LogSource, tuple[str, ...]]:
    """Return the log without its last line if that was plainly cut, and a note; else as it is.

    `is_record` knows the lines of the format; without it all lines count.
    """
    if not source.was_cut or source.is_binary:
        return source, ()
    start = _last_start(source)
    parts = source.data[start:], source.data[max(0, start - CUT_LINE_BYTES) : start]
    last, text = (part.decode("utf-8", "replace") for part in parts)
    lines = text.splitlines()[start > CUT_LINE_BYTES :]
    if is_record is not None:
        lines = [line for line in lines[-CUT_LINE_RECORDS:] if is_record(line)] if is_record(last) else []
    if not _is_beginning(last, lines, CUT_LINE_EXAMPLES if is_record is None else 1):
        return source, ()
    return LogSource(source.label, source.data[:start], source.metric), (sentence("logs_note.cut_line"),)


def without_last_line(source: LogSource, is_cut: Callable[[str], bool]) -> tuple[LogSource, tuple[str, ...]]:
    """Return the log without a last line that has no end and of which `is_cut` says so by itself, and a note."""
    if not source.was_cut or not is_cut(source.data[(start := _last_start(source)) :].decode("utf-8", "replace")):
        return source, ()
    return LogSource(source.label, source.data[:start], source.metric), (sentence("logs_note.cut_line"),)


def _last_start(source: LogSource) -> int:
    return max(source.data.rfind(b"\n"), source.data.rfind(b"\r")) + 1


def _is_beginning(last: str, before: Sequence[str], least: int) -> bool:
    """Tell whether a line is the beginning of one like those before, whatever their numbers."""
    shape, shapes = _shape(last), list(map(_shape, before))
    if "#" not in shape:
        return False
    alike = [line for line, other in zip(before, shapes, strict=True) if other == shape]
    if alike:
        return len(alike) >= least and _is_shorter(last, alike)
    return sum(other.startswith(shape) for other in shapes) >= least


def _shape(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _is_shorter(last: str, others: Sequence[str]) -> bool:
    """Tell whether the number at the end has fewer decimals than all others, or is a whole one of too few digits.

    Numbers of unlike decimals are printed with all their digits: then far fewer of these tell too. A lone other proves
    nothing of whole numbers, as 9 may follow 10, unless they only grew.
    """
    tail, tails = _tail(last), list(map(_tail, others))
    if not tail or not all(tails):
        return False
    decimals, lengths = list(map(_decimals, tails)), list(map(len, tails))
    if max(decimals) > 0:
        return _decimals(tail) < min(decimals) or (min(decimals) < max(decimals) and _has_few_digits(tail, tails))
    shorter = len(tails) >= CUT_LINE_EXAMPLES and len(tail) < min(lengths)
    return shorter or (lengths == sorted(lengths) and len(tail) < lengths[-1])


def _has_few_digits(tail: str, tails: Sequence[str]) -> bool:
    """Tell whether a number has at least two significant digits less than all others, which print all they have."""
    return _significant(tail) + CUT_LINE_EXAMPLES <= min(map(_significant, tails))


def _significant(number: str) -> int:
    """Count the digits from the first that is no zero, without those of an exponent."""
    return sum(map(str.isdigit, re.split("[eE]", number)[0].lstrip("+-0.")))


def _tail(line: str) -> str:
    found = _TAIL.search(line.rstrip())
    return found[0] if found else ""


def _decimals(number: str) -> int:
    """Count the digits behind the point, and the point; 0 for a whole number."""
    return len(number) - len(number.partition(".")[0])


# Validation results that stand between the lines of training: metrics of their own, named `val/...`.
#
# Under one name they would look like training values that were printed again.

T = TypeVar("T")
_PREFIX = "val/"
OTHER_PHASES = ("val", "valid", "validation", "eval", "evaluation", "test", "predict")
_WORDS = re.compile(r"[/_\s.-]+")


def by_phase(validation: Booleans) -> Iterator[tuple[bool, Integers]]:
    """Yield (False, the rows of training) and (True, those of validation), as far as there are any."""
    for phase in (False, True):
        rows = np.flatnonzero(validation == phase)
        if len(rows):
            yield phase, rows


def named_validation(metrics: Mapping[str, T]) -> dict[str, T]:
    """Call metrics what they are called here if they are of validation: `val/acc` for `acc`, `val/acc` as it is."""
    return {name if name.startswith(_PREFIX) else _PREFIX + name: texts for name, texts in metrics.items()}


def add_pairs(  # noqa: PLR0913 - the columns of a table
    builder: TableBuilder,
    lines: Integers,
    steps: Integers,
    lists: Sequence[str],
    pair: re.Pattern[str],
    training: Booleans,
    names: Mapping[str, str],
    without: Collection[str] = (),
    epochs: Integers | None = None,
    totals: Integers | None = None,
) -> None:
    """Add lists of `name: number` to a table, those of validation as such, under other `names` if there are some."""
    for validated, at in by_phase(~training):
        columns = pair_columns(take_texts(lists, at), pair)
        metrics = {names.get(name, name): texts for name, texts in columns.items() if name not in without}
        builder.add(
            lines[at],
            steps[at],
            named_validation(metrics) if validated else metrics,
            epochs=None if epochs is None else epochs[at],
            totals=None if totals is None else totals[at],
        )


def carry_forward(values: Integers, known: Booleans, before: int) -> Integers:
    """Give the places that are not `known` the last known value in front of them, `before` where there is none."""
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    return np.where(last < 0, before, values[last])


def phase_by_name(name: str) -> Phase:
    """Tell the phase by the first or the last word of a metric's name."""
    words = _WORDS.split(name.lower())
    return "validation" if {words[0], words[-1]} & set(OTHER_PHASES) else "training"


# How a log counts, by its printed steps: whether they start again with each epoch, and what the first is called.

Passes = Literal["", "epochs", "runs", "open"]


def starts_again(steps: Integers, epochs: Integers) -> bool:
    """Tell whether the ranges of steps of two epochs overlap; both arrays have shape (records,)."""
    known, index = np.unique(epochs, return_inverse=True)
    first, last = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), -1)
    np.minimum.at(first, index, steps)
    np.maximum.at(last, index, steps)
    return bool(np.any(first[1:] <= last[:-1]))


def distance_from_zero(steps: Integers) -> int:
    """Return the number, 3 or more, of which all steps are one less than a multiple; 0 if there is none.

    What prints every 20th step shows 20, 40 ... where it counts from 1, and 19, 39 ... where it counts from 0.
    """
    distances = np.diff(steps)
    if not (distances > 0).all():
        steps = np.unique(steps)
        distances = np.diff(steps)
    if len(steps) < PROVING_MULTIPLES or (distance := int(distances.min())) < PROVING_MULTIPLES:
        return 0
    regular = not (distances % distance).any()
    return distance if regular and (int(steps[0]) + 1) % distance == 0 else 0


def where_passes_begin(steps: Integers) -> Integers:
    """Return where steps start again at their smallest, after a largest that is one in all passes but the last.

    Empty where they go back otherwise: a resumed run goes back to a step between. Few points show nothing.
    """
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    ends, begins = steps[back - 1], steps[np.append(0, back)]
    whole = bool(len(back)) and (begins == steps.min()).all() and (ends == steps.max()).all()
    return back if whole and len(steps) >= SHUFFLED_POINTS and int(back.min()) > 1 else back[:0]


def passes_are(begins: Integers, values: Floats) -> Passes:
    """Tell by the losses whether passes are epochs, each of which goes on where the last one ended, or runs anew.

    Where the first pass hardly learns, or a pass begins with no number, the losses leave it open.
    """
    passes = np.split(values, begins)
    if all(np.array_equal(part, passes[0][: len(part)], equal_nan=True) for part in passes):
        return "runs"  # a copy of the same
    ends = max(1, len(passes[0]) // ENDS_OF_A_PASS)
    start, end = (float(np.median(part)) for part in (passes[0][:ends], passes[0][-ends:]))
    steps_apart = np.abs(np.diff(values[np.isfinite(values)]))
    noise = float(np.median(steps_apart)) if len(steps_apart) else np.inf
    onward = [abs(np.median(b[:ends]) - np.median(a[-ends:])) for a, b in itertools.pairwise(passes)]
    anew = [abs(np.median(part[:ends]) - start) for part in passes[1:]]
    known = np.isfinite(onward) & np.isfinite(anew)
    if not known.any() or not abs(start - end) > SURELY_NEARER * noise:
        return "open"
    far, near = np.array(anew)[known], np.array(onward)[known]
    if (far > SURELY_NEARER * near).all():
        return "epochs"
    return "runs" if (near > SURELY_NEARER * far).all() else "open"


# What the two logs of mmengine have in common.
#
# Losses, times and gradient norms are means over the last `window_size` steps, ten if the configuration does not say
# otherwise, running on over epochs; at the beginning over the steps so far. All else is of the printed step.

USUAL_LENGTH = 10  # format: `window_size` of mmengine's LogProcessor by default
_SETTINGS = ("lr", "momentum", "memory")
_PROCESSOR = re.compile(r"\blog_processor\s*=\s*dict\(")
_BRACKET_OR_LENGTH = re.compile(r"[(\[{]|([)\]}])|\bwindow_size\s*=\s*([0-9]{1,9})")
_AVERAGED = re.compile("loss|time|grad_norm")
IN_SECONDS = {  # times with their unit as suffix
    f"{prefix}{name}": f"{prefix}{name}_s" for prefix in ("", "train/", "val/") for name in ("time", "data_time")
}


def usual_length_note() -> str:
    """Say that the configuration does not tell over how many steps means are taken."""
    return sentence("logs_note.usual_length", length=USUAL_LENGTH)


def smoothed_window(name: str, length: int) -> Window:
    """Return what a metric is the mean of, by its name, where `length` steps are averaged."""
    averaged = _AVERAGED.search(name) and phase_by_name(name) == "training"
    return Window("mean of last", length) if averaged and length > 1 else RAW


def configured_length(text: str) -> int | None:
    """Return the `window_size` of the `log_processor` itself, not of what is nested in it; None if it tells none."""
    processor = _PROCESSOR.search(text) if "log_processor" in text else None
    depth = 0
    for found in _BRACKET_OR_LENGTH.finditer(text, processor.end()) if processor else ():
        closing, length = found.groups()
        if length and depth == 0:
            return int(length)
        if not length:
            depth += -1 if closing else 1
        if depth < 0:
            break
    return None


def print_interval(steps: Sequence[Integers]) -> int:
    """Return how many steps apart mmcv prints; `steps` of all training lines may start again with each epoch."""
    printed = np.concatenate(steps)
    distances = np.diff(printed, prepend=0)
    return int(np.median(np.where(distances > 0, distances, printed)))


def interval_window(name: str, interval: int) -> Window:
    """Return what a metric of mmcv is the mean of: all but settings are averaged over the print interval."""
    single = interval <= 1 or name in _SETTINGS or phase_by_name(name) == "validation"
    return RAW if single else Window("mean of last", interval)


def is_training_object(keys: Collection[str]) -> bool:
    """Tell by the keys of an object of JSON lines whether mmengine or mmcv wrote it for a training step."""
    return "iter" in keys and any({f"{prefix}time", f"{prefix}data_time"} <= set(keys) for prefix in ("", "train/"))
