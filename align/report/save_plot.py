"""One plot of a result written as a picture, whole or not at all."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from align.core.atomic_files import atomic_writer
from align.core.json_data import to_json_data
from align.errors import FrameworkMissingError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.run_folder import Result

SUFFIX = ".png"


def save_plot(name: str, result: Result, path: Path) -> None:
    """Draw one of `align.report.plots.draw_plot.PLOTS` from a result and write it as PNG.

    Raises UsageError for another kind of file or a result with nothing to draw, FrameworkMissingError without the
    plotting library, DestinationError.
    """
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f"a plot is written as PNG, not as {path.name}", f"give a file name that ends in {SUFFIX}")
    if importlib.util.find_spec("matplotlib") is None:
        raise FrameworkMissingError("matplotlib", 'pip install "mindalign[report]"')
    from align.report.plots.draw_plot import draw_plot

    picture = draw_plot(name, to_json_data(result))
    if picture is None:
        raise UsageError("there is nothing to draw: no point is common to both", "run it without --plot to see why")
    with atomic_writer(path) as stream:
        stream.write(picture.png)
