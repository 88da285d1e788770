"""Logs that are tables already (CSV, JSON lines): which columns are the step, the epoch and the training loss.

The columns go by the names in use; whether steps count through or start again with each epoch is read off the
data, as the same header stands for both. A row without a loss is not a row with loss 0, nor one to drop unseen:
an explicit `null`, or a text that is no number, is NaN; an absent key or an empty cell is no loss in this row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import EPOCH_MEAN, RAW, LogRecord, LossLog
from align.errors import EmptyLogError, RepeatedColumnError
from align.losslogs._columns import as_table, read_step
from align.losslogs._text import ONLY_EPOCHS, is_null, is_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.curves import Base, Counting, LogTable, Window

STEP_NAMES = (
    "global_step", "step", "steps", "train_step", "current_step", "trainer/global_step", "iteration", "iterations",
    "iter", "iters", "it", "batch", "batch_idx",
)  # fmt: skip
EPOCH_NAMES = ("epoch", "epochs", "current_epoch", "trainer/epoch")
LOSS_NAMES = (
    "loss", "train_loss", "train/loss", "training_loss", "loss/train", "train_loss_step", "loss_step", "trainloss",
    "step_loss", "batch_loss", "lm_loss", "total_loss", "train_loss_epoch",
)  # fmt: skip
PHASE_NAMES = ("phase", "mode", "split", "stage")
OTHER_PHASES = ("val", "valid", "validation", "eval", "evaluation", "test", "predict")
EXPECTED = (
    f"a step column ({', '.join(STEP_NAMES[:2])}, iter, epoch ...) and a loss column ({', '.join(LOSS_NAMES[:3])} ...)"
)


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The names, as the log spells them, of its step, epoch, loss and phase; None for what it has not."""

    step: str | None
    epoch: str | None
    loss: str
    phase: str | None


def find_columns(names: Iterable[str]) -> LogColumns | None:
    """Tell the columns of a log by their names; None without a loss, or without both step and epoch."""
    spelled: dict[str, str] = {}
    for name in names:
        spelled.setdefault(_plain(name), name)
    step, epoch, loss, phase = (_first(spelled, known) for known in (STEP_NAMES, EPOCH_NAMES, LOSS_NAMES, PHASE_NAMES))
    return None if loss is None or (step is None and epoch is None) else LogColumns(step, epoch, loss, phase)


def read_table(
    rows: Iterable[tuple[int, Mapping[str, str]]], columns: LogColumns, label: str, format_name: str
) -> LossLog:
    """Turn rows of (line number, texts by column) into a log; raises EmptyLogError if no row has a step and a loss."""
    reading = _Reading(columns)
    table = as_table(reading.records(rows), functools.partial(_window, columns))
    if columns.loss not in table.metrics:
        raise EmptyLogError(label, [f"{format_name}: {EXPECTED}"])
    notes = reading.notes()
    if columns.step is None:
        notes = (*notes, ONLY_EPOCHS)
    return LossLog(
        label=label,
        format=format_name,
        table=table,
        loss_name=columns.loss,
        counting=_counting(columns, table),
        base=_base(reading.names),
        ignored_lines=reading.ignored,
        notes=notes,
    )


def cells_by_name(line: int, cells: Sequence[tuple[str, str]], repeated: dict[str, int]) -> dict[str, str]:
    """Put the (name, text) of a line into a dict; names with two unlike texts go to `repeated` with the first line."""
    by_name = dict(cells)
    if len(by_name) < len(cells):
        for name, text in cells:
            if text != by_name[name]:
                repeated.setdefault(name, line)
    return by_name


def repeated_notes(label: str, columns: LogColumns, repeated: Mapping[str, int]) -> tuple[str, ...]:
    """Say which names stand for two values; raises RepeatedColumnError if the step, epoch or loss is among them."""
    needed = {columns.step, columns.epoch, columns.loss, columns.phase} & repeated.keys()
    if needed:
        raise RepeatedColumnError(label, {str(name): repeated[str(name)] for name in sorted(map(str, needed))})
    return tuple(
        f"{name!r} stands twice with unlike values (first: line {line}); the last of them is read"
        for name, line in repeated.items()
    )


