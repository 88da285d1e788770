"""The switches of a chip that a model suffers from, and the lines to run on a card."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number
from align.words.catalogue import say, word


def switches_blocks(document: dict[str, Any]) -> list[Block]:
    """Show a `mindalign.switches` document."""
    matter = tuple(one["write"] for one in document["switches"] if one["matters"])
    judged = word("judged", document["judged"])
    figures = {key: format_number(document[key]) for key in FIGURES}
    return [
        _table(document, judged),
        Lines("", (say("switches.all", judged=judged, **figures),)),
        Lines(say("switches.lines_widest"), tuple(document["widest_lines"]), commands=True),
        *([Lines(say("switches.lines_matter"), matter, commands=True)] if matter else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


FIGURES = ("all_moved", "all_factor", "widest_moved", "widest_factor", "runs")


def _table(document: dict[str, Any], judged: str) -> Table:
    columns = (
        Column(say("switches.switch")),
        Column(say("switches.value")),
        Column(say("switches.widest")),
        Column(say("switches.alone"), "number"),
        Column(say("switches.factor"), "number"),
        Column(say("switches.matters")),
    )
    rows = tuple(
        Row(
            (
                one["switch"],
                one["value"],
                one["widest"],
                format_number(one["alone"]),
                format_number(one["alone_factor"]),
                say("switches.yes") if one["matters"] else "",
            ),
            "bad" if one["matters"] else "plain",
        )
        for one in document["switches"]
    )
    return Table(say("switches.title", **document), columns, rows, say("switches.note", judged=judged))
