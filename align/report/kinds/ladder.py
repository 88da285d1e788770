"""A climb shown: what the first failing rung found, then every rung with its state, then what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.kind_parts.forward_culprits import cause_words
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.rendering.format_values import NONE
from align.report.thresholds import CULPRITS_SHOWN
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
    lines = _culprit_lines(rung["culprits"])
    shown = lines if show_all else lines[:CULPRITS_SHOWN]
    more = [say("ladder_table.more", count=len(lines) - len(shown))] if len(shown) < len(lines) else []
    text = next((path for path in rung["evidence"] if path.endswith(".txt")), "")
    whole = [say("ladder_table.whole", path=f"{folder}/{text}")] if text else []
    return Lines(title, (*shown, *more, *whole), "bad")


def _culprit_lines(culprits: Sequence[Mapping[str, str]]) -> list[str]:
    """One line for all culprits of one cause, whose places are folded."""
    groups: dict[str, list[str]] = {}
    for one in culprits:
        facts = {"cause": _cause(one["cause"]), "line": one["line"], "change": one["change"]}
        groups.setdefault(say("ladder_table.culprit", **facts), []).append(one["place"])
    return [
        f"{place}{f' ({len(members)})' if len(members) > 1 else ''}{text}"
        for text, places in groups.items()
        for place, members in fold_alike((place, text) for place in places)
    ]


def _cause(cause: str) -> str:
    """The words of a cause that is an id; a sentence stays as it is."""
    words = cause_words(cause)
    return (
        "; ".join(word("step_cause", one) for one in cause.split(" + "))
        if words == cause.replace(" + ", "; ")
        else words
    )


def _reason(rung: Mapping[str, Any]) -> str:
    if rung["state"] == "not available" and rung["settle"]:
        return say("ladder_table.settle", reason=rung["reason"], settle=rung["settle"])
    return rung["reason"] or NONE


def _next(document: Mapping[str, Any], failed: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The command that a reader pastes next."""
    if failed:
        return [Lines(say("ladder_table.next"), (say("ladder_table.again"),), "plain")]
    if stale := [rung["name"] for rung in document["rungs"] if rung["state"] in ("stale", "not run") and rung["asked"]]:
        return [Lines(say("ladder_table.next"), (say("ladder_table.go_on", name=stale[0]),), "plain")]
    return [Lines(say("ladder_table.next"), (say("ladder_table.report", folder=document["run_folder"]),), "plain")]
