"""`align capture`, `align trace show` and `align forward DIR DIR`: options, documents, exit codes, errors."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

NETS = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def model(names, kind, slope=0.01):
    generator = np.random.default_rng(0)
    def dense(x, weight):
        return x @ weight.T
    def leaky(x):
        return np.where(x > 0, x, slope * x).astype(x.dtype)
    return ArrayModel((
        ArrayLayer(names[0], f"{kind[0]}", dense, {"weight": generator.standard_normal((6, 4)).astype(np.float32)}),
        ArrayLayer(names[1], f"{kind[1]}", leaky, {}),
    ))

TORCH = ("torch.nn.Linear", "torch.nn.LeakyReLU")
MINDSPORE = ("mindspore.nn.Dense", "mindspore.nn.LeakyReLU")

def original():
    return model(("blocks.0.fc", "blocks.0.act"), TORCH)

def port():
    return model(("body", "f"), MINDSPORE)

def faulty():
    return model(("body", "f"), MINDSPORE, 0.2)

def broken():
    made = port()
    def fail(x):
        raise ValueError("no kernel")
    return ArrayModel((made.layers[0], ArrayLayer("f", MINDSPORE[1], fail, {})))
"""
INPUT = ("--input", "x=float32[5,4]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def capture(factory: str, folder: str, *options: str) -> int:
    return main(["capture", f"nets.py:{factory}", *INPUT, "-o", folder, *options])


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return capsys.readouterr()


@pytest.mark.usefixtures("here")
def test_a_capture_is_told_in_short_and_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture("original", "trace") == 0
    short = said(capsys).out
    assert "nets.py:original (arrays)" in short
    assert "Complete: every call returned." in short
    assert main(["trace", "show", "trace", "--all"]) == 0
    whole = said(capsys).out
    assert "LeakyReLU" in whole
    assert "float32" in whole
    assert main(["trace", "show", "trace", "--depth", "0"]) == 0
    assert "LeakyReLU" not in said(capsys).out


@pytest.mark.usefixtures("here")
def test_the_documents_of_both_commands_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture("original", "trace", "--json") == 0
    captured = json.loads(said(capsys).out)
    assert main(["trace", "show", "trace", "--json"]) == 0
    shown = json.loads(said(capsys).out)
    assert captured["schema"] == shown["schema"] == "mindalign.trace/2"
    assert {key: captured[key] for key in ("calls", "head", "noise")} == {
        key: shown[key] for key in ("calls", "head", "noise")
    }
    assert [call["module"] for call in shown["calls"]] == ["", "blocks.0.fc", "blocks.0.act"]
    figures = shown["calls"][1]["outputs"][0]["statistics"]
    assert figures.keys() == {"min", "max", "mean", "rms", "nan", "inf", "magnitude"}
    assert figures["magnitude"] is None  # only dumps of a training have it


@pytest.mark.usefixtures("here")
def test_options_reach_the_capture(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tensors", "f", "--tensors", "first:3", "--no-noise", "--no-values", "--functions", "--json"]
    assert capture("port", "trace", *options) == 0
    found = json.loads(said(capsys).out)
    assert found["head"]["kept"] == {"globs": ["f"], "elements": 3, "sampled": False}
    assert (found["head"]["functions"], found["noise_missing"]) == (True, "it was not measured")
    assert [call["outputs"][0]["kept"] for call in found["calls"]] == [3, 0, 3]


def test_a_checkpoint_fills_the_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(here / "zeros.npz", **{"body.weight": np.zeros((6, 4), np.float32)})
    assert capture("port", "trace", "--checkpoint", "zeros.npz", "--json") == 0
    assert json.loads(said(capsys).out)["calls"][0]["outputs"][0]["statistics"]["max"] == 0.0


@pytest.mark.usefixtures("here")
def test_a_run_that_fails_says_where_its_trace_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture("broken", "trace") == 2
    message = said(capsys).err
    assert "in layer 'f'" in message
    assert "Hint: `align trace show trace` shows how far it came" in message
    assert main(["trace", "show", "trace"]) == 0
    assert "Cut short: it ends in f, which did not return." in said(capsys).out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("port", "code"), [("port", 0), ("faulty", 1)])
def test_the_exit_code_of_two_folders_is_the_verdict(port: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert [capture("original", "a"), capture(port, "b")] == [0, 0]
    said(capsys)
    assert main(["forward", "a", "b", "--json", "--run", "run"]) == code
    found = json.loads(said(capsys).out)
    assert found["schema"] == "mindalign.forward/2"
    assert found["made_from"] == {"reference": {"path": "a"}, "candidate": {"path": "b"}}
    assert [one["candidate"] for one in found["layers"]] == ["body", "f", ""]
    assert main(["forward", "a", "b"]) == code
    assert said(capsys).out.count("NOT ALIGNED: ") == code


@pytest.mark.usefixtures("here")
def test_a_partial_comparison_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert [capture("original", "a"), capture("broken", "b")] == [0, 2]
    said(capsys)
    assert main(["forward", "a", "b"]) == 2
    message = said(capsys).err
    assert message.startswith("align: the traces a and b cannot be compared: b was cut short: it ends in f, which did")
    assert message.count("\n") == 2
    assert main(["forward", "a", "b", "--partial"]) == 2
    assert "COULD NOT COMPARE: " in said(capsys).out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["forward", "a", "nets.py:port"], "a is a trace folder, and nets.py:port is a model"),
        (["forward", "nets.py:port", "a"], "align capture nets.py:port --inputs a/inputs.npz"),
        (["forward", "a", "gone"], "there is no trace folder gone\nHint: check the path; a model is `module:function`"),
        (["forward", "gone", "nets.py"], "there is no trace folder gone nor nets.py\n"),
        (["forward", "a", "a", *INPUT], "inputs and checkpoints are given for two traces"),
        (["forward", "nets.py:port", "nets.py:port", "--partial", *INPUT], "--partial is for trace folders"),
        (["forward", "a", "a", "--limit", "nothing=2"], "nothing"),
        (["trace", "show", "nothing"], "trace folder not found: nothing"),
        (["capture", "nets.py:port", "-o", "b"], "no inputs are given"),
        (["capture", "nets.py:port", *INPUT, "--inputs", "a/inputs.npz", "-o", "b"], "both --inputs and --input"),
        (["capture", "nets.py:port", *INPUT, "-o", "b", "--tensors", "last:3"], "cannot keep the tensors last:3"),
        (["capture", "nets.py:port", *INPUT, "-o", "nets.py"], "cannot write the trace nets.py"),
        (["capture", "nets.py:port", *INPUT, "-o", "b", "--backward"], "arrays models cannot be run backwards"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capture("original", "a") == 0
    said(capsys)
    assert main(words) == 2
    found = said(capsys)
    assert message in found.err
    assert found.err.startswith("align: ")
    assert found.out == ""


def test_lengths_of_the_data_are_kept_and_a_wrong_function_ends_with_2(here: Path, capsys: Any) -> None:
    (here / "data.py").write_text("def rows():\n    return range(12)\n\ndef none():\n    return 5\n")
    assert main(["capture", "nets.py:original", *INPUT, "-o", "a", "--data", "data.py:rows"]) == 0
    head = json.loads((here / "a" / "manifest.jsonl").read_text().splitlines()[0])
    assert head["environment"]["dataset samples"] == "12"
    capsys.readouterr()
    assert main(["capture", "nets.py:original", *INPUT, "-o", "b", "--data", "data.py:none"]) == 2
    assert "cannot be kept, since it has none; got: int" in capsys.readouterr().err
    assert not (here / "b").exists()
