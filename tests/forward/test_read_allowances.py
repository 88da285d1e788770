"""What single layers are allowed, as the project file and the command line write it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from align.errors import ProjectFileError, UsageError
from align.forward.forward_result import AcceptedDeviation, Allowances, LayerLimit, read_limits
from align.runs.project_file import read_project

PAGE = (Path(__file__).parents[2] / "docs" / "project-file.md").read_text(encoding="utf-8")


def read(folder: Path, text: str) -> Allowances:
    (folder / "align.toml").write_text(text, encoding="utf-8")
    return read_project(folder / "align.toml").allowances


def test_limits_keep_their_order_and_accepted_deviations_their_reason(tmp_path: Path) -> None:
    text = """
        [limits]
        "decoder.*.softmax" = 3
        head = { max_abs = 1e-3, rmse = 1e-4 }
        "" = { rmse = 1 }
        [[accepted]]
        layer = "*.tanh"
        reason = "the kernel of the CPU"
    """
    limits = (
        LayerLimit("decoder.*.softmax", factor=3.0),
        LayerLimit("head", max_abs=1e-3, rmse=1e-4),
        LayerLimit("", rmse=1),
    )
    assert read(tmp_path, text) == Allowances(limits, (AcceptedDeviation("*.tanh", "the kernel of the CPU"),))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("limits = 3", "[limits] must be a table"),
        ("[limits]\na = 0", "[limits] 'a' must be a multiple above 0, or a table of max_abs and rmse, not 0"),
        ("[limits]\na = true", "[limits] 'a' must be a multiple above 0, or a table of max_abs and rmse, not True"),
        ("[limits]\na = inf", "[limits] 'a' must be a multiple above 0, or a table of max_abs and rmse, not inf"),
        ("[limits]\na = {}", "[limits] 'a' must hold max_abs, rmse or both, not nothing"),
        ("[limits]\na.b = 2", "[limits] 'a' must hold max_abs, rmse or both, not b"),
        ("[limits]\na = { rmse = nan }", "[limits] 'a' rmse must be a number above 0, not nan"),
        ("[accepted]\nlayer = 'a'", "[[accepted]] number 1 must hold layer and reason, and nothing else"),
        ("[[accepted]]\nlayer = 2\nreason = 'x'", "[[accepted]] number 1: layer must be text, not 2"),
        ("[[accepted]]\nlayer = 'a'\nreason = ' '", "[[accepted]] number 1: reason must say why, not ' '"),
    ],
)
def test_each_fault_is_told_beside_those_of_other_tables(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ProjectFileError) as caught:
        read(tmp_path, f"{text}\n[other]\n")
    faults = caught.value.faults
    assert fault in faults
    assert (
        "unknown table or key 'other'; known: [accepted], [candidate], [forward], [limits], [loss], "
        "[metric], [reference], [run], [speed], [training]" in faults
    )


def test_a_limit_of_the_command_line_is_a_glob_and_a_multiple() -> None:
    assert read_limits(["a.*=2", "b=c=0.5"]) == (LayerLimit("a.*", factor=2.0), LayerLimit("b=c", factor=0.5))


def test_all_that_are_none_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read_limits(["a", "b=x", "c=1", "d=-1", "e=nan"])
    assert caught.value.message == "--limit cannot be used: 'a', 'b=x', 'd=-1', 'e=nan'"


def test_the_page_says_the_same_in_toml_and_in_python(tmp_path: Path) -> None:
    space: dict[str, object] = {}
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(shown, space)
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert read(tmp_path, file) == space["allowances"]
