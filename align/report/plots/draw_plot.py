"""The plots of a report, each drawn from one document; None where the document holds nothing to draw.

A plot only shows what was decided: it never decides anything, and a failing one leaves every verdict as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.plots import figure_style
from align.report.plots.difference_histogram import draw_difference_histogram
from align.report.plots.error_by_depth import draw_error_by_depth
from align.report.plots.figure_style import as_picture, house_style
from align.report.plots.loss_curves import draw_loss_curves
from align.report.plots.map_coverage import draw_map_coverage
from align.report.plots.step_sizes import draw_gradient_norms, draw_update_sizes
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.report.plots.figure_style import Picture

PLOTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "coverage": ("map", draw_map_coverage),
    "difference_histogram": ("forward", draw_difference_histogram),
    "error_by_depth": ("forward", draw_error_by_depth),
    "gradient_norms": ("step", draw_gradient_norms),
    "update_sizes": ("step", draw_update_sizes),
    "loss_curves": ("loss", draw_loss_curves),
}


def draw_plot(name: str, document: dict[str, Any]) -> Picture | None:
    """Draw one of `PLOTS` from a document of its kind; raises whatever the plotting library raises."""
    with house_style():
        figure = PLOTS[name][1](document)
        if figure is None:
            return None
        figure.set_dpi(figure_style.DPI)
        return as_picture(figure, say("plot.alt", name=say(f"plot.{name}_title")))
