"""Layers of a forward comparison: the difference of each by depth, and how that of the first divergent one is spread.

By depth there are two series: what has gathered when both models run on their own, and what each layer adds alone. Zero
has no place on a logarithmic axis: identical layers stand on the lower edge, layers with NaN or Inf on the upper one.
The histogram is over powers of ten: a few large differences among many small ones (a border, one channel) look unlike
a shift of everything.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.report.blocks import LOWEST_DECADE, as_float, format_number, format_percentage, layer_title, shorten_path
from align.report.kinds.culprits import is_culprit
from align.report.kinds.steps import step_parameters
from align.report.thresholds import HISTOGRAM_NAME_WIDTH, LAYER_NAME_LINES, MARKED_POINTS, NAME_WIDTH, STEP_NAME_LINES
from align.words.catalogue import ENGLISH, reader_language, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.report.kinds.steps import StepParameter


# A figure of one look, drawn without a window system and without touching matplotlib's global state.

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
    "font.family": [
        "DejaVu Sans",
        "Noto Sans CJK SC",
        "Noto Sans SC",
        "Source Han Sans SC",
        "Microsoft YaHei",
        "SimHei",
        "PingFang SC",
        "Hiragino Sans GB",
        "Heiti TC",
        "WenQuanYi Micro Hei",
        "WenQuanYi Zen Hei",
        "Noto Sans CJK JP",
    ],
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
SPACE = 4  # format: points between a line and its text
LAYERS_HEIGHT, STEPS_HEIGHT = 220, 158  # format: of the axes in which names stand, in points, rather less than it is


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


def drawable_language() -> str:
    """The reader's language where a font that is installed has its letters, else English: no label is boxes."""
    language = reader_language()
    return language if language == ENGLISH or _is_drawable() else ENGLISH


def _is_drawable() -> bool:
    """Look for a font of the house with Chinese letters; one may be newer than the list that matplotlib keeps."""
    from matplotlib import font_manager

    manager, wanted = font_manager.fontManager, {*STYLE["font.family"][1:]}
    if wanted.isdisjoint(font.name for font in manager.ttflist):
        listed = {font.fname for font in manager.ttflist}
        for path in sorted({*font_manager.findSystemFonts()} - listed):
            with contextlib.suppress(OSError, RuntimeError):  # no font that can be read
                manager.addfont(path)
    return not wanted.isdisjoint(font.name for font in manager.ttflist)


def new_axes(width: float, height: float, rows: tuple[float, ...] = (1.0,)) -> tuple[Any, list[Any]]:
    """Return a figure of this size in inches and its axes, one below the other on one x-axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)
    return figure, [row[0] for row in axes]


def new_pictures(count: int, titles: Sequence[str]) -> tuple[Any, Any]:
    """Return a figure of rows of small pictures without ticks, and its axes (count, titles)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * len(titles), 2.2 * count), layout="constrained")
    axes = figure.subplots(count, len(titles), squeeze=False)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])
    for place, title in zip(axes[0], titles, strict=True):
        place.set_title(say(f"plot.{title}"))
    return figure, axes


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


def end_above(low: float, high: float, lines: int, height: float) -> float:
    """The end of a logarithmic axis which leaves room for lines of names above all values; `height` in points.

    >>> round(end_above(1.0, 100.0, 4, 120.0))
    10000
    """
    share = (LINE_HEIGHT * max(1, lines) + SPACE) / height
    return float(high * (high / low) ** (share / (1.0 - share)))


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
    low, high = _range_of_layers(layers)
    marked = list(_marked(document))
    lines = min(len(marked), LAYER_NAME_LINES)
    _limits(axes, layers, low)
    _alone(axes, layers, low, high)
    _layers(axes, layers, low, high)
    end = end_above(low / 3, high, lines, LAYERS_HEIGHT)
    axes.set(yscale="log", ylim=(low / 3, end), title=say("plot.error_by_depth_title"))
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


def _range_of_layers(layers: list[dict[str, Any]]) -> tuple[float, float]:
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


# Gradient norms and update sizes of both sides by depth, and below them by how many limits they differ.
#
# A place is a layer with parameters, in the order of the reference's run, and its size that of all its parameters
# together. Zero has no place on a logarithmic axis: it stands on the lower edge, NaN and Inf on the upper.

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

    def point(place: int, module: str, parameters: Sequence[StepParameter]) -> DepthPoint:
        sizes = _norm(one.gradients[0] for one in parameters), _norm(one.gradients[1] for one in parameters)
        judged = [one for one in parameters if one.outcome != UNDECIDED] or parameters
        worst = _largest(one.gathered for one in judged), _largest(one.alone for one in judged)
        decided = judged[0].outcome != UNDECIDED
        return DepthPoint(place, parameters[0].reference.rpartition(".")[0], module, sizes, *worst, decided)

    points = _points(document, step_parameters(document), point)
    if not any(size > 0.0 for one in points for size in one.sizes):
        return None
    marked = _culprits(document, points) or _parting(points)
    labels = [say(f"plot.{key}") for key in ("gradient_norms_title", "gradient_norm", "way_back")]
    return _draw(points, marked, labels)


