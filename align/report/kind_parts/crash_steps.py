"""What to run after a crash, shown: each step with its lines to paste."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Lines
from align.words.catalogue import say


def crash_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.crash` document; `show_all` shows the sources too."""
    steps = tuple(
        say("crash.step", title=one["title"], shows=one["shows"], lines=one["lines"]) for one in document["steps"]
    )
    blocks: list[Block] = [Lines(say("crash.title", device=document["title"]), steps)]
    if show_all:
        facts = ({name: one[name] for name in ("id", "source", "certainty")} for one in document["steps"])
        blocks.append(Lines(say("crash.sources"), tuple(say("crash.source", **one) for one in facts), "quiet"))
    return [*blocks, Lines("", (say("crash.legend"),), "quiet")]
