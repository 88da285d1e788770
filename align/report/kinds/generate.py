"""A comparison of generation shown: each kind of logits in a row, the positions around the first fault, the tokens."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import TONES, Block, Column, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import NONE, as_float, format_number
from align.report.thresholds import TOKENS_AFTER, TOKENS_BEFORE
from align.words.catalogue import say, word


def generate_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.generate` document; `show_all` gives every position a row."""
    prompt = document["prompts"][1]
    wrong = [one for one in document["comparisons"] if show_all or one["first_divergent"] is not None]
    return [
        _summary(document["comparisons"], prompt),
        *(_positions(one, prompt, show_all=show_all) for one in wrong),
        *_tokens(document["differences"]),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _summary(comparisons: list[dict[str, Any]], prompt: int) -> Table:
    columns = (
        Column(say("generate.logits")),
        Column(say("generate.against")),
        Column(say("generate.positions"), "number"),
        Column(say("generate.first")),
        Column(say("forward.max_abs"), "number"),
        Column(say("forward.factor"), "number"),
        Column(say("forward.outcome")),
    )
    rows = tuple(_comparison(one, prompt) for one in comparisons)
    return Table(say("generate.title"), columns, rows, say("generate.factor_note"))


def _comparison(comparison: dict[str, Any], prompt: int) -> Row:
    measured = [one for one in comparison["positions"] if one["measurement"] is not None]
    largest = max((as_float(one["measurement"]["max_abs"]) for one in measured), default=None)
    factor = max((as_float(one["factor"]) for one in measured), default=None)
    first = comparison["first_divergent"]
    outcome = "not aligned" if first is not None else "aligned" if measured else "not comparable"
    name = comparison["logits"].replace(" ", "_")
    cells = (
        say(f"generate.{name}"),
        say(f"generate.{name}_against"),
        format_number(len(comparison["positions"])),
        NONE if first is None else _place(comparison["positions"][first]["position"], prompt),
        format_number(largest),
        format_number(factor),
        word("outcome", outcome),
    )
    return Row(cells, TONES[outcome])


def _place(position: int, prompt: int) -> str:
    """What the logits at a position are for: they choose the token after it."""
    step = position + 1 - prompt
    return say("generate.prompt", position=position + 1) if step < 0 else say("generate.new", step=step)


def _positions(comparison: dict[str, Any], prompt: int, *, show_all: bool) -> Table:
    first = comparison["first_divergent"] or 0
    shown = (
        comparison["positions"]
        if show_all
        else comparison["positions"][max(0, first - TOKENS_BEFORE) : first + TOKENS_AFTER]
    )
    columns = (
        Column(say("generate.place")),
        Column(say("forward.max_abs"), "number"),
        Column(say("forward.relative_l2"), "number"),
        Column(say("generate.limit"), "number"),
        Column(say("forward.factor"), "number"),
        Column(say("forward.outcome")),
    )
    name = comparison["logits"].replace(" ", "_")
    return Table(
        say("generate.at", logits=say(f"generate.{name}")), columns, tuple(_position(one, prompt) for one in shown)
    )


def _position(position: dict[str, Any], prompt: int) -> Row:
    measured, limit = position["measurement"] or {}, position["limit"] or {}
    cells = (
        _place(position["position"], prompt),
        format_number(measured.get("max_abs")),
        format_number(measured.get("relative_l2")),
        format_number(limit.get("max_abs")),
        format_number(position["factor"]),
        word("outcome", position["outcome"]),
    )
    return Row(cells, TONES[position["outcome"]])


def _tokens(differences: list[dict[str, Any]]) -> list[Block]:
    if not differences:
        return []
    columns = (
        Column(say("generate.decoding")),
        Column(say("generate.sequence"), "number"),
        Column(say("generate.step"), "number"),
        Column(say("word.reference"), "number"),
        Column(say("generate.instead"), "number"),
        Column(say("generate.margin"), "number"),
        Column(say("generate.limit"), "number"),
        Column(say("word.note")),
    )
    return [Table(say("generate.tokens"), columns, tuple(map(_token, differences)))]


def _token(difference: dict[str, Any]) -> Row:
    name = difference["logits"].replace(" ", "_")
    whole = (str(difference[key]) for key in ("sequence", "step", "reference", "candidate"))
    figures = format_number(difference["margin"]), format_number(difference["limit"])
    note = say("generate.tie" if difference["tie"] else "generate.other")
    return Row((say(f"generate.{name}"), *whole, *figures, note), "plain" if difference["tie"] else "bad")
