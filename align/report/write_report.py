"""`align report`: the run folder as an executed notebook, one HTML page and one JSON summary, each from the results.

The summary is computed before any plot is drawn, from the verdicts in the folder alone, so that nothing that
happens while drawing can change it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from align.core.about import CHECKOUT
from align.core.atomic_files import write_text
from align.core.progress import silent
from align.errors import FrameworkMissingError, ReportError
from align.report.open_run import read_template, summarize_run
from align.report.thresholds import CELL_SECONDS, KERNEL_OUTPUT_SHOWN
from align.runs.run_folder import RunFolder
from align.words.catalogue import VARIABLE, reader_language

if TYPE_CHECKING:
    from collections.abc import Callable

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

    notebook = nbformat.reads(read_template("report_template.ipynb"), as_version=4)
    return execute_notebook(notebook, folder, progress)


def _as_text(notebook: Any) -> str:
    import nbformat

    return str(nbformat.writes(notebook)) + "\n"


def _page(folder: RunFolder) -> str:
    from align.report.page_html import page_html

    try:
        return page_html(folder)
    except LOST_FIELDS as error:
        facts = {"folder": folder.path, "name": type(error).__name__, "value": error}
        raise ReportError.of("report_usage.page_failed", **facts) from error


# Execution of a notebook by a kernel of this very interpreter.
#
# No registered kernel is looked up: one called `python3` may belong to another environment. The user's IPython
# start-up files are left out, and what the kernel says on its standard error reaches the user only if it dies.

TASK = "report"


def execute_notebook(notebook: Any, folder: Path, progress: Progress) -> Any:
    """Execute a notebook in place, in `folder`, and return it; raises ReportError if a cell or the kernel fails."""
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    total = len(notebook.cells)
    with tempfile.TemporaryDirectory(prefix="mindalign-") as scratch, tempfile.TemporaryFile() as output:
        client = _client(notebook, folder, Path(scratch))
        client.on_cell_executed = lambda cell_index, **_: progress(TASK, cell_index + 1, total)
        started = {"env": _environment(Path(scratch)), "stderr": output, "stdout": output}
        try:
            _wait_for(lambda: asyncio.run(client.async_execute(cleanup_kc=True, **started)))
        except CellExecutionError as error:
            facts = {"folder": folder, "name": error.ename, "value": error.evalue}
            raise ReportError.of("report_usage.cell_failed", **facts) from error
        except (DeadKernelError, CellControlSignal, RuntimeError, OSError) as error:
            said = f"{error}{_end_of_output(output)}"
            raise ReportError.of("report_usage.kernel_failed", folder=folder, said=said) from error
        finally:
            # Where the kernel never answered, the client would clean up once more at exit, and fail loudly.
            atexit.unregister(client._cleanup_kernel)  # noqa: SLF001
    return notebook


def _wait_for(work: Callable[[], object]) -> None:
    """Run in a thread of its own: it has no event loop yet, and an interrupt stays with the main thread.

    An interrupted caller still waits until the kernel is stopped, so that none is left behind.
    """
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("ignore")  # the client's own deprecations are no news to a user
        pool.submit(work).result()


def _client(notebook: Any, folder: Path, scratch: Path) -> Any:
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = KernelSpec(argv=argv, display_name="Python 3", language="python")

    class ThisInterpreter(KernelSpecManager):
        """Knows one kernel, whatever it is called."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002
            return spec

    manager = AsyncKernelManager(
        kernel_spec_manager=ThisInterpreter(), connection_file=str(scratch / "connection.json")
    )
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, km=manager, timeout=CELL_SECONDS, resources=resources)


def _environment(scratch: Path) -> dict[str, str]:
    extra = {"IPYTHONDIR": str(scratch), "PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PLATFORM_DIRS": "1"}
    if (CHECKOUT / "pyproject.toml").is_file():
        known = os.environ.get("PYTHONPATH")
        extra["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([known] if known else [])])
    return {**os.environ, VARIABLE: reader_language(), **extra}


def _end_of_output(output: IO[bytes]) -> str:
    output.seek(0)
    text = output.read().decode("utf-8", errors="replace").strip()
    return f"\n{text[-KERNEL_OUTPUT_SHOWN:]}" if text else ""
