"""The table of layers that move a model or a training, in the sets that bisections find."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Column, Row, Table
from align.report.rendering.format_values import as_float, format_number
from align.words.catalogue import say


def sensitive_layers(rows: list[dict[str, Any]], title: str, note: str) -> Table:
    """The layers of the sets that were found, each alone and with those before it."""
    columns = (
        Column(say("precision.group"), "number"),
        Column(say("precision.layer"), "path"),
        Column(say("precision.class")),
        Column(say("precision.alone"), "number"),
        Column(say("precision.factor"), "number"),
        Column(say("precision.cumulative"), "number"),
        Column(say("precision.factor"), "number"),
    )
    cells = tuple(
        Row(
            (
                format_number(row["group"] + 1),
                row["module"],
                row["class_name"],
                *(format_number(row[key]) for key in ("alone", "alone_factor", "cumulative", "cumulative_factor")),
            ),
            "bad" if as_float(row["alone_factor"]) > 1.0 else "plain",
        )
        for row in rows
    )
    return Table(title, columns, cells, note)
