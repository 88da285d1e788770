"""Two captured backward passes compared: where the wrong gradient arises, gradients that never arrive, clean twins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import RunFolderError, UnlikeTracesError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

ORIGINAL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.act, self.other, self.head = nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.act(self.one(x))
        return self.head(hidden + torch.sigmoid(self.other(hidden)))


def build():
    torch.manual_seed(0)
    return Net()
"""
PORT = """
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, between=lambda value: value, behind=lambda value: value):
        super().__init__()
        self.one, self.act, self.other, self.head = nn.Dense(8, 8), nn.Tanh(), nn.Dense(8, 8), nn.Dense(8, 3)
        self.between, self.behind = between, behind

    def construct(self, x):
        hidden = self.behind(self.act(self.one(x)))
        return self.head(self.between(hidden) + ops.sigmoid(self.other(hidden)))


def clean():
    return Net()


def halved():
    return Net(lambda value: 0.5 * value + ops.stop_gradient(0.5 * value))


def cut():
    return Net(behind=ops.stop_gradient)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of all of them, with gradients."""
    root = tmp_path_factory.mktemp("gradients")
    (root / "original.py").write_text(ORIGINAL, encoding="utf-8")
    (root / "port.py").write_text(PORT, encoding="utf-8")
    original, port = f"{root / 'original.py'}:build", f"{root / 'port.py'}:clean"
    captured = ["--out", str(root / "original"), "--input", "x=float32[4,8]", "--backward"]
    assert main(["capture", original, *captured]) == 0
    values = [str(root / "original" / "values.safetensors"), str(root / "net.ckpt")]
    assert main(["convert", *values, "--source-model", original, "--target-model", port]) == 0
    for name in ("clean", "halved", "cut"):
        side = ["capture", f"{root / 'port.py'}:{name}", "--checkpoint", values[1], "--out", str(root / name)]
        assert main([*side, "--inputs", str(root / "original" / "inputs.npz"), "--backward"]) == 0
    return root


def compared(folders: Path, reference: str, candidate: str) -> Any:
    return align.compare_trace_folders(folders / reference / "backward", folders / candidate / "backward")


def test_equal_gradients_are_aligned_in_the_order_in_which_they_arise(folders: Path) -> None:
    result = compared(folders, "original", "clean")
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [one.reference for one in result.layers if one.reference] == ["head", "other", "act", "one"]
    assert result.verdict.coverage.unit == "gradients of layer outputs"
    assert "noise-unmeasured" not in [one.code for one in result.findings]


def test_the_first_gradient_that_is_wrong_is_named(folders: Path) -> None:
    result = compared(folders, "original", "halved")
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.layers[result.first_divergent].reference == "act"
    assert [one.reference for one in result.layers if one.outcome == "not aligned"] == ["act", "one"]
    assert "2 of 5 gradients of layer outputs differ, first at act" in result.verdict.reason


@pytest.mark.parametrize("swapped", [False, True])
def test_gradients_that_never_arrive_on_one_side_are_no_pass(folders: Path, *, swapped: bool) -> None:
    sides = ("cut", "original") if swapped else ("original", "cut")
    result = compared(folders, *sides)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    (missing,) = [one for one in result.findings if one.code == "gradient-missing"]
    assert missing.subject == ("reference" if swapped else "candidate")
    assert "no gradient reaches act, one, but one does on the other side" in missing.message
    assert [one.code for one in compared(folders, "cut", "cut").findings if one.severity == "error"] == []


def test_the_command_compares_them_and_refuses_what_is_none(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    assert main(["forward", "original/backward", "clean/backward"]) == 0
    capsys.readouterr()
    assert main(["forward", "original/backward", "halved/backward", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["layers"][0]["reference"] == "head"
    assert main(["forward", "original", "clean/backward"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "different direction: forward and backward" in shown
    assert "Hint:" in shown


def test_gradients_apart_from_their_trace_are_refused(folders: Path, tmp_path: Path) -> None:
    alone = (folders / "clean" / "backward").rename(tmp_path / "alone")
    try:
        with pytest.raises(RunFolderError, match="does not say which model") as told:
            align.compare_trace_folders(folders / "original" / "backward", alone)
        assert "stays inside of DIR" in told.value.hint
    finally:
        alone.rename(folders / "clean" / "backward")
    with pytest.raises(UnlikeTracesError, match="direction"):
        align.compare_trace_folders(folders / "original", folders / "clean" / "backward")
