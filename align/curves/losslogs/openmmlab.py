"""The console log of mmengine, and that of its forerunner mmcv.

mmengine averages over a window of steps (_mmengine), which the configuration at the head of the log tells. mmcv, whose
lines bear no `(train)`, averages everything but `lr`, `momentum` and `memory` over its print interval. A validation
stands at the end of its epoch; where the log counts iterations only, at the last training line before it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.record_lines import (
    IN_SECONDS,
    USUAL_LENGTH,
    RecordLines,
    add_pairs,
    carry_forward,
    configured_length,
    interval_window,
    is_training_object,
    phase_by_name,
    print_interval,
    smoothed_window,
    twice,
    usual_length_note,
)
from align.curves.log_parts.table_builder import (
    NO_STEP,
    NUMBER,
    TableBuilder,
    as_table,
    end_notes,
    is_number,
    read_printed_steps,
    read_step,
    read_steps,
)
from align.curves.log_parts.table_reader import double_notes
from align.curves.log_sources import LogPlugin
from align.curves.loss_log import LogRecord, LossLog
from align.curves.printed_columns import (
    Printed,
    PrintedColumn,
    all_fixed,
    are_word,
    find_columns,
    have_word,
    take_texts,
)
from align.errors import EmptyLogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Counting, Integers, Window


_LINE = re.compile(r"(Epoch|Iter)(?:\((train|val)\))? *(?:\[ *([0-9]+)\])?\[ *([0-9]+)(?:/([0-9]+))?\][ \t]+([^\n]*)")
# A line of another kind may have run into the last number, its time first.
_AFTER = r"(?=[\s,]|$|[0-9]{4}[-/][0-9]{2}[-/][0-9]{2} )"
# A name may hold single spaces, `coco/AP (M)`; the time that is left, `eta: 1 day, 3:00:00`, is no metric.
_NAME = r"[A-Za-z][^:,\s]{0,80}(?: [^:,\s]{1,80}){0,4}"
_MMENGINE_PAIR = re.compile(rf"(?<![\w.(/@-])(?!eta:)({_NAME}): +({NUMBER}){_AFTER}", re.MULTILINE)
_MMENGINE_START = r"(?:Epoch|Iter)(?:\((?:train|val)\))? *\["
_MMENGINE_TOGETHER = twice(r"Epoch(?:\((?:train|val)\))? *\["), twice(r"Iter(?:\((?:train|val)\))? *\[")


class MmengineFormat(LogPlugin):
    """Lines `Epoch(train) [1][10/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  data_time: 0.0008  loss: 0.2922`."""

    name = "mmengine"
    summary = "mmengine or mmcv console log: Epoch(train) [1][10/25]  lr: 1.0e-02 ... loss: 0.2922"
    sample = (
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(train) [1][10/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  "
        b"data_time: 0.0008  loss: 0.2922  loss1: 0.0754  loss2: 0.2168\n"
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(train) [1][20/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  "
        b"data_time: 0.0002  loss: 0.1711  loss1: 0.0236  loss2: 0.1475\n"
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(val) [1][25/25]    toy/acc: 0.7380  data_time: 0.0001  "
        b"time: 0.0005\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is of a training loop."""
        texts = [block.text for block in source.blocks() if "lr: " in block.text]
        lines = ((text, found) for text in texts for found in _LINE.finditer(text))
        return any(_is_training(found.groups("")) and not _is_inside_epoch(text, found) for text, found in lines)

    def read(self, source: LogSource) -> LossLog:
        """Read training lines and the results of validations; raises EmptyLogError if no line has a training loss."""
        reading = _MmengineReading()
        log = RecordLines(source, _MMENGINE_START, *_MMENGINE_TOGETHER).read(self, reading)
        return replace(
            log,
            counting="step in epoch" if reading.kind == "Epoch" else "global step",
            notes=(*log.notes, *reading.notes()),
        )


