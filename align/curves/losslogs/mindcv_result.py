"""MindCV's `result.log`: one line an epoch.

`TrainLoss` there is the loss of the epoch's last batch, not a mean over the epoch (StateMonitor writes what the last
step returned), so it is a raw point at the last step of each epoch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.delimited import double_notes
from align.curves.log_parts.table_builder import as_table, read_step
from align.curves.log_parts.text import end_notes, is_number
from align.curves.loss_log import LogRecord, LossLog
from align.errors import EmptyLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.log_sources import LogSource

_HEADER = re.compile(r"^Epoch {2,}TrainLoss  .*TotalTime[ \t]*$", re.MULTILINE)


class MindcvResultFormat:
    """A table with the header `Epoch TrainLoss ... TrainTime EvalTime TotalTime`."""

    name = "mindcv_result"
    summary = "MindCV result.log: Epoch TrainLoss accuracy TrainTime ..., one line an epoch"
    requires: tuple[str, ...] = ()
    quoted = False
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


PLUGIN = MindcvResultFormat()
