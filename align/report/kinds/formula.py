"""Calls of fused operators against their formula, shown: what departs, what would explain it, what to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.blocks import (
    Block,
    Lines,
    Row,
    Table,
    as_float,
    format_number,
    format_shape,
    table_columns,
    verdict_block,
)
from align.report.thresholds import FORMULA_CALLS_SHOWN
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Iterator


def formula_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.formula` document; `show_all` lists every call that agrees."""
    wrong = [call for call in document["calls"] if call["outcome"] != "aligned"]
    right = [call for call in document["calls"] if call["outcome"] == "aligned"]
    shown = [*wrong, *(right if show_all else right[:FORMULA_CALLS_SHOWN])]
    return [
        _table(shown),
        *_lines("formula.notes", _notes(shown)),
        *_lines(
            "formula.unjudged",
            (say("formula.note", call=one["call"], note=one["reason"]) for one in document["unjudged"]),
        ),
        Lines("", tuple(_basis(document)), "quiet"),
        verdict_block(document["verdict"]),
    ]


def _basis(document: dict[str, Any]) -> Iterator[str]:
    if document["other_calls"]:
        yield say("formula.other_calls", count=document["other_calls"])
    yield say("formula.basis")


def _table(calls: list[dict[str, Any]]) -> Table:
    columns = table_columns(
        "formula.call:words formula.dtype formula.shape formula.largest:number "
        "formula.factor:number formula.agrees_with:words"
    )
    return Table(say("formula.title"), columns, tuple(_row(call) for call in calls))


def _row(call: dict[str, Any]) -> Row:
    wrong = call["outcome"] != "aligned"
    cells = (
        call["call"].removesuffix(".forward"),
        call["dtype"],
        format_shape(call["shape"]),
        format_number(as_float(call["measurement"]["max_abs"])),
        format_number(as_float(call["factor"])),
        _agrees_with(call) if wrong else "",
    )
    return Row(cells, "bad" if wrong else "good")


def _agrees_with(call: dict[str, Any]) -> str:
    names = ("argument", "instead", "said")
    found = [say("formula.instead", **{name: one[name] for name in names}) for one in call["explained_by"]]
    return listed(found, "; ") if found else say("formula.unexplained")


def _notes(calls: list[dict[str, Any]]) -> Iterator[str]:
    """What is said of single calls; a pitfall once for each operator."""
    for call in calls:
        if call["note"]:
            yield say("formula.note", call=call["call"], note=call["note"])
        if count := call["unjudged_elements"]:
            yield say("formula.unjudged_elements", call=call["call"], count=count)
    for operator, pitfall in dict.fromkeys((call["operator"], one) for call in calls for one in call["pitfalls"]):
        yield say("formula.note", call=operator, note=word("fused_pitfall", pitfall))


def _lines(title: str, lines: Iterator[str]) -> Iterator[Block]:
    shown = tuple(lines)
    if shown:
        yield Lines(say(title), shown, "open")
