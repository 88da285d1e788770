"""What the Hugging Face Trainer prints: one dict at a time between the states of its progress bar.

The dicts know no step. The bar is drawn anew right after each of them, with the steps done by then (what stands before
a dict may be older); without a bar there is only the epoch with its fraction. Versions 5 print four significant digits
as texts, versions 4 round the loss to four decimals and nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import RAW, SINCE_LAST_PRINT, LossLog
from align.errors import EmptyLogError
from align.losslogs._columns import ABSENT, TableBuilder, read_steps
from align.losslogs._phases import phase_by_name
from align.losslogs._text import NUMBER, end_notes, find_lines, is_number

if TYPE_CHECKING:
    from align.core.curves import Floats, LogTable, Series, Window
    from align.core.log_sources import LogBlock, LogSource

# A dict, or a progress bar that describes nothing (`Map: 100%|`): steps done, steps in all.
_PIECES = re.compile(r"(\{'[^{}\n]*\})|(?<!: ...)%\|[^|\n]*\| *([0-9]+)/([0-9]+) \[")
_PAIR = re.compile(rf"'([^'\n]+)': '?({NUMBER}|None)(?=['}},])")
_NEEDED = {"loss", "learning_rate", "epoch"}
_SUMMARY = "train_runtime"
# Decimals of a loss in versions 4, significant digits of all in versions 5.
DECIMALS, DIGITS = 4, 4


class HfStdoutFormat:
    """Dicts `{'loss': 0.2599, 'grad_norm': 1.5497, 'learning_rate': 4.375e-05, 'epoch': 0.5}`, with progress bars."""

    name = "hf_stdout"
    summary = "what the Hugging Face Trainer prints: {'loss': 0.2599, ..., 'learning_rate': 4.37e-05, 'epoch': 0.5}"
    requires: tuple[str, ...] = ()
    quoted = False
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
            entry.texts.keys() >= _NEEDED
            for block in source.blocks()
            if "'learning_rate'" in block.text
            for entry in _Reading(block).entries
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all dicts with an epoch but the summary at the end; raises EmptyLogError if none has a loss."""
        reading = _Reading(*source.blocks())
        entries, by_step = _with_steps(reading.entries)
        table, notes = _table(entries, reading.rounded)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="global step" if by_step else "share of epochs",
            base=1,
            ignored_lines=reading.lines - len(table.lines),
            notes=(*end_notes(source), *notes, *_cut_notes(reading.entries, by_step)),
        )


@dataclass(slots=True)
class _Entry:
    """A dict: its line, its numbers as printed, and the bars up to the next dict: steps done by steps in all.

    `step` and `total` are what the training bar among them says, "" if there is none.
    """

    line: int
    texts: dict[str, str]
    bars: dict[str, str] = field(default_factory=dict)
    step: str = ""
    total: str = ""


class _Reading:
    """The dicts of blocks of lines; `rounded` are the names whose numbers were printed as texts."""

    def __init__(self, *blocks: LogBlock) -> None:
        self.entries: list[_Entry] = []
        self.rounded: set[str] = set()
        self._seen: set[str] = set()
        self.lines = 0
        for block in blocks:
            self._add(block)

    def _add(self, block: LogBlock) -> None:
        self.lines += block.count_filled()
        lines, rows = find_lines(block, _PIECES)
        for line, (printed, done, total) in zip(lines.tolist(), rows, strict=True):
            if printed:
                self._add_entry(line, printed)
            elif self.entries:
                self.entries[-1].bars.setdefault(total, done)

    def _add_entry(self, line: int, printed: str) -> None:
        texts = dict(_PAIR.findall(printed))
        if not self._seen.issuperset(texts):
            self._seen.update(texts)
            self.rounded.update(name for name in texts if f"'{name}': '" in printed)
        epoch = texts.get("epoch", "")
        if is_number(epoch) and math.isfinite(float(epoch)):
            self.entries.append(_Entry(line, texts))


def _with_steps(entries: list[_Entry]) -> tuple[list[_Entry], bool]:
    """Give each dict the step of the training bar after it; False if the bars do not tell, then its whole epochs.

    Right after a loss only the training bar is drawn, so it tells how many steps there are in all; after an
    evaluation others may come first. The last loss of a log that was cut may lack its bar: it is left out.
    """
    records = [entry for entry in entries if _SUMMARY not in entry.texts]
    losses = [entry for entry in records if "loss" in entry.texts]
    total = next((next(iter(entry.bars)) for entry in losses if entry.bars), "")
    for entry in records:
        if "loss" in entry.texts:
            total = next(iter(entry.bars), total)
        entry.step, entry.total = entry.bars.get(total, ""), total
    if total and all(entry.step for entry in losses[:-1]):
        return [entry for entry in records if entry.step], True
    return [replace(entry, step=str(int(float(entry.texts["epoch"]))), total="") for entry in records], False


def _cut_notes(entries: list[_Entry], by_step: bool) -> tuple[str, ...]:
    last = [entry for entry in entries if "loss" in entry.texts][-1]
    return ("the last loss is left out: no progress bar after it tells its step",) if by_step and not last.step else ()


def _table(entries: list[_Entry], rounded: set[str]) -> tuple[LogTable, tuple[str, ...]]:
    names = dict.fromkeys(name for entry in entries for name in entry.texts if name != "epoch")
    builder = TableBuilder(_window, phase_by_name, loss="loss")
    builder.add(
        np.array([entry.line for entry in entries], np.int64),
        read_steps([entry.step for entry in entries]),
        {name: [entry.texts.get(name, ABSENT) for entry in entries] for name in names},
        totals=np.maximum(read_steps([entry.total for entry in entries]), 0),
        shares=np.array([float(entry.texts["epoch"]) for entry in entries], np.float64),
    )
    table = builder.build()
    metrics = {name: _with_digits(name, series, rounded) for name, series in table.metrics.items()}
    return replace(table, metrics=metrics), builder.notes()


def _window(name: str) -> Window:
    return SINCE_LAST_PRINT if name == "loss" else RAW


def _with_digits(name: str, series: Series, rounded: set[str]) -> Series:
    """Put in how many digits the version prints, where it rounds."""
    if name in rounded:
        return replace(series, resolution=_unit_of_digits(series.values))
    if name == "loss" and np.array_equal(np.round(series.values, DECIMALS), series.values, equal_nan=True):
        return replace(series, resolution=np.where(np.isfinite(series.values), 10.0**-DECIMALS, 0.0))
    return series


def _unit_of_digits(values: Floats) -> Floats:
    """Return the unit of the last of `DIGITS` significant digits, 0.0 for 0 and what is not finite."""
    units, known = np.zeros(len(values)), np.isfinite(values) & (values != 0)
    units[known] = 10.0 ** (np.floor(np.log10(np.abs(values[known]))) + 1 - DIGITS)
    return units


PLUGIN = HfStdoutFormat()
