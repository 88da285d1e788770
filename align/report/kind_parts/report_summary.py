"""The frame of a report shown: the rungs with their verdicts, and what every result was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.judged_run import rung_title
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import NONE, format_number, format_shape
from align.runs.ladder_result import RungResult
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from align.report.rendering.blocks import Tone

TONES: dict[str, Tone] = {
    "passed": "good",
    "failed": "bad",
    "could not compare": "bad",
    "blocked": "open",
    "stale": "open",
    "not run": "quiet",
    "not available": "quiet",
    "foreseen": "open",
}


def summary_blocks(summary: dict[str, Any]) -> list[Block]:
    """Show a `mindalign.report` document: one row a rung, then the verdict over all, then what to do next."""
    columns = (
        Column(say("rung.rung")),
        Column(say("rung.state")),
        Column(say("rung.compared")),
        Column(say("rung.reason"), "words"),
    )
    table = Table(say("rung.title"), columns, tuple(map(_rung, summary["rungs"])))
    steps = tuple(summary["next_steps"])
    return [
        table,
        verdict_block(summary["verdict"]),
        *([Lines(say("ladder_table.next"), steps, commands=True)] if steps else []),
    ]


def _rung(rung: dict[str, Any]) -> Row:
    coverage = rung["coverage"]
    compared = (
        say("rung.compared_of", count=format_number(coverage["compared"]), unit=coverage["unit"]) if coverage else NONE
    )
    title = rung_title(RungResult(rung["name"], rung["state"], kind=rung["kind"]))
    return Row((title, word("rung_state", rung["state"]), compared, rung["reason"] or NONE), TONES[rung["state"]])


def source_blocks(documents: dict[str, dict[str, Any]]) -> list[Block]:
    """Show the sources of every result with their hashes, the environments and the inputs of a run of both models."""
    rows = [_source(kind, document, role) for kind, document in documents.items() for role in document["made_from"]]
    columns = (
        Column(say("sources.rung")),
        Column(say("sources.role")),
        Column(say("sources.source"), "path"),
        Column(say("sources.hash"), "path"),
        Column(say("sources.created")),
    )
    blocks: list[Block] = [Table(say("sources.title"), columns, tuple(rows))]
    ran = documents.get("forward") or documents.get("step")
    return blocks + (_of_run(ran) if ran else [])


def _source(kind: str, document: dict[str, Any], role: str) -> Row:
    source = document["made_from"][role]
    what = source.get("path", source.get("text", ""))
    return Row((word("rung", kind), role, what, source.get("sha256", NONE), document["created"]))


def _of_run(document: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    if environments := document["environment"]:
        names = sorted({name for environment in environments.values() for name in environment})
        rows = tuple(Row((name, *(str(env.get(name, NONE)) for env in environments.values()))) for name in names)
        columns = (Column(say("sources.name")), *(Column(word("word", side), "path") for side in environments))
        blocks.append(Table(say("sources.environment"), columns, rows))
    if inputs := document.get("inputs"):
        columns = tuple(Column(say(key)) for key in ("sources.name", "word.shape", "word.dtype", "sources.hash"))
        blocks.append(Table(say("sources.inputs"), columns, tuple(_input(name, inputs[name]) for name in inputs)))
    return blocks


def _input(name: str, facts: dict[str, Any]) -> Row:
    dimensions = facts.get("shape")
    shown = format_shape(dimensions) if isinstance(dimensions, list) else NONE
    return Row((name, shown, str(facts.get("dtype", NONE)), str(facts.get("sha256", NONE))))
