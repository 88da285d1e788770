"""Blocks drawn as HTML for the notebook; every text is escaped, every outcome is a word and not only a colour."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from align.report.rendering.blocks import Block, Facts, Lines, Row, Table
from align.report.rendering.terminal import blocks_as_text
from align.report.thresholds import ONE_LINE_WIDTH

if TYPE_CHECKING:
    from align.report.rendering.blocks import Column


@dataclass(frozen=True, slots=True)
class Shown:
    """Blocks as a notebook shows them: HTML where it can, elsewhere plain text of `brief` (or of all blocks).

    `head` goes before the HTML.
    """

    blocks: tuple[Block, ...]
    brief: tuple[Block, ...] = ()
    head: str = ""

    def _repr_html_(self) -> str:
        return self.head + blocks_as_html(self.blocks)

    def __repr__(self) -> str:
        return blocks_as_text(self.brief or self.blocks).rstrip("\n")


def blocks_as_html(blocks: tuple[Block, ...]) -> str:
    """Return blocks as one `div` of class `ma`."""
    return '<div class="ma">' + "\n".join(_block(block) for block in blocks) + "</div>"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    return _facts(block) if isinstance(block, Facts) else _lines(block)


def _table(block: Table) -> str:
    columns = [(index, block.columns[index]) for index in block.used_columns]
    head = "".join(f'<th class="ma-{column.kind}">{escape(column.header)}</th>' for _, column in columns)
    body = "".join(_row(row, columns) for row in block.rows)
    note = f'<p class="ma-note">{escape(block.note)}</p>' if block.note else ""
    table = f'<div class="ma-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    if block.folded:
        return f'<details class="ma-fold"><summary>{escape(block.title)}</summary>{table}{note}</details>'
    return _title(block.title) + table + note


def _row(row: Row, columns: list[tuple[int, Column]]) -> str:
    cells = "".join(_cell(row.cells[index], column.kind) for index, column in columns)
    return f'<tr class="ma-{row.tone}">{cells}</tr>'


def _cell(text: str, kind: str) -> str:
    short = " ma-short" if len(text) <= ONE_LINE_WIDTH else ""
    return f'<td class="ma-{kind}{short}">{escape(text)}</td>'


def _facts(block: Facts) -> str:
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{escape(fact)}</dd>" for label, fact in block.facts)
    return f'<section class="ma-panel ma-{block.tone}"><h4>{escape(block.title)}</h4><dl>{facts}</dl></section>'


def _lines(block: Lines) -> str:
    if not block.title:
        return "".join(f'<p class="ma-line ma-{block.tone}">{with_pasted(line)}</p>' for line in block.lines)
    lines = "".join(f"<li>{with_pasted(line)}</li>" for line in block.lines)
    return f'{_title(block.title)}<ul class="ma-{block.tone}">{lines}</ul>'


def with_pasted(line: str) -> str:
    """A sentence, and what stands behind line breaks in it, which is to be pasted, as lines of code."""
    words, *pasted = line.split("\n")
    return escape(words) + "".join(f"<br><code>{escape(one)}</code>" for one in pasted)


def _title(title: str) -> str:
    return f"<h4>{escape(title)}</h4>" if title else ""
