"""`metrics.csv` of Lightning's CSVLogger, which has a row for each time something was logged.

`step` counts optimizer steps from 0, through all epochs. A metric that is logged both ways is there as `x_step`, the
value of one step, and as `x_epoch`, the mean of the epoch in a row of its last step; one that is logged one way does
not tell which, but the mean of an epoch comes in a row after the validation of its last step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.column_names import RATE, is_lightning, loss_names, loss_notes
from align.curves.log_parts.delimited import double_notes, find_header, read_cells
from align.curves.log_parts.table_builder import TableBuilder, read_steps
from align.curves.log_parts.text import end_notes, known
from align.curves.log_parts.validation_metrics import carry_forward, phase_by_name
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.log_parts.delimited import Header
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers, LogTable, Series, Window


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
        return _header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError if none has a step and a number.

        Without a loss of a usual name `loss_name` is empty, and other metrics can still be had.
        """
        header = known(_header(source), source, self.summary)
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


def _header(source: LogSource) -> Header | None:
    header = find_header(source)
    return header if header is not None and is_lightning(header.names) else None


def _read_table(source: LogSource, header: Header) -> tuple[LogTable, int, tuple[str, ...]]:
    """Return the table, the number of lines that are no records, and what was not read as it stands."""
    builder, filled = TableBuilder(_window, phase_by_name, next(iter(loss_names(header.names)), None)), 0
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


def _window(name: str) -> Window:
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


PLUGIN = LightningFormat()
