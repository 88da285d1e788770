"""The plots of a report, each drawn from one document; None where the document holds nothing to draw.

A plot only shows what was decided: it never decides anything, and a failing one leaves every verdict as it is.
"""

from __future__ import annotations

import base64
import importlib.util
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.atomic_files import atomic_writer
from align.core.documents import to_json_data
from align.errors import FrameworkMissingError, UsageError
from align.report import plot_layers as figure_style
from align.report.blocks import as_float, format_number, shorten_path
from align.report.kinds.advice import IN_MS
from align.report.kinds.curves import parted_steps, point_rows
from align.report.kinds.memory import MEGABYTE
from align.report.plot_layers import (
    BAD,
    BAND,
    CANDIDATE,
    GOOD,
    INK,
    INTERVAL_ALPHA,
    OPEN,
    QUIET,
    REFERENCE,
    as_picture,
    draw_difference_histogram,
    draw_error_by_depth,
    draw_gradient_norms,
    draw_update_sizes,
    drawable_language,
    escape_dollars,
    house_style,
    integer_ticks,
    new_axes,
    new_pictures,
)
from align.report.plot_layers import BAD as LOST
from align.report.thresholds import (
    GRID_ALIGNED,
    GRID_FAINTEST,
    GRID_LABELS,
    GRID_MIDDLE,
    GRID_RANKS,
    GRID_ROWS,
    HEAT_SCALE,
    LABELLED_SHARE,
    LEGEND_NAME_WIDTH,
    MARKED_EVENTS,
    MARKED_POINTS,
    NAME_WIDTH,
)
from align.words.catalogue import reader_language, say, speaking, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from align.report.plot_layers import Picture
    from align.runs.run_folder import Result


# The parts of a step by what they are for.
PART_COLOURS = {
    "data": BAD,
    "forward": REFERENCE,
    "backward": CANDIDATE,
    "optimizer": GOOD,
    "communication": OPEN,
    "whole": BAND,
    "host": QUIET,
}

# Both loss curves, and below them their difference at common steps with the band it may lie in.

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
        label=say("word.labelled", label=label, text=escape_dollars(shorten_path(curve["label"], LEGEND_NAME_WIDTH))),
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
            label=say("word.labelled", label=label, text=say("plot.non_finite")),
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


# What became of each tensor of the two sides: paired, left out on purpose, ambiguous, unmatched.

OUTCOMES = {"paired": GOOD, "dropped": QUIET, "ambiguous": OPEN, "unmatched": LOST}


def draw_map_coverage(document: dict[str, Any]) -> Any | None:
    """Draw a `mindalign.map` document as one bar a side."""
    sides = ("source", "target")
    counts = {side: _counts(document["name_map"], side) for side in sides}
    longest = max(sum(own.values()) for own in counts.values())
    if longest == 0:
        return None
    figure, (axes,) = new_axes(10, 2.1)
    left = dict.fromkeys(sides, 0)
    for outcome, color in OUTCOMES.items():
        widths = [counts[side][outcome] for side in sides]
        if not any(widths):
            continue
        bars = axes.barh(
            [0, 1], widths, 0.62, [left[side] for side in sides], color=color, label=say(f"plot.{outcome}")
        )
        labels = [format_number(width) if width >= LABELLED_SHARE * longest else "" for width in widths]
        axes.bar_label(bars, labels, label_type="center", color="white" if color != OPEN else INK, fontweight="bold")
        left = {side: left[side] + counts[side][outcome] for side in sides}
    axes.set_yticks([0, 1], [word("word", side) for side in sides])
    axes.invert_yaxis()
    integer_ticks(axes)
    axes.grid(visible=False, axis="y")
    axes.set(title=say("plot.coverage_title"), xlabel=say("plot.tensors"))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2)
    return figure


def _counts(name_map: dict[str, Any], side: str) -> dict[str, int]:
    names = {name for group in name_map["ambiguous"] for name in group[f"{side}s"]}
    return {
        "paired": len({pairing[side] for pairing in name_map["pairings"]}),
        "dropped": sum(entry["side"] == side for entry in name_map["dropped"]),
        "ambiguous": len(names),
        "unmatched": sum(entry["side"] == side and entry["name"] not in names for entry in name_map["unmatched"]),
    }


# Layers by rank and steps by rank of a job, as two grids: what departs is coloured, the darker the further.
#
# What is aligned is light, what a rank does not have is empty; a cross is a task that was not done.

Cell = tuple[str, float | None]
_FAILED = ("failed", "missing", "could not compare", "not comparable")


