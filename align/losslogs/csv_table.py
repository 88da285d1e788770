"""CSV files with a header: comma, semicolon or tab.

Lightning's `metrics.csv` is one of them.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from align.errors import EmptyLogError
from align.losslogs._table import EXPECTED, cells_by_name, find_columns, read_table, repeated_notes
from align.losslogs._text import end_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.curves import LossLog
    from align.core.log_sources import LogSource

_DELIMITERS = ",;\t"


class CsvFormat:
    """A table with a step (or epoch) column and a loss column."""

    name = "csv"
    summary = "CSV with a header: a step (or epoch) and a loss column under their usual names"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b"step,loss,lr\n1,2.302585,0.1\n2,2.287413,0.1\n3,2.250119,0.1\n"

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first line that is no comment names a step and a loss column."""
        header = _header(source)
        return header is not None and find_columns(header[1]) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError if none has a step and a loss, RepeatedColumnError."""
        header = _header(source)
        columns = find_columns(header[1]) if header is not None else None
        if header is None or columns is None:
            raise EmptyLogError(source.label, [f"{self.name}: {EXPECTED}"])
        repeated: dict[str, int] = {}
        log = read_table(_rows(source, header, repeated), columns, source.label, self.name)
        return log.with_notes((*end_notes(source), *repeated_notes(source.label, columns, repeated)))


def _header(source: LogSource) -> tuple[int, list[str], str] | None:
    """Return the header's line number, its cells and the delimiter; None if the first line has no delimiter."""
    for number, line in source.lines():
        if not line.strip() or line.startswith("#"):
            continue
        delimiter = max(_DELIMITERS, key=line.count)
        return (number, _cells(line, delimiter), delimiter) if delimiter in line else None
    return None


def _rows(
    source: LogSource, header: tuple[int, list[str], str], repeated: dict[str, int]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each line after the header by column; a header again (runs appended to one file) is no row."""
    header_line, names, delimiter = header
    for number, line in source.lines():
        if number > header_line and line.strip():
            cells = _cells(line, delimiter)
            if cells != names:
                yield number, cells_by_name(number, list(zip(names, cells, strict=False)), repeated)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    except csv.Error:
        return [cell.strip() for cell in line.split(delimiter)]


PLUGIN = CsvFormat()
