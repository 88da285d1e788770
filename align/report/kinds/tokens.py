"""Log-probabilities of two sides, shown: criteria, where they depart, why, and texts that are garbled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.blocks import (
    NONE,
    TONES,
    Block,
    Column,
    Lines,
    Row,
    Table,
    as_float,
    coverage_line,
    findings_blocks,
    format_number,
    table_columns,
    verdict_block,
)
from align.report.thresholds import GARBLED_SHOWN
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIGURES = ("largest", "signed", "equal", "k1", "perplexity", "ranks_equal", "length_effect")


def tokens_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.tokens` document; `show_all` lists every garbled text, and what differs most in any case."""
    return [
        *_causes(document["causes"]),
        *_criteria(document),
        *_parts("positions", document["positions"]),
        *_parts("groups", document["groups"]),
        *(_worst(document["worst"]) if show_all or document["verdict"]["outcome"] != "aligned" else ()),
        *_unlike(document["unlike"]),
        *_repeats(document["repeats"]),
        *_garbled(document["garbled"], show_all),
        *findings_blocks(document["findings"]),
        _closing(document),
    ]


def _closing(document: dict[str, Any]) -> Lines:
    verdict = document["verdict"]
    read = say("tokens.forms", forms=listed(document["forms"]))
    if document["candidate"] is not None:
        block = verdict_block(verdict)
        return Lines(block.title, (*block.lines, read), block.tone)
    outcome = word("tokens_outcome", verdict["outcome"])
    line = say("tokens_line.single", outcome=outcome, reason=verdict["reason"])
    sides = "reference", "candidate"
    return Lines("", (line, coverage_line(verdict["coverage"], sides), read), TONES[verdict["outcome"]])


def _causes(causes: Sequence[dict[str, Any]]) -> Iterator[Block]:
    if causes:
        lines = tuple(
            say("tokens.confirmed" if cause["confirmed"] else "tokens.suspected", cause=cause["message"])
            for cause in causes
        )
        yield Lines(say("tokens.causes"), lines, "bad")


def _criteria(document: dict[str, Any]) -> Iterator[Block]:
    figures = document["figures"]
    if not document["criteria"]:
        return
    rows = tuple(
        Row(
            (word("tokens_criterion", row["name"]), _number(row["value"]), _limit(row)),
            "good" if row["passed"] else "bad",
        )
        for row in document["criteria"]
    )
    columns = table_columns("tokens.criterion tokens.value:number tokens.limit:number")
    count = figures["tokens"] if figures else 0
    yield Table(say("tokens.figures", count=count, dtype=document["dtype"]), columns, rows)
    if figures:
        known = [name for name in FIGURES if figures[name] is not None]
        shown = [say(f"tokens_figure.{name}", value=as_float(figures[name])) for name in known]
        yield Lines("", (say("tokens.further", figures=listed(shown)), *_departs(document["departs"])))


def _limit(row: dict[str, Any]) -> str:
    limit = format_number(row["limit"])
    return say("tokens.at_least", limit=limit) if row["name"] == "pearson" else limit


def _departs(departs: dict[str, Any] | None) -> Iterator[str]:
    if departs is not None:
        facts = {name: departs[name] for name in ("list", "position", "token", "earliest")}
        yield say("tokens.departs", **facts)
        if departs["positions"] is not None:
            yield say("tokens.departs_from", positions=departs["positions"])


def _parts(name: str, parts: Sequence[dict[str, Any]]) -> Iterator[Block]:
    if parts:
        columns = table_columns(
            "tokens.part tokens.count:number tokens.mean:number tokens.largest:number tokens.signed:number "
            "tokens.beyond:number"
        )
        rows = tuple(
            Row(
                (
                    word("tokens_group", part["name"]),
                    format_number(part["tokens"]),
                    *(_number(part[figure]) for figure in ("mean", "largest", "signed", "slight")),
                )
            )
            for part in parts
        )
        title = say("tokens.positions") if name == "positions" else say("tokens.groups")
        yield Table(title, columns, rows)


def _number(value: Any) -> str:
    return NONE if value is None else format_number(value)


def _worst(worst: Sequence[dict[str, Any]]) -> Iterator[Block]:
    if worst:
        columns = table_columns(
            "tokens.list:number tokens.position:number tokens.token:number word.reference:number word.candidate:number"
        )
        rows = tuple(
            Row(
                (
                    *(format_number(row[name]) for name in ("list", "position")),
                    str(row["token"]),
                    *(_number(row[name]) for name in ("reference", "candidate")),
                )
            )
            for row in worst
        )
        yield Table(say("tokens.worst"), columns, rows, folded=True)


def _unlike(unlike: Sequence[dict[str, Any]]) -> Iterator[Block]:
    if unlike:
        sides = "reference", "candidate"
        columns = (
            *table_columns("tokens.list:number tokens.kind tokens.lengths tokens.head:number tokens.tail:number"),
            *(Column(say("tokens.only", side=word("word", side)), "words") for side in sides),
        )
        rows = tuple(
            Row(
                (
                    format_number(row["reference"]),
                    word("tokens_kind", row["kind"]),
                    " / ".join(map(format_number, row["lengths"])),
                    format_number(row["head"]),
                    format_number(row["tail"]),
                    *(" ".join(map(str, row[f"extra_{side}"])) for side in sides),
                ),
                "bad",
            )
            for row in unlike
        )
        yield Table(say("tokens.unlike"), columns, rows)


def _repeats(repeats: Sequence[dict[str, Any]]) -> Iterator[Block]:
    if repeats:
        columns = table_columns(
            "tokens.side tokens.how tokens.lists:number tokens.count:number tokens.equal:number tokens.mean:number "
            "tokens.largest:number"
        )
        rows = tuple(
            Row(
                (
                    word("word", row["side"]),
                    word("tokens_how", row["how"]),
                    *(format_number(row[name]) for name in ("lists", "tokens", "equal", "mean", "largest")),
                )
            )
            for row in repeats
        )
        yield Table(say("tokens.repeats"), columns, rows)


def _garbled(garbled: Sequence[dict[str, Any]], show_all: bool) -> Iterator[Block]:
    if garbled:
        shown = garbled if show_all else garbled[:GARBLED_SHOWN]
        columns = table_columns("tokens.side:path tokens.list:number tokens.fault tokens.text:words")
        rows = tuple(
            Row((row["side"], format_number(row["list"]), word("tokens_fault", row["fault"]), row["message"]), "bad")
            for row in shown
        )
        hidden = len(garbled) - len(shown)
        yield Table(say("tokens.garbled"), columns, rows, say("tokens.more", count=hidden) if hidden else "")
