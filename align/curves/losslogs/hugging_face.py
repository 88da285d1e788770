"""What the Hugging Face Trainer prints: one dict at a time between the states of its progress bar.

The dicts know no step. The bar is drawn anew right after each of them, with the steps done by then (what stands before
a dict may be older); without a bar there is only the epoch with its fraction. Versions 5 print four significant digits
as texts, versions 4 round the loss to four decimals and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.curves.global_steps import steps_from_shares
from align.curves.log_parts.record_lines import RecordLines, by_phase, carry_forward, pair_columns, phase_by_name, twice
from align.curves.log_parts.table_builder import (
    NO_STEP,
    NUMBER,
    TableBuilder,
    as_table,
    read_printed_numbers,
    read_printed_steps,
    read_step,
    take_rows,
)
from align.curves.log_sources import LogPlugin
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LogRecord, LossLog
from align.curves.printed_columns import Printed, are_filled, find_columns, have_word, search_texts, take_texts
from align.curves.thresholds import LARGEST_STEP
from align.errors import EmptyLogError, StepsPerEpochError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Booleans, Floats, Integers, LogTable, Window


# A dict, or a progress bar that describes nothing (`Map: 100%|`): steps done, steps in all.
_PIECES = re.compile(r"(\{'[^{}\n]*\})|(?<!: ...)%\|[^|\n]*\| *([0-9]+)/([0-9]+) \[")
_PAIR = re.compile(rf"'([^'\n]+)': '?({NUMBER}|None)(?=['}},])")
_EPOCH = re.compile(rf"'epoch': '?({NUMBER})(?=['}},])")
_OWN_STEP = re.compile(r"'global_step/max_steps': '([0-9]+)/([0-9]+)'")  # of ms-swift, which prints it in the dict
_NEEDED = {"loss", "learning_rate", "epoch"}
_SUMMARY = "train_runtime"
# Of a loss in versions 4, of all that is printed as text in versions 5.
_ROUNDED, _FOUR_DIGITS = Printed("decimals", 4), Printed("significant", 4)
_START, _TOGETHER = r"\{'", (twice(r"\{'"),)


class HfStdoutFormat(LogPlugin):
    """Dicts `{'loss': 0.2599, 'grad_norm': 1.5497, 'learning_rate': 4.375e-05, 'epoch': 0.5}`, with progress bars."""

    name = "hf_stdout"
    summary = "what the Hugging Face Trainer prints: {'loss': 0.2599, ..., 'learning_rate': 4.37e-05, 'epoch': 0.5}"
    sample = (
        b"\r  0%|          | 0/8 [00:00<?, ?it/s]\r                                     \r"
        b"{'loss': '6.027', 'grad_norm': '8.841', 'learning_rate': '0.04375', 'epoch': '0.5'}\n"
        b"\r 25%|##5       | 2/8 [00:00<00:00, 167.17it/s]\r                                              \r"
        b"{'loss': '4.348', 'grad_norm': '6.378', 'learning_rate': '0.03125', 'epoch': '1'}\n"
        b"\r 50%|#####     | 4/8 [00:00<00:00, 286.98it/s]\n"
        b"{'eval_loss': '2.892', 'eval_runtime': '0.0094', 'eval_samples_per_second': '1695', 'epoch': '1'}\n"
        b"\r 50%|#####     | 4/8 [00:00<00:00, 167.17it/s]\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether a dict has a loss, a learning rate and an epoch, all of them numbers."""
        return any(
            dict(_PAIR.findall(printed)).keys() >= _NEEDED
            for block in source.blocks()
            if "'learning_rate'" in block.text
            for printed, *_ in _PIECES.findall(block.text)
            if printed
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all dicts with an epoch but the summary at the end; raises EmptyLogError if none has a loss."""
        reading, lines = _Reading(), RecordLines(source, _START, *_TOGETHER)
        for block in lines.blocks():
            reading.add(block)
        table, by_step, notes = reading.table()
        length, length_notes = (None, ()) if by_step else reading.length(table)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="global step" if by_step else "share of epochs",
            base=1,
            steps_per_epoch=length,
            ignored_lines=reading.filled - len(table.lines),
            notes=(*lines.notes(), *reading.builder.notes(), *notes, *length_notes),
        )


class _Reading:
    """Dicts with an epoch by their number, and the bars: the number of the dict before, steps done, steps in all."""

    def __init__(self) -> None:
        self.builder = TableBuilder(_window, phase_by_name, loss="loss", printed_of=self._printed)
        self.filled = self._count = 0
        self._as_texts: dict[str, bool] = {}
        self._losses: list[Booleans] = []
        self._summaries: list[Booleans] = []
        self._bars: list[Integers] = []
        self._totals: set[int] = set()
        self._end = 0.0

    def add(self, block: LogBlock) -> None:
        """Take the dicts and bars of a block."""
        self.filled += block.count_filled()
        matches = find_columns(block, _PIECES)
        if not matches.columns:
            return
        printed, done, totals = matches.columns
        of_bars, shares = are_filled(totals), _shares(printed)
        lengths = read_printed_steps(totals)
        self._totals.update(np.unique(lengths[of_bars]).tolist())
        dicts = np.flatnonzero(~np.isnan(shares))
        owners = self._count - 1 + np.cumsum(~np.isnan(shares))
        bars = np.flatnonzero(of_bars & (owners >= 0))
        if "'global_step/max_steps'" in block.text:
            told = [(place, _OWN_STEP.search(printed[place])) for place in dicts.tolist()]
            own = [(int(owners[place]), *map(int, step.groups())) for place, step in told if step]
            self._bars.append(np.array(own, np.int64).reshape(-1, 3).T)
        self._bars.append(np.stack([owners[bars], read_printed_steps(done)[bars], lengths[bars]]))
        if len(dicts):
            lines = block.numbers[matches.places[dicts]]
            self._add(lines, take_texts(printed, dicts), shares[dicts], block.text)

    def table(self) -> tuple[LogTable, bool, tuple[str, ...]]:
        """Put the dicts at the steps of the training bar, else at whole epochs; tell which, and what that cost."""
        table = self.builder.build()
        if not len(table.lines):
            return table, False, ()
        kept = ~np.concatenate(self._summaries)
        losses = np.concatenate(self._losses) & kept
        steps, totals = _steps(losses, np.concatenate(self._bars, axis=1))
        by_step = bool(losses.any() and totals.any() and (steps[losses][:-1] != NO_STEP).all())
        cut = by_step and steps[losses][-1] == NO_STEP
        numbers = table.steps
        if by_step:
            table, kept = replace(table, steps=steps[numbers], totals=totals[numbers]), kept & (steps != NO_STEP)
        elif table.shares is not None:
            table = replace(table, steps=np.floor(table.shares).astype(np.int64))
        notes = (sentence("logs_note.last_without_bar"),) if cut else ()
        return take_rows(table, np.flatnonzero(kept[numbers])), by_step, notes

    def length(self, table: LogTable) -> tuple[float | None, tuple[str, ...]]:
        """Tell the steps of an epoch by a bar that stands apart: the one total, of the epochs at the end, that fits."""
        losses = table.metrics.get("loss")
        if table.shares is None or losses is None or not self._end:
            return None, ()
        totals = sorted(self._totals)
        fitting = [total for total in totals if self._fits(table.shares[losses.rows], total / self._end)]
        if len(fitting) != 1:
            return None, ()
        length = fitting[0] / self._end
        return length, (sentence("logs_note.length_by_bar", length=length, total=fitting[0], epochs=self._end),)

    @staticmethod
    def _fits(shares: Floats, length: float) -> bool:
        try:
            steps_from_shares("", shares, length)
        except StepsPerEpochError:
            return False
        return True

    def _add(self, lines: Integers, dicts: Sequence[str], shares: Floats, text: str) -> None:
        """Take dicts at their number in place of the step, those with a loss apart, as others name other things."""
        numbers = np.arange(self._count, self._count + len(dicts))
        losses, summaries = (have_word(dicts, f"'{name}': ") for name in ("loss", _SUMMARY))
        for _, at in by_phase(~losses):
            columns = pair_columns(take_texts(dicts, at), _PAIR)
            for name in columns.keys() - self._as_texts.keys():
                self._as_texts[name] = f"'{name}': '" in text
            metrics = {name: texts for name, texts in columns.items() if name != "epoch"}
            self.builder.add(lines[at], numbers[at], metrics, shares=shares[at])
        self._losses.append(losses)
        self._summaries.append(summaries)
        self._end = float(shares[summaries][-1]) if summaries.any() else self._end
        self._count += len(dicts)

    def _printed(self, name: str) -> Printed | None:
        if self._as_texts.get(name):
            return _FOUR_DIGITS
        return _ROUNDED if name == "loss" else None


def _shares(printed: Sequence[str]) -> Floats:
    """Return the epoch of each dict, NaN for what has none."""
    epochs = search_texts(printed, _EPOCH)
    rows = np.flatnonzero(are_filled(epochs))
    shares = np.full(len(epochs), np.nan)
    shares[rows] = read_printed_numbers(take_texts(epochs, rows)) if len(rows) else np.nan
    return np.where((shares >= 0) & (shares < LARGEST_STEP), shares, np.nan)


def _steps(losses: Booleans, bars: Integers) -> tuple[Integers, Integers]:
    """Return the step of each dict by the first training bar after it, NO_STEP without one, and the steps in all.

    Right after a loss only the training bar is drawn, so it tells how many steps there are in all, 0 if none does;
    after an evaluation others may come first. The last loss of a log that was cut may lack its bar.
    """
    owners, done, totals = bars
    steps, first = np.full(len(losses), NO_STEP), np.zeros(len(losses), np.int64)
    first[owners[::-1]] = totals[::-1]
    known = losses & (first > 0)
    if not known.any():
        return steps, np.zeros_like(first)
    printed = carry_forward(first, known, int(first[known][0]))
    right = totals == printed[owners]
    steps[owners[right][::-1]] = done[right][::-1]
    return steps, printed


def _window(name: str) -> Window:
    return SINCE_LAST_PRINT if name == "loss" else RAW


# `trainer_state.json` of the Hugging Face Trainer.
#
# Each loss is the mean since the last print, over as many steps as `step` went on; all else is of one step. The
# summary at the end is of the whole run and no record. An explicit `null` is NaN.

_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_ENTRY = re.compile(r"[\s,]*\{")
_END = re.compile(r"\s*\]")


class TrainerStateFormat(LogPlugin):
    """One JSON object with `log_history` and `global_step`."""

    name = "hf_trainer_state"
    summary = "trainer_state.json of the Hugging Face Trainer"
    sample = (
        b'{"epoch": 1.0, "global_step": 4, "log_history": [\n'
        b'{"epoch": 0.5, "grad_norm": 1.54, "learning_rate": 4.3e-05, "loss": 0.25994735956192017, "step": 2},\n'
        b'{"epoch": 1.0, "grad_norm": 0.95, "learning_rate": 3.1e-05, "loss": 0.20888003706932068, "step": 4},\n'
        b'{"epoch": 1.0, "eval_loss": 0.23425716161727905, "step": 4}]}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether an object begins that has a log history; a long one is not parsed for that."""
        return source.text.lstrip().startswith("{") and _HISTORY.search(source.text) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read the log history; raises EmptyLogError if no entry has a loss."""
        ignored: list[int] = []
        history, notes = _history(source)
        table = as_table(_records(history, ignored), _window, phase_by_name)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="global step",
            base=1,
            ignored_lines=len(ignored),
            notes=notes,
        )


def _history(source: LogSource) -> tuple[list[Any], tuple[str, ...]]:
    """Return the entries, and a note where the file is no single whole document."""
    state = source.document
    if state is None:
        return _whole_entries(source.text)
    history = state.get("log_history") if isinstance(state, dict) else None
    return (history if isinstance(history, list) else []), ()


def _whole_entries(text: str) -> tuple[list[Any], tuple[str, ...]]:
    """Return the entries of all histories that are there, each up to where it is cut."""
    decoder, entries, ends = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str), [], []
    histories = [begun.end() for begun in _HISTORY.finditer(text)]
    for first in histories:
        at = first
        while (begun := _ENTRY.match(text, at)) is not None:
            try:
                entry, at = decoder.raw_decode(text, begun.end() - 1)
            except (ValueError, RecursionError):
                break
            entries.append(entry)
        ends.append(_END.match(text, at) is not None)
    if not entries:
        return [], ()
    several = [sentence("logs_note.several_documents", count=len(histories))] if len(histories) > 1 else []
    cut = [sentence("logs_note.cut_file")] if not all(ends) or len(histories) == 1 else []
    return entries, (*several, *cut)


def _records(history: list[Any], ignored: list[int]) -> Iterator[LogRecord]:
    """Yield entries with a step; `line` is the place in the history, from 1."""
    for place, entry in enumerate(history, start=1):
        entries = entry.items() if isinstance(entry, dict) else ()
        texts = {name: value or "nan" for name, value in entries if value is None or isinstance(value, str)}
        step = read_step(texts.get("step", ""))
        if step is None or "train_runtime" in texts:
            ignored.append(place)
        else:
            yield LogRecord(place, step, None, {name: text for name, text in texts.items() if name != "step"})


PLUGINS = (HfStdoutFormat(), TrainerStateFormat())
