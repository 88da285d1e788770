"""The environment shown: what to set first, then versions, switches and what is missing."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import TONES, Block, Column, Facts, Lines, Row, Table, findings_blocks
from align.report.rendering.format_values import NONE, format_bytes
from align.words.catalogue import say, word


def doctor_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.doctor` document; with `show_all` switches that have no effect here, too."""
    return [
        *findings_blocks(document["findings"]),
        _frameworks(document["frameworks"]),
        *_switches(document["switches"], show_all=show_all),
        *_packages(document["packages"]),
        _machine(document["machine"]),
        _verdict(document["verdict"]),
    ]


def _frameworks(frameworks: dict[str, dict[str, str]]) -> Table:
    columns = (Column(say("doctor.framework")), Column(say("doctor.facts")))
    rows = tuple(
        Row((name, ", ".join(f"{key} {value}" for key, value in facts.items()))) for name, facts in frameworks.items()
    )
    return Table(say("doctor.frameworks"), columns, rows)


def _switches(switches: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    shown = [one for one in switches if show_all or one["state"] in ("as wanted", "otherwise")]
    if not shown:
        return []
    columns = tuple(Column(say(f"doctor.{name}")) for name in ("name", "value", "wanted", "state"))
    rows = tuple(
        Row(
            (one["id"], one["value"] or NONE, one["wanted"], one["state"]),
            "open" if one["state"] == "otherwise" else "plain",
        )
        for one in shown
    )
    return [Table(say("doctor.switches"), columns, rows)]


def _packages(groups: list[dict[str, Any]]) -> list[Block]:
    lines = tuple(
        say(
            "doctor.package_line",
            missing=group["missing"],
            purpose=word("purpose", group["extra"]),
            install=group["install"],
        )
        for group in groups
    )
    return [Lines(say("doctor.packages"), lines, "quiet")] if lines else []


def _machine(machine: dict[str, Any]) -> Facts:
    shown = {name: str(value) for name, value in machine.items() if name not in ("memory", "disk")}
    sizes = {name: say("doctor.free", size=format_bytes(machine[name])) for name in ("memory", "disk")}
    return Facts(say("doctor.machine"), tuple({**shown, **sizes}.items()))


def _verdict(verdict: dict[str, Any]) -> Lines:
    """Whether this machine can compare: no port is aligned by that."""
    outcome = str(verdict["outcome"])
    line = say("verdict.line", outcome=word("doctor_outcome", outcome), reason=verdict["reason"])
    return Lines("", (line,), TONES[outcome])
