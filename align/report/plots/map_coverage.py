"""What became of each tensor of the two sides: paired, left out on purpose, ambiguous, unmatched."""

from __future__ import annotations

from typing import Any

from align.report.plots.figure_style import BAD as LOST
from align.report.plots.figure_style import GOOD, INK, OPEN, QUIET, integer_ticks, new_axes
from align.report.rendering.format_values import format_number
from align.report.thresholds import LABELLED_SHARE
from align.words.catalogue import say, word

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
