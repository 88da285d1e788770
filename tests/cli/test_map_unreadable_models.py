"""`align map` of models that cannot be read or run as they stand: one message with a hint, and exit code 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

MODELS = """
import numpy as np


def x():
    return {"x": np.ones((2, 4), np.float32)}


def plain():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))


def lazy():
    import torch
    return torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Tanh(), torch.nn.Linear(4, 4))


def meta():
    import torch
    with torch.device("meta"):
        return plain()


def traced():
    import torch
    return torch.jit.trace(plain(), torch.ones(1, 4))


def port():
    from mindspore import nn
    return nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4))


def doubled():
    net = port()
    net[0].weight.name = net[2].weight.name = "w"
    return net
"""


def answer(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["map", *(f"{folder / 'models.py'}:{a}" if a.isalpha() else a for a in arguments)])
    return code, " ".join(capsys.readouterr().err.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("sides", "said", "hint"),
    [
        (
            ("lazy", "port"),
            "lazy has lazy layers, whose tensors have no shape yet (2 tensors) 0.weight 0.bias",
            "run the model once",
        ),
        (
            ("meta", "port"),
            "meta device, without values (4 tensors) 0.weight 0.bias 2.weight 2.bias",
            "build it on the CPU",
        ),
        (("traced", "port"), "Sequential is a TorchScript model", "give the model that it was traced or scripted from"),
        (("plain", "doubled"), "doubled has several tensors of one name", "give each a name of its own"),
    ],
)
def test_a_trial_says_what_is_wrong_with_the_model(
    folder: Path, capsys: pytest.CaptureFixture[str], sides: tuple[str, str], said: str, hint: str
) -> None:
    code, error = answer(folder, capsys, *sides, "--inputs", f"{folder / 'models.py'}:x", "--trial")
    assert code == 2
    assert said in error
    assert f"Hint: {hint}" in error


@pytest.mark.parametrize(("source", "code"), [("plain", 0), ("meta", 0), ("lazy", 2)])
def test_names_alone_need_shapes_but_no_values(
    folder: Path, capsys: pytest.CaptureFixture[str], source: str, code: int
) -> None:
    assert answer(folder, capsys, source, "port")[0] == code