class _Reading:
    """One pass over the rows, counting what could not be used."""

    def __init__(self, columns: LogColumns) -> None:
        self.columns = columns
        self.names: set[str] = set()
        self.ignored = 0
        self.without_loss: list[int] = []
        self.unreadable: list[tuple[int, str]] = []
        self.null: list[int] = []

    def records(self, rows: Iterable[tuple[int, Mapping[str, str]]]) -> Iterator[LogRecord]:
        """Yield a record for every row of the training phase that has a step."""
        counter = self.columns.step or self.columns.epoch or ""
        for line, cells in rows:
            self.names.update(cells)
            step = read_step(cells.get(counter, ""))
            if step is None or self._of_another_phase(cells):
                self.ignored += 1
                continue
            yield LogRecord(line, step, read_step(cells.get(self.columns.epoch or "", "")), self._metrics(line, cells))

    def notes(self) -> tuple[str, ...]:
        """Say which column is the loss if several might be, which losses are no number, which rows have none."""
        notes = []
        if others := sorted(name for name in self.names - {self.columns.loss} if _plain(name) in LOSS_NAMES):
            notes.append(f"the loss is read from {self.columns.loss!r}; also in the log: {', '.join(others)}")
        if self.null:
            notes.append(f"{len(self.null)} losses are null (first: line {self.null[0]}), kept as NaN")
        if self.unreadable:
            line, text = self.unreadable[0]
            notes.append(f"{len(self.unreadable)} losses are no number (first: {text!r} in line {line}), kept as NaN")
        if self.without_loss:
            lines = f"{len(self.without_loss)} rows have no loss (first: line {self.without_loss[0]})"
            notes.append(f"{lines}; some writers leave NaN out like this")
        return tuple(notes)

    def _of_another_phase(self, cells: Mapping[str, str]) -> bool:
        phase = cells.get(self.columns.phase, "") if self.columns.phase else ""
        return phase.strip().lower() in OTHER_PHASES

    def _metrics(self, line: int, cells: Mapping[str, str]) -> dict[str, str]:
        counters = (self.columns.step, self.columns.epoch)
        printed = {name: text.strip() for name, text in cells.items() if name not in counters}
        texts = {name: "nan" if is_null(text) else text for name, text in printed.items()}
        loss = printed.get(self.columns.loss)
        # A row with a step and nothing else can only mean a loss that its writer could not print.
        if loss == "" and any(is_number(text) for text in texts.values()):
            self.without_loss.append(line)
        elif loss is not None and not is_number(loss):
            self._no_number(line, loss)
            texts[self.columns.loss] = "nan"
        return texts

    def _no_number(self, line: int, loss: str) -> None:
        if is_null(loss):
            self.null.append(line)
        elif loss:
            self.unreadable.append((line, loss))


def _counting(columns: LogColumns, table: LogTable) -> Counting:
    """Steps start again with each epoch if the ranges of steps of two epochs overlap."""
    if columns.step is None:
        return "epoch"
    if table.epochs is None or _plain(columns.step).startswith("global"):
        return "global step"
    rows = table.metrics[columns.loss].rows
    epochs, index = np.unique(table.epochs[rows], return_inverse=True)
    first, last = np.full(len(epochs), np.iinfo(np.int64).max), np.full(len(epochs), -1)
    np.minimum.at(first, index, table.steps[rows])
    np.maximum.at(last, index, table.steps[rows])
    return "step in epoch" if bool(np.any(first[1:] <= last[:-1])) else "global step"


def _window(columns: LogColumns, name: str) -> Window:
    """Means of an epoch are told by the name, or by a log that counts nothing else."""
    return EPOCH_MEAN if columns.step is None or _plain(name).endswith("_epoch") else RAW


def _base(names: Iterable[str]) -> Base | None:
    """Lightning, told by its pairs `x_step` and `x_epoch`, counts from 0; other tables do not say."""
    plain = {_plain(name) for name in names}
    return (
        0 if any(f"{name.removesuffix('_step')}_epoch" in plain for name in plain if name.endswith("_step")) else None
    )


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _first(spelled: Mapping[str, str], known: Sequence[str]) -> str | None:
    return next((spelled[name] for name in known if name in spelled), None)