def draw_layers_by_rank(document: dict[str, Any]) -> Any | None:
    """Draw the layers of a `mindalign.batch` document by rank; None where no task has a rank."""
    layers = document["layers"]
    if not layers or not document["ranks"]:
        return None
    departing = [layer for layer in layers if "not aligned" in layer["outcomes"]]
    shown = layers if len(layers) <= GRID_ROWS else (departing or layers)[:GRID_ROWS]
    ranks = _shown_ranks(document)
    columns = [document["ranks"].index(rank) for rank in ranks]
    rows = [[(layer["outcomes"][place], layer["values"][place]) for place in columns] for layer in shown]
    names = [shorten_path(layer["layer"], NAME_WIDTH) for layer in shown]
    return _draw(rows, names, ranks, "plot.layers_by_rank_title", "plot.layer")


def draw_steps_by_rank(document: dict[str, Any]) -> Any | None:
    """Draw the steps of a `mindalign.batch` document by rank; None where there is but one step."""
    steps, ranks = document["steps"], _shown_ranks(document)
    if len(steps) < 2 or not ranks:
        return None
    cells: dict[tuple[int, int], Cell] = {}
    for task in document["tasks"]:
        if task["rank"] is not None and task["step"] is not None:
            place = task["step"], task["rank"]
            cells[place] = max(cells.get(place, ("", None)), (task["state"], task["value"]), key=_gravity)
    shown = steps[:GRID_ROWS]
    rows = [[cells.get((step, rank), ("", None)) for rank in ranks] for step in shown]
    return _draw(rows, [*map(str, shown)], ranks, "plot.steps_by_rank_title", "plot.training_step")


def draw_step_parts(document: dict[str, Any]) -> Any | None:
    """Draw a bar of each side's step of a `mindalign.advise` document, part by part; None where no parts are told."""
    sides = [(side, document[side]) for side in ("reference", "candidate")]
    bars = [(side, parts) for side, one in sides if one and (parts := _milliseconds(one["parts"]))]
    if not bars:
        return None
    figure, (axes,) = new_axes(8.6, 1.3 + 0.5 * len(bars), (1.0,))
    kinds = [kind for kind in PART_COLOURS if any(kind in parts for _, parts in bars)]
    for place, (_, parts) in enumerate(bars):
        left = 0.0
        for kind in kinds:
            width = max(parts.get(kind, 0.0), 0.0)
            label = word("advise_part", kind) if not place else None
            axes.barh(place, width, left=left, height=0.6, color=PART_COLOURS[kind], label=label)
            left += width
    axes.set_yticks(range(len(bars)), [say(f"plot.{side}") for side, _ in bars])
    axes.invert_yaxis()
    axes.set(title=say("plot.step_parts_title"), xlabel=say("plot.milliseconds"))
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.45), ncols=4, borderaxespad=0)
    return figure


