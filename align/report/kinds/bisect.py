"""A bisected port shown: each stretch that goes wrong, what is known of the points, and what it took."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number
from align.report.thresholds import NAMES_ON_A_LINE
from align.words.catalogue import say, word
from align.words.message_words import first_few


def bisect_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.bisect` document; `show_all` shows all points, not those alone of which something is known."""
    points = document["points"]
    shown = points if show_all else [point for point in points if point["state"] != "untried"]
    stretches = tuple(_stretch(stretch, points, show_all=show_all) for stretch in document["stretches"])
    notes = tuple(_notes(points, document["runs"]))
    return [
        *([Lines(say("bisect.title"), stretches, "bad")] if stretches else []),
        *([_points(shown)] if shown else []),
        Lines("", notes),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _stretch(stretch: dict[str, Any], points: list[dict[str, Any]], *, show_all: bool) -> str:
    after, before = stretch["after"], stretch["before"]
    modules = stretch["modules"]
    line = say(
        "bisect.stretch",
        after=say("bisect.inputs") if after is None else _named(points[after]),
        before=say("bisect.output") if before is None else _named(points[before]),
        factor=format_number(stretch["factor"]),
    )
    ran = first_few(modules, len(modules) if show_all else NAMES_ON_A_LINE)
    return line + (say("bisect.modules", modules=ran) if modules else "")


def _named(point: dict[str, Any]) -> str:
    return f"{_short(point['reference'])} -> {_short(point['candidate'])}"


def _short(key: str) -> str:
    """A first call is not numbered."""
    return key.replace("#0", "", 1)


def _points(points: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("bisect.origin")),
        Column(say("bisect.state")),
    )
    rows = tuple(
        Row(
            (
                _short(point["reference"]),
                _short(point["candidate"]),
                word("point_origin", point["origin"]),
                word("point_state", point["state"]),
            ),
            "open" if point["state"] in ("doubtful", "dropped") else "plain",
        )
        for point in points
    )
    return Table(say("bisect.points"), columns, rows)


def _notes(points: list[dict[str, Any]], runs: int) -> list[str]:
    named = {
        state: ", ".join(_named(point) for point in points if point["state"] == state)
        for state in ("dropped", "doubtful")
    }
    notes = (say(f"bisect.{state}", points=own) for state, own in named.items() if own)
    return [say("bisect.runs", points=format_number(len(points)), runs=format_number(runs)), *notes]
