"""The layers that suffer in another precision or on another device: each alone, and together with those before it."""

from __future__ import annotations

from typing import Any

from align.report.kind_parts.sensitive_layers import sensitive_layers
from align.report.rendering.blocks import Block, Lines, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number
from align.words.catalogue import say, word


def precision_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.precision` document."""
    rows, judged = document["layers"], word("judged", document["judged"])
    not_run = tuple(
        say("precision.not_run_line", module=path, reason=reason) for path, reason in document["not_run"].items()
    )
    return [
        *([sensitive_layers(rows, say("precision.title"), say("precision.note", judged=judged))] if rows else []),
        Lines("", tuple(_notes(document))),
        *([Lines(say("precision.not_run"), not_run, "open")] if not_run else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _notes(document: dict[str, Any]) -> list[str]:
    place = document["precision"] or document["device"]
    facts = {
        key: format_number(document[key]) for key in ("tried", "all_moved", "all_factor", "rest_moved", "rest_factor")
    }
    judged = word("judged", document["judged"])
    notes = [say("precision.all", place=place, judged=judged, runs=format_number(document["runs"]), **facts)]
    if document["layers"]:
        key = "precision.rest" if document["complete"] else "precision.more"
        notes.append(say(key, place=place, judged=judged, **facts))
    return notes
