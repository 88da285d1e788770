"""Blocks drawn in a terminal; elsewhere (a pipe, a file, a notebook) the page is 100 columns wide.

Lines to paste are as long as they are: a shell, or a file, would take a break in them for their end.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Facts, Lines, Table
from align.report.rendering.format_values import shorten_path
from align.report.thresholds import (
    LABEL_COLUMN_WIDTH,
    LINES_AT_ONCE,
    LONG_TABLE,
    LONGEST_CELL,
    LONGEST_PASTED,
    NARROWEST_PATH,
    PAGE_WIDTH,
)
from align.words.message_words import harmless
from align.words.thresholds import LONGEST_SHOWN_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console, RenderableType
    from rich.text import Text

    from align.report.rendering.blocks import Block, Column, Row

# Names may hold brackets and colons, which are no markup; in a notebook rich would print by itself.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
STYLES = {"plain": "", "good": "green", "bad": "red", "open": "yellow", "quiet": "dim"}


def print_blocks(blocks: Iterable[Block]) -> None:
    """Print blocks on standard output."""
    from rich.console import Console

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    draw(Console(width=None if is_terminal else PAGE_WIDTH, **PLAIN), blocks)


def blocks_as_text(blocks: Iterable[Block], width: int = PAGE_WIDTH) -> str:
    """Return blocks as plain text of at most `width` columns, but for lines to paste."""
    from rich.console import Console

    stream = io.StringIO()
    draw(Console(file=stream, width=width, color_system=None, **PLAIN), blocks)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def draw(console: Console, blocks: Iterable[Block]) -> None:
    """Draw blocks one below the other, an empty line between them; whatever files hold, no text steers the terminal."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        for part in _parts(_harmless(block), console.width):
            if isinstance(part, PlainRows):
                console.out(part.text, style=part.style, highlight=False)
            else:
                console.print(part, soft_wrap=isinstance(part, Pasted))


def _harmless(block: Block) -> Block:
    if isinstance(block, Table):
        columns = tuple(replace(column, header=harmless(column.header)) for column in block.columns)
        rows = tuple(
            replace(row, cells=tuple(harmless(cell, LONGEST_CELL) for cell in row.cells)) for row in block.rows
        )
        return replace(block, title=harmless(block.title), columns=columns, rows=rows, note=harmless(block.note))
    if isinstance(block, Facts):
        facts = tuple((harmless(label), harmless(fact)) for label, fact in block.facts)
        return replace(block, title=harmless(block.title), facts=facts)
    # What stands behind a line break is to be pasted.
    longest = (LONGEST_PASTED if block.commands or "\n" in line else LONGEST_SHOWN_LINE for line in block.lines)
    return replace(block, title=harmless(block.title), lines=tuple(map(harmless, block.lines, longest)))


def _parts(block: Block, width: int) -> list[RenderableType]:
    if isinstance(block, Table):
        return _table(block, width)
    return [_facts(block, width)] if isinstance(block, Facts) else _lines(block)


def _table(block: Table, width: int) -> list[RenderableType]:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = [index for index in block.used_columns if not block.columns[index].wide]
    columns = [block.columns[index] for index in shown]
    rows = [(row, [row.cells[index] for index in shown]) for row in block.rows]
    room = _path_room(columns, [cells for _, cells in rows], width)
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column, limit in zip(columns, room, strict=True):
        table.add_column(Text(column.header), max_width=limit, **_alignment(column))
    cuts = [limit if column.kind == "path" else None for column, limit in zip(columns, room, strict=True)]
    drawn, plain = rows, []
    if len(rows) > LONG_TABLE and (widths := _widths(columns, rows, cuts, width)):
        drawn, plain = rows[:1], _plain_rows(columns, rows[1:], cuts, widths)
        for drawn_column, one in zip(table.columns, widths, strict=True):
            drawn_column.min_width = one
    for row, cells in drawn:
        table.add_row(*_row(row, cells, cuts), style=STYLES[row.tone])
    title: list[RenderableType] = [Text(block.title, style="bold")] if block.title else []
    note: list[RenderableType] = [Text(block.note, style="dim")] if block.note else []
    return [*title, table, *plain, *note]


