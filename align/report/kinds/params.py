"""What one training step did to each parameter, shown: those that it does not train, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Column, Facts, Row, Table, Tone, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE = ("trained", "frozen", "without influence")


def params_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.params` document; `show_all` lists parameters that are trained, and buffers, too."""
    blocks: list[Block] = [_asked(document["asked"])] if document["asked"] else []
    for side in document["sides"]:
        blocks += _side(side, show_all=show_all)
    if document["unlike"]:
        blocks.append(_unlike(document["unlike"]))
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _side(side: dict[str, Any], *, show_all: bool) -> list[Block]:
    rows = [one for one in side["parameters"] if show_all or one["state"] not in FINE]
    counts = {state: sum(one["state"] == state for one in side["parameters"]) for state in FINE}
    moved = sum(one["moved"] > 0.0 for one in side["buffers"])
    facts = (
        (say("params.loss"), say("params.unknown") if side["loss"] is None else format_number(side["loss"], 6)),
        (say("params.trained"), say("params.of", part=counts["trained"], whole=len(side["parameters"]))),
        (say("params.frozen"), format_number(counts["frozen"])),
        *([(say("params.idle"), format_number(counts["without influence"]))] if counts["without influence"] else []),
        (say("params.buffers"), say("params.of", part=moved, whole=len(side["buffers"]))),
    )
    wrong = any(one["state"] not in FINE for one in side["parameters"])
    blocks: list[Block] = [Facts(side["label"], facts, "bad" if wrong else "good")]
    if rows:
        blocks.append(_table(say("params.title", side=side["label"]), rows, show_all=show_all))
    if show_all and side["buffers"]:
        columns = Column(say("params.buffer"), "path"), Column(say("params.moved"), "number")
        buffers = tuple(Row((one["name"], format_number(one["moved"]))) for one in side["buffers"])
        blocks.append(Table(say("params.buffers_of", side=side["label"]), columns, buffers))
    return blocks


def _table(title: str, rows: Sequence[dict[str, Any]], *, show_all: bool) -> Table:
    """One row a parameter, or a row for those of repeated blocks that are alike."""
    columns = (
        Column(say("params.parameter"), "path"),
        Column(say("params.state")),
        Column(say("params.gradient"), "number"),
        Column(say("params.moved"), "number"),
        Column(say("params.reason"), "words"),
    )
    if show_all:
        groups = [(one["name"], [one]) for one in rows]
    else:
        alike = ((one["name"], (one["state"], one["reason"])) for one in rows)
        groups = [(name, [rows[place] for place in places]) for name, places in fold_alike(alike)]
    return Table(title, columns, tuple(_row(name, group) for name, group in groups))


def _row(name: str, group: Sequence[dict[str, Any]]) -> Row:
    first = group[0]
    gradients = [one["gradient"] for one in group]
    largest = say("params.none") if None in gradients else format_number(max(gradients))
    moved = format_number(max(one["moved"] for one in group))
    tone: Tone = "plain" if first["state"] == "trained" else "quiet" if first["state"] in FINE else "bad"
    label = name if len(group) == 1 else say("params.several", name=name, count=len(group))
    return Row((label, word("parameter_state", first["state"]), largest, moved, first["reason"]), tone)


def _unlike(pairs: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("params.state")),
        Column(say("word.candidate"), "path"),
        Column(say("params.state")),
        Column(say("params.reason"), "words"),
    )
    keys = ("reference_state", "candidate_state", "reason")
    rows = []
    for name, places in fold_alike((one["reference"], tuple(one[key] for key in keys)) for one in pairs):
        first = pairs[places[0]]
        other = fold_alike((pairs[place]["candidate"], None) for place in places)[0][0]
        states = [word("parameter_state", first[key]) for key in keys[:2]]
        rows.append(Row((name, states[0], other, states[1], first["reason"]), "bad"))
    return Table(say("params.unlike"), columns, tuple(rows))


def _asked(rows: Sequence[dict[str, Any]]) -> Table:
    """The parameters of the numbers that torch's DistributedDataParallel reports."""
    columns = (
        Column(say("params.number"), "number"),
        Column(say("params.parameter"), "path"),
        Column(say("params.state")),
        Column(say("params.reason"), "words"),
    )
    cells = ((str(one["ddp_index"]), one["name"], word("parameter_state", one["state"]), one["reason"]) for one in rows)
    return Table(say("params.asked"), columns, tuple(Row(one) for one in cells))
