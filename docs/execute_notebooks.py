"""Executes the notebooks for users, and keeps in each file what its cells print: `python docs/execute_notebooks.py`.

A real kernel runs them one after another, each in a cleared namespace and a folder of its own, since the imports of the
frameworks are most of the time. Paths of that folder are cut out of what is kept.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from align.core.protocols import silent
from align.report.write_report import execute_notebook

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PATHS = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if path.name != "report_template.ipynb")
NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def code_cells(notebook: Any) -> list[Any]:
    """The cells of a notebook that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed_cells(paths: Sequence[Path], folder: Path) -> dict[Path, list[Any]]:
    """Run notebooks in `folder` and return the code cells of each, with outputs, numbered from 1."""
    whole, lengths = nbformat.v4.new_notebook(), {}
    for path in paths:
        (folder / path.stem).mkdir()
        cells = [nbformat.v4.new_code_cell(cell.source) for cell in code_cells(nbformat.read(path, as_version=4))]
        start = f"%reset -f\nimport os\nos.chdir({str(folder / path.stem)!r})\ndel os"
        whole.cells += [nbformat.v4.new_code_cell(start), *cells]
        lengths[path] = len(cells)
    execute_notebook(whole, folder, silent)
    cells = iter(whole.cells)
    made: dict[Path, list[Any]] = {}
    for path, count in lengths.items():
        next(cells)
        made[path] = [next(cells) for _ in range(count)]
        for number, cell in enumerate(made[path], 1):
            cell.execution_count = number
            cell.outputs = [_as_kept(output, number) for output in _joined(cell.outputs)]
    return made


def _joined(outputs: Sequence[Any]) -> list[Any]:
    """Outputs with the parts of one stream put together: a kernel may send what one line prints in two."""
    whole: list[Any] = []
    for output in outputs:
        if whole and output.output_type == "stream" == whole[-1].output_type and output.name == whole[-1].name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def _as_kept(output: Any, number: int) -> Any:
    """An output without what is of one run: its number among all cells, and the folder for temporary files."""
    if "execution_count" in output:
        output.execution_count = number
    if "text" in output:
        output.text = output.text.replace(tempfile.gettempdir() + os.sep, "")
    return output


def shape_of_outputs(cells: Sequence[Any]) -> list[list[str]]:
    """What each cell printed without its figures, and the kinds of what it showed: equal on every machine."""
    return [
        [
            NUMBER.sub("#", output.text if output.output_type == "stream" else _shown_text(output.data))
            for output in cell.outputs
        ]
        for cell in cells
    ]


def _shown_text(data: Any) -> str:
    """The kinds of what is shown, and its plain text word by word: columns are as wide as their figures."""
    return " ".join([*sorted(data), *data.get("text/plain", "").split()])


def main() -> None:
    """Execute all, and write each file, and its Chinese twin, again with its outputs."""
    os.environ["GLOG_v"] = "3"  # noqa: SIM112 - MindSpore writes it so
    with tempfile.TemporaryDirectory() as folder:
        made = executed_cells(PATHS, Path(folder))
    for path, cells in made.items():
        for file in (path, NOTEBOOKS / "zh" / path.name):
            if file.is_file():
                notebook = nbformat.read(file, as_version=4)
                for cell, run in zip(code_cells(notebook), cells, strict=True):
                    cell.outputs, cell.execution_count = run.outputs, run.execution_count
                nbformat.write(notebook, file)


if __name__ == "__main__":
    main()
