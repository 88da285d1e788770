"""What PaddlePaddle's `paddle.Model.fit` prints.

A loss is that of the printed step; other metrics are means of the epoch so far, and so is the time per step; the costs
of `verbose=3` are means since the last print. The epoch stands in a line of its own. Of an evaluation the last line
counts: its metrics are those of all its batches, its loss that of the last batch alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.record_lines import (
    RecordLines,
    add_pairs,
    by_phase,
    carry_forward,
    named_validation,
    pair_columns,
    phase_by_name,
    twice,
)
from align.curves.log_parts.table_builder import NO_STEP, NUMBER, TableBuilder, read_printed_steps, read_steps
from align.curves.log_sources import LogPlugin
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog, Window
from align.curves.printed_columns import Printed, all_fixed, are_filled, are_word, find_columns, take_texts
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers


_PADDLE_HAPI_STEP = r"\bstep +([0-9]{1,9})(?:/([0-9]{1,9}))?(?: \[[=>.]*\])? - ([^\n]{0,1000}) - ([0-9]+)(us|ms|s)/step"
_PADDLE_HAPI_LINE = re.compile(
    rf"\bEpoch ([0-9]{{1,9}})/[0-9]+[ \t]*$|\b(Eval|Predict) begin\.\.\.|{_PADDLE_HAPI_STEP}", re.MULTILINE
)
_LOSS = re.compile(r"\bstep +[0-9]+(?:/[0-9]+)?(?: \[[=>.]*\])? - loss: [^\n]{0,1000} - [0-9]+[um]?s/step")
_PADDLE_HAPI_PAIR = re.compile(rf"(?<![\w./-])([A-Za-z][\w./-]{{0,80}}): \[?({NUMBER})(?![\w.])")
_TO_MILLISECONDS = {"us": "e-3", "ms": "", "s": "e3"}
_PADDLE_HAPI_COSTS = {"avg_reader_cost": "avg_reader_cost_s", "avg_batch_cost": "avg_batch_cost_s"}
_PADDLE_HAPI_SINCE_LAST_PRINT = (*_PADDLE_HAPI_COSTS.values(), "ips")
_PADDLE_HAPI_START = (
    r"step +[0-9]{1,9}(?:/[0-9]{1,9})?(?: \[[=>.]*\])? - |Epoch [0-9]{1,9}/[0-9]|(?:Eval|Predict) (?:begin|samples)"
)
_PADDLE_HAPI_TOGETHER = (
    r"/step[ \t]*[^ \t\n]",
    r"Epoch [0-9]{1,9}/[0-9]+[ \t]*[^ \t\n0-9]",
    r"begin\.\.\.[ \t]*[^ \t\n]",
    "samples: [0-9]+Epoch",
)


class PaddleHapiFormat(LogPlugin):
    """Lines `step  2/13 - loss: 2.1448 - acc: 0.5000 - 33ms/step`, after `Epoch 1/2`."""

    name = "paddle_hapi"
    summary = "paddle.Model.fit: Epoch 1/2, step  2/13 - loss: 2.1448 - acc: 0.5000 - 33ms/step"
    sample = (
        b"Epoch 1/2\n"
        b"step 10/13 - loss: 1.7921 - acc: 0.4000 - 8ms/step\n"
        b"step 13/13 - loss: 0.6695 - acc: 0.4400 - 6ms/step\n"
        b"Eval begin...\n"
        b"step 5/5 - loss: 1.0725 - acc: 0.4000 - 817us/step\n"
        b"Eval samples: 10\n"
        b"Epoch 2/2\n"
        b"step 10/13 - loss: 1.1123 - acc: 0.3500 - 2ms/step\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a step with a loss."""
        return any(_LOSS.search(block.text) for block in source.blocks() if "/step" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read steps and the ends of evaluations; raises EmptyLogError if no step of training has a loss."""
        reading = _PaddleHapiReading()
        log = RecordLines(source, _PADDLE_HAPI_START, *_PADDLE_HAPI_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", notes=(*log.notes, *reading.notes()))


class _PaddleHapiReading:
    """The steps of a log, as distinguished by the lines between them."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_paddle_hapi_window, phase_by_name, printed_of=all_fixed), 0
        self._epoch, self._evaluating, self._total = NO_STEP, 0, 0
        self._before_first_epoch = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block; of an evaluation the last step is kept, at the end of the epoch."""
        matches = find_columns(block, _PADDLE_HAPI_LINE)
        self.ignored += block.count_filled()
        if not matches.columns:
            return
        lines, (epoch_texts, others, step_texts, total_texts, *printed) = block.numbers[matches.places], matches.columns
        of_steps, begins = are_filled(step_texts), are_filled(epoch_texts)
        epochs = carry_forward(read_printed_steps(epoch_texts), begins, self._epoch)
        evaluating = carry_forward(are_filled(others).astype(np.int64), ~of_steps, self._evaluating)
        steps, totals = read_printed_steps(step_texts), np.maximum(read_printed_steps(total_texts), 0)
        counted = of_steps & (epochs != NO_STEP)
        training = counted & (evaluating == 0)
        last = counted & (evaluating != 0) & (steps == totals)
        of_epochs = carry_forward(totals, training, self._total)
        self._before_first_epoch += int(np.count_nonzero(of_steps & ~counted))
        self._epoch, self._evaluating, self._total = int(epochs[-1]), int(evaluating[-1]), int(of_epochs[-1])
        for kept, numbers, named in ((training, steps, dict), (last, of_epochs, named_validation)):
            if len(at := np.flatnonzero(kept)):
                self.ignored -= len(at)
                metrics = named(_metrics(*(take_texts(column, at) for column in printed)))
                self.builder.add(lines[at], numbers[at], metrics, epochs=epochs[at], totals=of_epochs[at])

    def notes(self) -> tuple[str, ...]:
        """Say what was left out for want of an epoch."""
        count = self._before_first_epoch
        return (sentence("logs_note.before_first_epoch", count=count),) if count else ()


def _metrics(values: Sequence[str], times: Sequence[str], units: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the metrics of some lines by name, the times in milliseconds."""
    if not are_word(units, "ms").all():
        times = [time + _TO_MILLISECONDS[unit] for time, unit in zip(times, units, strict=True)]
    return {**_called(_PADDLE_HAPI_COSTS, pair_columns(values, _PADDLE_HAPI_PAIR)), "step_time_ms": times}


def _called(names: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Call columns by other names, where there are such."""
    return {names.get(name, name): texts for name, texts in columns.items()}


def _paddle_hapi_window(name: str) -> Window:
    if name == "loss" or phase_by_name(name) == "validation":
        return RAW
    return SINCE_LAST_PRINT if name in _PADDLE_HAPI_SINCE_LAST_PRINT else EPOCH_SO_FAR


# The console log of PaddleClas.
#
# It calls the first epoch 1 but the first iteration 0: here both are 1. Losses and metrics are means of the epoch so
# far, each batch weighed by its size, so that the `[Avg]` of an epoch is the value of its last step; costs are means
# since the last print, `lr` is the current one. An evaluation stands at the end of its epoch.

_PADDLECLAS_TRAINING = r"\[Train\]\[Epoch ([0-9]+)/[0-9]+\]\[(?:Iter: ([0-9]+)/([0-9]+)|Avg)\]"
_PADDLECLAS_LINE = re.compile(rf"(?:{_PADDLECLAS_TRAINING}|\[Eval\]\[Epoch ([0-9]+)\]\[Avg\])([^\n]*)")
_ITERATION = re.compile(r"\[Train\]\[Epoch [0-9]+/[0-9]+\]\[Iter: [0-9]+/[0-9]+\][^\n]{0,1000}\bloss: ")
_PADDLECLAS_PAIR = re.compile(
    rf"(?<![\w@./-])(?!eta:)([A-Za-z][\w@./-]{{0,80}})(?:\(\w{{1,80}}\))?: ({NUMBER})(?=s?[, \[]|s?$)", re.MULTILINE
)
_PADDLECLAS_COSTS = {"batch_cost": "batch_cost_s", "reader_cost": "reader_cost_s"}
_PADDLECLAS_SINCE_LAST_PRINT = (*_PADDLECLAS_COSTS.values(), "ips")
_PADDLECLAS_START = r"\[(?:Train|Eval)\]\[Epoch [0-9]"
_PADDLECLAS_TOGETHER = (twice(r"\[Epoch [0-9]"),)


class PaddleClasFormat(LogPlugin):
    """Lines `[Train][Epoch 1/20][Iter: 10/100]lr(Cosine): 0.01, top1: 0.5, CELoss: 4.2, loss: 4.2, batch_cost: ...`."""

    name = "paddleclas"
    summary = "PaddleClas console log: [Train][Epoch 1/20][Iter: 10/100]lr(Cosine): 0.01, ... loss: 4.2"
    sample = (
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Iter: 0/6]lr(Linear): 0.10000000, top1: 0.25000, "
        b"CELoss: 1.94957, loss: 1.94957, batch_cost: 0.03991s, reader_cost: 0.00000, ips: 100.23130 samples/s, "
        b"eta: 0:00:00\n"
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Iter: 5/6]lr(Linear): 0.05000000, top1: 0.45833, "
        b"CELoss: 1.49276, loss: 1.49276, batch_cost: 0.00032s, reader_cost: 0.00000, ips: 12510.97390 samples/s, "
        b"eta: 0:00:00\n"
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Avg]top1: 0.45833, CELoss: 1.49276, loss: 1.49276\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of an iteration with a loss."""
        return any(_ITERATION.search(block.text) for block in source.blocks() if "[Train][" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read iterations, epochs and evaluations; raises EmptyLogError if there is no training loss."""
        reading = _PaddleclasReading()
        log = RecordLines(source, _PADDLECLAS_START, *_PADDLECLAS_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch")


class _PaddleclasReading:
    """Lines with a loss; what tells of a whole epoch stands at its last step."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_paddleclas_window, phase_by_name, printed_of=all_fixed), 0
        self._total = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        matches = find_columns(block, _PADDLECLAS_LINE)
        self.ignored += block.count_filled() - len(matches.places)
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        trained, iterations, printed_totals, evaluated, lists = matches.columns
        read, training = read_printed_steps(iterations), ~are_filled(evaluated)
        totals = carry_forward(read_printed_steps(printed_totals), read != NO_STEP, self._total)
        steps = np.where(read != NO_STEP, read + 1, totals)
        epochs = np.where(training, read_printed_steps(trained), read_printed_steps(evaluated))
        columns = (lines, steps, lists, _PADDLECLAS_PAIR, training)
        add_pairs(self.builder, *columns, _PADDLECLAS_COSTS, epochs=epochs, totals=np.maximum(totals, 0))
        self._total = int(totals[-1])


def _paddleclas_window(name: str) -> Window:
    if name == "lr" or phase_by_name(name) == "validation":
        return RAW
    return SINCE_LAST_PRINT if name in _PADDLECLAS_SINCE_LAST_PRINT else EPOCH_SO_FAR


# The console log of PaddleDetection, which counts epochs and steps from 0.
#
# A loss is the median, not the mean, of the last `log_iter` steps, running on over epochs; costs are means of as
# many. Lines are printed at its multiples, which tells it; where only step 0 is, it is taken to be the length of the
# epoch.

_PADDLEDETECTION_STEP = re.compile(
    r"Epoch: \[([0-9]+)\] \[ *([0-9]+)/([0-9]+)\] (learning_rate: (?=[^\n]{0,2000}\bloss: )[^\n]*)"
)
_PADDLEDETECTION_PAIR = re.compile(
    rf"(?<![\w./-])(?!eta:)([A-Za-z][\w./-]{{0,80}}): ({NUMBER})(?=[ ,]|$)", re.MULTILINE
)
_PADDLEDETECTION_COSTS = {"batch_cost": "batch_cost_s", "data_cost": "data_cost_s"}
_MEANS = (*_PADDLEDETECTION_COSTS.values(), "ips")
_PADDLEDETECTION_START = r"Epoch: \[[0-9]+\] \["
_PADDLEDETECTION_TOGETHER = (twice(_PADDLEDETECTION_START),)


class PaddleDetectionFormat(LogPlugin):
    """Lines `Epoch: [0] [ 20/200] learning_rate: 0.000025 loss_cls: 7.02 loss: 10.63 eta: ... batch_cost: 6.62 ...`."""

    name = "paddledetection"
    summary = "PaddleDetection console log: Epoch: [0] [ 20/200] learning_rate: 0.000025 ... loss: 3.63 eta: ..."
    sample = (
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [0] [ 0/11] learning_rate: 0.100000 loss_cls: 1.462313 "
        b"loss: 1.462313 eta: 0:00:00 batch_cost: 0.0325 data_cost: 0.0000 ips: 92.3930 images/s\n"
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [0] [ 4/11] learning_rate: 0.100000 loss_cls: 1.805956 "
        b"loss: 1.805956 eta: 0:00:00 batch_cost: 0.0005 data_cost: 0.0000 ips: 6511.2093 images/s\n"
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [1] [ 0/11] learning_rate: 0.100000 loss_cls: 1.294298 "
        b"loss: 1.294298 eta: 0:00:00 batch_cost: 0.0004 data_cost: 0.0000 ips: 6930.8246 images/s\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a step with a loss."""
        blocks = (block.text for block in source.blocks() if "learning_rate: " in block.text)
        return any(map(_PADDLEDETECTION_STEP.search, blocks))

    def read(self, source: LogSource) -> LossLog:
        """Read all steps; raises EmptyLogError if there is none."""
        reading = _PaddledetectionReading()
        log = RecordLines(source, _PADDLEDETECTION_START, *_PADDLEDETECTION_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", base=0)


class _PaddledetectionReading:
    """Lines of steps and the distances between them."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, printed_of=all_fixed), 0
        self._steps: list[Integers] = []
        self._total = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        matches = find_columns(block, _PADDLEDETECTION_STEP)
        self.ignored += block.count_filled() - len(matches.places)
        if matches.columns:
            epochs, printed, printed_totals, lists = matches.columns
            steps, totals = read_steps(printed), np.maximum(read_steps(printed_totals), 0)
            metrics = _called(_PADDLEDETECTION_COSTS, pair_columns(lists, _PADDLEDETECTION_PAIR))
            self.builder.add(block.numbers[matches.places], steps, metrics, epochs=read_steps(epochs), totals=totals)
            self._steps.append(steps)
            self._total = max(self._total, int(totals.max()))

    def _window(self, name: str) -> Window:
        length = int(np.gcd.reduce(np.maximum(np.concatenate(self._steps), 0))) or self._total
        if length <= 1 or not (name in _MEANS or "loss" in name):
            return RAW
        return Window("mean of last" if name in _MEANS else "median of last", length)


# What PaddleNLP prints: its Trainer, and the training scripts of its examples (`global step 10, epoch: 1, ...`).
#
# The Trainer's losses are means since the last print; an evaluation stands at the last training line before it. A
# script prints the loss of the step, as the examples do; what others made of their line is not known. Throughputs and
# costs are taken since the last print.

_TRAINER = r"(?<![\w'])loss: [^\n]{0,200}?, global_step: ([0-9]+)"
_SCRIPT = r"global step ([0-9]+)(?:/[0-9]+)?, (?=[^\n]{0,500}\bloss: )"
_PADDLENLP_TRAINING = re.compile(rf"{_TRAINER}|{_SCRIPT}")
_PADDLENLP_LINE = re.compile(rf"((?:{_TRAINER}|{_SCRIPT}|(?<![\w'])(eval_)\w+: )[^\n]*)")
_PADDLENLP_PAIR = re.compile(
    rf"(?<![\w'.-])(learning rate|[A-Za-z][\w.-]{{0,80}}) ?: ?({NUMBER})(?=[,\s\[\]|]|$)", re.MULTILINE
)
_COUNTERS = ("global_step", "epoch", "batch", "progress_or_epoch")
_TIMES = {
    "interval_runtime": "interval_runtime_s",
    "avg_reader_cost": "avg_reader_cost_s",
    "avg_batch_cost": "avg_batch_cost_s",
}
_SET = ("learning_rate", "learning rate", "lr", "loss_scale", "global_norm")
_TRAINER_PRINTS = {"loss": Printed("decimals", 8), "learning_rate": Printed("significant", 4)}
# A training line of the Trainer begins with its loss; those of scripts have theirs behind the step.
_PADDLENLP_START = (
    r"(?<![\w'])loss: (?=[^,\n]{1,40}, (?:[a-z_]{1,40}: [^,\n]{1,40}, ){0,4}global_step: [0-9])"
    r"|global step [0-9]+(?:/[0-9]+)?, |(?<=- )eval_loss: "
)
_PADDLENLP_TOGETHER = twice("loss: "), twice("global step ")


class PaddleNlpFormat(LogPlugin):
    """Lines `loss: 5.408041, learning_rate: 2.996e-05, global_step: 10, interval_runtime: 3.084, ...`."""

    name = "paddlenlp"
    summary = (
        "PaddleNLP: loss: 5.408, learning_rate: 3e-05, global_step: 10, ..., or global step 10, epoch: 1, ... loss: 5.4"
    )
    sample = (
        b"[2026-11-20 23:42:45,781] [    INFO] - loss: 1.41530406, learning_rate: 0.04688, global_step: 1, "
        b"interval_runtime: 0.0517, interval_samples_per_second: 38.7003, interval_steps_per_second: 19.3502, "
        b"progress_or_epoch: 0.125\n"
        b"[2026-11-20 23:42:45,783] [    INFO] - loss: 1.87084389, learning_rate: 0.04063, global_step: 3, "
        b"interval_runtime: 0.0022, interval_samples_per_second: 1840.6161, interval_steps_per_second: 920.3081, "
        b"progress_or_epoch: 0.375\n"
        b"[2026-11-20 23:42:45,799] [    INFO] - eval_loss: 1.6015843152999878, eval_accuracy: 0.375, "
        b"eval_runtime: 0.0022, progress_or_epoch: 1.0\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a training step."""
        return any(_PADDLENLP_TRAINING.search(block.text) for block in source.blocks() if "loss: " in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read steps and evaluations; raises EmptyLogError if no step has a loss."""
        reading = _PaddlenlpReading()
        log = RecordLines(source, _PADDLENLP_START, *_PADDLENLP_TOGETHER).read(self, reading)
        notes = (sentence("logs_note.loss_of_step"),) if reading.of_script else ()
        return replace(log, base=None if reading.of_script else 1).with_notes(notes)


class _PaddlenlpReading:
    """Lines of steps and, at the last step before them, of evaluations."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=self._printed), 0
        self.of_script = False
        self._step = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        matches = find_columns(block, _PADDLENLP_LINE)
        self.ignored += block.count_filled() - len(matches.places)
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        lists, trained, scripted, evaluated = matches.columns
        validation = are_filled(evaluated)
        printed = np.where(are_filled(trained), read_printed_steps(trained), read_printed_steps(scripted))
        steps = carry_forward(printed, ~validation, self._step)
        for _, at in by_phase(validation):
            columns = pair_columns(take_texts(lists, at), _PADDLENLP_PAIR)
            metrics = {_TIMES.get(name, name): texts for name, texts in columns.items() if name not in _COUNTERS}
            self.builder.add(lines[at], steps[at], metrics)
        self.of_script |= bool(are_filled(scripted).any())
        self._step = int(steps[-1])

    def _printed(self, name: str) -> Printed | None:
        return None if self.of_script else _TRAINER_PRINTS.get(name)

    def _window(self, name: str) -> Window:
        set_or_printed = name in _SET or "memory" in name or (self.of_script and "loss" in name)
        return RAW if set_or_printed or phase_by_name(name) == "validation" else SINCE_LAST_PRINT


PLUGINS = (PaddleHapiFormat(), PaddleClasFormat(), PaddleDetectionFormat(), PaddleNlpFormat())
