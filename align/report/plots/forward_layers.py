"""Layers of a forward comparison: the difference of each by depth, and how that of the first divergent one is spread.

By depth there are two series: what has gathered when both models run on their own, and what each layer adds alone. Zero
has no place on a logarithmic axis: identical layers stand on the lower edge, layers with NaN or Inf on the upper one.
The histogram is over powers of ten: a few large differences among many small ones (a border, one channel) look unlike
a shift of everything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.report.kind_parts.forward_culprits import is_culprit
from align.report.plots.figure_style import (
    BAD,
    BAND,
    CANDIDATE,
    GOOD,
    INK,
    QUIET,
    escape_dollars,
    integer_ticks,
    name_place,
    new_axes,
)
from align.report.rendering.format_values import LOWEST_DECADE, as_float, format_number, format_percentage, layer_title
from align.report.thresholds import HISTOGRAM_NAME_WIDTH, LAYER_NAME_LINES, NAME_WIDTH
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator


SPACE = 4  # format: points between a line and its text
LOOKS = {
    "within": ("o", GOOD),
    "outside": ("o", BAD),
    "outside_by_one": ("^", BAD),
    "identical": ("v", QUIET),
    "non_finite": ("x", BAD),
}


def draw_error_by_depth(document: dict[str, Any]) -> Any | None:
    """Draw a `mindalign.forward` document."""
    layers = [layer for layer in document["layers"] if layer["measurement"]]
    if not layers:
        return None
    figure, (axes,) = new_axes(10, 4.2)
    low, high = _range(layers)
    marked = list(_marked(document))
    lines = min(len(marked), LAYER_NAME_LINES)
    _limits(axes, layers, low)
    _alone(axes, layers, low, high)
    _layers(axes, layers, low, high)
    axes.set(yscale="log", ylim=(low / 3, high * 5 ** max(1, lines)), title=say("plot.error_by_depth_title"))
    axes.set(xlabel=say("plot.order"), ylabel=say("plot.relative_l2"))
    axes.margins(x=0.02)
    integer_ticks(axes)
    for line, (layer, text) in enumerate(marked):
        _mark(axes, layer, layers, text if line < LAYER_NAME_LINES else "", line)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=6, borderaxespad=0, handletextpad=0.4)
    return figure


def _relative(layer: dict[str, Any]) -> float:
    """Relative L2 of a row of the table, or of its layer alone."""
    measured = layer["measurement"]
    return math.inf if measured["non_finite_mismatch"] else as_float(measured["relative_l2"])


def _judged_alone(layers: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    judged = ((layer["order"], layer.get("isolated")) for layer in layers)
    return [(order, alone) for order, alone in judged if alone and alone["measurement"]]


def _relative_limit(layer: dict[str, Any]) -> float:
    scale = as_float(layer["measurement"]["reference_rms"])
    return as_float(layer["limit"]["rmse"]) / scale if layer["limit"] and scale > 0.0 else math.nan


def _range(layers: list[dict[str, Any]]) -> tuple[float, float]:
    values = [value for layer in layers for value in (_relative(layer), _relative_limit(layer))]
    values += [_relative(alone) for _, alone in _judged_alone(layers)]
    positive = [value for value in values if 0.0 < value < math.inf] or [1e-7, 1e-6]
    return min(positive) / 4, max(positive) * 2


def _limits(axes: Any, layers: list[dict[str, Any]], low: float) -> None:
    orders = [layer["order"] for layer in layers]
    limits = [limit if (limit := _relative_limit(layer)) > 0.0 else math.nan for layer in layers]
    axes.fill_between(orders, low / 3, limits, color=BAND, linewidth=0, zorder=1)
    axes.plot(orders, limits, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label=say("plot.limit"), zorder=2)


def _alone(axes: Any, layers: list[dict[str, Any]], low: float, high: float) -> None:
    """Hollow diamonds; a layer that adds nothing stands on the lower edge."""
    for outcome, color in (("aligned", QUIET), ("not aligned", BAD)):
        own = [(order, _relative(alone)) for order, alone in _judged_alone(layers) if alone["outcome"] == outcome]
        points = [(order, min(max(value, low), high)) for order, value in own if not math.isnan(value)]
        if points:
            label = say("plot.alone" if outcome == "aligned" else "plot.alone_outside")
            axes.scatter(
                *zip(*points, strict=True), s=22, marker="D", c="none", edgecolors=color, label=label, zorder=2.5
            )


def _layers(axes: Any, layers: list[dict[str, Any]], low: float, high: float) -> None:
    groups: dict[str, list[tuple[int, float]]] = {name: [] for name in LOOKS}
    for layer in layers:
        relative = _relative(layer)
        if relative == 0.0:
            groups["identical"].append((layer["order"], low))
        elif relative == math.inf:
            groups["non_finite"].append((layer["order"], high))
        elif not math.isnan(relative):
            groups[_outcome(layer, relative)].append((layer["order"], relative))
    for name, points in groups.items():
        if points:
            marker, color = LOOKS[name]
            orders, values = zip(*points, strict=True)
            size = 15 if marker == "o" else 28
            axes.scatter(orders, values, s=size, marker=marker, color=color, label=say(f"plot.{name}"), zorder=3)


def _outcome(layer: dict[str, Any], relative: float) -> str:
    if layer["outcome"] == "aligned":
        return "within"
    return "outside_by_one" if relative <= _relative_limit(layer) else "outside"


def _marked(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """What is at fault with its text, or else the first divergent layer."""
    layers, first = document["layers"], document["first_divergent"]
    culprits = document.get("culprits", [])
    for place, culprit in enumerate(culprits, 1):
        layer = next((layer for layer in layers if is_culprit(layer, [culprit])), None)
        if layer is not None:
            yield layer, say("plot.culprit", place=place, name=escape_dollars(layer_title(layer, NAME_WIDTH)))
    if first is not None and not culprits:
        yield layers[first], say("plot.first", name=escape_dollars(layer_title(layers[first], NAME_WIDTH)))


def _mark(axes: Any, layer: dict[str, Any], layers: list[dict[str, Any]], text: str, line: int) -> None:
    order = layer["order"]
    axes.axvline(order, color=BAD, linewidth=1.1, alpha=0.75, zorder=2)
    if not text:
        return
    right_half = order > (layers[0]["order"] + layers[-1]["order"]) / 2
    name_place(axes, order, text, line, right_half=right_half)


def draw_difference_histogram(document: dict[str, Any]) -> Any | None:
    """Draw the first divergent layer of a `mindalign.forward` document, else the layer nearest to its limit."""
    layer = _shown_layer(document)
    if layer is None or not any(layer["measurement"]["decades"]):
        return None
    measured = layer["measurement"]
    figure, (axes,) = new_axes(10, 3.6)
    marks = {"limit_value": _absolute_limit(layer), "worst": as_float(measured["max_abs"])}
    _bars(axes, measured["decades"], [value for value in marks.values() if 0.0 < value < math.inf])
    name = layer_title(layer, HISTOGRAM_NAME_WIDTH)
    axes.set_title(say("plot.difference_histogram_of", name=escape_dollars(name)))
    axes.set(xlabel=say("plot.histogram_axis"), ylabel=say("plot.elements"), yscale="log")
    axes.set_ylim(0.7, max(measured["decades"]) * 80)
    _identical(axes, measured)
    _mark_values(axes, marks)
    return figure


def _shown_layer(document: dict[str, Any]) -> dict[str, Any] | None:
    layers: list[dict[str, Any]] = document["layers"]
    if document["first_divergent"] is not None:
        first = layers[document["first_divergent"]]
        return first if first["measurement"] else None
    judged = [layer for layer in layers if layer["measurement"] and layer["factor"] is not None]
    return max(judged, key=lambda layer: as_float(layer["factor"]), default=None)


def _absolute_limit(layer: dict[str, Any]) -> float:
    return as_float(layer["limit"]["max_abs"]) if layer["limit"] else math.nan


def _bars(axes: Any, decades: list[int], marked: list[float]) -> None:
    used = [k for k, count in enumerate(decades) if count]
    used += [math.floor(math.log10(value)) - LOWEST_DECADE for value in marked]
    shown = range(max(min(used) - 1, 0), min(max(used) + 2, len(decades)))
    bars = axes.bar([k + LOWEST_DECADE + 0.5 for k in shown], [decades[k] for k in shown], 0.92, color=CANDIDATE)
    labels = [format_number(decades[k]) if decades[k] else "" for k in shown]
    axes.bar_label(bars, labels, padding=2, fontsize=8.5, color=INK)
    ticks = range(shown[0] + LOWEST_DECADE, shown[-1] + LOWEST_DECADE + 2)
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


def _mark_values(axes: Any, marks: dict[str, float]) -> None:
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
