"""`align fix` as a user types it: what it refuses, what it says of a port without a confirmed change, of a package."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.cli.main import main
from align.fixes.fix_port import imported_as

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def build():
    weights = {{"weight": np.full((2, 3), {weight}, np.float32)}}
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T{more}, weights),))
"""
INPUT = ["--input", "x=float32[4,3]"]
PACKAGE = """from mindspore import nn


class Block(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Dense(size, 4, weight_init=-0.5, bias_init=-0.5)
        self.act = nn.LeakyReLU()  # as published

    def construct(self, x):
        return self.act(self.fc(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Block(3)
        self.second = Block(4)

    def construct(self, x):
        return self.second(self.first(x))


def build():
    return Net()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write_pair(folder: Path, weight: float = 1.0, more: str = "") -> None:
    (folder / "original.py").write_text(ARRAYS.format(weight=1.0, more=""))
    (folder / "port.py").write_text(ARRAYS.format(weight=weight, more=more))


@pytest.mark.parametrize(
    ("typed", "said", "hint"),
    [
        (["--run", "empty"], "empty has no forward comparison", "align forward REFERENCE PORT"),
        (["--undo"], "align-run keeps nothing of an earlier fix", "--run DIR"),
        (["original.py:build", "port.onnx", *INPUT], "port.onnx is a file or a trace", "file.py:function"),
        (["original.py:build", "traces", *INPUT], "traces is a file or a trace", "file.py:function"),
        (["original.py:build"], "original.py:build is one model", "align fix REFERENCE PORT"),
        ([], "there is no align.toml here", "--run DIR"),
        (INPUT, "--input say how two models are compared", "name both models"),
        (["--apply", "--undo"], "--apply and --undo are both given", "give one"),
        (["original.py:build", "broken.py:build", *INPUT], "SyntaxError", "--debug"),
        (["original.py:build", "port.py:build"], "there is no comparison to start from", "--inputs"),
    ],
)
def test_what_cannot_be_fixed_ends_with_2_and_a_hint(
    typed: list[str], said: str, hint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(folder)
    (folder / "broken.py").write_text("def build(:\n")
    (folder / "port.onnx").write_bytes(b"")
    for name in ("empty", "traces"):
        (folder / name).mkdir()
    assert main(["fix", *typed]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert hint in printed.err.partition("Hint: ")[2]
    assert "internal error" not in printed.err


def test_a_port_that_is_aligned_has_nothing_to_change(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(folder)
    assert main(["fix", "original.py:build", "port.py:build", *INPUT, "--apply"]) == 0
    assert "no change is confirmed, so there is nothing to change" in capsys.readouterr().out


def test_a_fault_without_a_confirmed_change_is_said_and_nothing_is_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(folder, more=" + np.sin(x).sum()")
    before = (folder / "port.py").read_bytes()
    assert main(["fix", "original.py:build", "port.py:build", *INPUT, "--apply", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["faults"], document["unconfirmed"], document["patches"]) == (0, 1, [])
    assert document["verdict"]["outcome"] == "not aligned"
    assert (folder / "port.py").read_bytes() == before


def test_two_fixes_of_one_run_folder_do_not_meet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from align.core.operating_system import folder_lock

    write_pair(folder)
    (folder / "run").mkdir()
    with folder_lock(folder / "run" / ".mindalign.fix.lock", folder / "run", "run"):
        assert main(["fix", "original.py:build", "port.py:build", *INPUT, "--run", "run"]) == 2
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.frameworks
def test_an_installed_package_stays_as_it_is_and_a_copy_of_it_is_changed_run_and_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = folder / "env" / "site-packages" / "fx_nets"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "net.py").write_bytes(PACKAGE.encode().replace(b"\n", b"\r\n"))
    (folder / "original.py").write_text(PACKAGE.replace("LeakyReLU()", "LeakyReLU(alpha=0.01)"))
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    before = {path: path.read_bytes() for path in package.glob("*.py")}
    typed = ["fix", "original.py:build", "fx_nets.net:build", *INPUT, "--run", "run"]
    assert main([*typed, "--apply", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["state"] for one in document["after"]["faults"]} == {"gone"}
    assert [one["package"] for one in document["patches"]] == ["fx_nets"]
    assert "--- a/fx_nets/net.py\n" in document["patches"][0]["text"]
    (place,) = document["places"]
    assert sorted(place["layers"]) == ["first.act", "second.act"]
    assert {path: path.read_bytes() for path in package.glob("*.py")} == before
    changed = (folder / "run" / "overlay" / "fx_nets" / "net.py").read_bytes()
    lines = zip(changed.splitlines(keepends=True), PACKAGE.splitlines(), strict=True)
    assert [new for new, old in lines if new != f"{old}\r\n".encode()] == [
        b"        self.act = nn.LeakyReLU(alpha=0.01)  # as published\r\n"
    ]
    again = document["next_commands"][0]
    assert again.startswith(f"PYTHONPATH=run{os.sep}overlay align forward original.py:build fx_nets.net:build")
    assert main(["fix", "--undo", "--run", "run"]) == 0
    assert "overlay" not in {path.name for path in (folder / "run").iterdir()}
    assert "All is as it was before." in capsys.readouterr().out


LISTED = """from mindspore import nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = [
            nn.Dense(3, 3) for _ in range(2)
        ]
        self.heads = {"a": nn.Dense(3, 2)}
        self.tail = nn.Dense(2, 2)

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return self.tail(self.heads["a"](x))


def build():
    return Net()
"""
ORIGINAL = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
        self.tail = nn.Linear(2, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.tail(self.heads["a"](x))


def build():
    return Net()
"""


@pytest.mark.frameworks
def test_lists_that_the_framework_does_not_see_are_changed_before_anything_can_be_compared(folder, capsys):
    (folder / "original.py").write_text(ORIGINAL)
    (folder / "port.py").write_text(LISTED)
    (folder / "align.toml").write_text(
        '[reference]\nmodel = "original.py:build"\n[candidate]\nmodel = "port.py:build"\n'
        '[run]\nrungs = ["parameters", "weights", "forward"]\n[forward]\ninputs = "inputs.npz"\n'
    )
    np.savez(folder / "inputs.npz", x=np.ones((4, 3), np.float32))
    assert main(["run"]) == 1
    assert "to have the confirmed changes made:\n    align fix\n" in capsys.readouterr().out
    assert main(["fix", "--patch", "port.patch"]) == 1
    told = capsys.readouterr().out
    assert "2 faults can be changed at 2 places" in told
    subprocess.run(["patch", "-p1", "-i", "port.patch"], check=True, capture_output=True)
    changed = (folder / "port.py").read_text()
    assert "self.blocks = nn.CellList([\n            nn.Dense(3, 3) for _ in range(2)\n        ])\n" in changed
    assert 'self.heads = nn.CellDict({"a": nn.Dense(3, 2)})' in changed
    done = subprocess.run([sys.executable, "-m", "align", "run"], capture_output=True, text=True, check=False)
    assert (done.returncode, "aligned: 3 rungs passed" in done.stdout) == (0, True), done.stdout


NAMES = {
    "from mindspore import nn": "nn",
    "import mindspore.nn as layers": "layers",
    "import mindspore as ms": "ms.nn",
    "from mindspore import nn as mnn, ops": "mnn",
    "import torch": "",
    "from mindspore.nn import Dense": "",
}


@pytest.mark.parametrize(("code", "name"), NAMES.items())
def test_layers_are_called_as_the_module_imports_them(code, name):
    assert imported_as(ast.parse(code), "mindspore") == name
