"""CSV files with a header: comma, semicolon or tab."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.delimited import by_name, double_notes, find_header, read_cells
from align.curves.log_parts.record_lines import carry_forward, phase_by_name
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, end_notes, known, read_steps
from align.curves.log_parts.table_reader import (
    RATE,
    TableReader,
    find_columns,
    is_lightning,
    loss_names,
    loss_notes,
    repeated_notes,
    with_sum,
)
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.printed_columns import ABSENT
from align.errors import EmptyLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.curves.log_parts.delimited import Header
    from align.curves.log_parts.table_reader import LogColumns
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers, LogTable, Series, Window


class CsvFormat:
    """A table with a step (or epoch) column and a loss column."""

    name = "csv"
    summary = "CSV with a header: a step (or epoch) and a loss column under their usual names"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b"step,loss,lr\n1,2.302585,0.1\n2,2.287413,0.1\n3,2.250119,0.1\n"

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first line that is no comment names a step and a loss column, and is not Lightning's."""
        found = _csv_table_header(source)
        return found is not None and not is_lightning(found[0].names)

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError or another if none has a step and a loss, RepeatedColumnError."""
        header, columns = known(_csv_table_header(source), source, say("log_error.columns", format=self.name))
        reader = TableReader(columns, source.metric, decimal_comma=header.delimiter != ",")
        repeated: dict[str, int] = {}
        double: list[int] = []
        for block, cells in read_cells(source, header, double):
            reader.add(block, cells.lines, by_name(header, cells, repeated))
        notes = (*repeated_notes(source.label, columns, repeated), *double_notes(double))
        return reader.read(source, self.name).with_notes(notes)


def _csv_table_header(source: LogSource) -> tuple[Header, LogColumns] | None:
    header = find_header(source)
    columns = find_columns(header.names, source.metric) if header is not None else None
    return None if header is None or columns is None else (header, columns)


CSV_TABLE = CsvFormat()


# `metrics.csv` of Lightning's CSVLogger, which has a row for each time something was logged.
#
# `step` counts optimizer steps from 0, through all epochs. A metric that is logged both ways is there as `x_step`,
# the value of one step, and as `x_epoch`, the mean of the epoch in a row of its last step; one that is logged one way
# does not tell which, but the mean of an epoch comes in a row after the validation of its last step.


class LightningFormat:
    """A sparse table with `epoch`, `step`, and `x_step` and `x_epoch` or `lr-SGD`."""

    name = "lightning"
    summary = "metrics.csv of Lightning: epoch,step,train_loss_step,train_loss_epoch,val_loss"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"epoch,lr-SGD,step,train_loss_epoch,train_loss_step,val_loss\n"
        b",0.05,1,,,\n"
        b"0,,1,,4.265110492706299,\n"
        b",0.025,3,,,\n"
        b"0,,3,,0.6732417941093445,\n"
        b"0,,3,,,1.5052216053009033\n"
        b"0,,3,2.4691762924194336,,\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the header is one of Lightning's."""
        return _lightning_header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError if none has a step and a number.

        Without a loss of a usual name `loss_name` is empty, and other metrics can still be had.
        """
        header = known(_lightning_header(source), source, self.summary)
        table, ignored, notes = _read_table(source, header)
        if not table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        losses = [name for name in loss_names(header.names) if name in table.metrics]
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name=losses[0] if losses else "",
            counting="global step",
            base=0,
            ignored_lines=ignored,
            notes=(*notes, *loss_notes(losses), *_doubt(losses, table), *end_notes(source)),
        )


def _lightning_header(source: LogSource) -> Header | None:
    header = find_header(source)
    return header if header is not None and is_lightning(header.names) else None


def _read_table(source: LogSource, header: Header) -> tuple[LogTable, int, tuple[str, ...]]:
    """Return the table, the number of lines that are no records, and what was not read as it stands."""
    builder, filled = TableBuilder(_lightning_window, phase_by_name, next(iter(loss_names(header.names)), None)), 0
    double: list[int] = []
    for block, cells in read_cells(source, header, double):
        filled += block.count_filled()
        columns = dict(zip(header.names, cells.columns, strict=True))
        steps, epochs = read_steps(columns.pop("step")), read_steps(columns.pop("epoch"))
        builder.add(cells.lines, steps, columns, epochs=_next_known(epochs))
    table = builder.build()
    return _with_means(table), filled - len(table.lines), (*builder.notes(), *double_notes(double))


def _next_known(epochs: Integers) -> Integers:
    """Give rows of learning rates, which name no epoch, that of the row after them: they come before their step."""
    return carry_forward(epochs[::-1], epochs[::-1] >= 0, -1)[::-1]


def _lightning_window(name: str) -> Window:
    return EPOCH_MEAN if name.endswith("_epoch") else RAW


def _with_means(table: LogTable) -> LogTable:
    """Tell the means of epochs among the metrics that are logged one way."""
    others = [series.rows for series in table.metrics.values() if series.phase == "validation"]
    if not others:
        return table
    validations = np.unique(np.concatenate(others))
    metrics = {
        name: replace(series, window=EPOCH_MEAN) if _is_mean(name, series, table.steps, validations) else series
        for name, series in table.metrics.items()
    }
    return replace(table, metrics=metrics)


def _is_mean(name: str, series: Series, steps: Integers, validations: Integers) -> bool:
    """Tell whether each value stands behind a row of validation of its own step."""
    if series.phase == "validation" or name.endswith("_step") or RATE.match(name):
        return False
    before = np.searchsorted(validations, series.rows) - 1
    return bool(np.all((before >= 0) & (steps[validations[before]] == steps[series.rows])))


def _doubt(losses: list[str], table: LogTable) -> tuple[str, ...]:
    """Say so if nothing tells a loss of one step from the mean of an epoch."""
    phases = {series.phase for series in table.metrics.values()}
    if not losses or losses[0].endswith(("_step", "_epoch")) or "validation" in phases:
        return ()
    return (sentence("logs_note.step_or_epoch", loss=losses[0]),)


LIGHTNING = LightningFormat()


# `results.csv` of YOLO trainers (Ultralytics, YOLOv5): one row an epoch, means over its steps.
#
# The table has the parts of the training loss and not the loss: here it is their sum. YOLOv5 pads its columns and
# counts epochs from 0, as the first versions of Ultralytics do; later ones count from 1.

_YOLOV5_RATE = "x/lr0"


class YoloFormat:
    """A table of epochs with columns `train/box_loss`, `train/cls_loss`, ..."""

    name = "yolo"
    summary = "results.csv of YOLO: epoch,train/box_loss,train/cls_loss,...,val/box_loss,..."
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/mAP50(B),val/box_loss,lr/pg0\n"
        b"1,0.272853,3.1157,1.8018,1.93578,0,1.61368,0.000333333\n"
        b"2,1.22506,4.75336,2.67567,2.98049,0,1.61368,0.000835\n"
        b"3,1.52392,2.73261,1.54768,1.63964,0,1.61368,0.00111667\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the header names epochs and parts of a training loss, but no loss."""
        return _yolo_header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all epochs; raises EmptyLogError if none has all parts of the loss."""
        header = known(_yolo_header(source), source, self.summary)
        parts = _parts(header.names)
        builder, filled = TableBuilder(_yolo_window, phase_by_name), 0
        double: list[int] = []
        for block, cells in read_cells(source, header, double):
            filled += block.count_filled()
            columns = dict(zip(header.names, cells.columns, strict=True))
            whole = np.array([text != ABSENT for text in cells.columns[-1]], np.bool_)
            builder.add(cells.lines, np.where(whole, read_steps(columns.pop("epoch")), NO_STEP), columns)
        table = with_sum(builder.build(), parts, EPOCH_MEAN)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="epoch",
            base=0 if _YOLOV5_RATE in header.names else None,
            ignored_lines=filled - len(table.lines),
            notes=(sentence("logs_note.sum_of_parts", parts=parts), *double_notes(double), *end_notes(source)),
        )


def _yolo_header(source: LogSource) -> Header | None:
    header = find_header(source)
    is_known = header is not None and "epoch" in header.names and bool(_parts(header.names))
    return header if header is not None and is_known and find_columns(header.names) is None else None


def _parts(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("train/") and name.endswith("_loss")]


def _yolo_window(name: str) -> Window:
    return EPOCH_MEAN if name.startswith("train/") else RAW


YOLO = YoloFormat()

PLUGINS = (
    CSV_TABLE,
    LIGHTNING,
    YOLO,
)
