"""Blocks drawn in a terminal; elsewhere (a pipe, a file, a notebook) the page is 100 columns wide."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Facts, Lines, Table
from align.report.rendering.format_values import shorten_path
from align.report.thresholds import LABEL_COLUMN_WIDTH, NARROWEST_PATH, PAGE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

    from align.report.rendering.blocks import Block, Column, Row

# Names may hold brackets and colons, which are no markup; in a notebook rich would print by itself.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
STYLES = {"plain": "", "good": "green", "bad": "red", "open": "yellow", "quiet": "dim"}


def print_blocks(blocks: Iterable[Block]) -> None:
    """Print blocks on standard output."""
    from rich.console import Console

    class PipedConsole(Console):
        """What goes on where nobody reads any more (`| head`), to the command's own exit code; rich would end it."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    width = None if sys.stdout.isatty() else PAGE_WIDTH
    draw(PipedConsole(width=width, **PLAIN), blocks)


def blocks_as_text(blocks: Iterable[Block], width: int = PAGE_WIDTH) -> str:
    """Return blocks as plain text of at most `width` columns."""
    from rich.console import Console

    stream = io.StringIO()
    draw(Console(file=stream, width=width, color_system=None, **PLAIN), blocks)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def draw(console: Console, blocks: Iterable[Block]) -> None:
    """Draw blocks one below the other, an empty line between them."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        for part in _parts(block, console.width):
            console.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))


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
    for row, cells in rows:
        table.add_row(*_row(row, cells, cuts), style=STYLES[row.tone])
    title: list[RenderableType] = [Text(block.title, style="bold")] if block.title else []
    note: list[RenderableType] = [Text(block.note, style="dim")] if block.note else []
    return [*title, table, *note]


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
    indent = 2 if block.title else 0
    if block.verbatim:
        return [*title, *(Text(f"{'':{indent}}{line}", no_wrap=True, overflow="ignore") for line in block.lines)]
    return [
        *title,
        *(Padding(Text(line, style=STYLES[block.tone]), (0, 0, 0, indent), expand=False) for line in block.lines),
    ]
