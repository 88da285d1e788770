"""Gradient norms and update sizes of both sides by depth, and below them by how many limits they differ.

A place is a layer with parameters, in the order of the reference's run, and its size that of all its parameters
together. Zero has no place on a logarithmic axis: it stands on the lower edge, NaN and Inf on the upper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.report.kind_parts.step_parameters import step_parameters
from align.report.plots.figure_style import (
    BAD,
    BAND,
    CANDIDATE,
    GOOD,
    INK,
    QUIET,
    REFERENCE,
    escape_dollars,
    integer_ticks,
    name_place,
    new_axes,
)
from align.report.rendering.format_values import shorten_path
from align.report.thresholds import MARKED_POINTS, NAME_WIDTH, STEP_NAME_LINES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from align.report.kind_parts.step_parameters import StepParameter

Point = tuple[int, float]
Mark = tuple[float, str]  # a place and its text

# The reference is drawn broad and light under a thin candidate, so that both show where they coincide.
BROAD: dict[str, Any] = {"linewidth": 4.5, "alpha": 0.4, "solid_capstyle": "round"}
THIN: dict[str, Any] = {"linewidth": 1.2, "markersize": 2.8}
UNDECIDED = "could not tell"


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """A layer at its place: its size on both sides, NaN for none, and multiples of its limit, NaN where not judged.

    `alone` is that of the layer given the reference's tensors; `judged` is false where all of it is rounding.
    """

    place: int
    name: str
    module: str
    sizes: tuple[float, float]
    factor: float
    alone: float = math.nan
    judged: bool = True


def draw_gradient_norms(document: dict[str, Any]) -> Any | None:
    """Draw the gradients of a `mindalign.step` document; what is at fault on the way back is named."""

    def point(place: int, module: str, own: Sequence[StepParameter]) -> DepthPoint:
        sizes = _norm(one.gradients[0] for one in own), _norm(one.gradients[1] for one in own)
        judged = [one for one in own if one.outcome != UNDECIDED] or own
        worst = _largest(one.gathered for one in judged), _largest(one.alone for one in judged)
        decided = judged[0].outcome != UNDECIDED
        return DepthPoint(place, own[0].reference.rpartition(".")[0], module, sizes, *worst, decided)

    points = _points(document, step_parameters(document), point)
    if not any(size > 0.0 for one in points for size in one.sizes):
        return None
    marked = _culprits(document, points) or _parting(points)
    labels = [say(f"plot.{key}") for key in ("gradient_norms_title", "gradient_norm", "way_back")]
    return _draw(points, marked, labels)


def draw_update_sizes(document: dict[str, Any]) -> Any | None:
    """Draw the updates of a `mindalign.step` document, relative to the norm of each layer's parameters."""

    def point(place: int, module: str, own: Sequence[StepParameter]) -> DepthPoint:
        norm = _norm(one.norm for one in own)
        sizes = [_norm(one.updates[side] for one in own) / norm if norm > 0.0 else math.nan for side in (0, 1)]
        worst = _largest(one.update_factor for one in own)
        return DepthPoint(place, own[0].reference.rpartition(".")[0], module, (sizes[0], sizes[1]), worst)

    updated = [one for one in step_parameters(document) if not math.isnan(one.norm)]
    points = _points(document, updated, point)
    if not any(size > 0.0 for one in points for size in one.sizes):
        return None
    return _draw(points, [], [say(f"plot.{key}") for key in ("update_sizes_title", "update_size", "depth")])


def _points(
    document: dict[str, Any],
    parameters: Sequence[StepParameter],
    make: Callable[[int, str, Sequence[StepParameter]], DepthPoint],
) -> list[DepthPoint]:
    """One point a layer of the candidate, in the order in which the reference runs their counterparts."""
    known: dict[str, int] = {}
    for layer in document["layers"]:
        known.setdefault(layer["candidate"], len(known))
    layers: dict[str, list[StepParameter]] = {}
    for one in parameters:
        layers.setdefault(one.module, []).append(one)
    ordered = sorted(layers, key=lambda module: known.get(module, len(known)))
    return [make(place, module, layers[module]) for place, module in enumerate(ordered, 1)]


def _norm(sizes: Iterable[float]) -> float:
    """The norm of several tensors together; those without one count as nothing, NaN where none has any."""
    known = [one for one in sizes if not math.isnan(one)]
    return math.hypot(*known) if known else math.nan


def _largest(factors: Iterable[float]) -> float:
    return max((one for one in factors if not math.isnan(one)), default=math.nan)


def _culprits(document: dict[str, Any], points: Sequence[DepthPoint]) -> list[Mark]:
    """The places of layers that are wrong, and of those beside which code is."""
    found = []
    for number, one in enumerate(document["culprits"], 1):
        name = one["near"] if one["part"] == "code" else one["candidate"]
        place = _place(document, points, name) if name and one["kind"] in ("backward", "forward", "gradients") else None
        if place is not None:
            text = "plot.code_at_fault" if one["part"] == "code" else "plot.culprit"
            found.append((place, say(text, place=number, name=_short(name))))
    return found


