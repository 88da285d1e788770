"""CSV files with a header: comma, semicolon or tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.curves.log_parts.column_names import is_lightning
from align.curves.log_parts.delimited import by_name, double_notes, find_header, read_cells
from align.curves.log_parts.table_reader import TableReader, find_columns, repeated_notes
from align.curves.log_parts.text import known
from align.errors import EmptyLogError

if TYPE_CHECKING:
    from align.curves.log_parts.delimited import Header
    from align.curves.log_parts.table_reader import LogColumns
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog


class CsvFormat:
    """A table with a step (or epoch) column and a loss column."""

    name = "csv"
    summary = "CSV with a header: a step (or epoch) and a loss column under their usual names"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b"step,loss,lr\n1,2.302585,0.1\n2,2.287413,0.1\n3,2.250119,0.1\n"

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first line that is no comment names a step and a loss column, and is not Lightning's."""
        found = _header(source)
        return found is not None and not is_lightning(found[0].names)

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError or another if none has a step and a loss, RepeatedColumnError."""
        header, columns = known(_header(source), source, f"{self.name}: {EmptyLogError.COLUMNS}")
        reader = TableReader(columns, source.metric, decimal_comma=header.delimiter != ",")
        repeated: dict[str, int] = {}
        double: list[int] = []
        for block, cells in read_cells(source, header, double):
            reader.add(block, cells.lines, by_name(header, cells, repeated))
        notes = (*repeated_notes(source.label, columns, repeated), *double_notes(double))
        return reader.read(source, self.name).with_notes(notes)


def _header(source: LogSource) -> tuple[Header, LogColumns] | None:
    header = find_header(source)
    columns = find_columns(header.names, source.metric) if header is not None else None
    return None if header is None or columns is None else (header, columns)


PLUGIN = CsvFormat()
