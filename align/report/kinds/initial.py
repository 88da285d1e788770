"""Initial values of two sides, shown: what is drawn otherwise, how each side draws it, and what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number, format_percentage
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence

Parameter = dict[str, Any]
PER_MILLE = 1000  # format: shares are shown to that


def initial_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.initial` document; `show_all` lists parameters that are drawn alike too."""
    rows = [one for one in document["parameters"] if show_all or one["outcome"] != "same"]
    blocks: list[Block] = [_test(document)]
    if rows:
        blocks.append(_table(rows, show_all=show_all))
    if lines := _help(rows):
        blocks.append(Lines(say("initial.write"), lines))
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _test(document: dict[str, Any]) -> Facts:
    facts = (
        (say("initial.seeds"), format_number(document["seeds"])),
        (say("initial.samples"), format_number(document["samples"])),
        (say("initial.tests"), format_number(document["tests"])),
        (say("initial.level"), say("initial.levels", **{k: format_number(document[k]) for k in ("level", "alpha")})),
    )
    return Facts(say("initial.title"), facts, "good" if document["verdict"]["outcome"] == "aligned" else "bad")


def _table(rows: Sequence[Parameter], *, show_all: bool) -> Table:
    columns = (
        Column(say("initial.parameter"), "path"),
        Column(word("word", "reference"), "words"),
        Column(word("word", "candidate"), "words"),
        Column(say("initial.distance"), "number"),
        Column(say("initial.outcome"), "words"),
    )
    alike = fold_alike(
        (_name(one), (_drawn(one, "reference"), _drawn(one, "candidate"), one["outcome"])) for one in rows
    )
    groups = [(_name(one), [one]) for one in rows] if show_all else [(n, [rows[i] for i in own]) for n, own in alike]
    title = say("initial.all") if show_all else say("initial.pairs")
    return Table(title, columns, tuple(_row(name, own) for name, own in groups), say("initial.note"))


def _row(name: str, own: Sequence[Parameter]) -> Row:
    first = own[0]
    known = [one["statistic"] for one in own if one["statistic"] is not None]
    outcome = word("initial_outcome", first["outcome"])
    cells = (
        name if len(own) == 1 else say("initial.several", name=name, count=len(own)),
        _drawn(first, "reference"),
        _drawn(first, "candidate"),
        format_number(max(known)) if known else "",
        f"{outcome}: {first['note']}" if first["note"] else outcome,
    )
    return Row(cells, "quiet" if first["outcome"] == "same" else "bad")


def _drawn(parameter: Parameter, side: str) -> str:
    """`uniform 0.05 (He uniform: sqrt(6/fan_in), a = 0)`."""
    own = parameter[f"{side}_values"]
    family = word("initial_family", own["family"])
    text = family if own["scale"] is None else f"{family} {format_number(float(own['scale']))}"
    if own["scheme"]:
        text += f" ({own['scheme']}: {own['formula']})"
    elif own["scale"] is None and own["family"] in ("fixed", "other"):
        text += say("initial.moments", mean=format_number(own["mean"]), std=format_number(own["std"]))
    share = format_percentage(round(own["held"] * PER_MILLE), PER_MILLE)
    return text + (say("initial.held", share=share) if own["held"] else "")


def _help(rows: Sequence[Parameter]) -> tuple[str, ...]:
    """What to write on the candidate's side, a line for all that it is the same for."""
    written = [one for one in rows if one["write"]]
    folded = fold_alike((one["candidate"], one["write"]) for one in written)
    return tuple(f"{name}: {written[places[0]]['write']}" for name, places in folded)


def _name(parameter: Parameter) -> str:
    ours, theirs = parameter["reference"], parameter["candidate"]
    return str(ours) if ours == theirs else f"{ours} -> {theirs}"
