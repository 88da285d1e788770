"""What the commands that run two models take of the project file, and what they say their results are made from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align.cli.main import main

MODELS = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def model(path, dense):
    return ArrayModel((ArrayLayer(path, dense, lambda x, weight: x @ weight.T, {"weight": np.eye(4)}),))


def original():
    return model("fc", "torch.nn.Linear")


def port():
    return model("head", "mindspore.nn.Dense")


def batches():
    yield {"x": np.eye(4)}, np.arange(4)
"""
PROJECT = """
[reference]
model = "nets.py:original"
checkpoint = "original.npz"

[candidate]
model = "nets.py:port"
{place}

[forward]
inputs = "x.npz"
map = "map.toml"
"""
MAP = 'schema = "mindalign.names/1"\n[names]\n"fc.weight" = "head.weight"\n'


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for name, text in {"nets.py": MODELS, "map.toml": MAP, "align.toml": PROJECT.format(place="")}.items():
        Path(name).write_text(text, encoding="utf-8")
    np.savez("original.npz", **{"fc.weight": np.eye(4)})
    np.savez("x.npz", x=np.ones((2, 4)))


COMMANDS: dict[str, list[str]] = {
    "forward": [],
    "bisect": [],
    "repro": ["--out", "layer"],
    "validate": ["--data", "nets.py:batches"],
    "generate": [],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dtype_of_the_project_file_holds_in_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("align.toml").write_text(PROJECT.format(place='dtype = "float16"'), encoding="utf-8")
    assert main([command, *COMMANDS[command]]) == 2
    assert "arrays models cannot be moved or cast" in capsys.readouterr().err


def made_from(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["made_from"]
    return found


@pytest.mark.parametrize(
    ("command", "also"),
    [("forward", {"inputs"}), ("bisect", {"inputs"}), ("validate", {"data", "metric"})],
)
def test_a_result_names_all_that_it_is_made_from(
    command: str, also: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = made_from([command, *COMMANDS[command]], capsys)
    assert found.keys() == {"reference", "candidate", "reference checkpoint", "map", *also}
    assert {role for role in found if "sha256" in found[role]} >= {"reference", "reference checkpoint", "map"}


@pytest.mark.parametrize("inputs", ["other.npz", "nets.py:given"])
def test_inputs_of_the_command_line_win_and_are_hashed(inputs: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("other.npz", x=np.ones((3, 4)))
    with Path("nets.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef given():\n    return {'x': np.ones((3, 4))}\n")
    found = made_from(["bisect", "--inputs", inputs], capsys)["inputs"]
    assert found["path"] == inputs.partition(":")[0]
    assert len(found["sha256"]) == 64


def test_drawn_inputs_are_none_of_the_project_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert "inputs" not in made_from(["bisect", "--input", "x=float64[2,4]"], capsys)
