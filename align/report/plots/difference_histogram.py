"""How the elements' differences of the first divergent layer are spread over the powers of ten.

A few large differences among many small ones (a border, one channel) look unlike a shift of everything.
"""

from __future__ import annotations

import math
from typing import Any

from align.report.plots.figure_style import BAD, CANDIDATE, INK, QUIET, escape_dollars, new_axes
from align.report.rendering.format_values import as_float, format_number, format_percentage, layer_title
from align.words.catalogue import say

LOWEST_EXPONENT = -16  # of the first bin, `align.core.measurements.Measurement.decades`
NAME_WIDTH = 42
SPACE = 4


def draw_difference_histogram(document: dict[str, Any]) -> Any | None:
    """Draw the first divergent layer of a `mindalign.forward` document, else the layer nearest to its limit."""
    layer = _layer(document)
    if layer is None or not any(layer["measurement"]["decades"]):
        return None
    measured = layer["measurement"]
    figure, (axes,) = new_axes(10, 3.6)
    marks = {"limit_value": _limit(layer), "worst": as_float(measured["max_abs"])}
    _bars(axes, measured["decades"], [value for value in marks.values() if 0.0 < value < math.inf])
    name = layer_title(layer, NAME_WIDTH)
    axes.set_title(say("plot.difference_histogram_of", name=escape_dollars(name)))
    axes.set(xlabel=say("plot.histogram_axis"), ylabel=say("plot.elements"), yscale="log")
    axes.set_ylim(0.7, max(measured["decades"]) * 80)
    _identical(axes, measured)
    _mark(axes, marks)
    return figure


def _layer(document: dict[str, Any]) -> dict[str, Any] | None:
    layers: list[dict[str, Any]] = document["layers"]
    if document["first_divergent"] is not None:
        first = layers[document["first_divergent"]]
        return first if first["measurement"] else None
    judged = [layer for layer in layers if layer["measurement"] and layer["factor"] is not None]
    return max(judged, key=lambda layer: as_float(layer["factor"]), default=None)


def _limit(layer: dict[str, Any]) -> float:
    return as_float(layer["limit"]["max_abs"]) if layer["limit"] else math.nan


def _bars(axes: Any, decades: list[int], marked: list[float]) -> None:
    used = [k for k, count in enumerate(decades) if count]
    used += [math.floor(math.log10(value)) - LOWEST_EXPONENT for value in marked]
    shown = range(max(min(used) - 1, 0), min(max(used) + 2, len(decades)))
    bars = axes.bar([k + LOWEST_EXPONENT + 0.5 for k in shown], [decades[k] for k in shown], 0.92, color=CANDIDATE)
    labels = [format_number(decades[k]) if decades[k] else "" for k in shown]
    axes.bar_label(bars, labels, padding=2, fontsize=8.5, color=INK)
    ticks = range(shown[0] + LOWEST_EXPONENT, shown[-1] + LOWEST_EXPONENT + 2)
    axes.set_xticks(list(ticks), [f"$10^{{{exponent}}}$" for exponent in ticks])
    axes.set_xlim(ticks[0] - 0.4, ticks[-1] + 0.4)
    axes.grid(visible=False, axis="x")


def _identical(axes: Any, measured: dict[str, Any]) -> None:
    non_finite = sum(int(measured[key]) for key in ("nan_candidate", "inf_candidate"))
    same = max(int(measured["count"]) - sum(measured["decades"]) - non_finite, 0)
    figures = {
        "count": format_number(same),
        "total": format_number(measured["count"]),
        "share": format_percentage(same, int(measured["count"])),
    }
    text = say("plot.identical_elements", **figures)
    axes.text(1.0, -0.115, text, transform=axes.transAxes, ha="right", va="top", color=QUIET, fontsize=9)


def _mark(axes: Any, marks: dict[str, float]) -> None:
    left, right = axes.get_xlim()
    for key, value in marks.items():
        if not 0.0 < value < math.inf:
            continue
        color = BAD if key == "worst" else INK
        place = min(max(math.log10(value), left), right)
        axes.axvline(place, color=color, linewidth=1.3, linestyle=(0, (4, 2)))
        on_left = place > (left + right) / 2
        offset, side = (-SPACE, "right") if on_left else (SPACE, "left")
        axes.annotate(
            say(f"plot.{key}", value=format_number(value)),
            (place, 1.0),
            (offset, -2 if key == "worst" else -16),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="top",
            color=color,
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
        )