class _MmengineReading:
    """The lines of training and validation; `kind` is how the first one counts: by Epoch or by Iter."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=all_fixed), 0
        self.kind = ""
        self._length: int | None = None
        self._of_mmcv = False
        self._step, self._total = NO_STEP, 0
        self._training_steps: list[Integers] = []

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        if self._length is None:
            self._length = configured_length(block.text)
        matches = find_columns(block, _LINE)
        used = self._used_rows(matches.columns) if matches.columns else matches.places[:0]
        self.ignored += block.count_filled() - len(used)
        if len(used):
            self._add(block.numbers[matches.places[used]], [take_texts(column, used) for column in matches.columns])

    def notes(self) -> tuple[str, ...]:
        """Say where the window is not known."""
        return () if self._of_mmcv or self._length else (usual_length_note(),)

    def _used_rows(self, columns: Sequence[Sequence[str]]) -> Integers:
        """Return the rows that tell something, as one of each layout says; none before it is known how a log counts."""
        first = columns[0]
        if isinstance(first, PrintedColumn):
            fields = [column.fields for column in columns if isinstance(column, PrintedColumn)]
            rows = [tuple(field.text for field in row) for row in zip(*fields, strict=True)]
            trained = np.flatnonzero(np.array(list(map(_is_training, rows)))[first.kinds])
            begin = 0 if self.kind else int(trained[0]) if len(trained) else len(first)
            self.kind = self.kind or (rows[first.kinds[begin]][0] if len(trained) else "")
            tells = np.flatnonzero(np.array(list(map(self._tells, rows)))[first.kinds])
            return tells[tells >= begin]
        return np.flatnonzero(np.array([self._tells(row) for row in zip(*columns, strict=True)], np.bool_))

    def _tells(self, row: tuple[str, ...]) -> bool:
        kind, mode, *_, values = row
        if _is_training(row):
            self.kind = self.kind or kind
            return kind == self.kind
        return mode == "val" and kind == self.kind and "eta: " not in values

    def _add(self, lines: Integers, columns_of_line: Sequence[Sequence[str]]) -> None:
        _, modes, epochs, printed, printed_totals, lists = columns_of_line
        training = ~are_word(modes, "val")
        totals = carry_forward(read_printed_steps(printed_totals), training, self._total)
        by_epoch = self.kind == "Epoch"
        inside = read_steps(printed)
        steps = np.where(training, inside, totals) if by_epoch else carry_forward(inside, training, self._step)
        counted = read_printed_steps(epochs) if by_epoch else None
        columns = (lines, steps, lists, _MMENGINE_PAIR, training)
        add_pairs(self.builder, *columns, IN_SECONDS, epochs=counted, totals=totals)
        self._of_mmcv |= "" in modes
        self._training_steps.append(steps[training])
        self._step, self._total = int(steps[-1]), int(totals[-1])

    @cached_property
    def _interval(self) -> int:
        return print_interval(self._training_steps)

    def _window(self, name: str) -> Window:
        if self._of_mmcv:
            return interval_window(name, self._interval)
        return smoothed_window(name, self._length or USUAL_LENGTH)


def _is_inside_epoch(text: str, found: re.Match[str]) -> bool:
    """Tell whether an epoch stands in front of `Iter[10/100]`: then another logger wrote the line."""
    return found[1] == "Iter" and "poch" in text[text.rfind("\n", 0, found.start()) + 1 : found.start()]


def _is_training(row: tuple[str, ...]) -> bool:
    """Tell a line of training, which shows the learning rate, from validation and from other programs' lines."""
    kind, mode, epoch, _, total, values = row
    return mode != "val" and bool(total) and bool(epoch) == (kind == "Epoch") and "lr: " in values


# mmengine's `vis_data/scalars.json`: one JSON object a line, its numbers with all digits.
#
# The values are means as in the console log (_mmengine); the file does not tell over how many steps. A line without
# `iter` is a validation: its `step` is the iteration, or the epoch where the run counts epochs; then it stands at the
# last training line before it.

_MMENGINE_SCALARS_OBJECT = re.compile(r'^[ \t]*(?=(\{"[^\n]*\})[ \t]*$)[^\n]*"step": ([0-9]+)', re.MULTILINE)
_JSON_PAIR = re.compile(rf'"([^"\n]+)": ({NUMBER})(?=[,}}])')
_MMENGINE_SCALARS_COUNTERS = ("epoch", "iter", "step")
_LOSSES = ("loss", "train/loss")
_MMENGINE_SCALARS_START, _MMENGINE_SCALARS_TOGETHER = r'^[ \t]*\{"|(?<=\})[ \t]*\{"', (r'\}[ \t]*\{"',)


