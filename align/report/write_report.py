"""`align report`: the run folder as an executed notebook, one HTML page and one JSON summary, each from the results.

The summary is computed before any plot is drawn, from the verdicts in the folder alone, so that nothing that
happens while drawing can change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.progress import silent
from align.errors import FrameworkMissingError, ReportError
from align.report.notebook.run_summary import summarize_run
from align.report.notebook.template_files import read_template
from align.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from align.core.progress import Progress

PACKAGES = ("nbformat", "nbclient", "ipykernel", "matplotlib")
LOST_FIELDS = (AttributeError, LookupError, TypeError, ValueError)  # of results that are not whole
INSTALL = 'pip install "mindalign[report]"'


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """What a report wrote; `html` is None if no page was wanted."""

    notebook: Path
    html: Path | None
    summary: Path


def write_report(run_folder: Path | str, *, html: bool = True, progress: Progress = silent) -> ReportPaths:
    """Write `report.ipynb` (executed), `report.html` and `report.json` into a run folder from what it holds.

    Raises RunFolderError for a folder without sound results, FrameworkMissingError if the report extra is not
    installed, and ReportError if the notebook cannot be executed or a result is not whole; then nothing was written.
    """
    require_packages()
    folder = RunFolder.open(Path(run_folder).resolve())
    summary = summarize_run(folder.path)
    notebook = _executed(folder.path, progress)
    page = _page(folder) if html else None

    paths = ReportPaths(
        folder.path / "report.ipynb", folder.path / "report.html" if html else None, folder.file("report")
    )
    write_text(paths.notebook, _as_text(notebook))
    if page is None:
        (folder.path / "report.html").unlink(missing_ok=True)  # an older page would tell of an older run
    else:
        write_text(folder.path / "report.html", page)
    kinds = [kind for kind in ("ladder", *(rung.kind for rung in summary.rungs if rung.made_from is not None)) if kind]
    folder.write(summary, {kind: folder.file(kind) for kind in kinds if folder.file(kind).is_file()})
    return paths


def require_packages() -> None:
    """Raise FrameworkMissingError naming every package of the report extra that is not installed."""
    from importlib.util import find_spec

    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise FrameworkMissingError(", ".join(missing), INSTALL)


def _executed(folder: Path, progress: Progress) -> Any:
    import nbformat

    from align.report.notebook.execute_notebook import execute_notebook

    notebook = nbformat.reads(read_template("report_template.ipynb"), as_version=4)
    return execute_notebook(notebook, folder, progress)


def _as_text(notebook: Any) -> str:
    import nbformat

    return str(nbformat.writes(notebook)) + "\n"


def _page(folder: RunFolder) -> str:
    from align.report.page.page_html import page_html

    try:
        return page_html(folder)
    except LOST_FIELDS as error:
        facts = {"folder": folder.path, "name": type(error).__name__, "value": error}
        raise ReportError.of("report_usage.page_failed", **facts) from error
