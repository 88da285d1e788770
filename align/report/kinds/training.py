"""What happens in a training, shown: the first NaN, Inf or explosion, records of whole trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.user_rules import fold_alike
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
    format_number,
    format_percentage,
    format_shape,
    table_columns,
    verdict_block,
)
from align.report.thresholds import DEPARTURES_SHOWN
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
    table_rows = tuple(
        Row(
            (
                row["layer"] or say("nonfinite.outside"),
                row["operator"],
                *("" if rms is None else format_number(rms) for rms in row["rms"]),
            ),
            "bad" if place == len(rows) - 1 else "plain",
        )
        for place, row in enumerate(rows)
    )
    return Table(say("nonfinite.before"), columns, table_rows)


def _near(rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("nonfinite.layer"), "path"),
        Column(say("nonfinite.operator")),
        Column(say("nonfinite.direction")),
        Column(say("nonfinite.largest"), "number"),
        Column(say("nonfinite.better"), "number"),
    )
    table_rows = tuple(
        Row(
            (
                row["layer"] or say("nonfinite.outside"),
                row["operator"],
                word("nonfinite_direction", row["direction"]),
                format_number(row["largest"]),
                "" if row["better_scale"] is None else format_number(row["better_scale"]),
            ),
            "quiet",
        )
        for row in rows
    )
    return Table(say("nonfinite.near"), columns, table_rows)


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
                word("step_parts", part["part"]),
                format_number(part["tensors"]),
                format_number(part["differing"]),
            ),
            "bad" if part["differing"] else "good",
        )
        for part in parts
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


def _row(name: str, parameters: Sequence[Parameter]) -> Row:
    first = parameters[0]
    known = [parameter["statistic"] for parameter in parameters if parameter["statistic"] is not None]
    outcome = word("initial_outcome", first["outcome"])
    cells = (
        name if len(parameters) == 1 else say("initial.several", name=name, count=len(parameters)),
        _drawn(first, "reference"),
        _drawn(first, "candidate"),
        format_number(max(known)) if known else "",
        say("word.labelled", label=outcome, text=first["note"]) if first["note"] else outcome,
    )
    return Row(cells, "quiet" if first["outcome"] == "same" else "bad")


def _drawn(parameter: Parameter, side: str) -> str:
    """`uniform 0.05 (He uniform: sqrt(6/fan_in), a = 0)`."""
    values = parameter[f"{side}_values"]
    family = word("initial_family", values["family"])
    text = family if values["scale"] is None else f"{family} {format_number(float(values['scale']))}"
    if values["scheme"]:
        scheme = say("word.labelled", label=values["scheme"], text=values["formula"])
        text = say("word.in_brackets", text=text, more=scheme)
    elif values["scale"] is None and values["family"] in ("fixed", "other"):
        text += say("initial.moments", mean=format_number(values["mean"]), std=format_number(values["std"]))
    share = format_percentage(round(values["held"] * PER_MILLE), PER_MILLE)
    return text + (say("initial.held", share=share) if values["held"] else "")


def _help(rows: Sequence[Parameter]) -> tuple[str, ...]:
    """What to write on the candidate's side, a line for all that it is the same for."""
    written = [one for one in rows if one["write"]]
    folded = fold_alike((one["candidate"], one["write"]) for one in written)
    return tuple(f"{name}: {written[places[0]]['write']}" for name, places in folded)


def _name(parameter: Parameter) -> str:
    ours, theirs = parameter["reference"], parameter["candidate"]
    return str(ours) if ours == theirs else f"{ours} -> {theirs}"


# The ranks of one training, shown: a row each, then what is at fault.


