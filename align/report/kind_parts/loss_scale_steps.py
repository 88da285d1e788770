"""A loss scale that was watched: what it did, and what that means."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Facts, Lines, findings_blocks
from align.report.rendering.format_values import as_float, format_number
from align.words.catalogue import say


def scale_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.scale` document."""
    steps = document["steps"]
    facts = [(say("scale.flow"), document["flow"]), (say("scale.iterations"), format_number(len(steps)))]
    facts += [(say(f"scale.{name}"), format_number(document[name])) for name in ("overflows", "skipped")]
    if steps:
        scales = [as_float(one["scale"]) for one in steps]
        shown = {"first": scales[0], "last": scales[-1], "smallest": min(scales)}
        facts.append((say("scale.scale"), say("scale.from_to", **{k: format_number(v) for k, v in shown.items()})))
    faked = [say("scale.faked", names=document["faked"])] if document["faked"] else []
    good = document["trouble"] in ("none", "settling", "occasional")
    return [
        Facts(say("scale.title"), tuple(facts)),
        *([Lines("", tuple(faked), "open")] if faked else []),
        *findings_blocks(document["findings"]),
        Lines("", (document["says"],), "good" if good else "bad"),
    ]
