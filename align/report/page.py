"""An executed notebook as one HTML page that loads nothing: no script, no font and no picture from elsewhere."""

from __future__ import annotations

import datetime as dt
import string
from html import escape
from typing import Any

import align
from align.report.assets import asset
from align.report.texts import say


def notebook_page(notebook: Any, folder: str) -> str:
    """Return the page: the notebook's text and outputs without its code, in the house's frame."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="basic", exclude_input=True, exclude_anchor_links=True)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    body, _ = exporter.from_notebook_node(notebook)
    created = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return string.Template(asset("report_page.html")).substitute(
        title=escape(say("page.title", folder=folder)),
        style=asset("report.css"),
        body=body,
        made=escape(say("page.made", created=created, version=align.__version__)),
    )
