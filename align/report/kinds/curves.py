"""A loss comparison shown: the two curves as understood, the criteria, and where they part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.report.blocks import (
    NONE,
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
    layer_name,
    table_columns,
    verdict_block,
)
from align.report.thresholds import (
    LOG_ITEMS_SHOWN,
    LOSS_DIGITS,
    METRICS_SHOWN,
    MOST_CHANGED_TENSORS,
    POINTS_AROUND_PART,
    POINTS_AT_END,
    POINTS_AT_START,
)
from align.words.catalogue import listed, say, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def loss_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.loss` document; `show_all` lists every common step."""
    points = point_rows(document)
    return [
        _divergence(document, points),
        *([_criteria(document["criteria"])] if document["criteria"] else []),
        *([_points(document, points, show_all=show_all)] if points else []),
        *_curve_blocks(document),
        _curves(document["reference"], document["candidate"]),
        *_notes(document),
        verdict_block(document["verdict"]),
    ]


def point_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the common points of a `mindalign.loss` document row by row."""
    columns = {name: column for name, column in document["points"].items() if name != "count"}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _divergence(document: dict[str, Any], points: list[dict[str, Any]]) -> Facts:
    step = document["first_divergent_step"]
    facts = [(say("loss.metric"), document["metric"]), (say("loss.preset"), document["preset"])]
    if document["reference_runs"]:
        facts.append((say("loss.reference_runs"), ", ".join(document["reference_runs"])))
    point = next((p for p in points if (p["step"] == step if step is not None else not p["within"])), None)
    if point is not None:
        facts += [
            (say("loss.step" if step is not None else "loss.first_point"), format_number(point["step"])),
            (word("word", "reference"), format_number(point["reference"], LOSS_DIGITS)),
            (word("word", "candidate"), format_number(point["candidate"], LOSS_DIGITS)),
            (say("loss.difference"), say("loss.of_limit", **_figures(point))),
        ]
    facts += [(say("loss.trouble"), word("trouble", document["trouble"]))] if document["trouble"] else []
    facts += [(say("loss.next"), document["next_command"])] if document["next_command"] else []
    return Facts(_title(document), tuple(facts), TONES.get(document["verdict"]["outcome"], "plain"))


def _title(document: dict[str, Any]) -> str:
    """Say what the verdict says: curves without a divergent step may still not be aligned, or not compared."""
    outcome, step = document["verdict"]["outcome"], document["first_divergent_step"]
    if outcome == "aligned":
        return say("loss.no_divergence")
    if outcome != "not aligned":
        return say("loss.not_compared")
    if step is not None:
        key, steps = parted_steps(document)
        return say("loss.first_between" if key else "loss.first_divergent", **steps)
    return say("loss.not_aligned", trouble=word("trouble", document["trouble"]))


def parted_steps(document: dict[str, Any]) -> tuple[bool, dict[str, str]]:
    """Return whether the curves part somewhere between two steps, and the steps as they are printed."""
    between = document.get("divergent_steps") or {}
    steps = {key: format_number(between[key]) for key in ("first", "last") if between}
    found = bool(steps) and between["first"] < between["last"]
    return found, {"step": format_number(document["first_divergent_step"]), **(steps if found else {})}


def event_text(event: dict[str, Any]) -> str:
    """Say what an event is, and at which side."""
    kind = word("event", event["kind"])
    return say("word.in_brackets", text=kind, more=word("word", event["side"])) if event["side"] else kind


def _figures(point: dict[str, Any]) -> dict[str, str]:
    return {key: format_number(point[key]) for key in ("difference", "limit")}


def _criteria(criteria: list[dict[str, Any]]) -> Table:
    columns = table_columns("loss.criterion loss.value:number loss.bound:number loss.passed loss.source")
    rows = []
    for criterion in criteria:
        figures, is_met = (format_number(criterion[key]) for key in ("value", "bound")), criterion["passed"]
        cells = criterion["name"], *figures, say("loss.yes" if is_met else "loss.no"), criterion["source"]
        rows.append(Row(cells, "good" if is_met else "bad"))
    return Table(say("loss.criteria"), columns, tuple(rows))


def _points(document: dict[str, Any], points: list[dict[str, Any]], *, show_all: bool) -> Table:
    shown = list(range(len(points))) if show_all else _kept(points, document["first_divergent_step"])
    columns = tuple(
        Column(say(f"loss.{key}"), "number")
        for key in ("step", "reference_value", "candidate_value", "difference", "limit")
    )
    rows: list[Row] = []
    for previous, index in zip([-1, *shown], shown, strict=False):
        if index > previous + 1:
            rows.append(Row(("…", say("loss.steps_left_out", count=index - previous - 1), "", "", "", ""), "quiet"))
        rows.append(_point(points[index]))
    count = format_number(document["points"]["count"])
    return Table(say("loss.points", count=count), (*columns, Column(say("forward.outcome"))), tuple(rows))


def _kept(points: list[dict[str, Any]], first: int | None) -> list[int]:
    """Indices of the points to show: both ends, and around the first divergent and the first non-finite one."""
    centres = [i for i, point in enumerate(points) if point["step"] == first]
    centres += [i for i, point in enumerate(points) if not math.isfinite(as_float(point["difference"]))][:1]
    ends = {*range(POINTS_AT_START), *range(len(points) - POINTS_AT_END, len(points))}
    around = {centre + offset for centre in centres for offset in range(-POINTS_AROUND_PART, POINTS_AROUND_PART + 1)}
    return [index for index in sorted(ends | around) if 0 <= index < len(points)]


def _point(point: dict[str, Any]) -> Row:
    losses = (format_number(point[side], LOSS_DIGITS) for side in ("reference", "candidate"))
    figures = (format_number(point[key]) for key in ("difference", "limit"))
    outcome = say("loss.within" if point["within"] else "loss.outside")
    return Row((format_number(point["step"]), *losses, *figures, outcome), "plain" if point["within"] else "bad")


def _curve_blocks(document: dict[str, Any]) -> list[Block]:
    """Show drift, events, other metrics and speed, as far as a document holds them."""
    blocks: list[Block] = []
    if document["drift"]:
        blocks.append(_drift(document["drift"]))
    if document["events"]:
        blocks.append(Lines(say("loss.events"), tuple(_events(document["events"]))))
    if document["others"]:
        blocks += _others(document["others"])
    if document["speed"]:
        blocks.append(_speed(document))
    return blocks


def _drift(tests: list[dict[str, Any]]) -> Table:
    columns = table_columns(
        "loss.test:words loss.statistic:number loss.p_value:number loss.level:number loss.drifts "
        "loss.slope:number loss.assumption:words:wide"
    )
    rows = []
    for test in tests:
        figures = (format_number(test[key]) for key in ("statistic", "p_value", "level"))
        finding = say("loss.drift_found" if test["drifts"] else "loss.no_drift")
        cells = test["name"], *figures, finding, format_number(test["slope"]), test["assumption"]
        rows.append(Row(cells, "open" if test["drifts"] else "good"))
    return Table(say("loss.drift"), columns, tuple(rows))


def _events(events: list[dict[str, Any]]) -> list[str]:
    """Say for each kind and side how many events there are, and where the first is."""
    by_kind = grouped((event_text(event), event) for event in events)
    return [_event_line(text, found) for text, found in by_kind.items()]


def _event_line(text: str, events: list[dict[str, Any]]) -> str:
    first = events[0]
    value = (
        say("loss.event_value", value=format_number(first["value"], LOSS_DIGITS)) if first["value"] is not None else ""
    )
    step = format_number(first["step"])
    if len(events) == 1:
        return say("loss.event", event=text, step=step) + value
    return say("loss.event_many", event=text, step=step, count=format_number(len(events))) + value


def _others(others: list[dict[str, Any]]) -> list[Block]:
    """Show the other metrics; of very many those that differ stand first, and the rest is counted."""
    if (more := len(others) - METRICS_SHOWN) > 0:
        others = sorted(others, key=lambda metric: metric["within"] == metric["compared"])[:METRICS_SHOWN]
    columns = table_columns(
        "loss.metric loss.compared:number loss.outside_count:number loss.first_outside:number loss.largest:number "
        "loss.largest_at:number"
    )
    rows = []
    for metric in others:
        counts = (format_number(count) for count in (metric["compared"], metric["compared"] - metric["within"]))
        steps = _steps(metric["first_divergent_step"], metric.get("last_divergent_step"))
        largest = (format_number(metric[key]) for key in ("largest_difference", "largest_at"))
        is_within = metric["within"] == metric["compared"]
        rows.append(Row((metric["metric"], *counts, steps, *largest), "good" if is_within else "bad"))
    rest: list[Block] = [Lines("", (say("log.more_metrics", count=format_number(more)),))] if more > 0 else []
    return [Table(say("loss.others"), columns, tuple(rows)), *rest]


def _steps(first: int | None, last: int | None) -> str:
    """Say from which step on a metric differs, and up to which if it agrees again."""
    return format_number(first) if last is None else f"{format_number(first)} … {format_number(last)}"


def _speed(document: dict[str, Any]) -> Facts:
    speed = document["speed"]
    sides = [speed["reference"], speed["candidate"]]
    both = [(say("loss.median"), "median"), (say("loss.tail"), "tail"), (say("loss.first_step"), "first_step")]
    facts = [
        (say("loss.ratio"), say("loss.times", ratio=format_number(speed["ratio"]))),
        *((label, " | ".join(_seconds(side[key]) for side in sides)) for label, key in both),
        (say("loss.data_share"), " | ".join(_share(side["data_share"]) for side in sides)),
        (say("loss.warm_up"), " | ".join(format_number(side["warm_up"]) for side in sides)),
        (say("loss.slow_in"), word("slow_in", speed["slow_in"])),
        *((say("loss.note"), note) for note in speed["notes"]),
    ]
    if speed["slow_in"] != "none":
        names = {side: document[side]["label"] for side in ("reference", "candidate")}
        facts.append((say("loss.why_slow"), say("loss.advise", **names)))
    tone: Any = "plain" if speed["slow_in"] == "none" else "open"
    return Facts(say("loss.speed"), tuple(facts), tone)


def _seconds(value: float | None) -> str:
    return NONE if value is None else say("loss.seconds", value=format_number(value))


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def _curves(reference: dict[str, Any], candidate: dict[str, Any]) -> Table:
    facts: dict[str, Callable[[dict[str, Any]], str]] = {
        "label": lambda curve: curve["label"],
        "steps": lambda curve: format_number(len(curve["steps"])),
        "range": lambda curve: f"{curve['steps'][0]} … {curve['steps'][-1]}" if curve["steps"] else NONE,
        "window": lambda curve: window_text(curve["window"]),
        "resolution": lambda curve: _resolution(curve["resolution"]),
        "first_value": lambda curve: format_number(curve["values"][0], LOSS_DIGITS) if curve["values"] else NONE,
        "last_value": lambda curve: format_number(curve["values"][-1], LOSS_DIGITS) if curve["values"] else NONE,
    }
    rows = tuple(Row((say(f"loss.{key}"), fact(reference), fact(candidate))) for key, fact in facts.items())
    columns = (Column(""), *table_columns("word.reference:path word.candidate:path"))
    return Table(say("loss.curves"), columns, rows)


def window_text(window: dict[str, Any]) -> str:
    """Say what a value is the mean of."""
    kind = word("window", window["kind"])
    return say("word.in_brackets", text=kind, more=window["length"]) if window["length"] > 1 else kind


def _resolution(resolutions: list[float]) -> str:
    coarsest = max((float(r) for r in resolutions), default=0.0)
    return format_number(coarsest) if coarsest else say("loss.all_digits")


def _notes(document: dict[str, Any]) -> list[Block]:
    lines = list(document["notes"])
    for side in ("reference", "candidate"):
        lines += [say("word.labelled", label=word("word", side), text=note) for note in document[side]["notes"]]
    return [Lines(say("loss.notes"), tuple(lines))] if lines else []


# What was understood of one loss log, shown.


def log_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.log` document: how the log counts, what its values are, where they are missing or repeated."""
    facts = (
        (say("log.format"), document["format"]),
        (say("log.metric"), document["metric"]),
        (say("log.counting"), _counting(document)),
        (say("log.range"), _range(document)),
        (say("loss.window"), window_text(document["window"])),
        (
            say("log.values"),
            " … ".join(format_number(document[key], LOSS_DIGITS) for key in ("first_value", "last_value")),
        ),
        (
            say("loss.resolution"),
            format_number(document["resolution"]) if document["resolution"] else say("loss.all_digits"),
        ),
        (say("log.gaps"), _listed([f"{before} … {after}" for before, after in document["gaps"]])),
        (say("log.duplicates"), format_number(document["duplicates"])),
        (say("log.non_finite"), _listed([str(step) for step in document["non_finite_steps"]])),
        (say("log.skipped"), _listed([_skipped(*run) for run in document["skipped_steps"]])),
        (say("log.ignored"), format_number(document["ignored_lines"])),
    )
    notes: list[Block] = [Lines(say("loss.notes"), tuple(document["notes"]))] if document["notes"] else []
    metrics, more = document["metrics"][:METRICS_SHOWN], len(document["metrics"]) - METRICS_SHOWN
    rest: list[Block] = [Lines("", (say("log.more_metrics", count=format_number(more)),))] if more > 0 else []
    return [Facts(document["label"], facts), _metrics(metrics), *rest, *notes]


