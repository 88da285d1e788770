"""A job of many tasks, shown: what departs first, ranks and tensors that do not agree, then the tasks."""

from __future__ import annotations

from typing import Any

from align.report.batch_culprits import FAILED
from align.report.rendering.blocks import TONES, Block, Column, Facts, Lines, Row, Table, coverage_line
from align.report.rendering.format_values import format_number, format_ranges
from align.report.thresholds import LIST_LINES, TABLE_ROWS
from align.words.catalogue import say, word

_ORDER = (*FAILED, "not aligned", "aligned")


def batch_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.batch` document; `show_all` lists every task and layer."""
    verdict = document["verdict"]
    outcome = verdict["outcome"]
    headline = say("verdict.line", outcome=word("outcome", outcome), reason=verdict["reason"])
    blocks: list[Block | None] = [
        Lines("", (headline,), TONES.get(outcome, "plain")),
        _job(document),
        _groups(document["groups"]),
        _unequal(document["unequal"], show_all=show_all),
        _layers(document, show_all=show_all),
        _failures([one for one in document["tasks"] if one["state"] in FAILED], show_all=show_all),
        _tasks(document["tasks"], show_all=show_all),
        _next(document["next_commands"]),
        Lines("", (coverage_line(verdict["coverage"], ("reference", "candidate")),), "quiet"),
    ]
    return [block for block in blocks if block is not None]


def _job(document: dict[str, Any]) -> Facts:
    tasks = document["tasks"]
    states = [one["state"] for one in tasks]
    counts = [(word("batch_state", state), format_number(states.count(state))) for state in _ORDER if state in states]
    facts = [(say("batch.job"), str(document["job"])), *counts]
    facts += [(say(f"batch.{key}"), format_ranges(document[key])) for key in ("ranks", "steps") if document[key]]
    if reused := sum(one["reused"] for one in tasks):
        facts.append((say("batch.reused"), format_number(reused)))
    return Facts(say("batch.title"), tuple(facts))


def _groups(groups: list[dict[str, Any]]) -> Table | None:
    if not groups:
        return None
    columns = (Column(say("batch.ranks")), Column(say("batch.layer"), "path"), Column(say("batch.said"), "words"))
    tones = {"odd": "bad", "alike": "bad", "aligned": "good"}
    rows = tuple(
        Row((format_ranges(one["ranks"]), one["layer"] or "", one["reason"]), tones[one["kind"]])  # type: ignore[arg-type]
        for one in groups
    )
    step = groups[0]["step"]
    title = say("batch.groups") if step is None else say("batch.groups_at", step=step)
    return Table(title, columns, rows)


def _unequal(tensors: list[dict[str, Any]], *, show_all: bool) -> Table | None:
    if not tensors:
        return None
    shown = tensors if show_all else tensors[:TABLE_ROWS]
    columns = (
        Column(say("batch.tensor"), "path"),
        Column(say("batch.side")),
        Column(say("batch.since"), "number"),
        Column(say("batch.odd_ranks")),
        Column(say("batch.equal_ranks"), "number"),
        Column(say("batch.known_by"), "words"),
    )
    rows = tuple(
        Row(
            (
                one["name"],
                word("word", one["side"]),
                "" if one["step"] is None else format_number(one["step"]),
                format_ranges(one["ranks"]),
                format_number(one["equal"]),
                word("batch_known_by", one["known_by"]),
            ),
            "bad",
        )
        for one in shown
    )
    return Table(say("batch.unequal"), columns, rows, _more(len(tensors) - len(shown)))


def _layers(document: dict[str, Any], *, show_all: bool) -> Table | None:
    """Layers by how many ranks depart in them."""
    departing = [one for one in document["layers"] if show_all or "not aligned" in one["outcomes"]]
    if not departing:
        return None
    shown = departing if show_all else departing[:TABLE_ROWS]
    columns = (Column(say("batch.layer"), "path"), Column(say("batch.odd_ranks")), Column(say("batch.worst"), "number"))
    rows = tuple(_layer_row(one, document["ranks"]) for one in shown)
    return Table(say("batch.layers"), columns, rows, _more(len(departing) - len(shown)))


def _layer_row(layer: dict[str, Any], ranks: list[int]) -> Row:
    cells = [one for one in zip(ranks, layer["outcomes"], layer["values"], strict=True) if one[1] == "not aligned"]
    depart = [rank for rank, *_ in cells]
    values = [value for *_, value in cells if value is not None]
    worst = format_number(max(values)) if values else ""
    return Row((layer["layer"], format_ranges(depart), worst), "bad" if depart else "good")


def _failures(tasks: list[dict[str, Any]], *, show_all: bool) -> Lines | None:
    """What was not done: tasks of one error and hint are one entry."""
    if not tasks:
        return None
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in tasks:
        alike.setdefault((one["state"], one["error"] or one["reason"], one["hint"]), []).append(one["id"])
    shown = [*alike.items()][: None if show_all else LIST_LINES]
    lines = [_failure(*key, ids=ids) for key, ids in shown]
    hidden = len(tasks) - sum(len(ids) for _, ids in shown)
    return Lines(say("batch.failures"), (*lines, *([_more(hidden)] if hidden else [])), "open")


def _failure(state: str, error: str, hint: str, *, ids: list[str]) -> str:
    return say(
        "batch.failure", id=ids[0], others=len(ids) - 1, state=word("batch_state", state), error=error, hint=hint
    )


def _next(commands: list[str]) -> Lines | None:
    return Lines(say("batch.next"), tuple(commands), commands=True) if commands else None


def _tasks(tasks: list[dict[str, Any]], *, show_all: bool) -> Table | None:
    """The tasks, those that depart first; aligned ones only where all are asked for."""
    ordered = tasks if show_all else [one for one in tasks if one["state"] == "not aligned"]
    if not ordered:
        return None
    shown = ordered if show_all else ordered[:TABLE_ROWS]
    columns = (
        Column(say("batch.task"), "path"),
        Column(say("batch.state")),
        Column(say("batch.layer"), "path"),
        Column(say("batch.value"), "number"),
        Column(say("batch.departing"), "number"),
    )
    rows = tuple(_task_row(one) for one in shown)
    return Table(say("batch.tasks"), columns, rows, _more(len(ordered) - len(shown)))


def _task_row(one: dict[str, Any]) -> Row:
    state = one["state"]
    count = f"{format_number(one['departing'])}/{format_number(one['compared'])}" if one["compared"] else ""
    value = "" if one["value"] is None else format_number(one["value"])
    tone = TONES.get(state, "open")
    return Row((one["id"], word("batch_state", state), one["layer"] or "", value, count), tone)


def _more(hidden: int) -> str:
    return say("batch.more", count=format_number(hidden)) if hidden else ""