def draw_update_sizes(document: dict[str, Any]) -> Any | None:
    """Draw the updates of a `mindalign.step` document, relative to the norm of each layer's parameters."""

    def point(place: int, module: str, parameters: Sequence[StepParameter]) -> DepthPoint:
        norm = _norm(one.norm for one in parameters)
        sizes = [_norm(one.updates[side] for one in parameters) / norm if norm > 0.0 else math.nan for side in (0, 1)]
        worst = _largest(one.update_factor for one in parameters)
        return DepthPoint(place, parameters[0].reference.rpartition(".")[0], module, (sizes[0], sizes[1]), worst)

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
    layers = grouped((one.module, one) for one in parameters)
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
    marks = []
    for number, culprit in enumerate(document["culprits"], 1):
        name = culprit["near"] if culprit["part"] == "code" else culprit["candidate"]
        place = (
            _place(document, points, name) if name and culprit["kind"] in ("backward", "forward", "gradients") else None
        )
        if place is not None:
            text = "plot.code_at_fault" if culprit["part"] == "code" else "plot.culprit"
            marks.append((place, say(text, place=number, name=_short(name))))
    return marks


def _place(document: dict[str, Any], points: Sequence[DepthPoint], name: str) -> float | None:
    """The last place of a module, behind the layer before it where it has no parameters; None if it was not seen."""
    inside = [point.place for point in points if f"{point.module}.".startswith(f"{name}.")]
    if inside:
        return inside[-1]
    run = [layer["candidate"] for layer in document["layers"]]
    if name not in run:
        return None
    before = set(run[: run.index(name)])
    return sum(point.module in before for point in points) + 0.5


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
    low, high = _range_of_values([size for point in points for size in point.sizes])
    places = [point.place for point in points]
    marker = "o" if len(points) <= MARKED_POINTS else ""
    sides = ((0, "reference", REFERENCE, {**BROAD, "markersize": 0}), (1, "candidate", CANDIDATE, THIN))
    for side, name, color, style in sides:
        sizes = [point.sizes[side] if 0.0 < point.sizes[side] < math.inf else math.nan for point in points]
        axes.plot(places, sizes, color=color, marker=marker, label=say(f"plot.{name}"), **style)
        missing = [point.place for point in points if not point.sizes[side] > 0.0]
        endless = [point.place for point in points if point.sizes[side] == math.inf]
        for own, edge, mark, key in ((missing, low, "v", "no_gradient"), (endless, high, "x", "non_finite")):
            if own:
                label = f"{say(f'plot.{name}')}: {say(f'plot.{key}')}"
                axes.scatter(own, [edge] * len(own), s=28, marker=mark, color=color, label=label, zorder=3)
    axes.set(yscale="log", ylim=(low / 2, end_above(low / 2, high, lines, STEPS_HEIGHT)))


def _factors(axes: Any, points: Sequence[DepthPoint]) -> None:
    low, high = _range_of_values([point.factor for point in points] + [point.alone for point in points] + [0.1, 1.0])
    axes.fill_between([1, len(points)], low / 2, 1.0, color=BAND, linewidth=0)
    axes.axhline(1.0, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label=say("plot.limit"))
    groups: dict[str, tuple[str, list[Point]]] = {
        "within": (GOOD, [(point.place, point.factor) for point in points if point.judged and point.factor <= 1.0]),
        "outside": (BAD, [(point.place, point.factor) for point in points if point.judged and point.factor > 1.0]),
        "could_not_tell": (QUIET, [(point.place, point.factor) for point in points if not point.judged]),
    }
    for name, (color, own) in groups.items():
        _scatter(axes, own, (low, high), s=15, marker="o", color=color, label=say(f"plot.{name}"), zorder=3)
    for name, color, outside in (("alone", QUIET, False), ("alone_outside", BAD, True)):
        alone = [(point.place, point.alone) for point in points if point.judged and (point.alone > 1.0) == outside]
        look = {"s": 22, "marker": "D", "c": "none", "edgecolors": color}
        _scatter(axes, alone, (low, high), label=say(f"plot.{name}"), zorder=2.5, **look)
    axes.set(yscale="log", ylim=(low / 2, high * 2))


def _scatter(axes: Any, points: Sequence[Point], limits: tuple[float, float], **look: Any) -> None:
    """Points of known value; what is beyond the axis stands on its edge."""
    known = [(place, min(max(value, limits[0]), limits[1])) for place, value in points if not math.isnan(value)]
    if known:
        axes.scatter(*zip(*known, strict=True), **look)


def _range_of_values(values: Sequence[float]) -> tuple[float, float]:
    positive = [value for value in values if 0.0 < value < math.inf] or [1e-3, 1.0]
    return min(positive) / 2, max(positive) * 2
