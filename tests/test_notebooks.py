"""The notebooks for users: a real kernel runs them all, they use public names only, and they hold no outputs."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import nbformat
import pytest

import align
from align.core.protocols import silent
from align.report.write_report import execute_notebook

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
TEMPLATE = "report_template.ipynb"
PATHS = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if path.name != TEMPLATE)
CHINESE = sorted((NOTEBOOKS / "zh").glob("*.ipynb"))
CODE = re.compile("`[^`]+`")
LONGEST_CELL = 35  # lines; a whole model in a file is the longest
MAGIC = re.compile(r"^%%writefile .*\n")
# Lines that each prints, in this order: what a planted fault is called, and what its correction comes to.
SAID = {
    "aligning_curves": ["not aligned: mean loss*", "first divergent step: 1? *", "aligned: within the limits*"],
    "finding_a_bug": [
        "not aligned: 3 settings of 3 layers*",
        "* write nn.GELU(..., approximate=False)",
        "not aligned: 15 of 17 layer outputs*",
        "port.py:9 *blocks.0.act: layer gelu-approximation*",
        "port.py:* blocks.0: code*",
        "aligned: all 17 compared layer outputs*",
    ],
    "forward_alignment": [
        "forward: not aligned*",
        'at fault: 2: max-pool-padding (confirmed)*pad_mode="pad", padding=1)',
    ],
    "mapping_a_differently_named_port": [
        "not aligned: 4 parameters*",
        "aligned: all parameters are paired*",
        "aligned: all parameters are paired*",
        "aligned: the map pairs or drops every parameter*",
        "not aligned: the map has 4 faults",
    ],
    "quickstart": [
        "aligned: all parameters are paired*",
        "aligned: 8 tensors written*",
        "not aligned: 3 of 5 layer outputs*",
        "at fault: relu: leaky-relu-slope (confirmed)*",
        "aligned: all 5 compared layer outputs*",
    ],
    "training_step": [
        "not aligned*",
        "loss: loss: cross-entropy-smoothing*",
        "update: optimizer: decay-coupled*",
        "buffer: norm: statistics-momentum-swapped*",
        "aligned: 5 gradients of parameters agree*",
    ],
    "two_machines": [
        "not aligned: 3 of 4 layer outputs*",
        "warning: act -> gelu: *nn.GELU(..., approximate=False)",
        "aligned: all 4 compared layer outputs*",
    ],
}


def code_cells(path: Path) -> list[Any]:
    """The cells of a notebook that are run."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.frameworks
@pytest.mark.slow
def test_each_notebook_names_its_planted_faults_and_finds_none_in_what_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One kernel runs them one after another, each in a cleared namespace and a folder of its own: the imports of the
    # frameworks are most of the time. MindSpore's level is read once, when it is imported.
    monkeypatch.setenv("GLOG_v", "3")
    whole = nbformat.v4.new_notebook()
    for path in PATHS:
        (tmp_path / path.stem).mkdir()
        start = nbformat.v4.new_code_cell(f"%reset -f\nimport os\nos.chdir({str(tmp_path / path.stem)!r})\ndel os")
        whole.cells += [start, *code_cells(path)]
    execute_notebook(whole, tmp_path, silent)
    cells = iter(whole.cells)
    for path in PATHS:
        own = [next(cells) for _ in range(1 + len(code_cells(path)))]
        outputs = [output for cell in own for output in cell.outputs]
        assert [output for output in outputs if output.get("name") == "stderr"] == [], path.name
        # A kernel may send what one line prints in two parts.
        assert_in_order(SAID[path.stem], "".join(output.get("text", "") for output in outputs), path.name)


def assert_in_order(patterns: list[str], text: str, name: str) -> None:
    """A line fits each of these patterns, one after another."""
    lines = iter(text.splitlines())
    for pattern in patterns:
        assert any(fnmatchcase(line, pattern) for line in lines), f"{name} does not say {pattern!r} in:\n{text}"


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_a_notebook_has_short_cells_without_outputs_and_ends_with_what_to_do_next(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(path)
    assert [cell.source for cell in cells if cell.outputs or cell.execution_count] == []
    assert [cell.source for cell in cells if len(cell.source.splitlines()) > LONGEST_CELL] == []
    assert [line for cell in notebook.cells for line in cell.source.splitlines() if len(line) > 120] == []
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.cells[-1].source.startswith("## What to do next\n")
    named = re.findall(r"`(\w+\.ipynb)`", "".join(cell.source for cell in notebook.cells))
    assert [name for name in named if not (NOTEBOOKS / name).is_file()] == []


@pytest.mark.parametrize("path", [*PATHS, NOTEBOOKS / TEMPLATE], ids=lambda path: path.stem)
def test_a_notebook_uses_public_names_only(path: Path) -> None:
    trees = [ast.parse(MAGIC.sub("", cell.source)) for cell in code_cells(path)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_align(node.value)}
    assert used
    assert used <= set(align.__all__)
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.startswith("align.")} <= {"align.errors"}


@pytest.mark.parametrize("path", CHINESE, ids=lambda path: path.stem)
def test_a_chinese_notebook_has_the_code_of_its_twin_cell_by_cell(path: Path) -> None:
    # Its code is not run once more: it is that of the English notebook, which is.
    chinese, english = (nbformat.read(one, as_version=4) for one in (path, NOTEBOOKS / path.name))
    nbformat.validate(chinese)
    assert [cell.id for cell in chinese.cells] == [cell.id for cell in english.cells]
    for own, other in zip(chinese.cells, english.cells, strict=True):
        assert own.cell_type == other.cell_type
        if own.cell_type == "code":
            assert own == other
            continue
        assert re.search("[\u4e00-\u9fff]", own.source)
        assert sorted(CODE.findall(own.source)) == sorted(CODE.findall(other.source))
        assert re.findall("^#+ ", own.source, re.MULTILINE) == re.findall("^#+ ", other.source, re.MULTILINE)
    for one, other in ((path, NOTEBOOKS / path.name), (NOTEBOOKS / path.name, path)):
        first = nbformat.read(one, as_version=4).cells[0].source
        link = re.search(r"^\[(?:English|中文)\]\(([^)]+)\)$", first, re.MULTILINE)
        assert (one.parent / link[1]).resolve() == other


def test_the_quickstart_has_a_chinese_twin() -> None:
    assert "quickstart" in {path.stem for path in CHINESE}


def is_align(node: ast.expr) -> bool:
    """Tell whether an expression is the name of the package."""
    return isinstance(node, ast.Name) and node.id == "align"


def test_every_notebook_is_held_to_what_it_says() -> None:
    assert {path.stem for path in PATHS} == set(SAID)
