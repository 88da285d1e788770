"""An executed notebook as one HTML page that loads nothing: no script, no font and no picture from elsewhere.

Where the notebook holds a figure to zoom into, plotly's script stands in the page itself; otherwise there is none.
"""

from __future__ import annotations

import datetime as dt
import string
from html import escape
from typing import Any

from align.core.about import CHECKOUT, __version__, beside_package
from align.errors import ReportError
from align.report.plots.figure_style import FIGURE_CLASS
from align.words.catalogue import say

# Turns each picture that carries a figure into that figure; where scripts are off the picture stays.
DRAW = """
for (const place of document.querySelectorAll(".%s")) {
  const figure = JSON.parse(place.dataset.figure);
  place.replaceChildren();
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false});
}
"""


def notebook_page(notebook: Any, folder: str) -> str:
    """Return the page: the notebook's text and outputs without its code, in the house's frame."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_anchor_links=True)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    body, _ = exporter.from_notebook_node(notebook)
    created = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return string.Template(read_template("report_page.html")).substitute(
        title=escape(say("page.title", folder=folder)),
        style=read_template("report.css"),
        body=body,
        script=_script(body),
        made=escape(say("page.made", created=created, version=__version__)),
    )


def read_template(name: str) -> str:
    """Return the text of a file under `notebooks/`; raises ReportError if the installation lacks it."""
    if folder := beside_package("notebooks", name):
        return (folder / name).read_text(encoding="utf-8")
    message = f"{CHECKOUT / 'notebooks' / name} is missing"
    raise ReportError(message, "the installation is broken; install mindalign again")


def _script(body: str) -> str:
    if f'class="{FIGURE_CLASS}"' not in body:
        return ""
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>\n<script>{DRAW % FIGURE_CLASS}</script>"
