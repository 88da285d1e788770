"""The console log of MindFormers' (MindSpore Transformers') `MFLossMonitor`.

A loss is that of the step itself; of `loss:[2.220/2.185]` the second is the mean since the epoch began, or since the
data sink began, where it equals the first. Both are already divided by micro batches and gradient accumulation. A
step with `overflow cond: True` changed no weight. `loss_scale: unavailable` and `global_norm: None` are no values.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_word, bare_texts, shown_texts
from align.curves.columns.printed_digits import FIXED, Printed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER, is_number
from align.curves.loss_log import EPOCH_SO_FAR, RAW, LossLog
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

# What may stand in place of a number: one in brackets, or a word.
_VALUE = r"\[[^]\n]*\]|[^,\s]+"
_STEP = re.compile(
    r"Epoch:\[ *([0-9]+)/ *[0-9]+\], step:\[ *([0-9]+)/ *([0-9]+)\], "
    rf"loss: ?\[? *({NUMBER})(?:/ *({NUMBER}))?\]?"
    rf"((?:, \w+_loss: +{NUMBER})*)"
    rf"(?:, per_step_time: ?({NUMBER}) ?ms)?(?:, time: ?({NUMBER}) ?ms)?"
    rf"(?:, lr: ?({_VALUE}))?(?:, overflow cond: ?(\w+))?(?:, loss_scale: ?({_VALUE}))?(?:, global_norm: ?({_VALUE}))?"
    rf"(?:, train_throughput_per_npu: ?({NUMBER})T)?"
)
_SEPARATE = re.compile(rf"(\w+_loss): +({NUMBER})")
_SO_FAR = "loss_so_far"
_NAMES = ("loss", _SO_FAR, "per_step_time_ms", "time_ms", "lr", "loss_scale", "global_norm", "train_throughput_per_npu")
_IN_BRACKETS = ("lr", "loss_scale", "global_norm")
_NO_VALUE = ("None", "unavailable")
_START = r"(?:\{ )?Epoch:\[ *[0-9]+/"
_TOGETHER = (twice(r"Epoch:\[ *[0-9]+/"),)


class MindformersFormat:
    """Lines `{ Epoch:[  1/  2], step:[    1/   19], loss: 10.649, per_step_time: 103328ms, lr: 0.0, ...`."""

    name = "mindformers"
    summary = "MindFormers console log: { Epoch:[  1/  2], step:[    1/   19], loss: 10.649"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"2026-11-20 23:15:44,838 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  1/  2], "
        b"step:[    1/    2], loss:[0.919/0.919], per_step_time: 972ms, lr: [2.4499998e-06], overflow cond: False, "
        b"loss_scale: 1024.0, global_norm: [2.9718595]\n"
        b"2026-11-20 23:15:44,846 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  1/  2], "
        b"step:[    2/    2], loss:[1.333/1.126], per_step_time: 6ms, lr: [2.4499998e-06], overflow cond: False, "
        b"loss_scale: 1024.0, global_norm: [1.8792514]\n"
        b"2026-11-20 23:15:44,861 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  2/  2], "
        b"step:[    1/    2], loss:[  inf/  inf], per_step_time: 6ms, lr: [2.4499998e-06], overflow cond: True, "
        b"loss_scale: 1024.0, global_norm: [inf]\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is MFLossMonitor's."""
        return any(_STEP.search(block.text) for block in source.blocks() if "step:[" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all step lines; raises EmptyLogError if there is none."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", notes=(*log.notes, *reading.notes()))


class _Reading:
    """Step lines, and the values among them that are no number: (line, text) by name."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, printed_of=_printed), 0
        self._sinking = True
        self._unreadable: dict[str, list[tuple[int, str]]] = {}

    def add(self, block: LogBlock) -> None:
        """Take the step lines of a block."""
        found = find_columns(block, _STEP)
        self.ignored += max(0, block.count_filled() - len(found.places))
        if not found.columns:
            return
        lines = block.numbers[found.places]
        epochs, steps, totals, loss, so_far, separate, *others = found.columns
        overflow = others.pop(3)
        metrics: dict[str, Sequence[str]] = dict(zip(_NAMES, (loss, so_far, *others), strict=True))
        for name in _IN_BRACKETS:
            metrics[name] = bare_texts(metrics[name], "[] ", _NO_VALUE)
            self._note_unreadable(name, lines.tolist(), metrics[name])
        self._sinking = self._sinking and all(mean in ("", last) for last, mean in zip(loss, so_far, strict=True))
        self.builder.add(
            lines,
            read_steps(steps),
            {**metrics, **pair_columns(separate, _SEPARATE)},
            epochs=read_steps(epochs),
            totals=read_steps(totals),
            skipped=are_word(overflow, "True").astype(np.int64),
        )

    def notes(self) -> tuple[str, ...]:
        """Say which values are no number; they are left out."""
        return tuple(
            sentence("logs_note.values_left_out", metric=name, count=len(found), text=found[0][1], line=found[0][0])
            for name, found in self._unreadable.items()
        )

    def _note_unreadable(self, name: str, lines: list[int], texts: Sequence[str]) -> None:
        if any(text and not is_number(text) for text in shown_texts(texts)):
            found = [(line, text) for line, text in zip(lines, texts, strict=True) if text and not is_number(text)]
            self._unreadable.setdefault(name, []).extend(found)

    def _window(self, name: str) -> Window:
        return EPOCH_SO_FAR if name == _SO_FAR and not self._sinking else RAW


def _printed(name: str) -> Printed | None:
    """Losses have three decimals; learning rates, norms and scales all their digits."""
    return FIXED if "loss" in name and name != "loss_scale" else None


PLUGIN = MindformersFormat()
