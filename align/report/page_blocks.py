"""Blocks as the page draws them: tables that sort and filter, facts and lines. Every text is escaped.

Of a long table the first rows stand in the page; the others stand behind it as data, of which the page's script makes
rows as they come into view. Without scripts the first rows stay. Data are shared by all languages of the page.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from html import escape, unescape
from itertools import count, zip_longest
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from align.report import plot_layers as figure_style
from align.report.blocks import Block, Facts, Figure, Lines, Row, Table, as_float, format_number
from align.report.draw_plot import PLOTS
from align.report.open_run import PLOT_FAILURES
from align.report.show_result import with_pasted
from align.report.thresholds import (
    FAR_MULTIPLE,
    FARTHER_MULTIPLE,
    FILTERED_TABLE_ROWS,
    FOLDED_CHARACTERS,
    PLOT_MARKS,
    ROWS_IN_PAGE,
    UNBROKEN_CHARACTERS,
)
from align.words.catalogue import ENGLISH, LANGUAGES, say, speaking, spoken, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.report.blocks import Column


def block_html(block: Block, name: str = "") -> str:
    """Return a block as HTML; `name` is how scripts find a table."""
    if isinstance(block, Table):
        return _table(block, name)
    return _facts(block) if isinstance(block, Facts) else _lines(block)


def embedded(data: Any) -> str:
    r"""Return data as JSON that can stand inside a script element.

    >>> embedded(["</script>"])
    '["\\u003c/script>"]'
    """
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


DATA = re.compile(r'(<script type="application/json")>(.*?)</script>', re.DOTALL)


def share_data(versions: Mapping[str, str]) -> tuple[list[str], str]:
    """Take the data out of the versions of a page; return these, and the data as one list.

    A script in the place of the data names its place in the list. Where the languages differ stands an object of what
    each has, by language.

    >>> share_data({name: f'<script type="application/json">[1,"{name}"]</script>' for name in ("en", "zh")})
    (['<script type="application/json" data-place="0"></script>', ...], '[[1,{"en":"en","zh":"zh"}]]')
    """
    data = [[json.loads(text) for _, text in DATA.findall(version)] for version in versions.values()]
    shared = [_merged(dict(zip(versions, one, strict=True))) for one in zip_longest(*data)]
    return [_with_places(version) for version in versions.values()], embedded(shared)


def _with_places(version: str) -> str:
    places = count()
    return DATA.sub(lambda found: f'{found[1]} data-place="{next(places)}"></script>', version)


def _merged(values: dict[str, Any]) -> Any:
    """One value for all languages where theirs are equal; else by language, of lists of one length item by item."""
    first, *others = values.values()
    if all(value == first for value in others):
        return first
    if all(isinstance(value, list) and len(value) == len(first) for value in values.values()):
        return [_merged(dict(zip(values, parts, strict=True))) for parts in zip(*values.values(), strict=True)]
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values.values()):
        return {key: _merged({language: value[key] for language, value in values.items()}) for key in first}
    return values


def _table(block: Table, name: str) -> str:
    columns = [(index, block.columns[index]) for index in block.used_columns]
    head = "".join(_header(column, len(block.rows)) for _, column in columns)
    body = "".join(_row(row, columns) for row in block.rows[:ROWS_IN_PAGE])
    more = [
        [row.tone, int(_is_open(row)), *(row.cells[index] for index, _ in columns)] for row in block.rows[ROWS_IN_PAGE:]
    ]
    data = f'<script type="application/json">{embedded(more)}</script>' if more else ""
    note = f'<p class="note">{escape(block.note)}</p>' if block.note else ""
    label = escape(block.title or say("page.table"))
    table = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    named = f' data-name="{escape(name)}"' if name else ""
    whole = f'<div class="table"{named}>{_tools(block)}{table}{data}{note}</div>'
    if block.folded:
        return _fold(block.title, whole)
    return _title(block.title) + whole


def _header(column: Column, rows: int) -> str:
    header = escape(column.header)
    if rows > 1 and header:
        header = f'<button type="button" class="sort">{header}</button>'
    return f'<th scope="col" class="{column.kind}" data-kind="{column.kind}">{header}</th>' if header else "<td></td>"


def _tools(block: Table) -> str:
    """The field to filter by, the number of rows, what unfolds rows that could not be compared, and what saves them."""
    rows, folded = len(block.rows), sum(map(_is_open, block.rows))
    export = f'<button type="button" class="export needs-script">{escape(say("page.export"))}</button>'
    if rows < FILTERED_TABLE_ROWS and not folded:
        return f'<div class="tools">{export}</div>' if rows > 1 else ""
    label = escape(say("page.filter_of", title=block.title))
    field = f'<input type="search" placeholder="{escape(say("page.filter"))}" aria-label="{label}">'
    shown_count = f'<span class="count" role="status">{escape(say("page.rows", count=rows))}</span>'
    shown = escape(say("page.show_open", count=folded))
    unfold = f'<button type="button" class="unfold" aria-pressed="false">{shown}</button>' if folded else ""
    return f'<div class="tools">{field if rows >= FILTERED_TABLE_ROWS else ""}{shown_count}{unfold}{export}</div>'


def _is_open(row: Row) -> bool:
    """Tell whether a row says that its two sides could not be compared."""
    return row.tone != "bad" and not {
        word("outcome", "not comparable"),
        word("step_outcome", "could not tell"),
    }.isdisjoint(row.cells)


def _row(row: Row, columns: Iterable[tuple[int, Column]]) -> str:
    cells = "".join(_cell(row.cells[index], column.kind) for index, column in columns)
    return f'<tr class="{row.tone}"{" data-open" if _is_open(row) else ""}>{cells}</tr>'


def _cell(text: str, kind: str) -> str:
    shown = escape(text).replace(".", ".<wbr>") if kind == "path" else escape(text)
    return f'<td class="{kind}{" short" if len(text) <= UNBROKEN_CHARACTERS else ""}">{shown}</td>'


def _facts(block: Facts) -> str:
    return f'<section class="panel {block.tone}"><h3>{escape(block.title)}</h3>{facts_html(block.facts)}</section>'


def folded_facts(block: Facts) -> str:
    """Return a panel as HTML, folded away under its title."""
    return _fold(block.title, facts_html(block.facts))


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Return labelled facts as a list of terms."""
    rows = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(fact)}</dd></div>" for label, fact in facts)
    return f"<dl>{rows}</dl>" if rows else ""


