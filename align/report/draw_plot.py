"""The plots of a report, each drawn from one document; None where the document holds nothing to draw.

A plot only shows what was decided: it never decides anything, and a failing one leaves every verdict as it is.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import atomic_writer
from align.core.json_data import to_json_data
from align.errors import FrameworkMissingError, UsageError
from align.report.plots import figure_style
from align.report.plots.figure_style import as_picture, house_style
from align.report.plots.forward_layers import draw_difference_histogram, draw_error_by_depth
from align.report.plots.loss_curves import draw_loss_curves
from align.report.plots.map_coverage import draw_map_coverage
from align.report.plots.rank_grid import draw_layers_by_rank, draw_steps_by_rank
from align.report.plots.step_sizes import draw_gradient_norms, draw_update_sizes
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.report.plots.figure_style import Picture
    from align.runs.run_folder import Result


PLOTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "coverage": ("map", draw_map_coverage),
    "difference_histogram": ("forward", draw_difference_histogram),
    "error_by_depth": ("forward", draw_error_by_depth),
    "gradient_norms": ("step", draw_gradient_norms),
    "update_sizes": ("step", draw_update_sizes),
    "loss_curves": ("loss", draw_loss_curves),
    "layers_by_rank": ("batch", draw_layers_by_rank),
    "steps_by_rank": ("batch", draw_steps_by_rank),
}
SUFFIX = ".png"


def draw_plot(name: str, document: dict[str, Any]) -> Picture | None:
    """Draw one of `PLOTS` from a document of its kind; raises whatever the plotting library raises."""
    with house_style():
        figure = PLOTS[name][1](document)
        if figure is None:
            return None
        figure.set_dpi(figure_style.DPI)
        return as_picture(figure, say("plot.alt", name=say(f"plot.{name}_title")))


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