class MmengineScalarsFormat(LogPlugin):
    """Lines `{"lr": 0.01, "data_time": 0.0008, "loss": 0.292, "time": 0.001, "epoch": 1, "iter": 10, "step": 10}`."""

    name = "mmengine_scalars"
    summary = (
        'mmengine vis_data/scalars.json: {"lr": 0.01, "data_time": 0.0008, "loss": 0.29, ..., "iter": 10, "step": 10}'
    )
    sample = (
        b'{"lr": 0.01, "data_time": 0.0008466720581054687, "loss": 0.29222402814775705, "loss1": 0.07543308983731549, '
        b'"loss2": 0.21679094061255455, "time": 0.0013542890548706055, "epoch": 1, "iter": 10, "step": 10}\n'
        b'{"lr": 0.01, "data_time": 0.0001536846160888672, "loss": 0.17107780054211616, "loss1": 0.0235635822173208, '
        b'"loss2": 0.14751421809196472, "time": 0.0013918876647949219, "epoch": 1, "iter": 20, "step": 20}\n'
        b'{"toy/acc": 0.7380385994911194, "data_time": 8.82720947265625e-05, "time": 0.000529956817626953, "step": 1}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one object or more is mmengine's of a training step."""
        return any(
            is_training_object(dict(_JSON_PAIR.findall(text)))
            for block in source.blocks()
            if '"iter": ' in block.text
            for text, _ in _MMENGINE_SCALARS_OBJECT.findall(block.text)
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a training loss."""
        reading = _MmengineScalarsReading()
        lines = RecordLines(source, _MMENGINE_SCALARS_START, *_MMENGINE_SCALARS_TOGETHER)
        for block in lines.blocks():
            reading.add(block)
        table = reading.builder.build()
        loss = next((name for name in _LOSSES if name in table.metrics), None)
        if loss is None:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name=loss,
            counting="global step",
            base=1,
            ignored_lines=reading.ignored + reading.builder.ignored,
            notes=(*lines.notes(), usual_length_note()),
        )


class _MmengineScalarsReading:
    """Objects with a step: those with an iteration are of training."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_window, phase_by_name), 0
        self._step = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the objects of a block."""
        matches = find_columns(block, _MMENGINE_SCALARS_OBJECT)
        self.ignored += block.count_filled() - len(matches.places)
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        objects, counters = matches.columns
        training, printed = have_word(objects, '"iter": '), read_steps(counters)
        trained = carry_forward(printed, training, self._step)
        steps = np.where(trained == NO_STEP, NO_STEP, np.maximum(printed, trained))
        columns = (lines, steps, objects, _JSON_PAIR, training)
        add_pairs(self.builder, *columns, IN_SECONDS, _MMENGINE_SCALARS_COUNTERS)
        self._step = int(trained[-1])


def _window(name: str) -> Window:
    return smoothed_window(name, USUAL_LENGTH)


# mmcv's `.log.json`, one JSON object a line.
#
# `iter` counts inside the epoch where the run goes by epochs, and through where it goes by iterations: the data shows
# which. The values are means over the print interval (_mmengine). A validation stands at the last training line
# before it, as its `iter` counts the batches of validation.

_MMCV_JSON_OBJECT = re.compile(
    r'^[ \t]*(\{"mode": "(train|val)", "epoch": ([0-9]+), "iter": ([0-9]+), [^\n]*\})[ \t]*$', re.MULTILINE
)
_MMCV_JSON_COUNTERS = ("epoch", "iter")
_ROUNDED = Printed("decimals", 5)
_MMCV_JSON_START = r'\{"mode": "'
_MMCV_JSON_TOGETHER = (twice(_MMCV_JSON_START),)


