"""The console log of Megatron-LM and its descendants (MindSpeed, Megatron-DeepSpeed).

Losses, times and throughput are means over the log interval, the losses without the iterations that were skipped;
all else is of the last iteration. Versions from 2026, known by the microseconds of their time, print a line after the
first iteration but go on adding up: where every iteration is printed, the second line is the mean of two. A NaN (or
negative) loss is left out of its line, and where all iterations were skipped newer versions print 0: the one is read
as NaN, the other as no loss.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.record_lines import (
    RecordLines,
    by_phase,
    carry_forward,
    named_validation,
    pair_columns,
    phase_by_name,
    twice,
    without_last_line,
)
from align.curves.log_parts.table_builder import NO_STEP, NUMBER, TableBuilder, read_printed_steps, read_steps
from align.curves.log_sources import LogPlugin
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LossLog, Window
from align.curves.printed_columns import all_fixed, are_filled, find_columns, take_texts, without_letter
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Booleans, Integers


_MEGATRON_STEP = r"iteration +([0-9]+)/ *([0-9]+) \|(?=(?:[^|\n]*\|){0,5} elapsed time per iteration)"
_VALIDATION = r"(validation loss at )(?:iteration ([0-9]+))?(?![^\n|]{0,200}\btest\b)[^\n|]{0,200}\|"
_TRAINING, _LINE = re.compile(_MEGATRON_STEP), re.compile(rf"(?:{_MEGATRON_STEP}|{_VALIDATION})([^\n]*)")
_PAIR = re.compile(rf"(?:^|\|) *([A-Za-z][^:|\n]{{0,100}}): +({NUMBER})(?= *\|)", re.MULTILINE)
_MICROSECONDS = re.compile(r"\.[0-9]{6}\] iteration ")
_SKIPPED_PRINTED = "number of skipped iterations"
_LOSS_SCALE, _USUAL_LOSS = "loss scale", "lm loss"
_TIMES_PRINTED = {
    "elapsed time per iteration (ms)": "step_time_ms",
    "elapsed time per iteration (s)": "step_time_s",
    "throughput per GPU (TFLOP/s/GPU)": "throughput_tflops",
}
_THROUGHPUT = "throughput_tflops"
_MEGATRON_START = rf"{_MEGATRON_STEP}|validation loss at "
_MEGATRON_TOGETHER = (
    twice("iteration +[0-9]+/"),
    r"\| *validation loss at ",
    f"validation loss at [^\n]{{0,500}}{_MEGATRON_STEP}",
)


class MegatronFormat(LogPlugin):
    """Lines ` iteration       10/     100 | consumed samples: ... | lm loss: 7.1E+00 | loss scale: 1.0 | ...`."""

    name = "megatron"
    summary = "Megatron-LM or MindSpeed console log: iteration  10/ 100 | ... | lm loss: 7.1E+00 | loss scale: 1.0"
    sample = (
        b" [2026-11-20 23:56:28.483059] iteration        1/      20 | consumed samples:            8 | "
        b"elapsed time per iteration (ms): 34.4 | learning rate: 1.000000E-01 | global batch size:     8 | "
        b"lm loss: 2.454743E+00 | loss scale: 1024.0 | grad norm: 0.786 | number of skipped iterations:   0 | "
        b"number of nan iterations:   0 |\n"
        b" [2026-11-20 23:56:28.510123] iteration        2/      20 | consumed samples:           16 | "
        b"elapsed time per iteration (ms): 30.7 | learning rate: 1.000000E-01 | global batch size:     8 | "
        b"lm loss: 2.337674E+00 | loss scale: 1024.0 | grad norm: 0.744 | number of skipped iterations:   0 | "
        b"number of nan iterations:   0 |\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more tells of an iteration."""
        return any(_TRAINING.search(block.text) for block in source.blocks() if "elapsed time" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all iterations and validations; raises EmptyLogError if no iteration has a loss."""
        reading = _MegatronReading()
        source, cut = without_last_line(source, _lacks_its_loss)
        lines = RecordLines(source, _MEGATRON_START, *_MEGATRON_TOGETHER)
        for block in lines.blocks():
            reading.add(block)
        table = reading.builder.build()
        if reading.loss not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name=reading.loss,
            counting="global step",
            base=1,
            ignored_lines=reading.ignored + reading.builder.ignored + len(cut),
            notes=(*cut, *lines.notes(), *reading.notes()),
        )


class _MegatronReading:
    """Lines of iterations and, at their iteration, of validations; test sets and named validation sets are left out."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=all_fixed), 0
        self.loss = ""
        self._step, self._total = NO_STEP, 0
        self._distances: list[Integers] = []
        self._adds_on = False
        self._nan = self._nothing = self._apart = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        matches = find_columns(block, _LINE)
        self.ignored += block.count_filled() - len(matches.places)
        if not matches.columns:
            return
        texts = (block.text,) if block.layouts is None else block.layouts.samples
        self._adds_on |= any(map(_MICROSECONDS.search, texts))
        lines = block.numbers[matches.places]
        iterations, printed_totals, kinds, at, lists = matches.columns
        training = ~are_filled(kinds)
        steps = np.where(are_filled(iterations), read_printed_steps(iterations), read_printed_steps(at))
        steps = carry_forward(steps, steps != NO_STEP, self._step)
        totals = carry_forward(read_printed_steps(printed_totals), training, self._total)
        for validated, of in by_phase(~training):
            columns = pair_columns(take_texts(lists, of), _PAIR)
            metrics = {_TIMES_PRINTED.get(name, name): texts for name, texts in columns.items()}
            if validated:
                self.builder.add(lines[of], steps[of], named_validation(metrics), totals=totals[of])
            else:
                self._add_iterations(lines[of], steps[of], metrics, totals[of])
        self._total = int(totals[-1])

    def notes(self) -> tuple[str, ...]:
        """Say where a loss was understood from what is not printed."""
        counted = (
            ("logs_note.nan_left_out", self._nan),
            ("logs_note.all_skipped", self._nothing),
            ("logs_note.second_taken_out", self._apart),
        )
        return tuple(sentence(key, count=count) for key, count in counted if count)

    def _add_iterations(
        self, lines: Integers, steps: Integers, metrics: dict[str, Sequence[str]], totals: Integers
    ) -> None:
        if not self.loss:  # the usual name, else the first loss of the line; "" while there is none
            losses = [name for name in metrics if _is_loss(name)]
            self.loss = _USUAL_LOSS if _USUAL_LOSS in losses or not losses else losses[0]
        skipped, all_skipped = self._skipped(metrics, steps)
        metrics[self.loss] = self._judged(metrics.get(self.loss, [""] * len(lines)), all_skipped)
        self.builder.add(lines, steps, metrics, totals=totals, skipped=skipped)
        self._step = int(steps[-1])

    def _skipped(self, metrics: dict[str, Sequence[str]], steps: Integers) -> tuple[Integers, Booleans]:
        """Count the skipped iterations of each line, made to stand for its own, and tell where there are no others."""
        distances = np.diff(steps, prepend=max(self._step, 0))
        usual = int(np.median(distances[1:])) if len(distances) > 1 else 1
        counts = np.maximum(read_steps(metrics.get(_SKIPPED_PRINTED, ["0"] * len(steps))), 0)
        if self._adds_on:
            first = (steps == 1) | (distances <= 0)
            seconds = np.flatnonzero(first[:-1] & (distances[1:] > 0)) + 1
            counts[seconds] = np.maximum(counts[seconds] - counts[seconds - 1], 0)
            seconds = seconds[(distances[seconds] == 1) & (usual == 1)]
            if len(seconds):
                apart = {name: list(texts) for name, texts in metrics.items()}
                for row in seconds.tolist():
                    _take_apart(apart, row, counts)
                metrics.update(apart)
            self._apart += len(seconds)
        distances = np.where((distances > 0) & (distances < usual), distances, max(usual, 1))
        self._distances.append(distances)
        return counts, counts >= distances

    def _judged(self, losses: Sequence[str], skipped: Booleans) -> Sequence[str]:
        """Put NaN where it was left out, and nothing where a 0 stands for nothing."""
        unsure = skipped | ~are_filled(losses)
        if not unsure.any():
            return losses
        judged = list(losses)
        for row in np.flatnonzero(unsure).tolist():
            if not skipped[row]:
                judged[row], self._nan = "nan", self._nan + 1
            elif judged[row] and float(judged[row]) == 0:
                judged[row], self._nothing = "", self._nothing + 1
        return judged

    def _window(self, name: str) -> Window:
        """Tell the log interval, the usual distance, where a metric is a mean over it."""
        if not (name in _TIMES_PRINTED.values() or _is_loss(name)) or phase_by_name(name) == "validation":
            return RAW
        distances = np.concatenate(self._distances)[1:]
        if not len(distances):
            return SINCE_LAST_PRINT
        interval = int(np.median(distances))
        return RAW if interval == 1 else Window("mean of last", interval)


def _lacks_its_loss(line: str) -> bool:
    """Tell whether a line of an iteration stops before its loss, or in it."""
    record = _TRAINING.search(line)
    return record is not None and not any(_is_loss(found[1]) for found in _PAIR.finditer(line, record.end()))


def _is_loss(name: str) -> bool:
    return "loss" in name and name != _LOSS_SCALE


def _take_apart(metrics: dict[str, list[str]], row: int, skipped: Integers) -> None:
    """Make a line that adds up its iteration and that of the line before it, `skipped` ones too, stand for its own.

    A throughput cannot be taken apart, and the loss of a skipped iteration is in no sum.
    """
    first, second = skipped[row - 1 : row + 1].tolist()
    for name, texts in metrics.items():
        before, mean = texts[row - 1 : row + 1]
        if name == _THROUGHPUT or (_is_loss(name) and second > 0):
            texts[row] = ""
        elif before and mean and (name in _TIMES_PRINTED.values() or (_is_loss(name) and not first)):
            texts[row] = format(2 * float(mean) - float(before), ".6E" if "E" in mean else ".1f")


# The console log of torchtitan, which prints step 1 and every n-th.
#
# A loss, over all ranks, is that of the printed step; versions until January 2025 printed the mean since the last
# print. Theirs are the lines without `tflops`, which came a month later. Throughputs are taken over the time since
# the last print, the memory is its peak. Ranks print the same line each, as far as they are not filtered.

_TORCHTITAN_STEP = re.compile(
    rf"step:(?:(?<=(validate) step:)|) +([0-9]+) +loss: +({NUMBER})(?: +grad_norm: +({NUMBER}))?"
    rf" +memory: +({NUMBER})GiB\(({NUMBER})%\)(?: +wps: +([0-9,]+))?(?: +tps: +([0-9,]+))?"
    rf"(?: +tflops: +([0-9,.]+|nan|inf))?(?: +mfu: +({NUMBER})%)?"
)
_NAMES = ("loss", "grad_norm", "memory_gib", "memory_percent", "wps", "tps", "tflops", "mfu")
_WITH_COMMAS = _SINCE_LAST_PRINT = ("wps", "tps", "tflops")
_TORCHTITAN_START = "(?:validate )?step: +[0-9]+ +loss: "
_TORCHTITAN_TOGETHER = (twice("step: +[0-9]+ +loss: "),)


class TorchtitanFormat(LogPlugin):
    """Lines `[titan] ... - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  memory:  0.90GiB(1.25%)  ...`."""

    name = "torchtitan"
    summary = "torchtitan console log: step:  3  loss:  4.9925  grad_norm:  2.6422  memory:  0.90GiB(1.25%)"
    sample = (
        b"[titan] 2026-11-20 23:19:40,858 - root - INFO - step:  1  loss:  2.45474  grad_norm:  0.7858  "
        b"memory:  0.90GiB(1.25%)  tps: 157  tflops: 0.00  mfu: 0.00%\n"
        b"[titan] 2026-11-20 23:19:41,074 - root - INFO - step:  5  loss:  2.39077  grad_norm:  0.7085  "
        b"memory:  0.90GiB(1.25%)  tps: 2,364  tflops: 0.00  mfu: 0.00%\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is a training step of torchtitan's."""
        return any(_TORCHTITAN_STEP.search(block.text) for block in source.blocks() if "GiB(" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all steps and validations; raises EmptyLogError if no line has a training loss."""
        reading = _TorchtitanReading()
        log = RecordLines(source, _TORCHTITAN_START, *_TORCHTITAN_TOGETHER).read(self, reading)
        return log.with_notes((sentence("logs_note.without_tflops"),)) if reading.averages else log


class _TorchtitanReading:
    """The lines of steps; `averages` while none has shown that losses are those of one step."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=all_fixed), 0
        self.averages = True

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        matches = find_columns(block, _TORCHTITAN_STEP)
        self.ignored += max(0, block.count_filled() - len(matches.places))
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        for validated, at in by_phase(are_filled(matches.columns[0])):
            _, steps, *texts = (take_texts(column, at) for column in matches.columns)
            metrics = dict(zip(_NAMES, texts, strict=True))
            for name in _WITH_COMMAS:
                metrics[name] = without_letter(metrics[name], ",")
            self.averages &= not are_filled(metrics["tflops"]).any()
            self.builder.add(lines[at], read_steps(steps), named_validation(metrics) if validated else metrics)

    def _window(self, name: str) -> Window:
        return SINCE_LAST_PRINT if name in _SINCE_LAST_PRINT or (name == "loss" and self.averages) else RAW


PLUGINS = (MegatronFormat(), TorchtitanFormat())
