"""A torch model written as an ONNX file and compared with it; what cannot be exported is named, and nothing left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDES = """
import torch


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(64, 3))


class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x).real


def odd():
    return torch.nn.Sequential(torch.nn.ReLU(), Odd())
"""


@pytest.fixture
def sides(tmp_path: Path) -> str:
    (tmp_path / "sides.py").write_text(SIDES)
    return f"{tmp_path}/sides.py"


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([*map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_an_export_is_written_and_found_aligned(sides, tmp_path, capsys, exporter) -> None:
    file = tmp_path / "net.onnx"
    command = ["export", f"{sides}:net", "-o", file, "--input", "x=float32[2,2,6,6]", "--exporter", exporter]
    code, out, _ = run(capsys, *command, "--check")
    assert (code, file.is_file(), "aligned" in out) == (0, True, True)
    assert sorted(one.name for one in tmp_path.iterdir() if "onnx" in one.name) == ["net.onnx"]
    assert run(capsys, *command)[0] == 2


def test_the_layer_that_cannot_be_exported_is_named_and_nothing_is_written(sides, tmp_path, capsys) -> None:
    file = tmp_path / "odd.onnx"
    command = ["export", f"{sides}:odd", "-o", file, "--input", "x=float32[3,3]", "--exporter", "torchscript"]
    code, _, error = run(capsys, *command)
    assert (code, file.exists()) == (2, False)
    assert "linalg_eigvals" in error
    assert "layer 1 (Odd) cannot be exported on its own either" in error


def test_what_goes_without_a_check_is_refused(sides, tmp_path, capsys) -> None:
    code, _, error = run(
        capsys, "export", f"{sides}:net", "-o", tmp_path / "n.onnx", "--input", "x=float32[1]", "--json"
    )
    assert (code, "add --check" in error) == (2, True)
