"""What of a model MindSpore has: what needs work first, where it stands, and what to write."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, findings_blocks
from align.report.rendering.format_values import format_number
from align.words.catalogue import say

TONES: dict[str, Tone] = {"no counterpart": "bad", "no kernel": "bad", "unknown": "open", "same": "good"}
NEED_WORK = ("no counterpart", "no kernel", "other default", "other name", "unknown")


def scan_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.scan` document; `show_all` lists what is the same too."""
    calls = [one for one in document["calls"] if show_all or one["status"] != "same"]
    return [
        Lines("", (_headline(document), *_marks(document)), _tone(document)),
        *([_table(document, calls)] if calls else []),
        *findings_blocks(document["findings"]),
        *_chip(document),
        Lines("", (say("scan.by_run" if document["seen_by"] == "run" else "scan.by_source"),), "quiet"),
    ]


def _headline(document: dict[str, Any]) -> str:
    counts = _counts(document)
    total = sum(counts.values())
    have = total - sum(counts[key] for key in ("no counterpart", "no kernel", "unknown"))
    facts = {key.replace(" ", "_"): counts[key] for key in counts}
    return say("scan.headline", have=have, total=total, target=document["target"], **facts)


def _counts(document: dict[str, Any]) -> dict[str, int]:
    """Calls by status; a status that no call has may be left out of the document."""
    return {status: document["counts"].get(status, 0) for status in (*NEED_WORK, "same")}


def _marks(document: dict[str, Any]) -> list[str]:
    """How many names stand behind the calls that need work."""
    names = [one["api"] for one in document["calls"] if one["status"] in NEED_WORK]
    return [say("scan.names", count=len(names), total=len(document["calls"]))] if names else []


def _tone(document: dict[str, Any]) -> Tone:
    counts = _counts(document)
    if counts["no counterpart"] or counts["no kernel"]:
        return "bad"
    return "open" if counts["unknown"] else "good"


def _table(document: dict[str, Any], calls: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("scan.status"), "words"),
        Column(say("scan.call"), "words"),
        Column(say("scan.count"), "number"),
        Column(say("scan.where"), "words"),
        Column(say("scan.write"), "words"),
        Column(say("scan.certainty"), "words", wide=True),
    )
    return Table(say("scan.title", target=document["target"]), columns, tuple(map(_row, calls)))


def _row(one: dict[str, Any]) -> Row:
    cells = (
        one["status"],
        one["api"].removeprefix("torch."),
        format_number(one["calls"]),
        _where(one["places"]),
        _write(one),
        one["certainty"],
    )
    return Row(cells, TONES.get(one["status"], "plain"))


def _where(places: list[dict[str, Any]]) -> str:
    """The first place, and how many more there are."""
    first = places[0]
    text = say("scan.place", line=first["line"], module=first["module"])
    return say("scan.more_places", place=text, count=len(places) - 1) if len(places) > 1 else text


def _write(one: dict[str, Any]) -> str:
    """What to write, and the settings that differ."""
    settings = [say("scan.setting", **setting) for setting in one["settings"]]
    named = one["counterpart"] if one["status"] != "no kernel" or not one["write"] else ""
    text = one["write"] or named or say("scan.nothing_known")
    return say("scan.with_settings", text=text, settings=settings) if settings else text


def _chip(document: dict[str, Any]) -> list[Block]:
    """What the chip computes coarser, if that is known."""
    lines = tuple(
        say("scan.on_chip", api=one["api"].removeprefix("torch."), chip=one["chip"])
        for one in document["calls"]
        if one["chip"]
    )
    return [Lines(say("scan.chip_title", target=document["target"]), lines, "open")] if lines else []