def _lines(block: Lines) -> str:
    if not block.title:
        return "".join(f'<p class="line {block.tone}">{with_pasted(line)}</p>' for line in block.lines)
    lines = "".join(f"<li>{with_pasted(line)}</li>" for line in block.lines)
    listed = f'<ul class="lines">{lines}</ul>'
    if sum(map(len, block.lines)) > FOLDED_CHARACTERS and block.tone not in ("bad", "open"):
        return _fold(block.title, listed)
    return _title(block.title) + listed


def _fold(title: str, content: str) -> str:
    return f'<details class="fold"><summary><h3>{escape(title)}</h3></summary>{content}</details>'


def _title(title: str) -> str:
    return f"<h3>{escape(title)}</h3>" if title else ""


# Both models as trees of modules, coloured by error, each node with its counterpart in the other tree.
#
# A node is a part of a dotted path. Two nodes are a pair where a layer of both was compared; a module that is never
# called itself (a list of blocks) is paired with the innermost one that holds all counterparts of what it holds.

SIDES = ("reference", "candidate")
UNKNOWN = -1.0  # no limit: stands for a colour that is not known
NOT_COMPARABLE, UNPAIRED = 5, 6  # no limit: places in the list of colours


def model_trees(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return both trees of a `mindalign.forward` document as plain data, None where no layer was compared.

    Each side is a list of nodes, the root first, parents before children: name, class, place of its parent (-1 for
    none), place of its counterpart (-1), its own colours, the worst in and below it, place of its row among the layers
    (-1), and why it has no counterpart. Colours are level and multiple of the limit as gathered, and both of the layer
    alone. Levels: 0 unknown, 1 within its limit, 2 to 4 beyond it, 5 not comparable, 6 without a counterpart.
    """
    if not document["layers"]:
        return None
    trees = {side: _tree(document, side) for side in SIDES}
    _pair_layers(document, trees)
    _pair_holders(trees["reference"], trees["candidate"])
    _pair_holders(trees["candidate"], trees["reference"])
    return {side: [_plain(node, document[side]) for node in trees[side].nodes] for side in SIDES}


@dataclass(slots=True)
class _Node:
    """One module: a row of the comparison that is its own, and multiples of a limit, as gathered and alone.

    `own` are those of its rows, `worst` the largest in and below it.
    """

    path: str
    parent: int
    class_name: str = ""
    row: int = -1
    pair: int = -1
    is_open: bool = False
    reason: str = ""
    own: tuple[float, float] = (UNKNOWN, UNKNOWN)
    worst: tuple[float, float] = (UNKNOWN, UNKNOWN)
    inside: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Tree:
    """The nodes of one side, parents before children, and their places by path."""

    nodes: list[_Node] = field(default_factory=lambda: [_Node("", -1)])
    places: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(self, path: str) -> _Node:
        """Return the node of a path; it is made, with all above it, where it is not there yet."""
        if path not in self.places:
            above = self.add(path.rpartition(".")[0])
            place = self.places[path] = len(self.nodes)
            above.inside.append(place)
            self.nodes.append(_Node(path, self.places[above.path]))
        return self.nodes[self.places[path]]

    def upwards(self, place: int) -> list[int]:
        """The places of a node and of all above it, the root last."""
        places = []
        while place >= 0:
            places.append(place)
            place = self.nodes[place].parent
        return places


def _tree(document: dict[str, Any], side: str) -> _Tree:
    tree = _Tree()
    for row, layer in enumerate(document["layers"]):
        node, alone = tree.add(layer[side]), layer.get("isolated") or {}
        node.class_name = node.class_name or layer[f"{side}_class"]
        factors = _factor(layer["factor"]), _factor(alone.get("factor"))
        if node.row < 0 or max(factors) > max(node.own):
            node.row = row
        node.own = _larger(node.own, factors)
        node.is_open = node.is_open or layer["outcome"] == "not comparable"
        for place in tree.upwards(tree.places[node.path]):
            tree.nodes[place].worst = _larger(tree.nodes[place].worst, factors)
    for one in document["unpaired"]:
        if one["side"] == side and one["module"] not in tree.places:
            lone = tree.add(one["module"])
            lone.class_name, lone.reason = one["class_name"], one["reason"] or say("page.no_counterpart")
    return tree


def _factor(value: Figure) -> float:
    found = UNKNOWN if value is None else as_float(value)
    return inf if isnan(found) else found


def _larger(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return max(one[0], other[0]), max(one[1], other[1])


def _pair_layers(document: dict[str, Any], trees: dict[str, _Tree]) -> None:
    """Pair the nodes whose layers were compared; of several counterparts the first."""
    for layer in document["layers"]:
        places = [trees[side].places[layer[side]] for side in SIDES]
        nodes = [trees[side].nodes[place] for side, place in zip(SIDES, places, strict=True)]
        if nodes[0].pair < 0 and nodes[1].pair < 0:
            nodes[0].pair, nodes[1].pair = places[1], places[0]
    if trees["reference"].nodes[0].pair < 0 and trees["candidate"].nodes[0].pair < 0:
        trees["reference"].nodes[0].pair = trees["candidate"].nodes[0].pair = 0


def _pair_holders(tree: _Tree, other: _Tree) -> None:
    """Pair modules without a row of their own by what they hold, the innermost first."""
    for place, node in reversed(list(enumerate(tree.nodes))):
        inside = [pair for child in node.inside if (pair := tree.nodes[child].pair) >= 0]
        if node.pair >= 0 or not inside:
            continue
        ways = [other.upwards(other.nodes[pair].parent) for pair in inside]
        shared = set(ways[0]).intersection(*ways[1:])
        found = next((one for one in ways[0] if one in shared), -1)
        if found >= 0 and other.nodes[found].pair < 0:
            node.pair, other.nodes[found].pair = found, place


def _plain(node: _Node, label: str) -> list[Any]:
    name = node.path.rpartition(".")[2] or label
    colours = [_colours(node, factors) for factors in (node.own, node.worst)]
    return [name, node.class_name, node.parent, node.pair, *colours, node.row, node.reason]


def _colours(node: _Node, factors: tuple[float, float]) -> list[int | str]:
    """Level and text of both factors."""
    return [
        text
        for factor in factors
        for text in (_level(node, factor), "" if factor == UNKNOWN else format_number(factor))
    ]


def _level(node: _Node, factor: float) -> int:
    if factor != UNKNOWN:
        return 1 + sum(factor > bound for bound in (1.0, FAR_MULTIPLE, FARTHER_MULTIPLE))
    return UNPAIRED if node.reason else NOT_COMPARABLE if node.is_open else 0


# The plots of a report as SVG that stands in the page and takes the page's colours, dark or light.


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
FAMILIES = ", ".join(f"'{name}'" for name in figure_style.STYLE["font.family"])
TEXT = re.compile("(<text [^>]*>)([^<]+)</text>")


@dataclass(frozen=True, slots=True)
class PagePlot:
    """A drawing with its marks, and each of its words with the tag that places it, in every language.

    Without marks there was nothing to draw, or drawing failed for a `reason`.
    """

    name: str
    size: str = ""
    marks: str = ""
    words: tuple[tuple[str, dict[str, str]], ...] = ()
    reason: str = ""

    def figure(self) -> str:
        """The plot in the language that is spoken now, as a `figure` or a line that says why there is none."""
        title = say(f"plot.{self.name}_title")
        if self.reason:
            return f'<p class="note open">{escape(say("plot.failed", name=title, reason=self.reason))}</p>'
        if not self.marks:
            return f'<p class="note">{escape(say("plot.nothing"))}</p>'
        label = escape(say("plot.alt", name=title))
        words = "\n".join(f"{tag}{escape(text[spoken()])}</text>" for tag, text in self.words)
        return (
            f'<figure class="plot" tabindex="0" role="group" aria-label="{label}">'
            f'<svg {self.size} role="img" aria-label="{label}"><use href="#plot-{self.name}"/>\n{words}</svg></figure>'
        )


def draw_page_plot(name: str, document: dict[str, Any]) -> PagePlot:
    """Draw one of `align.report.draw_plot.PLOTS` for all languages."""
    try:
        return _drawn(name, _thinned(PLOTS[name][0], document))
    except PLOT_FAILURES as error:  # shown as such; it changes no verdict
        return PagePlot(name, reason=f"{type(error).__name__}: {error}")


def shared_marks(plots: Iterable[PagePlot]) -> str:
    """The marks of all plots, which are shown where a figure uses them."""
    drawn = "".join(f'<g id="plot-{one.name}">{one.marks}</g>\n' for one in plots if one.marks)
    return f'<svg class="marks" width="0" height="0" aria-hidden="true"><defs>{drawn}</defs></svg>' if drawn else ""


def _drawn(name: str, document: dict[str, Any]) -> PagePlot:
    """The drawing in English, whose words stand in the same places in the others: none of these is longer."""
    import matplotlib as mpl

    with figure_style.house_style():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name})
        figures = {}
        for language in LANGUAGES:
            with speaking(language):
                figures[language] = PLOTS[name][1](document)
        if figures[ENGLISH] is None:
            return PagePlot(name)
        known = dict(_worded(figures))
        size, picture = _of_the_page(_as_svg(figures[ENGLISH]), name)
    words = [(tag, known[text]) for tag, shown in TEXT.findall(picture) if (text := unescape(shown)) in known]
    marks = TEXT.sub(lambda found: "" if unescape(found[2]) in known else found[0], picture)
    return PagePlot(name, size, marks, tuple(words))


def _worded(figures: dict[str, Any]) -> Iterable[tuple[str, dict[str, str]]]:
    """What a figure says otherwise in some language, line by line, by the text in English."""
    from matplotlib.text import Text

    texts = [[_text_lines(text) for text in figure.findobj(Text)] for figure in figures.values()]
    for same_text in zip(*texts, strict=True):
        for same_line in zip(*same_text, strict=True):
            line = dict(zip(figures, same_line, strict=True))
            if len({*line.values()}) > 1:
                yield line[ENGLISH], line


def _text_lines(text: Any) -> list[str]:
    return str(text.get_text()).replace(r"\$", "$").split("\n")


def _as_svg(figure: Any) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.set_facecolor("none")
    for axes in figure.axes:
        axes.set_facecolor("none")
    stream = io.StringIO()
    FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
    return stream.getvalue()


def _of_the_page(drawing: str, name: str) -> tuple[str, str]:
    """Its size, and what is drawn without what only a file needs; ids and colours become those of this page."""
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    size = re.search(r'viewBox="[^"]*"', body)
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", body).replace("xlink:href", "href")
    body = re.sub(r"#[0-9a-fA-F]{6}\b", _variable, body).replace(FAMILIES, "'DejaVu Sans', sans-serif")
    return size.group() if size else "", re.sub(r"\s*\n\s*", "\n", body)


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