def _widths(
    columns: list[Column], rows: list[tuple[Row, list[str]]], cuts: list[int | None], width: int
) -> list[int] | None:
    """The widths of the columns if every row fits a line, and holds nothing that is wider than it has letters."""
    shown = [[column.header for column in columns], *([*_cut_cells(cells, cuts)] for _, cells in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    fits = sum(widths) + 2 * len(widths) - 1 <= width
    return widths if fits and all(cell.isascii() for cells in shown for cell in cells) else None


def _plain_rows(
    columns: list[Column], rows: list[tuple[Row, list[str]]], cuts: list[int | None], widths: list[int]
) -> list[RenderableType]:
    """Rows as the table draws them, a thousand times as fast; those of one tone that follow each other together."""
    signs = [">" if column.kind == "number" else "<" for column in columns]
    line = "  ".join(f"{{:{sign}{one}}}" for sign, one in zip(signs, widths, strict=True))
    alike = (list(own) for _, own in groupby(rows, key=lambda row: row[0].tone))
    # The console takes a line at a time off the front of a text.
    parts = (own[start : start + LINES_AT_ONCE] for own in alike for start in range(0, len(own), LINES_AT_ONCE))
    return [
        PlainRows("\n".join(line.format(*_cut_cells(cells, cuts)) for _, cells in part), STYLES[part[0][0].tone])
        for part in parts
    ]


def _cut_cells(cells: list[str], cuts: list[int | None]) -> Iterator[str]:
    return (cell if cut is None else shorten_path(cell, cut) for cell, cut in zip(cells, cuts, strict=True))


def _alignment(column: Column) -> dict[str, Any]:
    return {"justify": "right", "no_wrap": True} if column.kind == "number" else {"overflow": "fold"}


def _row(row: Row, cells: list[str], room: list[int | None]) -> list[RenderableType]:
    from rich.text import Text

    return [
        Text(cell if limit is None else shorten_path(cell, limit), style=STYLES[row.tone])
        for cell, limit in zip(cells, room, strict=True)
    ]


def _path_room(columns: list[Column], rows: list[list[str]], width: int) -> list[int | None]:
    """Share the room that the other columns leave among paths and words; short ones give theirs to long ones."""
    natural = [max(map(len, [column.header, *cells])) for column, *cells in zip(columns, *rows, strict=True)]
    elastic = [column.kind in ("path", "words") for column in columns]
    left = width + 1 - 2 * len(columns) - sum(n for n, shared in zip(natural, elastic, strict=True) if not shared)
    room: list[int | None] = [None] * len(columns)
    paths = sorted((i for i, shared in enumerate(elastic) if shared), key=natural.__getitem__)
    for done, index in enumerate(paths):
        granted = max(NARROWEST_PATH, min(natural[index], left // (len(paths) - done)))
        room[index] = granted
        left -= granted
    return room


def _facts(block: Facts, width: int) -> RenderableType:
    from rich.panel import Panel
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(max_width=LABEL_COLUMN_WIDTH)
    grid.add_column(overflow="fold")
    for label, fact in block.facts:
        grid.add_row(Text(label, style="dim"), Text(fact))
    return Panel(grid, title=Text(block.title), title_align="left", border_style=STYLES[block.tone], width=width)


def _lines(block: Lines) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    title: list[RenderableType] = [Text(block.title, style="bold")] if block.title else []
    indent, style = 2 if block.title else 0, STYLES[block.tone]
    lines: list[RenderableType] = []
    for line in block.lines:
        words, *pasted = line.split("\n")
        if block.commands and not pasted:
            lines.append(Pasted(" " * indent + words, style))
            continue
        lines.append(Padding(Text(words, style=style), (0, 0, 0, indent), expand=False))
        lines += [Pasted(" " * (indent + 2) + one, style) for one in pasted]
    return [*title, *lines]


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Lines of a table that are drawn already."""

    text: str
    style: str

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(self.text, style=self.style)


@dataclass(frozen=True, slots=True)
class Pasted:
    """A line that is printed whole, however long it is."""

    line: str
    style: str

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(self.line, style=self.style)
