"""The frame of a report shown: the rungs with their verdicts, and what every result was made from."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import TONES, Block, Column, Lines, Row, Table
from align.report.rendering.format_values import NONE, format_number, format_shape
from align.words.catalogue import say, word

NOT_RUN = "not run"


def summary_blocks(summary: dict[str, Any]) -> list[Block]:
    """Show a `mindalign.report` document: one row a rung, then the outcome over those that were run."""
    columns = (
        Column(say("rung.rung")),
        Column(say("rung.outcome")),
        Column(say("rung.compared")),
        Column(say("rung.reason")),
    )
    table = Table(say("rung.title"), columns, tuple(_rung(rung, summary["run_folder"]) for rung in summary["rungs"]))
    return [table, *_overall(summary)]


def _rung(rung: dict[str, Any], folder: str) -> Row:
    coverage = rung["coverage"]
    compared = (
        say("rung.compared_of", count=format_number(coverage["compared"]), unit=coverage["unit"]) if coverage else NONE
    )
    reason = rung["reason"] or say("rung.how_to_run", command=rung["name"], folder=folder)
    cells = (word("rung", rung["name"]), word("outcome", rung["outcome"]), compared, reason)
    return Row(cells, TONES.get(rung["outcome"], "plain"))


def _overall(summary: dict[str, Any]) -> list[Block]:
    run = [word("rung", rung["name"]) for rung in summary["rungs"] if rung["outcome"] != NOT_RUN]
    missing = [word("rung", rung["name"]) for rung in summary["rungs"] if rung["outcome"] == NOT_RUN]
    outcome = summary["outcome"]
    overall = say("rung.overall", outcome=word("outcome", outcome), names=", ".join(run))
    blocks: list[Block] = [Lines("", (overall,), TONES.get(outcome, "plain"))]
    return [*blocks, Lines("", (say("rung.not_run", names=", ".join(missing)),), "quiet")] if missing else blocks


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
