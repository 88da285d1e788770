"""A climb shown: what the first failing rung found, then every rung with its state, then what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.core.json_data import own_fields
from align.report.kind_parts.ladder_commands import climb_again, climb_from
from align.report.kind_parts.ladder_culprits import culprit_lines
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.rendering.format_values import NONE
from align.report.thresholds import CULPRITS_SHOWN
from align.runs.rung import Culprit
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TONES: dict[str, Tone] = {
    "passed": "good",
    "failed": "bad",
    "could not compare": "bad",
    "blocked": "open",
    "stale": "open",
}


def ladder_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.ladder` document: of a rung that failed the first culprits, or with `show_all` every one."""
    failed = [rung for rung in document["rungs"] if rung["state"] in ("failed", "could not compare")]
    blocks: list[Block] = [_failure(rung, document["run_folder"], show_all=show_all) for rung in failed]
    columns = (Column(say("ladder_table.rung")), Column(say("ladder_table.state")), Column(say("ladder_table.reason")))
    rows = tuple(
        Row(
            (word("rung_name", rung["name"]), word("rung_state", rung["state"]), _reason(rung)),
            TONES.get(rung["state"], "plain"),
        )
        for rung in document["rungs"]
    )
    table = Table(say("ladder_table.title"), columns, rows)
    return [*blocks, table, verdict_block(document["verdict"]), *_next(document, failed)]


def _failure(rung: Mapping[str, Any], folder: str, *, show_all: bool) -> Lines:
    name = word("rung_name", rung["name"])
    title = say("ladder_table.failure", name=name, state=word("rung_state", rung["state"]), reason=rung["reason"])
    lines = culprit_lines([Culprit(**own_fields(one)) for one in rung["culprits"]])
    shown = lines if show_all else lines[:CULPRITS_SHOWN]
    more = [say("ladder_table.more", count=len(lines) - len(shown))] if len(shown) < len(lines) else []
    text = next((path for path in rung["evidence"] if path.endswith(".txt")), "")
    whole = [say("ladder_table.whole", path=shlex.quote(f"{folder}/{text}"))] if text else []
    return Lines(title, (*shown, *more, *_remedy(rung), *whole), "bad")


def _remedy(rung: Mapping[str, Any]) -> list[str]:
    """What to do about a command that could not run, and that command: its hint may name an option to add."""
    hint = rung.get("hint")  # an older ladder lacks it
    if not hint:
        return []
    again = [say("ladder_table.again_alone", command=rung["commands"][-1])] if rung["commands"] else []
    return [say("ladder_table.hint", hint=hint), *again]


def _reason(rung: Mapping[str, Any]) -> str:
    if rung["state"] == "not available" and rung["settle"]:
        return say("ladder_table.settle", reason=rung["reason"], settle=rung["settle"])
    return rung["reason"] or NONE


def _next(document: Mapping[str, Any], failed: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The command that a reader pastes next."""
    if failed:
        return [Lines(say("ladder_table.next"), (climb_again(document),), "plain")]
    if stale := [rung["name"] for rung in document["rungs"] if rung["state"] in ("stale", "not run") and rung["asked"]]:
        return [Lines(say("ladder_table.next"), (climb_from(document, stale[0]),), "plain")]
    return [
        Lines(
            say("ladder_table.next"), (say("ladder_table.report", folder=shlex.quote(document["run_folder"])),), "plain"
        )
    ]