def _place(document: dict[str, Any], points: Sequence[DepthPoint], name: str) -> float | None:
    """The last place of a module, behind the layer before it where it has no parameters; None if it was not seen."""
    inside = [one.place for one in points if f"{one.module}.".startswith(f"{name}.")]
    if inside:
        return inside[-1]
    run = [layer["candidate"] for layer in document["layers"]]
    if name not in run:
        return None
    before = set(run[: run.index(name)])
    return sum(one.module in before for one in points) + 0.5


def _parting(points: Sequence[DepthPoint]) -> list[Mark]:
    """The layer where the gradients of both sides part first, on the way back."""
    outside = [one for one in points if one.judged and one.factor > 1.0]
    return [(outside[-1].place, say("plot.parts_here", name=_short(outside[-1].name)))] if outside else []


def _short(name: str) -> str:
    return escape_dollars(shorten_path(name, NAME_WIDTH))


def _draw(points: Sequence[DepthPoint], marked: Sequence[Mark], labels: Sequence[str]) -> Any:
    """Draw with these labels: the title, the size, the places."""
    title, size, depth = labels
    figure, (upper, lower) = new_axes(10, 5.2, (1.55, 1.0))
    _sizes(upper, points, min(len(marked), STEP_NAME_LINES))
    upper.set(title=title, ylabel=size)
    _factors(lower, points)
    lower.set(xlabel=depth, ylabel=say("plot.factor"))
    lower.margins(x=0.02)
    integer_ticks(lower)
    for line, (place, text) in enumerate(marked):
        for axes in (upper, lower):
            axes.axvline(place, color=BAD, linewidth=1.1, alpha=0.75)
        if line < STEP_NAME_LINES:
            name_place(upper, place, text, line, right_half=place > len(points) / 2)
    upper.legend(loc="upper left", bbox_to_anchor=(0, -0.04), ncols=3, borderaxespad=0)
    lower.legend(loc="upper left", bbox_to_anchor=(0, -0.32), ncols=6, borderaxespad=0, handletextpad=0.4)
    return figure


def _sizes(axes: Any, points: Sequence[DepthPoint], lines: int) -> None:
    low, high = _range([size for one in points for size in one.sizes])
    places = [one.place for one in points]
    marker = "o" if len(points) <= MARKED_POINTS else ""
    sides = ((0, "reference", REFERENCE, {**BROAD, "markersize": 0}), (1, "candidate", CANDIDATE, THIN))
    for side, name, color, style in sides:
        sizes = [one.sizes[side] if 0.0 < one.sizes[side] < math.inf else math.nan for one in points]
        axes.plot(places, sizes, color=color, marker=marker, label=say(f"plot.{name}"), **style)
        missing = [one.place for one in points if not one.sizes[side] > 0.0]
        endless = [one.place for one in points if one.sizes[side] == math.inf]
        for own, edge, mark, key in ((missing, low, "v", "no_gradient"), (endless, high, "x", "non_finite")):
            if own:
                label = f"{say(f'plot.{name}')}: {say(f'plot.{key}')}"
                axes.scatter(own, [edge] * len(own), s=28, marker=mark, color=color, label=label, zorder=3)
    axes.set(yscale="log", ylim=(low / 2, high * 3 ** max(1, lines)))


def _factors(axes: Any, points: Sequence[DepthPoint]) -> None:
    low, high = _range([one.factor for one in points] + [one.alone for one in points] + [0.1, 1.0])
    axes.fill_between([1, len(points)], low / 2, 1.0, color=BAND, linewidth=0)
    axes.axhline(1.0, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label=say("plot.limit"))
    groups: dict[str, tuple[str, list[Point]]] = {
        "within": (GOOD, [(one.place, one.factor) for one in points if one.judged and one.factor <= 1.0]),
        "outside": (BAD, [(one.place, one.factor) for one in points if one.judged and one.factor > 1.0]),
        "could_not_tell": (QUIET, [(one.place, one.factor) for one in points if not one.judged]),
    }
    for name, (color, own) in groups.items():
        _scatter(axes, own, (low, high), s=15, marker="o", color=color, label=say(f"plot.{name}"), zorder=3)
    for name, color, outside in (("alone", QUIET, False), ("alone_outside", BAD, True)):
        alone = [(one.place, one.alone) for one in points if one.judged and (one.alone > 1.0) == outside]
        look = {"s": 22, "marker": "D", "c": "none", "edgecolors": color}
        _scatter(axes, alone, (low, high), label=say(f"plot.{name}"), zorder=2.5, **look)
    axes.set(yscale="log", ylim=(low / 2, high * 2))


def _scatter(axes: Any, points: Sequence[Point], limits: tuple[float, float], **look: Any) -> None:
    """Points of known value; what is beyond the axis stands on its edge."""
    known = [(place, min(max(value, limits[0]), limits[1])) for place, value in points if not math.isnan(value)]
    if known:
        axes.scatter(*zip(*known, strict=True), **look)


def _range(values: Sequence[float]) -> tuple[float, float]:
    positive = [value for value in values if 0.0 < value < math.inf] or [1e-3, 1.0]
    return min(positive) / 2, max(positive) * 2
