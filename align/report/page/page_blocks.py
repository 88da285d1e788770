"""Blocks as the page draws them: tables that sort and filter, facts and lines. Every text is escaped.

Of a long table the first rows stand in the page; the others stand behind it as data, of which the page's script makes
rows as they come into view. Without scripts the first rows stay.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Block, Facts, Lines, Row, Table
from align.report.rendering.html import with_pasted
from align.report.thresholds import FILTERED_TABLE_ROWS, FOLDED_CHARACTERS, ROWS_IN_PAGE, UNBROKEN_CHARACTERS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.report.rendering.blocks import Column


def block_html(block: Block, name: str = "") -> str:
    """Return a block as HTML; `name` is how scripts find a table."""
    if isinstance(block, Table):
        return _table(block, name)
    return _facts(block) if isinstance(block, Facts) else _lines(block)


def embedded(data: Any) -> str:
    r"""Return data as JSON that can stand inside a script element.

    >>> embedded(["</script>"])
    '["\\u003c/script>"]'
    """
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _table(block: Table, name: str) -> str:
    columns = [(index, block.columns[index]) for index in block.used_columns]
    head = "".join(_header(column, len(block.rows)) for _, column in columns)
    body = "".join(_row(row, columns) for row in block.rows[:ROWS_IN_PAGE])
    more = [
        [row.tone, int(_is_open(row)), *(row.cells[index] for index, _ in columns)] for row in block.rows[ROWS_IN_PAGE:]
    ]
    data = f'<script type="application/json">{embedded(more)}</script>' if more else ""
    note = f'<p class="note">{escape(block.note)}</p>' if block.note else ""
    label = escape(block.title or say("page.table"))
    table = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    named = f' data-name="{escape(name)}"' if name else ""
    whole = f'<div class="table"{named}>{_tools(block)}{table}{data}{note}</div>'
    if block.folded:
        return _fold(block.title, whole)
    return _title(block.title) + whole


def _header(column: Column, rows: int) -> str:
    header = escape(column.header)
    if rows > 1 and header:
        header = f'<button type="button" class="sort">{header}</button>'
    return f'<th scope="col" class="{column.kind}" data-kind="{column.kind}">{header}</th>' if header else "<td></td>"


def _tools(block: Table) -> str:
    """The field to filter by, the number of rows, and what unfolds rows that could not be compared."""
    count, folded = len(block.rows), sum(map(_is_open, block.rows))
    if count < FILTERED_TABLE_ROWS and not folded:
        return ""
    label = escape(say("page.filter_of", title=block.title))
    field = f'<input type="search" placeholder="{escape(say("page.filter"))}" aria-label="{label}">'
    shown_count = f'<span class="count" role="status">{escape(say("page.rows", count=count))}</span>'
    shown = escape(say("page.show_open", count=folded))
    unfold = f'<button type="button" class="unfold" aria-pressed="false">{shown}</button>' if folded else ""
    return f'<div class="tools">{field if count >= FILTERED_TABLE_ROWS else ""}{shown_count}{unfold}</div>'


def _is_open(row: Row) -> bool:
    """Tell whether a row says that its two sides could not be compared."""
    return row.tone != "bad" and not {
        word("outcome", "not comparable"),
        word("step_outcome", "could not tell"),
    }.isdisjoint(row.cells)


def _row(row: Row, columns: Iterable[tuple[int, Column]]) -> str:
    cells = "".join(_cell(row.cells[index], column.kind) for index, column in columns)
    return f'<tr class="{row.tone}"{" data-open" if _is_open(row) else ""}>{cells}</tr>'


def _cell(text: str, kind: str) -> str:
    shown = escape(text).replace(".", ".<wbr>") if kind == "path" else escape(text)
    return f'<td class="{kind}{" short" if len(text) <= UNBROKEN_CHARACTERS else ""}">{shown}</td>'


def _facts(block: Facts) -> str:
    return f'<section class="panel {block.tone}"><h3>{escape(block.title)}</h3>{facts_html(block.facts)}</section>'


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Return labelled facts as a list of terms."""
    rows = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(fact)}</dd></div>" for label, fact in facts)
    return f"<dl>{rows}</dl>" if rows else ""


def _lines(block: Lines) -> str:
    if not block.title:
        return "".join(f'<p class="line {block.tone}">{with_pasted(line)}</p>' for line in block.lines)
    lines = "".join(f"<li>{with_pasted(line)}</li>" for line in block.lines)
    listed = f'<ul class="lines">{lines}</ul>'
    if sum(map(len, block.lines)) > FOLDED_CHARACTERS and block.tone not in ("bad", "open"):
        return _fold(block.title, listed)
    return _title(block.title) + listed


def _fold(title: str, content: str) -> str:
    return f'<details class="fold"><summary><h3>{escape(title)}</h3></summary>{content}</details>'


def _title(title: str) -> str:
    return f"<h3>{escape(title)}</h3>" if title else ""