class MmcvJsonFormat(LogPlugin):
    """Lines `{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, ..., "loss": 1.2, "time": 0.4}`."""

    name = "mmcv_json"
    summary = 'mmcv .log.json: {"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, ..., "loss": 1.2, "time": 0.4}'
    quoted = True
    sample = (
        b'{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, "memory": 3100, "data_time": 0.0312, '
        b'"loss_cls": 1.21433, "loss": 1.21433, "time": 0.4125}\n'
        b'{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.00398, "memory": 3100, "data_time": 0.0051, '
        b'"loss_cls": 0.98712, "loss": 0.98712, "time": 0.3987}\n'
        b'{"mode": "val", "epoch": 1, "iter": 625, "lr": 0.02, "bbox_mAP": 0.365}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one object or more is of a training step with a loss."""
        return any(
            mode == "train" and '"loss": ' in text
            for block in source.blocks()
            if '"mode": "train"' in block.text
            for text, mode, *_ in _MMCV_JSON_OBJECT.findall(block.text)
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a training loss."""
        reading = _MmcvJsonReading()
        log = RecordLines(source, _MMCV_JSON_START, *_MMCV_JSON_TOGETHER).read(self, reading)
        return replace(log, counting=reading.counting())


class _MmcvJsonReading:
    """Objects of training and, at the last of them, of validation."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=lambda _: _ROUNDED), 0
        self._step = NO_STEP
        self._training_steps: list[Integers] = []
        self._training_epochs: list[Integers] = []

    def add(self, block: LogBlock) -> None:
        """Take the objects of a block."""
        matches = find_columns(block, _MMCV_JSON_OBJECT)
        self.ignored += block.count_filled() - len(matches.places)
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        objects, modes, printed_epochs, printed = matches.columns
        training, epochs = are_word(modes, "train"), read_steps(printed_epochs)
        steps = carry_forward(read_steps(printed), training, self._step)
        columns = (lines, steps, objects, _JSON_PAIR, training)
        add_pairs(self.builder, *columns, IN_SECONDS, _MMCV_JSON_COUNTERS, epochs=epochs)
        self._step = int(steps[-1])
        self._training_steps.append(steps[training])
        self._training_epochs.append(epochs[training])

    def counting(self) -> Counting:
        """Tell how the run counts: inside epochs if a later one starts at an earlier step."""
        back = np.diff(np.concatenate(self._training_steps)) <= 0
        on = np.diff(np.concatenate(self._training_epochs)) > 0
        return "step in epoch" if np.any(back & on) else "global step"

    @cached_property
    def _interval(self) -> int:
        return print_interval(self._training_steps)

    def _window(self, name: str) -> Window:
        return interval_window(name, self._interval)


# MindCV's `result.log`: one line an epoch.
#
# `TrainLoss` there is the loss of the epoch's last batch, not a mean over the epoch (StateMonitor writes what the
# last step returned), so it is a raw point at the last step of each epoch.

_HEADER = re.compile(r"^Epoch {2,}TrainLoss  .*TotalTime[ \t]*$", re.MULTILINE)


class MindcvResultFormat(LogPlugin):
    """A table with the header `Epoch TrainLoss ... TrainTime EvalTime TotalTime`."""

    name = "mindcv_result"
    summary = "MindCV result.log: Epoch TrainLoss accuracy TrainTime ..., one line an epoch"
    sample = (
        b"Epoch               TrainLoss           accuracy            TrainTime           EvalTime    TotalTime\n"
        b"1                   1.144807            0.0000%             1.15                0.00                1.17\n"
        b"2                   1.065711            0.0000%             0.61                0.00                0.62\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether there is the header of a result.log."""
        return any(_HEADER.search(block.text) for block in source.blocks() if "TotalTime" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError if there is none."""
        ignored: list[int] = []
        double: list[int] = []
        table = as_table(_records(source, ignored, double), printed_of=all_fixed)
        if "TrainLoss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="TrainLoss",
            counting="epoch",
            base=1,
            ignored_lines=len(ignored) + len(double),
            notes=(*double_notes(double), *end_notes(source)),
        )


def _records(source: LogSource, ignored: list[int], double: list[int]) -> Iterator[LogRecord]:
    names: list[str] = []
    for number, line in source.lines():
        cells = line.split()
        if _HEADER.match(line):
            names = cells[1:]
            ignored.append(number)
        elif names and len(cells) == len(names) + 1 and (epoch := read_step(cells[0])) is not None:
            yield LogRecord(number, epoch, epoch, dict(zip(names, map(_fraction, cells[1:]), strict=True)))
        elif cells:
            (double if len(cells) > 2 * len(names) > 0 else ignored).append(number)


def _fraction(text: str) -> str:
    """Turn `12.3400%` into a fraction of one, with all its digits; anything else stays."""
    number = text.removesuffix("%")
    return f"{number}e-2" if number != text and is_number(number) else text


PLUGINS = (MmengineFormat(), MmengineScalarsFormat(), MmcvJsonFormat(), MindcvResultFormat())
