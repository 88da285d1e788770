"""What a third side says of a forward comparison: the layers at which one of the three deviates, and who."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone
from align.report.rendering.format_values import format_number, layer_name
from align.report.thresholds import SHORTEST_FOLD
from align.words.catalogue import say, word

_TONES: dict[str, Tone] = {"none": "good", "unclear": "open"}


def witness_blocks(witness: dict[str, Any] | None, *, show_all: bool) -> list[Block]:
    """Show a comparison with a witness, with long stretches of equal verdicts as one row; nothing without one."""
    if witness is None:
        return []
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("witness_report.reference_candidate"), "number"),
        Column(say("witness_report.reference_witness"), "number"),
        Column(say("witness_report.candidate_witness"), "number"),
        Column(say("witness_report.deviates")),
    )
    rows = tuple(map(_row, witness["layers"])) if show_all else tuple(_folded(witness["layers"]))
    title = say("witness_report.title", witness=witness["witness"])
    lines = [witness["conclusion"]]
    if witness["without_witness"]:
        lines.append(say("witness_report.without", count=witness["without_witness"]))
    table = [Table(title, columns, rows, say("witness_report.note"))] if rows else []
    return [*table, Lines(say("witness_report.conclusion"), tuple(lines))]


def _row(layer: dict[str, Any]) -> Row:
    factors = (layer[f"{pair}_factor"] for pair in ("candidate", "witness", "between"))
    name = layer_name(layer["reference"], layer["call"], layer["output"])
    who = layer["deviates"]
    return Row((name, *map(format_number, factors), word("deviates", who)), _TONES.get(who, "bad"))


def _folded(layers: list[dict[str, Any]]) -> list[Row]:
    """The first and the last row of each stretch, and how many there are between them."""
    rows: list[Row] = []
    for who, group in groupby(layers, key=lambda layer: str(layer["deviates"])):
        stretch = [_row(layer) for layer in group]
        if len(stretch) < SHORTEST_FOLD:
            rows += stretch
            continue
        between = say("witness_report.layers", count=format_number(len(stretch) - 2))
        rows += [stretch[0], Row((between, "", "", "", word("deviates", who)), "quiet"), stretch[-1]]
    return rows
