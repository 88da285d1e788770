"""Settings that differ shown: the gravest first, layers that differ only in their numbers in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.rendering.format_values import format_number
from align.words.catalogue import say, word
from align.words.message_words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

TONES: dict[str, Tone] = {"error": "bad", "warning": "open", "note": "quiet"}
ALIKE = ("severity", "reference_setting", "candidate_setting", "change", "certain", "line")


def lint_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.lint` document; `show_all` gives every layer a row of its own."""
    findings = document["findings"]
    known = {key: format_number(document[key]) for key in ("layers", "rules", "unrun")}
    return [
        *_findings(findings, show_all=show_all),
        *_not_compared(document.get("not_compared", ())),
        Lines("", (say("lint.rules", **known),), "quiet"),
        verdict_block(document["verdict"]),
    ]


def _findings(findings: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    return [_table(findings, show_all=show_all), _effects(findings)] if findings else []


def _not_compared(problems: Sequence[str]) -> list[Block]:
    return [Lines(say("lint.not_compared"), tuple(problems), "open")] if problems else []


def _table(findings: list[dict[str, Any]], *, show_all: bool) -> Table:
    columns = (
        Column(say("lint.severity")),
        Column(say("word.reference"), "path"),
        Column(say("lint.setting"), "words"),
        Column(say("word.candidate"), "path"),
        Column(say("lint.setting"), "words"),
        Column(say("lint.change"), "words"),
    )
    if show_all:
        groups = [[finding] for finding in findings]
    else:
        alike = ((finding["reference"], tuple(finding.get(key) for key in ALIKE)) for finding in findings)
        groups = [[findings[place] for place in places] for _, places in fold_alike(alike)]
    note = "" if all(finding["certain"] for finding in findings) else say("lint.uncertain")
    return Table(say("lint.title"), columns, tuple(map(_row, groups)), note)


def _row(group: list[dict[str, Any]]) -> Row:
    first = group[0]
    severity = word("severity", first["severity"]) + ("" if first["certain"] else "?")
    cells = (
        severity + (f" ({len(group)})" if len(group) > 1 else ""),
        _names(group, "reference"),
        _setting(group),
        _names(group, "candidate"),
        first["candidate_setting"],
        say("lint.at_line", change=first["change"], line=first.get("line", "")),
    )
    return Row(cells, TONES[first["severity"]])


def _names(group: list[dict[str, Any]], side: str) -> str:
    """The layers of one side as one name; where they fold into several, the first of them."""
    name = fold_alike((finding[side], None) for finding in group)[0][0]
    return name or f"({group[0][f'{side}_class']})"


def _setting(group: list[dict[str, Any]]) -> str:
    """The reference's setting, and how many parameters it is about."""
    finding, number = group[0], sum(one.get("parameters", 0) for one in group)
    if not number:
        return str(finding["reference_setting"])
    count = counted(number, "parameter")
    key = "lint.held" if finding["example"] else "lint.held_unnamed"
    return say(key, setting=finding["reference_setting"], count=count, example=finding["example"])


def _effects(findings: list[dict[str, Any]]) -> Lines:
    effects = dict.fromkeys((finding["rule"], finding["effect"]) for finding in findings)
    lines = tuple(say("lint.effect", rule=rule, effect=effect) for rule, effect in effects)
    return Lines(say("lint.effect_title"), lines)
