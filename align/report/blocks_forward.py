"""A forward comparison shown: the first divergent layer first, then the layers in execution order.

A long run of aligned layers is one line, the table is cut in its middle: a reader looks for the place where it
begins. The rows around the first divergent layer are never cut.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from align.core.folding import fold_names
from align.report.blocks import TONES, Block, Column, Lines, Row, Table, verdict_block
from align.report.first_divergent import first_divergent_block
from align.report.numbers import NONE, as_float, layer_name, number, shape
from align.report.texts import say, word

LONGEST_TABLE = 40
KEPT_AT_END = 8
AROUND_FIRST = 3
SHORTEST_FOLD = 4
NAMES_SHOWN = 6


def forward_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.forward` document; `show_all` neither folds nor cuts the table of layers."""
    return [
        first_divergent_block(document),
        *([_layers(document, show_all=show_all)] if document["layers"] else []),
        *_findings(document["findings"]),
        *_unpaired(document["unpaired"], show_all=show_all),
        verdict_block(document["verdict"]),
    ]


def _layers(document: dict[str, Any], *, show_all: bool) -> Table:
    columns = (
        Column("#", "number"),
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("forward.class"), "path", wide=True),
        Column(say("word.shape"), wide=True),
        Column(say("word.dtype"), wide=True),
        Column(say("forward.max_abs"), "number"),
        Column(say("forward.relative_l2"), "number"),
        Column(say("forward.factor"), "number"),
        Column(say("forward.outcome")),
        Column(say("word.note"), wide=True),
    )
    layers, first = document["layers"], document["first_divergent"]
    note = say("forward.factor_note")
    if show_all:
        return Table(
            say("forward.layers"), columns, tuple(_row(layer, i == first) for i, layer in enumerate(layers)), note
        )
    return Table(say("forward.layers"), columns, tuple(_cut(_folded(layers, first))), note)


def _row(layer: dict[str, Any], is_first: bool = False) -> Row:
    measured = layer["measurement"] or {}
    cells = (
        (say("forward.first_marker") if is_first else "") + number(layer["order"]),
        layer_name(layer["reference"], layer["call"], layer["output"]),
        layer["candidate"] or say("word.whole_model"),
        _both(layer["reference_class"], layer["candidate_class"]),
        _both(shape(layer["reference_shape"]), shape(layer["candidate_shape"])),
        _both(layer["reference_dtype"], layer["candidate_dtype"]),
        number(measured.get("max_abs")),
        number(measured.get("relative_l2")),
        number(layer["factor"]),
        word("outcome", layer["outcome"]),
        layer["note"],
    )
    return Row(cells, TONES.get(layer["outcome"], "plain"))


def _both(reference: str, candidate: str) -> str:
    return reference if reference == candidate else f"{reference} | {candidate}"


def _folded(layers: list[dict[str, Any]], first: int | None) -> list[tuple[Row, bool]]:
    """Rows with long aligned stretches as one row each; the flag tells which rows must never be cut."""
    rows: list[tuple[Row, bool]] = []
    for aligned, group in groupby(enumerate(layers), key=lambda item: item[1]["outcome"] == "aligned"):
        stretch = list(group)
        inner = stretch[1:-1] if aligned and len(stretch) >= SHORTEST_FOLD else []
        for index, layer in stretch:
            if inner and index == inner[0][0]:
                rows.append((_stretch([own for _, own in inner]), False))
            if not inner or index in (stretch[0][0], stretch[-1][0]):
                rows.append((_row(layer, index == first), first is not None and abs(index - first) <= AROUND_FIRST))
    return rows


def _stretch(layers: list[dict[str, Any]]) -> Row:
    largest = max((as_float(layer["factor"]) for layer in layers if layer["factor"] is not None), default=None)
    return _gap(say("forward.folded", count=number(len(layers))), number(largest), word("outcome", "aligned"))


def _gap(text: str, factor: str = "", outcome: str = "") -> Row:
    return Row(("…", text, "", "", "", "", "", "", factor, outcome, ""), "quiet")


def _cut(rows: list[tuple[Row, bool]]) -> list[Row]:
    if len(rows) <= LONGEST_TABLE:
        return [row for row, _ in rows]
    last_kept = len(rows) - KEPT_AT_END
    kept = [i < LONGEST_TABLE - KEPT_AT_END or i >= last_kept or fixed for i, (_, fixed) in enumerate(rows)]
    shown: list[Row] = []
    for is_kept, group in groupby(zip(kept, rows, strict=True), key=lambda item: item[0]):
        own = [row for _, (row, _) in group]
        shown += own if is_kept else [_gap(say("forward.cut", count=number(len(own))))]
    return shown


def _findings(findings: list[dict[str, Any]]) -> list[Block]:
    if not findings:
        return []
    lines = []
    for finding in findings:
        facts = ", ".join(f"{key} {number(value)}" for key, value in finding["facts"].items())
        line = say("forward.finding", severity=word("severity", finding["severity"]), **_strings(finding))
        lines.append(f"{line} ({facts})" if facts else line)
    return [Lines(say("forward.findings"), tuple(lines), "open")]


def _strings(finding: dict[str, Any]) -> dict[str, str]:
    return {key: finding[key] for key in ("subject", "message")}


def _unpaired(unpaired: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    if not unpaired:
        return []
    groups: dict[tuple[str, str], list[str]] = {}
    for layer in unpaired:
        name = layer_name(layer["module"], layer["call"]) + (f" ({layer['class_name']})" if layer["class_name"] else "")
        groups.setdefault((layer["side"], layer["reason"]), []).append(name)
    lines = tuple(
        say("forward.unpaired_line", side=word("word", side), count=number(len(own)), reason=reason)
        + _names(own, show_all=show_all)
        for (side, reason), own in groups.items()
    )
    return [Lines(say("forward.unpaired", count=number(len(unpaired))), lines)]


def _names(names: list[str], *, show_all: bool) -> str:
    folded = fold_names(names)
    shown = folded if show_all else folded[:NAMES_SHOWN]
    rest = len(folded) - len(shown)
    return ", ".join(shown) + (say("word.and_more", count=rest) if rest else "") or NONE
