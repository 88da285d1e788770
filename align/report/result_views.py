"""Results as a notebook shows them by themselves: the headline and one table, and all their rows as a frame.

A notebook's theme cannot be asked for, so colours are either the page's own or shine through on any page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.json_data import to_json_data
from align.report.notebook.template_files import read_template
from align.report.rendering.blocks import Block, Lines, Table
from align.report.rendering.html import blocks_as_html
from align.report.result_frames import kind_frame, map_frame
from align.report.show_result import result_blocks
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    import pandas as pd


def result_html(result: Any) -> str:
    """Return the headline of a result and one of its tables; all it says where it has no table.

    >>> from align.names.map_result import MapCheck
    >>> from align.core.verdicts import Coverage, Outcome, Verdict
    >>> verdict = Verdict(Outcome.ALIGNED, "all names are there", Coverage("tensors", 2))
    >>> "all names are there" in result_html(MapCheck("map.toml", "a", "b", (), (), verdict))
    True
    """
    blocks = result_blocks(as_document(result, {}, hashed=False))
    style = f"<style>{read_template('result.css')}</style>"
    return f'<div class="ma-result">{style}{blocks_as_html(headline_and_table(blocks))}</div>'


def result_frame(result: Any) -> pd.DataFrame:
    """Return the rows of a result: of a map one each name, as `map_frame` does; else as its document lists them."""
    return map_frame(result) if result.result_kind == "map" else kind_frame(result.result_kind, to_json_data(result))


def headline_and_table(blocks: list[Block]) -> tuple[Block, ...]:
    """Choose the verdict, what a result says first, and its largest table, rather not one of facts by side."""
    tables = [block for block in blocks if isinstance(block, Table) and block.rows]
    if not tables:
        return tuple(blocks)
    verdict = [block for block in blocks if isinstance(block, Lines) and not block.title][-1:]
    first = [block for block in blocks[:1] if not isinstance(block, Table) and block not in verdict]
    return (*verdict, *first, max(tables, key=_size))


def _size(table: Table) -> tuple[bool, int]:
    """Cells of a table; one of facts by side, whose first column has no name, comes behind all others."""
    return table.columns[0].header != "", len(table.rows) * len(table.used_columns)
