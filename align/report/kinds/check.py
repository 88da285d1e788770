"""A judged map shown: its faults by kind, names that differ only in their numbers as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Lines, verdict_block
from align.report.rendering.format_values import format_number
from align.report.thresholds import TABLE_ROWS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.check` document; of many unlike faults of a kind the first, or with `show_all` every one."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for fault in document["faults"]:
        groups.setdefault(fault["code"], []).append(fault)
    unused = document["unused_rules"]
    return [
        *(_kind(code, faults, show_all=show_all) for code, faults in groups.items()),
        *([Lines(say("map.unused_rules"), tuple(unused), "open")] if unused else []),
        verdict_block(document["verdict"]),
    ]


def _kind(code: str, faults: Sequence[dict[str, Any]], *, show_all: bool) -> Lines:
    folded = fold_alike((fault["subject"], fault["message"]) for fault in faults)
    lines = [
        say(
            "check.line",
            name=name + (f" ({len(places)})" if len(places) > 1 else ""),
            message=faults[places[0]]["message"],
        )
        for name, places in folded
    ]
    shown = lines if show_all else lines[:TABLE_ROWS]
    more = [say("check.more", count=format_number(len(lines) - len(shown)))] if len(shown) < len(lines) else []
    return Lines(say(f"check.{code}", count=format_number(len(faults))), (*shown, *more), "bad")
