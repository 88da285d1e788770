"""Both loss curves, and below them their difference at common steps with the band it may lie in."""

from __future__ import annotations

import math
from typing import Any

from align.report.kinds.loss import parted_steps, point_rows
from align.report.plots.figure_style import (
    BAD,
    BAND,
    CANDIDATE,
    GOOD,
    INK,
    INTERVAL_ALPHA,
    OPEN,
    QUIET,
    REFERENCE,
    escape_dollars,
    integer_ticks,
    new_axes,
)
from align.report.rendering.format_values import as_float, shorten_path
from align.report.thresholds import LEGEND_NAME_WIDTH, MARKED_EVENTS, MARKED_POINTS
from align.words.catalogue import say, word

# The reference is drawn broad and light under a thin candidate, so that both show where they coincide.
BROAD: dict[str, Any] = {"linewidth": 4.5, "alpha": 0.4, "markersize": 0, "solid_capstyle": "round"}
THIN: dict[str, Any] = {"linewidth": 1.2, "markersize": 2.8}


EVENT_COLORS = {
    "first divergent": BAD,
    "explosion": BAD,
    "not finite": BAD,
    "spike": OPEN,
    "skipped": QUIET,
    "schedule boundary": QUIET,
    "resumed": QUIET,
    "change point": CANDIDATE,
    "apart for a while": CANDIDATE,
    "together again": GOOD,
}


def draw_loss_curves(document: dict[str, Any]) -> Any | None:
    """Draw a `mindalign.loss` document."""
    points = point_rows(document)
    if not points:
        return None
    figure, (upper, lower) = new_axes(10, 5.2, (1.55, 1.0))
    for side, color, style in (("reference", REFERENCE, BROAD), ("candidate", CANDIDATE, THIN)):
        _curve(upper, document[side], color, style, say(f"plot.{side}"))
    upper.set(title=say("plot.loss_curves_title"), ylabel=escape_dollars(document["metric"]))
    upper.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2)
    _difference(lower, points)
    lower.set(xlabel=say("plot.step"), ylabel=say("plot.difference"))
    lower.margins(x=0.02)
    integer_ticks(lower)
    _mark_first(upper, lower, document)
    _mark_events((upper, lower), [event for event in _marked_events(document) if event["kind"] != "first divergent"])
    lower.legend(loc="upper left", bbox_to_anchor=(0, -0.32), ncols=5, borderaxespad=0)
    return figure


def _marked_events(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events to mark, led by the first divergent step; more than one can see apart are left out."""
    first = document["first_divergent_step"]
    first_mark = [{"kind": "first divergent", "step": first, "side": None}] if first is not None else []
    parted = {(kind, first) for kind in ("change point", "apart for a while")}
    others = (event for event in document["events"] if (event["kind"], event["step"]) not in parted)
    return [*first_mark, *sorted(others, key=lambda event: int(event["step"]))][:MARKED_EVENTS]


def _curve(axes: Any, curve: dict[str, Any], color: str, style: dict[str, Any], label: str) -> None:
    values = [_finite(value) for value in curve["values"]]
    marker = "o" if len(values) <= MARKED_POINTS else ""
    axes.plot(
        curve["steps"],
        values,
        color=color,
        marker=marker,
        label=f"{label}: {escape_dollars(shorten_path(curve['label'], LEGEND_NAME_WIDTH))}",
        **style,
    )
    lost = [step for step, value in zip(curve["steps"], values, strict=True) if math.isnan(value)]
    if lost:
        axes.plot(
            lost,
            [0.03] * len(lost),
            "x",
            color=color,
            transform=axes.get_xaxis_transform(),
            label=f"{label}: {say('plot.non_finite')}",
        )


def _difference(axes: Any, points: list[dict[str, Any]]) -> None:
    steps = [p["step"] for p in points]
    limits = [as_float(p["limit"]) for p in points]
    axes.fill_between(steps, [-v for v in limits], limits, color=BAND, linewidth=0, label=say("plot.band"))
    for sign in (-1, 1):
        axes.plot(steps, [sign * v for v in limits], color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.axhline(0.0, color="#B8BEC6", linewidth=0.8)
    axes.plot(steps, [_finite(p["difference"]) for p in points], color=INK, linewidth=0.8, alpha=0.5)
    for within, color, key in ((True, GOOD, "within_band"), (False, BAD, "outside_band")):
        own = [p for p in points if p["within"] == within]
        values = [_finite(p["difference"]) for p in own]
        if own:
            axes.scatter([p["step"] for p in own], values, s=12, color=color, label=say(f"plot.{key}"), zorder=3)


def _finite(value: Any) -> float:
    number_read = as_float(value)
    return number_read if math.isfinite(number_read) else math.nan


def _mark_events(both: tuple[Any, Any], events: list[dict[str, Any]]) -> None:
    """Mark each event in both plots; the legend names the kinds."""
    for axes in both:
        kinds: set[str] = set()
        for event in events:
            label = "" if event["kind"] in kinds else word("event", event["kind"])
            kinds.add(event["kind"])
            color = EVENT_COLORS.get(event["kind"], QUIET)
            axes.axvline(event["step"], color=color, linewidth=0.9, linestyle=":", label=label or None)


def _mark_first(upper: Any, lower: Any, document: dict[str, Any]) -> None:
    """Mark the step where the curves part, and the steps between which it lies."""
    step = document["first_divergent_step"]
    if step is None:
        return
    between, steps = parted_steps(document)
    for axes in (upper, lower):
        axes.axvline(step, color=BAD, linewidth=1.1, alpha=0.75)
        if between:
            interval = document["divergent_steps"]
            axes.axvspan(interval["first"], interval["last"], color=BAD, alpha=INTERVAL_ALPHA, linewidth=0)
    upper.annotate(
        say("plot.parts_between" if between else "plot.parts_at", **steps),
        (step, 1.0),
        (5, -3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        color=BAD,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
    )
