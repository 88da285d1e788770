"""Tables of profilers as rows by the names of their columns, whatever comes before their header."""

from __future__ import annotations

import csv
import io
import re
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.advice.evidence import ProfileSource

T = TypeVar("T")
LINES_BEFORE = 20  # format: lines that a tool says before a table
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?([eE][+-]?\d+)?$")


def header_of(source: ProfileSource, needed: Sequence[str]) -> int | None:
    """The line, from 0, of a header that has all these columns; None where no line of the beginning is one."""
    lines = source.head.decode("utf-8-sig", "replace").splitlines()[:LINES_BEFORE]
    for at, line in enumerate(lines):
        names = {name.strip() for name in next(csv.reader([line]), [])}
        if names.issuperset(needed):
            return at
    return None


def table_rows(source: ProfileSource, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table as text by column, each with its line; raises UnreadableProfileError for damage."""
    at = header_of(source, needed)
    if at is None:
        raise source.damaged(say("profile_fault.column", name=", ".join(needed)))
    with source.opened() as stream, io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as text:
        for _ in islice(text, at):
            pass
        rows = csv.reader(text)
        names = [name.strip() for name in next(rows)]
        try:
            for cells in rows:
                if len(cells) >= len(names) or (cells and len(cells) > 1):
                    yield at + rows.line_num, dict(zip(names, map(str.strip, cells), strict=False))
        except csv.Error as error:
            raise source.damaged(error) from error


def number(text: str | None) -> float:
    """A cell as a number; 0 for one that is none (`N/A`)."""
    plain = (text or "").strip()
    return float(plain.replace(",", "")) if NUMBER.match(plain) else 0.0


def first_of(row: dict[str, str], names: Sequence[str]) -> str:
    """The cell of the first of these columns that a table has."""
    return next((row[name] for name in names if name in row), "")
