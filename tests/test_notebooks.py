"""The notebooks for users: a real kernel makes the outputs that they hold, and they use public names only."""

from __future__ import annotations

import ast
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import nbformat
import pytest

import align

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import execute_notebooks as runner

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
TEMPLATE = "report_template.ipynb"
PATHS = runner.PATHS
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
    "porting_a_language_model": [
        "aligned: all parameters are paired*",
        "aligned: 28 tensors written*",
        "not aligned: 17 of 22 layer outputs*",
        "port.py:12  blocks.0.wo: inputs*",
        "port.py:30  blocks.0.w2: inputs activation-differs (confirmed)",
        "aligned: all 22 compared layer outputs*",
        "aligned: the logits of all positions*",
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
    # MindSpore's level is read once, when it is imported.
    monkeypatch.setenv("GLOG_v", "3")
    for path, cells in runner.executed_cells(PATHS, tmp_path).items():
        outputs = [output for cell in cells for output in cell.outputs]
        assert [output for output in outputs if output.get("name") == "stderr"] == [], path.name
        assert_in_order(SAID[path.stem], "".join(output.get("text", "") for output in outputs), path.name)
        # What the file holds is what this run made, but for figures: `python docs/execute_notebooks.py` makes it anew.
        assert runner.shape_of_outputs(code_cells(path)) == runner.shape_of_outputs(cells), path.name


def assert_in_order(patterns: list[str], text: str, name: str) -> None:
    """A line fits each of these patterns, one after another."""
    lines = iter(text.splitlines())
    for pattern in patterns:
        assert any(fnmatchcase(line, pattern) for line in lines), f"{name} does not say {pattern!r} in:\n{text}"


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_a_notebook_has_short_cells_and_ends_with_what_to_do_next(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert "/tmp" not in path.read_text(encoding="utf-8")
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