def _milliseconds(parts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The milliseconds of each kind of part."""
    found: dict[str, float] = {}
    for part in parts:
        found[part["kind"]] = found.get(part["kind"], 0.0) + as_float(part["seconds"]) * IN_MS
    return found


def _shown_ranks(document: dict[str, Any]) -> list[int]:
    """All ranks, or of very many those that depart and the first others."""
    ranks: list[int] = document["ranks"]
    bad = {task["rank"] for task in document["tasks"] if task["state"] != "aligned"}
    ordered = [*(rank for rank in ranks if rank in bad), *(rank for rank in ranks if rank not in bad)]
    return sorted(ordered[:GRID_RANKS])


def _gravity(cell: Cell) -> int:
    order = ("", "aligned", "accepted", "not aligned", *_FAILED)
    return order.index(cell[0]) if cell[0] in order else 0


def _draw(rows: Sequence[Sequence[Cell]], names: Sequence[str], ranks: Sequence[int], title: str, label: str) -> Any:
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height = min(max(1.4 + 0.2 * len(rows), 2.2), 12.0)
    figure = Figure(figsize=(8.6, height), layout="constrained")
    axes = figure.subplots()
    boxes = [
        Rectangle((column - 0.5, place - 0.5), 1, 1) for place, row in enumerate(rows) for column in range(len(row))
    ]
    colours = [_colour(cell) for row in rows for cell in row]
    axes.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors="none", match_original=False))
    axes.set_xlim(-0.5, len(ranks) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for place, row in enumerate(rows):
        for column, (state, _) in enumerate(row):
            if state in _FAILED:
                axes.text(column, place, "×", ha="center", va="center", color=OPEN, fontweight="bold")
    _label(axes, names, ranks)
    axes.grid(visible=False)
    axes.set_title(say(title))
    axes.set_xlabel(say("plot.rank"))
    axes.set_ylabel(say(label))
    return figure


def _label(axes: Any, names: Sequence[str], ranks: Sequence[int]) -> None:
    """Name every rank and row, or as many of them as have room."""
    every, each = -(-len(ranks) // GRID_LABELS), -(-len(names) // GRID_LABELS)
    axes.set_xticks(range(0, len(ranks), every), [str(rank) for rank in ranks[::every]])
    axes.set_yticks(range(0, len(names), each), [escape_dollars(name) for name in names[::each]])


def _colour(cell: Cell) -> tuple[str, float]:
    """A colour of the house and how much of it: pages draw the same in their dark style."""
    state, value = cell
    if state == "":
        return QUIET, 0.0
    if state in ("aligned", "accepted"):
        return GOOD, GRID_ALIGNED
    if state != "not aligned":
        return QUIET, GRID_ALIGNED
    return BAD, 1.0 if value is None or value <= 0 else _strength(float(value))


def _strength(value: float) -> float:
    """Return from the faintest, for what departs a little, to 1 for what is some powers of ten further."""
    return min(max(GRID_MIDDLE + math.log10(value) / 10, GRID_FAINTEST), 1.0)


def draw_samples(document: dict[str, Any]) -> Any | None:
    """Draw the pictures and curves of a `mindalign.data` document: reference, candidate, and where they differ."""
    samples = [sample for sample in document["samples"] if sample["size"][0] or all(sample["curves"])]
    if not samples:
        return None
    figure, axes = new_pictures(len(samples), ("reference", "candidate", "difference"))
    for row, sample in zip(axes, samples, strict=True):
        if sample["size"][0]:
            _draw_pictures(row, sample)
        else:
            _draw_curves(row, sample["curves"])
        row[0].set_ylabel(escape_dollars(f"{sample['field']} {sample['index'][0]}"))
        for place, name in zip(row, ("reference_span", "candidate_span"), strict=False):
            place.set_xlabel(sample[name])
    return figure


def _draw_pictures(row: Any, sample: dict[str, Any]) -> None:
    for place, name in zip(row, ("reference", "candidate", "difference"), strict=True):
        if sample[name]:
            pixels = np.frombuffer(base64.b64decode(sample[name]), np.uint8)
            place.imshow(pixels.reshape(*sample["size"], 3), interpolation="nearest")


def _draw_curves(row: Any, curves: list[list[float]]) -> None:
    reference, candidate = (np.array(curve) for curve in curves)
    row[0].plot(reference, color=REFERENCE)
    row[1].plot(candidate, color=CANDIDATE)
    if reference.shape == candidate.shape:
        row[2].plot(candidate - reference, color=BAD)


def draw_departures_by_step(document: dict[str, Any]) -> Any | None:
    """Draw the differences of a `mindalign.watch` document by layer and step: the darker the further apart."""
    heat = document["heat"]
    if not heat["layers"] or not heat["steps"]:
        return None
    rows = [
        [("not aligned" if value > 0 else "", value * HEAT_SCALE) for value in map(as_float, row)]
        for row in heat["differences"][:GRID_ROWS]
    ]
    figure = _draw(rows, heat["layers"][:GRID_ROWS], heat["steps"], "plot.departures_by_step_title", "plot.layer")
    figure.axes[0].set_xlabel(say("plot.training_step"))
    return figure


def draw_departing_figures(document: dict[str, Any]) -> Any | None:
    """Draw the loss of a `mindalign.watch` document and what departs first, both sides beside each other."""
    series = document["series"]
    if not series:
        return None
    figure, axes = new_axes(10, 2.4 * len(series), (1.0,) * len(series))
    for place, line in zip(axes, series, strict=True):
        for side, color in (("reference", REFERENCE), ("candidate", CANDIDATE)):
            place.plot(line["steps"], [_finite(value) for value in line[side]], color=color, label=word("word", side))
        quantity = word("watch_quantity", line["quantity"])
        place.set_ylabel(escape_dollars(f"{quantity} {shorten_path(line['name'], NAME_WIDTH)}".strip()))
    axes[0].set_title(say("plot.departing_figures_title"))
    axes[0].legend()
    axes[-1].set_xlabel(say("plot.training_step"))
    return figure


MEMORY_COLOURS = {
    "weights": REFERENCE,
    "gradients": CANDIDATE,
    "state": OPEN,
    "activations": GOOD,
    "temporaries": BAD,
    "inputs": QUIET,
}


def draw_memory_by_phase(document: dict[str, Any]) -> Any | None:
    """Draw what each phase of a `mindalign.memory` document takes at its peak, a stacked bar a phase and side."""
    bars = [(side, phase) for side in document["sides"] for phase in side["phases"]]
    if not bars:
        return None
    figure, (axes,) = new_axes(10, 1.6 + 0.45 * len(bars))
    left = [0.0] * len(bars)
    for kind, colour in MEMORY_COLOURS.items():
        sizes = [phase[kind] / MEGABYTE for _, phase in bars]
        axes.barh(range(len(bars)), sizes, left=left, color=colour, label=word("memory_kind", kind))
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    several = len(document["sides"]) > 1
    names = [
        f"{shorten_path(side['label'], NAME_WIDTH)} {word('memory_phase', phase['phase'])}"
        if several
        else word("memory_phase", phase["phase"])
        for side, phase in bars
    ]
    axes.set_yticks(range(len(bars)), [escape_dollars(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(say("plot.megabytes"))
    axes.set_title(say("plot.memory_by_phase_title"))
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    return figure


def draw_memory_by_step(document: dict[str, Any]) -> Any | None:
    """Draw the memory of each step of a `mindalign.memory` document, a line for each kind that was followed."""
    lines = [(growth, series) for growth in document["growth"] for series in growth["series"]]
    if not lines:
        return None
    figure, axes = new_axes(10, 2.0 * len(lines), (1.0,) * len(lines))
    for place, (growth, series) in zip(axes, lines, strict=True):
        values = [_finite(value) / MEGABYTE for value in series["values"]]
        place.plot(growth["steps"], values, color=BAD if series["grows"] else REFERENCE)
        place.set_ylabel(f"{word('growing_memory', series['memory'])}\n{say('plot.megabytes')}")
    axes[-1].set_xlabel(say("plot.training_step"))
    axes[0].set_title(say("plot.memory_by_step_title"))
    return figure


def draw_difference_by_position(document: dict[str, Any]) -> Any | None:
    """Draw mean and largest difference of log-probabilities of a `mindalign.tokens` document by range of positions."""
    parts = [part for part in document["positions"] if part["mean"] is not None]
    if len(parts) < 2:
        return None
    figure, (axes,) = new_axes(10, 2.6)
    names = [part["name"] for part in parts]
    for key, colour in (("mean", REFERENCE), ("largest", CANDIDATE)):
        heights = [_finite(part[key]) for part in parts]
        axes.plot(names, heights, color=colour, marker="o", label=say(f"tokens.{key}"))
    axes.set_yscale("symlog", linthresh=1e-6)  # equal values are 0
    axes.set_xlabel(say("tokens.positions"))
    axes.set_title(say("plot.difference_by_position_title"))
    axes.legend()
    return figure


PLOTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "coverage": ("map", draw_map_coverage),
    "difference_histogram": ("forward", draw_difference_histogram),
    "error_by_depth": ("forward", draw_error_by_depth),
    "gradient_norms": ("step", draw_gradient_norms),
    "update_sizes": ("step", draw_update_sizes),
    "loss_curves": ("loss", draw_loss_curves),
    "samples": ("data", draw_samples),
    "departures_by_step": ("watch", draw_departures_by_step),
    "departing_figures": ("watch", draw_departing_figures),
    "memory_by_phase": ("memory", draw_memory_by_phase),
    "memory_by_step": ("memory", draw_memory_by_step),
    "difference_by_position": ("tokens", draw_difference_by_position),
    "layers_by_rank": ("batch", draw_layers_by_rank),
    "steps_by_rank": ("batch", draw_steps_by_rank),
    "step_parts": ("advise", draw_step_parts),
}
SUFFIX = ".png"


def draw_plot(name: str, document: dict[str, Any]) -> Picture | None:
    """Draw one of `PLOTS` from a document of its kind; raises whatever the plotting library raises."""
    with house_style(), speaking(drawable_language()):
        figure = PLOTS[name][1](document)
        if figure is None:
            return None
        figure.set_dpi(figure_style.DPI)
        return as_picture(figure, say("plot.alt", name=say(f"plot.{name}_title")))


def font_note() -> str:
    """Say why plots are labelled in English where their reader reads another language; "" where they are not."""
    if importlib.util.find_spec("matplotlib") is None or drawable_language() == reader_language():
        return ""
    with speaking():
        return say("plot.no_font")


def save_plot(name: str, result: Result, path: Path) -> None:
    """Draw one of `PLOTS` from a result and write it as PNG.

    Raises UsageError for another kind of file or a result with nothing to draw, FrameworkMissingError without the
    plotting library, DestinationError.
    """
    if path.suffix.lower() != SUFFIX:
        raise UsageError.of("report_usage.no_png", name=path.name, suffix=SUFFIX)
    if importlib.util.find_spec("matplotlib") is None:
        raise FrameworkMissingError("matplotlib", 'pip install "mindalign[report]"')
    picture = draw_plot(name, to_json_data(result))
    if picture is None:
        raise UsageError.of("report_usage.nothing_to_draw")
    with atomic_writer(path) as stream:
        stream.write(picture.png)
