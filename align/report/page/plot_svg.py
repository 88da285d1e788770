"""The plots of a report as SVG that stands in the page and takes the page's colours, dark or light.

They are drawn as the notebook draws them. The colours of the drawing become variables of the page's style, texts stay
texts. A plot that cannot be drawn says so in its place; no verdict depends on it.
"""

from __future__ import annotations

import io
import re
from html import escape
from math import inf, isnan
from typing import Any

from align.report.draw_plot import PLOTS
from align.report.open_run import PLOT_FAILURES
from align.report.plots import figure_style
from align.report.rendering.format_values import as_float
from align.report.thresholds import PLOT_MARKS
from align.words.catalogue import say

# What each colour of the drawing means; the names are those of the page's style.
COLOURS = {
    figure_style.REFERENCE: "reference",
    figure_style.CANDIDATE: "candidate",
    figure_style.GOOD: "good-mark",
    figure_style.BAD: "bad-mark",
    figure_style.OPEN: "open-mark",
    figure_style.QUIET: "quiet-mark",
    figure_style.INK: "ink",
    figure_style.BAND: "band",
    "#57606A": "quiet",
    "#B8BEC6": "line",
    "#E9ECEF": "grid",
    "#FFFFFF": "surface",
}


def plot_svg(name: str, document: dict[str, Any]) -> str:
    """Return one of `align.report.draw_plot.PLOTS` as a `figure`, or a line that says why there is none."""
    title = say("plot.alt", name=say(f"plot.{name}_title"))
    try:
        drawing = _drawn(name, _thinned(PLOTS[name][0], document))
    except PLOT_FAILURES as error:  # shown as such; it changes no verdict
        reason = f"{type(error).__name__}: {error}"
        text = say("plot.failed", name=say(f"plot.{name}_title"), reason=reason)
        return f'<p class="note open">{escape(text)}</p>'
    if drawing is None:
        return f'<p class="note">{escape(say("plot.nothing"))}</p>'
    picture = _of_the_page(drawing, name, title)
    return f'<figure class="plot" tabindex="0" role="group" aria-label="{escape(title)}">{picture}</figure>'


def _drawn(name: str, document: dict[str, Any]) -> str | None:
    import matplotlib as mpl

    with figure_style.house_style():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name})
        figure = PLOTS[name][1](document)
        if figure is None:
            return None
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        figure.set_facecolor("none")
        for axes in figure.axes:
            axes.set_facecolor("none")
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
        return stream.getvalue()


def _of_the_page(drawing: str, name: str, title: str) -> str:
    """Leave out what only a file of its own needs, and make ids and colours those of this page."""
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    size = re.search(r'viewBox="[^"]*"', body)
    body = body[body.index(">") + 1 :]
    body = re.sub(r'((?:id|xlink:href)="#?|url\(#)', rf"\g<1>{name}-", body).replace("xlink:href", "href")
    body = re.sub(r"#[0-9a-fA-F]{6}\b", _variable, body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return f'<svg {size.group() if size else ""} role="img" aria-label="{escape(title)}">{body}'


def _variable(colour: re.Match[str]) -> str:
    known = {code.upper(): variable for code, variable in COLOURS.items()}.get(colour.group().upper())
    return f"var(--{known})" if known else colour.group()


def _thinned(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """A document with no more marks than a page has room for: of each few the worst, and what is at fault."""
    if kind == "forward" and len(document["layers"]) > PLOT_MARKS:
        return _fewer_layers(document)
    if kind == "loss" and document["points"]["count"] > PLOT_MARKS:
        return _fewer_points(document)
    return document


def _fewer_layers(document: dict[str, Any]) -> dict[str, Any]:
    layers, first = document["layers"], document["first_divergent"]
    named = {(one["reference"], one["candidate"]) for one in document.get("culprits", [])}
    kept = _worst_of_each([_layer_score(layer) for layer in layers])
    kept |= {place for place, one in enumerate(layers) if (one["reference"], one["candidate"]) in named}
    places = sorted(kept if first is None else kept | {first})
    found = None if first is None else places.index(first)
    return {**document, "layers": [layers[place] for place in places], "first_divergent": found}


def _fewer_points(document: dict[str, Any]) -> dict[str, Any]:
    points = document["points"]
    differences = [abs(as_float(one)) for one in points["difference"]]
    kept = _worst_of_each([inf if isnan(one) else one for one in differences])
    places = sorted(kept | {k for k, step in enumerate(points["step"]) if step == document["first_divergent_step"]})
    fewer = {name: column if name == "count" else [column[k] for k in places] for name, column in points.items()}
    return {**document, "points": fewer}


def _layer_score(layer: dict[str, Any]) -> float:
    """How far a layer is beyond its limit, alone or as it has gathered; NaN is worst."""
    factors = (layer["factor"], (layer.get("isolated") or {}).get("factor"))
    known = [as_float(one) for one in factors if one is not None]
    return max((inf if isnan(one) else one for one in known), default=0.0)


def _worst_of_each(scores: list[float]) -> set[int]:
    """The place of the largest score in each stretch of equal length."""
    step = -(-len(scores) // PLOT_MARKS)
    starts = range(0, len(scores), step)
    return {max(range(at, min(at + step, len(scores))), key=scores.__getitem__) for at in starts}
