"""A figure of one look, drawn without a window system and without touching matplotlib's global state."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Okabe and Ito's colours, which colour-blind readers can tell apart.
REFERENCE = "#0072B2"
CANDIDATE = "#D55E00"
GOOD = "#009E73"
BAD = "#C1272D"
OPEN = "#E69F00"
QUIET = "#8A8F98"
INK = "#24292F"
BAND = "#E4F1EC"
DPI = 144  # format: half a pixel of a page is a pixel of the picture
INTERVAL_ALPHA = 0.12  # format: of the steps between which curves part
STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "SimHei"],
    "font.size": 9.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": "#B8BEC6",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E9ECEF",
    "grid.linewidth": 0.8,
    "xtick.color": "#57606A",
    "ytick.color": "#57606A",
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
LINE_HEIGHT = 14  # format: of a name that is written into a plot, in points


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as PNG, shown by notebooks at half its pixels, so that it is sharp on dense screens."""

    png: bytes
    width: int
    height: int
    alt: str

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        return self.png, {"width": self.width, "height": self.height, "alt": self.alt}

    def __repr__(self) -> str:
        return self.alt


def escape_dollars(text: str) -> str:
    """Return a name so that matplotlib draws it as it is: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house's style: what the user's matplotlibrc says is put aside, and put back afterwards."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as a box; the tables show the name
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def new_axes(width: float, height: float, rows: tuple[float, ...] = (1.0,)) -> tuple[Any, list[Any]]:
    """Return a figure of this size in inches and its axes, one below the other on one x-axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)
    return figure, [row[0] for row in axes]


def integer_ticks(axes: Any) -> None:
    """Put the x-axis's ticks at whole numbers: layers, steps and tensors have no halves."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def as_picture(figure: Any, alt: str) -> Picture:
    """Render a figure to PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    stream = io.BytesIO()
    FigureCanvasAgg(figure).print_png(stream, metadata={"Software": None})
    width, height = figure.get_size_inches() * figure.dpi
    return Picture(stream.getvalue(), round(width / DPI * 96), round(height / DPI * 96), alt)


def name_place(axes: Any, place: float, text: str, line: int, *, right_half: bool) -> None:
    """Write the name of what is marked at a place at the top, the `line`-th of several, on the side with room."""
    axes.annotate(
        text,
        (place, 1.0),
        (-6 if right_half else 6, -2 - LINE_HEIGHT * line),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if right_half else "left",
        va="top",
        color=BAD,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )
