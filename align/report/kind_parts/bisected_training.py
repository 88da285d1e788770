"""The layers that move the loss of a training where they compute otherwise."""

from __future__ import annotations

from typing import Any

from align.report.kind_parts.sensitive_layers import sensitive_layers
from align.report.rendering.blocks import Block, Lines, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number
from align.words.catalogue import say


def training_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.training` document."""
    rows = document["layers"]
    not_run = tuple(
        say("precision.not_run_line", module=path, reason=reason) for path, reason in document["not_run"].items()
    )
    title, note = say("train_layers.title"), say("train_layers.note", steps=document["steps"])
    return [
        *([sensitive_layers(rows, title, note)] if rows else []),
        Lines("", tuple(_notes(document))),
        *([Lines(say("precision.not_run"), not_run, "open")] if not_run else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _notes(document: dict[str, Any]) -> list[str]:
    facts = {name: format_number(value) for name, value in document.items() if name in _NUMBERS}
    facts["place"] = document["precision"] or document["device"] or document["implementation"]
    notes = [say("train_layers.plain", **facts), say("train_layers.all", **facts)]
    if document["layers"]:
        notes.append(say("train_layers.rest" if document["complete"] else "train_layers.more", **facts))
    return notes


_NUMBERS = frozenset(
    (
        *("steps", "tried", "loss", "all_loss", "noise", "equal_runs", "limit", "runs"),
        *("all_moved", "all_factor", "rest_moved", "rest_factor"),
    )
)
