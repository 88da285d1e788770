"""A loss comparison shown: the two curves as understood, the criteria, and where they part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.report.kind_parts.loss_details import LOSS_DIGITS, curve_blocks
from align.report.rendering.blocks import TONES, Block, Column, Facts, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import NONE, as_float, format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Callable

AT_START = 6
AROUND_FIRST = 2
AT_END = 4


def loss_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.loss` document; `show_all` lists every common step."""
    points = point_rows(document)
    return [
        _divergence(document, points),
        *([_criteria(document["criteria"])] if document["criteria"] else []),
        *([_points(document, points, show_all=show_all)] if points else []),
        *curve_blocks(document),
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


def _figures(point: dict[str, Any]) -> dict[str, str]:
    return {key: format_number(point[key]) for key in ("difference", "limit")}


def _criteria(criteria: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("loss.criterion")),
        Column(say("loss.value"), "number"),
        Column(say("loss.bound"), "number"),
        Column(say("loss.passed")),
        Column(say("loss.source")),
    )
    rows = tuple(
        Row(
            (
                c["name"],
                format_number(c["value"]),
                format_number(c["bound"]),
                say("loss.yes" if c["passed"] else "loss.no"),
                c["source"],
            ),
            "good" if c["passed"] else "bad",
        )
        for c in criteria
    )
    return Table(say("loss.criteria"), columns, rows)


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
    ends = {*range(AT_START), *range(len(points) - AT_END, len(points))}
    around = {centre + offset for centre in centres for offset in range(-AROUND_FIRST, AROUND_FIRST + 1)}
    return [index for index in sorted(ends | around) if 0 <= index < len(points)]


def _point(point: dict[str, Any]) -> Row:
    losses = (format_number(point[side], LOSS_DIGITS) for side in ("reference", "candidate"))
    figures = (format_number(point[key]) for key in ("difference", "limit"))
    outcome = say("loss.within" if point["within"] else "loss.outside")
    return Row((format_number(point["step"]), *losses, *figures, outcome), "plain" if point["within"] else "bad")


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
    columns = (Column(""), Column(say("word.reference"), "path"), Column(say("word.candidate"), "path"))
    return Table(say("loss.curves"), columns, rows)


def window_text(window: dict[str, Any]) -> str:
    """Say what a value is the mean of."""
    return word("window", window["kind"]) + (f" ({window['length']})" if window["length"] > 1 else "")


def _resolution(resolutions: list[float]) -> str:
    coarsest = max((float(r) for r in resolutions), default=0.0)
    return format_number(coarsest) if coarsest else say("loss.all_digits")


def _notes(document: dict[str, Any]) -> list[Block]:
    lines = list(document["notes"])
    for side in ("reference", "candidate"):
        lines += [f"{word('word', side)}: {note}" for note in document[side]["notes"]]
    return [Lines(say("loss.notes"), tuple(lines))] if lines else []
