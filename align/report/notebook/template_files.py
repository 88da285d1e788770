"""The files under `notebooks/` that a report is made from, found in a wheel, an editable install and a checkout."""

from __future__ import annotations

from align.core.about import CHECKOUT, beside_package
from align.errors import ReportError


def read_template(name: str) -> str:
    """Return the text of a file under `notebooks/`; raises ReportError if the installation lacks it."""
    if folder := beside_package("notebooks", name):
        return (folder / name).read_text(encoding="utf-8")
    raise ReportError.of("report_usage.template_missing", path=CHECKOUT / "notebooks" / name)
