"""Training steps of one side that were captured, shown: what is in the folder, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Facts, findings_blocks
from align.report.rendering.format_values import NONE, as_float, format_bytes, format_number
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.report.rendering.blocks import Block


def steps_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - one form for all
    """Show a `mindalign.steps` document."""
    losses = (NONE if one is None else format_number(as_float(one), 7) for one in document["losses"])
    counts = {key: format_number(document[key]) for key in ("calls", "gradients", "values")}
    facts = (
        (say("trace.folder"), document["folder"]),
        (say("trace.model"), f"{document['side']} ({document['framework']})"),
        (say("steps.losses"), ", ".join(losses)),
        (say("trace.tensors"), say("steps.held", **counts, size=format_bytes(document["nbytes"]))),
        (say("steps.next"), f"align step {document['folder']} CANDIDATE"),
    )
    return [Facts(say("steps.title"), facts), *findings_blocks(document["findings"])]