def _metrics(metrics: list[dict[str, Any]]) -> Table:
    columns = table_columns("log.metric log.values_of_it:number loss.window log.phase")
    rows = tuple(
        Row((one["name"], format_number(one["points"]), window_text(one["window"]), word("phase", one["phase"])))
        for one in metrics
    )
    return Table(say("log.metrics"), columns, rows)


def _counting(document: dict[str, Any]) -> str:
    length = document["steps_per_epoch"]
    epoch = say("log.epoch_length", steps=format_number(length)) if length is not None else ""
    return say("log.counted", counting=word("counting", document["counting"]), base=document["base"]) + epoch


def _range(document: dict[str, Any]) -> str:
    figures = {key: format_number(document[key]) for key in ("points", "first_step", "last_step", "cadence")}
    return say("log.points", axis=word("axis", document["axis"]), **figures)


def _skipped(first: int, last: int, count: int) -> str:
    span = str(first) if first == last else f"{first} … {last}"
    return span if count > last - first else say("log.some_of", count=format_number(count), span=span)


def _listed(items: Sequence[str]) -> str:
    """List the first few and count all; "none" for nothing."""
    if not items:
        return say("log.none")
    shown = listed(items[:LOG_ITEMS_SHOWN])
    return shown if len(items) <= LOG_ITEMS_SHOWN else say("log.more", shown=shown, count=format_number(len(items)))


