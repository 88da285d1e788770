"""Memory of a process over time, shown: the growth with its interval, and whether it leaks."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import TONES, Block, Facts, Lines
from align.report.rendering.format_values import format_bytes
from align.words.catalogue import say, word

MEGABYTE = 1e6  # format: unit of what is shown


def memory_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - as all kinds
    """Show a `mindalign.memory` document."""
    verdict = document["verdict"]
    outcome = word("memory_outcome", verdict["outcome"])
    closing = Lines("", (say("memory.line", outcome=outcome, reason=verdict["reason"]),), TONES[verdict["outcome"]])
    return [Facts(say("memory.title", pid=document["pid"]), tuple(_facts(document))), closing]


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    seconds, trend = document["seconds"], document["trend"]
    spent = seconds[-1] if seconds else 0
    facts = {"processes": document["processes"], "ended": document["ended"]}
    followed = say("memory.followed_for", seconds=spent, count=len(seconds), **facts)
    shown = [(say("memory.command"), document["command"]), (say("memory.followed"), followed)]
    if trend is None:
        return shown
    ends = {name: format_bytes(round(trend[name])) for name in ("first", "last")}
    sizes = {name: trend[name] / MEGABYTE for name in ("growth", "low", "high", "noise")}
    return [
        *shown,
        (say("memory.resident"), say("memory.from_to", **ends)),
        (say("memory.growth"), say("memory.growth_of", **sizes)),
    ]
