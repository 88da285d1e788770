"""The first NaN, Inf or explosion of a training, shown: what was found, why, what to write, the figures before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
from align.report.blocks import (
    TONES,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    as_float,
    findings_blocks,
    format_bytes,
    format_number,
    format_percentage,
    format_shape,
    verdict_block,
)
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def nonfinite_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.nonfinite` document."""
    event = document["event"]
    blocks: list[Block] = []
    if event is not None:
        blocks.append(_event(event))
    if document["before"]:
        blocks.append(_before(document["shown_steps"], document["before"]))
    if document["near"]:
        blocks.append(_near(document["near"]))
    blocks += findings_blocks(document["findings"])
    seen = (
        (say("nonfinite.steps"), format_number(document["steps"])),
        (say("nonfinite.tensors"), format_number(document["tensors"])),
    )
    blocks.append(Facts(document["label"], seen, "bad" if event is not None else "good"))
    return [*blocks, _verdict(document["verdict"])]


def _verdict(verdict: dict[str, Any]) -> Lines:
    """What was looked for and found; one training alone is aligned with nothing."""
    return Lines("", (verdict["reason"], say("nonfinite.one_training")), TONES[str(verdict["outcome"])])


def _event(event: dict[str, Any]) -> Facts:
    part = word("nonfinite_part", event["part"])
    facts = [
        (say("nonfinite.reason"), event["reason"]),
        (say("nonfinite.remedy"), event["remedy"]),
        (say("nonfinite.place"), _place(event)),
        (say("nonfinite.part"), f"{part} {event['tensor']}".strip()),
        (say("nonfinite.weights"), event["weights"]),
    ]
    if event["operator"]:
        facts.insert(3, (say("nonfinite.operator"), f"{event['operator']}  {event['line']}".strip()))
    if event["samples"]:
        facts.append((say("nonfinite.samples"), ", ".join(map(str, event["samples"]))))
    if event["loss_scale"] is not None:
        facts.append((say("nonfinite.scale"), format_number(event["loss_scale"])))
    if event["better_scale"] is not None:
        facts.append((say("nonfinite.better"), format_number(event["better_scale"])))
    return Facts(say("nonfinite.title"), tuple(facts), "bad")


def _place(event: dict[str, Any]) -> str:
    """The layer, or what lies outside of all."""
    if event["direction"] == "step":
        return word("nonfinite_direction", "step")
    return str(event["layer"] or say("nonfinite.outside"))


def _before(steps: Sequence[int], rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("nonfinite.layer"), "path"),
        Column(say("nonfinite.operator")),
        *(Column(say("nonfinite.step", step=step), "number") for step in steps),
    )
    made = tuple(
        Row(
            (
                one["layer"] or say("nonfinite.outside"),
                one["operator"],
                *("" if rms is None else format_number(rms) for rms in one["rms"]),
            ),
            "bad" if place == len(rows) - 1 else "plain",
        )
        for place, one in enumerate(rows)
    )
    return Table(say("nonfinite.before"), columns, made)


def _near(rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("nonfinite.layer"), "path"),
        Column(say("nonfinite.operator")),
        Column(say("nonfinite.direction")),
        Column(say("nonfinite.largest"), "number"),
        Column(say("nonfinite.better"), "number"),
    )
    made = tuple(
        Row(
            (
                one["layer"] or say("nonfinite.outside"),
                one["operator"],
                word("nonfinite_direction", one["direction"]),
                format_number(one["largest"]),
                "" if one["better_scale"] is None else format_number(one["better_scale"]),
            ),
            "quiet",
        )
        for one in rows
    )
    return Table(say("nonfinite.near"), columns, made)


# The layers that move the loss of a training where they compute otherwise.