# Two iterations of a training: which tensors changed most, and which is the first that is no number any more.


def iterations_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.iterations` document; with `show_all` every tensor."""
    rows = sorted(document["tensors"], key=lambda row: -as_float(row["factor"]))
    shown = rows if show_all else rows[:MOST_CHANGED_TENSORS]
    notes = [say("iterations.more", count=len(rows) - len(shown))] if len(shown) < len(rows) else []
    notes += [say("iterations.only", count=document["unpaired"])] if document["unpaired"] else []
    return [_table(shown, document), Lines("", tuple(notes)), _first(document)]


def _table(rows: list[dict[str, Any]], document: dict[str, Any]) -> Table:
    columns = table_columns(
        "iterations.layer:path iterations.direction iterations.before:number iterations.after:number "
        "iterations.factor:number iterations.non_finite:number"
    )
    title = say("iterations.title", before=document["before"], after=document["after"])
    return Table(title, columns, tuple(map(_row, rows)))


def _row(row: dict[str, Any]) -> Row:
    figures = (format_number(row[name]) for name in ("rms_before", "rms_after", "factor"))
    odd = row["non_finite_after"]
    cells = (_name(row), row["direction"], *figures, format_number(odd) if odd else "")
    return Row(cells, "bad" if odd else "plain")


def _name(row: dict[str, Any]) -> str:
    return layer_name(row["module"], row["call"]) + (f":{row['output']}" if row["output"] else "")


def _first(document: dict[str, Any]) -> Lines:
    if document["first_non_finite"] is None:
        return Lines("", (say("iterations.none"),), "good")
    row = document["tensors"][document["first_non_finite"]]
    facts = {"count": row["non_finite_after"], "before_count": row["non_finite_before"]}
    steps = {"before": document["before"], "after": document["after"]}
    return Lines("", (say("iterations.first", layer=_name(row), direction=row["direction"], **facts, **steps),), "bad")


# A loss scale that was watched: what it did, and what that means.


def scale_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.scale` document."""
    steps = document["steps"]
    facts = [(say("scale.flow"), document["flow"]), (say("scale.iterations"), format_number(len(steps)))]
    facts += [(say(f"scale.{name}"), format_number(document[name])) for name in ("overflows", "skipped")]
    if steps:
        scales = [as_float(one["scale"]) for one in steps]
        shown = {"first": scales[0], "last": scales[-1], "smallest": min(scales)}
        facts.append((say("scale.scale"), say("scale.from_to", **{k: format_number(v) for k, v in shown.items()})))
    faked = [say("scale.faked", names=document["faked"])] if document["faked"] else []
    good = document["trouble"] in ("none", "settling", "occasional")
    return [
        Facts(say("scale.title"), tuple(facts)),
        *([Lines("", tuple(faked), "open")] if faked else []),
        *findings_blocks(document["findings"]),
        Lines("", (document["says"],), "good" if good else "bad"),
    ]
