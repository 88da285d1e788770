"""What training moved on two sides, shown: the updates that differ, furthest off first, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike, fold_names
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table, Tone, verdict_block
from align.report.rendering.format_values import as_float, format_number
from align.report.thresholds import TABLE_ROWS
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALIKE = ("same", "neither moved", "without influence")

Tensor = dict[str, Any]


def updates_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.updates` document; `show_all` lists updates that are alike too, and folds nothing."""
    shown = [one for one in document["tensors"] if show_all or one["outcome"] not in ALIKE]
    blocks: list[Block] = [_sides(document)]
    if shown:
        blocks.append(_table(shown, show_all=show_all))
    unpaired = ((say("updates.missing"), document["missing"]), (say("updates.extra"), document["extra"]))
    blocks += [Lines(title, tuple(fold_names(names)), "bad") for title, names in unpaired if names]
    if document["dropped"]:
        lines = (f"{name}: {reason}" for name, reason in document["dropped"].items())
        folded = tuple(name for name, _ in fold_alike((line, None) for line in lines))
        blocks.append(Lines(say("updates.dropped"), folded))
    if document["warnings"]:
        blocks.append(Lines(say("updates.warnings"), tuple(document["warnings"]), "open"))
    return [*blocks, verdict_block(document["verdict"])]


def _sides(document: dict[str, Any]) -> Facts:
    facts = [(word("word", side), " -> ".join(document[side])) for side in ("reference", "candidate")]
    outcomes = [one["outcome"] for one in document["tensors"]]
    counts = {outcome: outcomes.count(outcome) for outcome in outcomes}
    facts += [(word("update_outcome", outcome), format_number(count)) for outcome, count in counts.items()]
    if document["factor"] is not None:
        facts.append((say("updates.common_factor"), format_number(document["factor"], 4)))
    tone: Tone = "good" if document["verdict"]["outcome"] == "aligned" else "bad"
    return Facts(say("updates.title"), tuple(facts), tone)


def _table(tensors: Sequence[Tensor], *, show_all: bool) -> Table:
    columns = (
        Column(say("updates.tensor"), "path"),
        Column(say("updates.outcome")),
        Column(say("updates.reference_moved"), "number"),
        Column(say("updates.candidate_moved"), "number"),
        Column(say("updates.relative"), "number"),
        Column(say("updates.limit"), "number", wide=True),
        Column(say("updates.factor"), "number"),
        Column(say("updates.decay"), "number"),
    )
    alike = fold_alike((_name(one), (one["outcome"], one["note"])) for one in tensors)
    groups = [(_name(one), [one]) for one in tensors] if show_all else [(n, [tensors[i] for i in p]) for n, p in alike]
    shown = groups if show_all else groups[:TABLE_ROWS]
    hidden = [say("updates.more_rows", count=len(groups) - len(shown))] if len(groups) > len(shown) else []
    rows = tuple(_row(name, group) for name, group in shown)
    return Table(say("updates.differences"), columns, rows, " ".join([say("updates.note"), *hidden]))


def _row(name: str, group: Sequence[Tensor]) -> Row:
    first = group[0]
    single = first["outcome"] == "one factor apart"
    cells = (
        name if len(group) == 1 else say("updates.several", name=name, count=len(group)),
        first["note"] or word("update_outcome", first["outcome"]),
        _worst(group, "reference_moved"),
        _worst(group, "candidate_moved"),
        _worst(group, "relative"),
        _worst(group, "limit", min),
        format_number(first["factor"], 4) if single else "",
        "" if first["decay"] is None else format_number(first["decay"]),
    )
    return Row(cells, "quiet" if first["outcome"] in ALIKE else "bad")


def _worst(group: Sequence[Tensor], figure: str, choose: Callable[[list[float]], float] = max) -> str:
    known = [as_float(one[figure]) for one in group if one[figure] is not None]
    return format_number(choose(known)) if known else ""


def _name(tensor: Tensor) -> str:
    ours, theirs = tensor["reference"], tensor["candidate"]
    return str(ours) if ours == theirs else f"{ours} -> {theirs}"