def ranks_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001 - all is shown
    """Show a `mindalign.ranks` document."""
    columns = (
        Column(say("ranks.rank"), "path"),
        *(Column(say(f"ranks.{name}"), "number") for name in ("samples", "loss", "started", "given", "ended")),
    )
    rows = tuple(
        Row((row["folder"], *(format_number(row[name]) for name in ("samples", "loss", "started", "given", "ended"))))
        for row in document["ranks"]
    )
    table = Table(say("ranks.title"), columns, rows, say("ranks.note"))
    return [table, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


# Samples of a batch, shown one by one: those that differ, or all.


def samples_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.samples` document; `show_all` lists samples that agree too."""
    rows = [row for row in document["samples"] if show_all or row["outcome"] != "aligned"]
    hidden = len(document["samples"]) - len(rows)
    note = say("samples.hidden", count=hidden) if hidden else ""
    blocks: list[Block] = [_samples_table(rows, note)] if rows else []
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _samples_table(rows: Sequence[dict[str, Any]], note: str) -> Table:
    columns = table_columns(
        "samples.sample:number samples.reference:number samples.candidate:number samples.factor:number "
        "samples.parameter:path samples.differing:number samples.counts:number samples.outcome:words"
    )
    return Table(say("samples.title"), columns, tuple(map(_sample_row, rows)), note)


def _sample_row(row: dict[str, Any]) -> Row:
    mine, theirs = row["reference_share"], row["candidate_share"]
    counts = say("samples.times", factor=theirs / mine) if mine and theirs is not None else ""
    cells = (
        *(format_number(row[name]) for name in ("sample", "reference_loss", "candidate_loss", "factor")),
        row["candidate"],
        say("samples.of", part=row["differing"], whole=row["compared"]),
        counts,
        word("step_outcome", row["outcome"]),
    )
    return Row(cells, "bad" if row["outcome"] == "not aligned" else "quiet")


# Records of whole trainings, shown: what departs first, in which order, and one record by itself.


def watch_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.watch` document."""
    departures = document["departures"] if show_all else document["departures"][:DEPARTURES_SHOWN]
    blocks: list[Block] = []
    if departures:
        columns = table_columns(
            "watch_view.step:number watch_view.what:words watch_view.name:path watch_view.reference:number "
            "watch_view.candidate:number watch_view.ratio:number watch_view.way:words"
        )
        hidden = document["departed"] > len(departures)
        note = say("watch_view.more", count=document["departed"], shown=len(document["departures"])) if hidden else ""
        blocks.append(Table(say("watch_view.title"), columns, tuple(map(_departure_row, departures)), note))
    if document["next_steps"]:
        blocks.append(Lines(say("watch_view.next"), tuple(document["next_steps"])))
    compared = say(
        "watch_view.compared_text",
        steps=len(document["steps"]),
        layers=document["layers"],
        parameters=document["parameters"],
    )
    facts = ((say("watch_view.compared"), compared), (say("watch_view.level"), document["level"]))
    title = f"{document['reference']}, {document['candidate']}"
    return [*blocks, *findings_blocks(document["findings"]), Facts(title, facts), verdict_block(document["verdict"])]


def _departure_row(row: dict[str, Any]) -> Row:
    figures = (*row["values"], row["ratio"])
    cells = (
        format_number(row["step"]),
        word("watch_quantity", row["quantity"]),
        row["name"] or say("watch_view.model" if row["quantity"] == "output" else "watch_view.whole"),
        *("" if value is None else format_number(float(value)) for value in figures),
        word("watch_way", row["way"]),
    )
    return Row(cells, "bad")


def watched_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.watched` document."""
    steps = {"first": document["first_step"], "last": document["last_step"], "every": document["every"]}
    first, last = map(float, document["losses"])
    facts = [
        (say("watch_view.framework"), document["framework"]),
        (say("watch_view.steps"), say("watch_view.steps_text", count=document["steps"], **steps)),
        (say("watch_view.sessions"), format_number(len(document["sessions"]))),
        (say("watch_view.skipped"), format_number(document["skipped"])),
    ]
    if first == first:  # NaN for a record without losses
        facts.insert(2, (say("watch_view.loss"), say("watch_view.loss_text", first=first, last=last)))
    trends: Sequence[dict[str, Any]] = document["trends"] if show_all else document["trends"][:DEPARTURES_SHOWN]
    columns = table_columns(
        "watch_view.name:path watch_view.figure:words watch_view.column_first:number watch_view.column_last:number "
        "watch_view.ratio:number watch_view.column_largest:number watch_view.column_nonfinite:number"
    )
    rows = tuple(map(_trend_row, trends))
    hidden = len(document["trends"]) - len(rows)
    note = say("watch_view.trends_hidden", count=hidden) if hidden else ""
    table = Table(say("watch_view.trends"), columns, rows, note)
    return [
        table,
        Facts(f"{document['folder']} ({document['label']})", tuple(facts)),
        Lines("", (say("watch_verdict.shown"),)),
    ]


def _trend_row(row: dict[str, Any]) -> Row:
    figures = (row["first"], row["last"], row["growth"], row["largest"])
    cells = (
        row["name"] or say("watch_view.model"),
        word("watch_figure", row["figure"]),
        *("" if value is None else format_number(float(value)) for value in figures),
        format_number(row["nonfinite"]) if row["nonfinite"] else "",
    )
    return Row(cells, "bad" if row["nonfinite"] else "plain")