def training_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.training` document."""
    rows = document["layers"]
    not_run = tuple(
        say("precision.not_run_line", module=path, reason=reason) for path, reason in document["not_run"].items()
    )
    title, note = say("train_layers.title"), say("train_layers.note", steps=document["steps"])
    return [
        *([sensitive_layers(rows, title, note)] if rows else []),
        Lines("", tuple(_training_notes(document))),
        *([Lines(say("precision.not_run"), not_run, "open")] if not_run else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _training_notes(document: dict[str, Any]) -> list[str]:
    facts = {name: format_number(value) for name, value in document.items() if name in _NUMBERS}
    facts["place"] = document["precision"] or document["device"] or document["implementation"]
    notes = [say("train_layers.plain", **facts), say("train_layers.all", **facts)]
    if document["layers"]:
        notes.append(say("train_layers.rest" if document["complete"] else "train_layers.more", **facts))
    return notes


_NUMBERS = frozenset(
    (
        *("steps", "tried", "loss", "all_loss", "noise", "equal_runs", "limit", "runs"),
        *("all_moved", "all_factor", "rest_moved", "rest_factor"),
    )
)


# The table of layers that move a model or a training, in the sets that bisections find.


def sensitive_layers(rows: list[dict[str, Any]], title: str, note: str) -> Table:
    """The layers of the sets that were found, each alone and with those before it."""
    columns = (
        Column(say("precision.group"), "number"),
        Column(say("precision.layer"), "path"),
        Column(say("precision.class")),
        Column(say("precision.alone"), "number"),
        Column(say("precision.factor"), "number"),
        Column(say("precision.cumulative"), "number"),
        Column(say("precision.factor"), "number"),
    )
    cells = tuple(
        Row(
            (
                format_number(row["group"] + 1),
                row["module"],
                row["class_name"],
                *(format_number(row[key]) for key in ("alone", "alone_factor", "cumulative", "cumulative_factor")),
            ),
            "bad" if as_float(row["alone_factor"]) > 1.0 else "plain",
        )
        for row in rows
    )
    return Table(title, columns, cells, note)


# The layers that suffer in another precision or on another device: each alone, and together with those before it.


def precision_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.precision` document."""
    rows, judged = document["layers"], word("judged", document["judged"])
    not_run = tuple(
        say("precision.not_run_line", module=path, reason=reason) for path, reason in document["not_run"].items()
    )
    return [
        *([sensitive_layers(rows, say("precision.title"), say("precision.note", judged=judged))] if rows else []),
        Lines("", tuple(_precision_notes(document))),
        *([Lines(say("precision.not_run"), not_run, "open")] if not_run else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _precision_notes(document: dict[str, Any]) -> list[str]:
    place = document["precision"] or document["device"]
    facts = {
        key: format_number(document[key]) for key in ("tried", "all_moved", "all_factor", "rest_moved", "rest_factor")
    }
    judged = word("judged", document["judged"])
    notes = [say("precision.all", place=place, judged=judged, runs=format_number(document["runs"]), **facts)]
    if document["layers"]:
        key = "precision.rest" if document["complete"] else "precision.more"
        notes.append(say(key, place=place, judged=judged, **facts))
    return notes


# Two runs of one training step, shown: what was held against itself, and the first tensor that differs.


def determinism_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.determinism` document; `show_all` lists what was set, too."""
    blocks: list[Block] = [Lines(say("determinism.settings"), tuple(document["settings"]))] if show_all else []
    for side in document["sides"]:
        if side["first"] is not None:
            blocks.append(_first(side))
        blocks.append(_parts(side))
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _first(side: dict[str, Any]) -> Facts:
    """The first tensor that differs, by how much, and why."""
    first = side["first"]
    share = say(
        "determinism.share",
        part=format_number(first["differing"]),
        whole=format_number(first["count"]),
        share=format_percentage(first["differing"], first["count"]),
    )
    facts = (
        (word("step_part", first["part"]), f"{first['name']}  {format_shape(first['shape'])}".strip()),
        (say("determinism.differing"), share),
        (say("determinism.max_abs"), _size(first)),
        (say("determinism.builds"), word("builds", side["builds"])),
        (say("determinism.cause"), side["reason"]),
    )
    return Facts(say("determinism.title", side=side["label"]), facts, "bad")


def _size(first: dict[str, Any]) -> str:
    if first["max_abs"] is None:
        return say("determinism.once")
    relative = "" if first["relative"] is None else say("determinism.relative", share=format_number(first["relative"]))
    return format_number(first["max_abs"]) + relative


def _parts(side: dict[str, Any]) -> Table:
    columns = (
        Column(say("determinism.part")),
        Column(say("determinism.tensors"), "number"),
        Column(say("determinism.differing"), "number"),
    )
    return Table(say("determinism.compared", side=side["label"]), columns, tuple(_rows(side["parts"])))


def _rows(parts: Sequence[dict[str, Any]]) -> list[Row]:
    return [
        Row(
            (
                word("step_parts", one["part"]),
                format_number(one["tensors"]),
                format_number(one["differing"]),
            ),
            "bad" if one["differing"] else "good",
        )
        for one in parts
    ]


# Initial values of two sides, shown: what is drawn otherwise, how each side draws it, and what to write.

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


# Memory of a process over time, shown: the growth with its interval, and whether it leaks.

MEGABYTE = 1e6  # format: unit of what is shown


def memory_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - as all kinds
    """Show a `mindalign.memory` document."""
    verdict = document["verdict"]
    outcome = word("memory_outcome", verdict["outcome"])
    closing = Lines("", (say("memory.line", outcome=outcome, reason=verdict["reason"]),), TONES[verdict["outcome"]])
    return [Facts(say("memory.title", pid=document["pid"]), tuple(_facts(document))), closing]


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    seconds, trend = document["seconds"], document["trend"]
    spent = seconds[-1] if seconds else 0
    facts = {"processes": document["processes"], "ended": document["ended"]}
    followed = say("memory.followed_for", seconds=spent, count=len(seconds), **facts)
    shown = [(say("memory.command"), document["command"]), (say("memory.followed"), followed)]
    if trend is None:
        return shown
    ends = {name: format_bytes(round(trend[name])) for name in ("first", "last")}
    sizes = {name: trend[name] / MEGABYTE for name in ("growth", "low", "high", "noise")}
    return [
        *shown,
        (say("memory.resident"), say("memory.from_to", **ends)),
        (say("memory.growth"), say("memory.growth_of", **sizes)),
    ]
