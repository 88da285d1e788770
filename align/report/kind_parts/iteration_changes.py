"""Two iterations of a training: which tensors changed most, and which is the first that is no number any more."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table
from align.report.rendering.format_values import as_float, format_number, layer_name
from align.report.thresholds import MOST_CHANGED_TENSORS
from align.words.catalogue import say


def iterations_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.iterations` document; with `show_all` every tensor."""
    rows = sorted(document["tensors"], key=lambda row: -as_float(row["factor"]))
    shown = rows if show_all else rows[:MOST_CHANGED_TENSORS]
    notes = [say("iterations.more", count=len(rows) - len(shown))] if len(shown) < len(rows) else []
    notes += [say("iterations.only", count=document["unpaired"])] if document["unpaired"] else []
    return [_table(shown, document), Lines("", tuple(notes)), _first(document)]


def _table(rows: list[dict[str, Any]], document: dict[str, Any]) -> Table:
    columns = (
        Column(say("iterations.layer"), "path"),
        Column(say("iterations.direction")),
        Column(say("iterations.before"), "number"),
        Column(say("iterations.after"), "number"),
        Column(say("iterations.factor"), "number"),
        Column(say("iterations.non_finite"), "number"),
    )
    title = say("iterations.title", before=document["before"], after=document["after"])
    return Table(title, columns, tuple(map(_row, rows)))


def _row(row: dict[str, Any]) -> Row:
    figures = (format_number(row[name]) for name in ("rms_before", "rms_after", "factor"))
    odd = row["non_finite_after"]
    cells = (_name(row), row["direction"], *figures, format_number(odd) if odd else "")
    return Row(cells, "bad" if odd else "plain")


def _name(row: dict[str, Any]) -> str:
    return layer_name(row["module"], row["call"]) + (f":{row['output']}" if row["output"] else "")


def _first(document: dict[str, Any]) -> Lines:
    if document["first_non_finite"] is None:
        return Lines("", (say("iterations.none"),), "good")
    row = document["tensors"][document["first_non_finite"]]
    facts = {"count": row["non_finite_after"], "before_count": row["non_finite_before"]}
    steps = {"before": document["before"], "after": document["after"]}
    return Lines("", (say("iterations.first", layer=_name(row), direction=row["direction"], **facts, **steps),), "bad")
