"""The loss curves for plotly, as the plain data that its script reads: to zoom into, and to read values off.

The report's page draws it; the library itself is needed only there.
"""

from __future__ import annotations

import math
from typing import Any

from align.report.kind_parts.loss_details import event_text
from align.report.plots.figure_style import BAD, BAND, CANDIDATE, GOOD, INK, OPEN, QUIET, REFERENCE
from align.report.rendering.format_values import as_float
from align.words.catalogue import say

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
MARKED = 40
INTERVAL_ALPHA = 0.12


def curve_figure(document: dict[str, Any]) -> dict[str, Any]:
    """Return data and layout: both curves above, their difference with the allowed band below, events as lines."""
    points = document["points"]
    traces = [
        _line(document[side]["steps"], document[side]["values"], say(f"plot.{side}"), color, "y")
        for side, color in (("reference", REFERENCE), ("candidate", CANDIDATE))
    ]
    traces += _band(points["step"], [_finite(limit) for limit in points["limit"]])
    traces.append(_line(points["step"], points["difference"], say("plot.difference"), INK, "y2"))
    traces += [_marks(points, within=within) for within in (True, False)]
    return {"data": traces, "layout": _layout(document)}


def marked_events(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events to mark, led by the first divergent step; more than can be told apart are left out."""
    first = document["first_divergent_step"]
    told = [{"kind": "first divergent", "step": first, "side": None}] if first is not None else []
    parted = {(kind, first) for kind in ("change point", "apart for a while")}
    others = (event for event in document["events"] if (event["kind"], event["step"]) not in parted)
    return [*told, *sorted(others, key=lambda event: int(event["step"]))][:MARKED]


def _line(steps: list[int], values: list[Any], name: str, color: str, axis: str) -> dict[str, Any]:
    found = [_finite(value) for value in values]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps,
        "y": found,
        "name": name,
        "yaxis": axis,
        "line": {"color": color, "width": 1.5},
    }


def _band(steps: list[int], limits: list[float | None]) -> list[dict[str, Any]]:
    edge = {"type": "scatter", "mode": "lines", "x": steps, "yaxis": "y2", "line": {"width": 0}, "hoverinfo": "skip"}
    lower = {**edge, "y": [None if limit is None else -limit for limit in limits], "showlegend": False}
    return [lower, {**edge, "y": limits, "fill": "tonexty", "fillcolor": BAND, "name": say("plot.band")}]


def _marks(points: dict[str, Any], *, within: bool) -> dict[str, Any]:
    rows = zip(points["step"], points["difference"], points["within"], strict=True)
    own = [(step, _finite(difference)) for step, difference, inside in rows if inside == within]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [step for step, _ in own],
        "y": [difference for _, difference in own],
        "yaxis": "y2",
        "name": say("plot.within_band" if within else "plot.outside_band"),
        "marker": {"size": 4, "color": GOOD if within else BAD},
    }


def _layout(document: dict[str, Any]) -> dict[str, Any]:
    shapes, notes = [], []
    for event in marked_events(document):
        color = EVENT_COLORS.get(event["kind"], QUIET)
        line = {"color": color, "width": 1, "dash": "dot"}
        shapes.append(
            {"type": "line", "x0": event["step"], "x1": event["step"], "y0": 0, "y1": 1, "yref": "paper", "line": line}
        )
        notes.append(
            {"x": event["step"], "y": 1, "yref": "paper", "yanchor": "bottom", "text": event_text(event)}
            | {"showarrow": False, "textangle": -35, "xanchor": "left", "font": {"size": 10, "color": color}}
        )
    if between := document.get("divergent_steps"):
        span = {"type": "rect", "x0": between["first"], "x1": between["last"], "y0": 0, "y1": 1, "yref": "paper"}
        shapes.append({**span, "fillcolor": BAD, "opacity": INTERVAL_ALPHA, "line": {"width": 0}})
    return {
        "title": {"text": say("plot.loss_curves_title"), "x": 0},
        "height": 560,
        "margin": {"l": 70, "r": 20, "t": 90, "b": 50},
        "hovermode": "x unified",
        "plot_bgcolor": "white",
        "legend": {"orientation": "h", "y": -0.12},
        "xaxis": {"title": {"text": say("plot.step")}, "anchor": "y2", "gridcolor": "#E9ECEF"},
        "yaxis": {"title": {"text": document["metric"]}, "domain": [0.42, 1], "gridcolor": "#E9ECEF"},
        "yaxis2": {"title": {"text": say("plot.difference")}, "domain": [0, 0.34], "gridcolor": "#E9ECEF"},
        "shapes": shapes,
        "annotations": notes,
    }


def _finite(value: Any) -> float | None:
    found = as_float(value)
    return found if math.isfinite(found) else None
