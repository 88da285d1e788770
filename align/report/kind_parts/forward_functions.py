"""The functional calls of a port shown: those that return something else than the reference's first of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Column, Lines, Row, Table
from align.report.rendering.format_values import format_number
from align.report.thresholds import TABLE_ROWS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from align.report.rendering.blocks import Block

_SHOWS_NOTHING = ("same", "scaled", "constant")


def function_blocks(calls: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    """Show a table of the calls that are not the same, of all with `show_all`; nothing where none were asked for."""
    if not calls:
        return []
    shown = calls if show_all else [one for one in calls if one["outcome"] not in _SHOWS_NOTHING]
    kept = shown if show_all else shown[:TABLE_ROWS]
    same = sum(one["outcome"] in ("same", "scaled") for one in calls)
    title = say("forward_functions.title", same=format_number(same), count=format_number(len(calls)))
    if not kept:
        return [Lines(title, ())]
    columns = (
        Column(say("forward_functions.line"), "path"),
        Column(say("forward_functions.function"), "path"),
        Column(say("forward_functions.reference_line"), "path"),
        Column(say("forward_functions.function"), "path"),
        Column(say("forward_functions.error"), "number"),
        Column(say("forward_functions.outcome")),
    )
    rest = len(shown) - len(kept)
    more = say("forward_functions.cut", count=format_number(rest)) if rest else ""
    note = "\n".join(filter(None, (more, say("forward_functions.note"))))
    return [Table(title, columns, tuple(map(_row, kept)), note)]


def _row(call: dict[str, Any]) -> Row:
    error = call["relative_l2"]
    cells = (
        call["line"],
        call["function"],
        call["reference_line"],
        call["reference_function"],
        "" if error is None else format_number(error),
        _outcome(call),
    )
    return Row(cells, "bad" if call["outcome"] == "other result" else "plain")


def _outcome(call: dict[str, Any]) -> str:
    if call["outcome"] == "scaled":
        return say("forward_functions.scaled", factor=format_number(call["factor"]))
    return word("function_outcome", call["outcome"])
