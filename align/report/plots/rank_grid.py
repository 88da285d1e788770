"""Layers by rank and steps by rank of a job, as two grids: what departs is coloured, the darker the further.

What is aligned is light, what a rank does not have is empty; a cross is a task that was not done.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.report.plots.figure_style import BAD, GOOD, OPEN, QUIET, escape_dollars
from align.report.rendering.format_values import shorten_path
from align.report.thresholds import (
    GRID_ALIGNED,
    GRID_FAINTEST,
    GRID_LABELS,
    GRID_MIDDLE,
    GRID_RANKS,
    GRID_ROWS,
    NAME_WIDTH,
)
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Sequence

Cell = tuple[str, float | None]
_FAILED = ("failed", "missing", "could not compare", "not comparable")


def draw_layers_by_rank(document: dict[str, Any]) -> Any | None:
    """Draw the layers of a `mindalign.batch` document by rank; None where no task has a rank."""
    layers = document["layers"]
    if not layers or not document["ranks"]:
        return None
    departing = [one for one in layers if "not aligned" in one["outcomes"]]
    shown = layers if len(layers) <= GRID_ROWS else (departing or layers)[:GRID_ROWS]
    ranks = _shown_ranks(document)
    columns = [document["ranks"].index(rank) for rank in ranks]
    rows = [[(one["outcomes"][place], one["values"][place]) for place in columns] for one in shown]
    names = [shorten_path(one["layer"], NAME_WIDTH) for one in shown]
    return _draw(rows, names, ranks, "plot.layers_by_rank_title", "plot.layer")


def draw_steps_by_rank(document: dict[str, Any]) -> Any | None:
    """Draw the steps of a `mindalign.batch` document by rank; None where there is but one step."""
    steps, ranks = document["steps"], _shown_ranks(document)
    if len(steps) < 2 or not ranks:
        return None
    found: dict[tuple[int, int], Cell] = {}
    for task in document["tasks"]:
        if task["rank"] is not None and task["step"] is not None:
            place = task["step"], task["rank"]
            found[place] = max(found.get(place, ("", None)), (task["state"], task["value"]), key=_gravity)
    shown = steps[:GRID_ROWS]
    rows = [[found.get((step, rank), ("", None)) for rank in ranks] for step in shown]
    return _draw(rows, [*map(str, shown)], ranks, "plot.steps_by_rank_title", "plot.training_step")


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
    """From the faintest for what departs a little to 1 for what is some powers of ten further."""
    return min(max(GRID_MIDDLE + math.log10(value) / 10, GRID_FAINTEST), 1.0)
