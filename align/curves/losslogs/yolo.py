"""`results.csv` of YOLO trainers (Ultralytics, YOLOv5): one row an epoch, means over its steps.

The table has the parts of the training loss and not the loss: here it is their sum. YOLOv5 pads its columns and counts
epochs from 0, as the first versions of Ultralytics do; later ones count from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.printed_column import ABSENT
from align.curves.log_parts.column_names import with_sum
from align.curves.log_parts.delimited import double_notes, find_header, read_cells
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_steps
from align.curves.log_parts.table_reader import find_columns
from align.curves.log_parts.text import end_notes, known
from align.curves.log_parts.validation_metrics import phase_by_name
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.curves.log_parts.delimited import Header
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Window

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
        return _header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all epochs; raises EmptyLogError if none has all parts of the loss."""
        header = known(_header(source), source, self.summary)
        parts = _parts(header.names)
        builder, filled = TableBuilder(_window, phase_by_name), 0
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


def _header(source: LogSource) -> Header | None:
    header = find_header(source)
    is_known = header is not None and "epoch" in header.names and bool(_parts(header.names))
    return header if header is not None and is_known and find_columns(header.names) is None else None


def _parts(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("train/") and name.endswith("_loss")]


def _window(name: str) -> Window:
    return EPOCH_MEAN if name.startswith("train/") else RAW


PLUGIN = YoloFormat()
