"""What `align init` finds in a folder, read and never run, and the file that it writes of it."""

from __future__ import annotations

import json

import pytest

from align.errors import UsageError
from align.runs.project_file import read_project
from align.runs.write_project import KEYS, choices, find_sides, write_project

MODEL = """
class Net(nn.{base}):
    def __init__({arguments}):
        pass


def model():
    return Net()
"""


def source(packages, base, arguments="self"):
    imports = "".join(f"import {package}\n" for package in packages)
    return imports + MODEL.format(base=base, arguments=arguments)


def found(folder, purpose, side):
    return [one.text for one in find_sides(folder) if (one.purpose, one.side) == (purpose, side)]


def test_a_port_that_imports_torch_as_well_is_known_by_the_name_of_its_file(tmp_path):
    (tmp_path / "port.py").write_text(source(["torch", "mindspore"], "Cell"))
    assert "port.py:model" in found(tmp_path, "model", "candidate")


def test_a_class_that_needs_an_argument_counts_behind_all_others(tmp_path):
    (tmp_path / "port.py").write_text(source(["mindspore"], "Cell", "self, *, classes").partition("def model")[0])
    (tmp_path / "other.py").write_text(source(["mindspore"], "Cell", "self, classes=3, *, width=2"))
    assert choices(find_sides(tmp_path), "model", "candidate") == ["other.py:model"]
    (tmp_path / "other.py").write_text((tmp_path / "other.py").read_text().partition("def model")[0])
    assert choices(find_sides(tmp_path), "model", "candidate") == ["other.py:Net"]
    (tmp_path / "other.py").unlink()
    (only,) = (one for one in find_sides(tmp_path) if one.purpose == "model")
    assert only.recipe.missing == ("classes",)


def test_names_with_quotes_and_backslashes_are_read_back(tmp_path):
    given = {"reference model": "a.py:model", "candidate model": "b.py:model", "reference checkpoint": "a'b\"c\\d.pth"}
    write_project(tmp_path, given)
    assert str(read_project(tmp_path / "align.toml").reference.checkpoint).endswith("a'b\"c\\d.pth")


@pytest.fixture
def sides(tmp_path):
    """A folder with both models and nothing else."""
    (tmp_path / "original.py").write_text(source(["torch"], "Module"))
    (tmp_path / "port.py").write_text(source(["mindspore"], "Cell"))
    return tmp_path


def write_trace(folder, framework):
    folder.mkdir()
    (folder / "manifest.jsonl").write_text(json.dumps({"schema": "x", "head": {"framework": framework}}) + "\n{}\n")


def test_a_key_of_which_there_are_several_is_left_out_and_said(sides):
    for name in ("one.pth", "two.pth", "torch.log", "run.log"):
        (sides / name).touch()
    written = write_project(sides, {})
    assert [(one.key.option, one.choices) for one in written.left_out] == [
        ("--reference-checkpoint", ("one.pth", "two.pth")),
        ("--candidate-log", ("run.log",)),  # nothing tells whose it is
    ]
    assert written.chosen["reference log"] == "torch.log"
    assert 'found: "one.pth", "two.pth"' in (sides / "align.toml").read_text()
    assert (
        write_project(sides, {"reference checkpoint": "two.pth"}, overwrite=True).chosen["reference checkpoint"]
        == "two.pth"
    )


def test_what_is_asked_on_a_terminal_is_not_left_out(sides):
    for name in ("one.pth", "two.pth"):
        (sides / name).touch()
    written = write_project(sides, {}, lambda key, fits: fits[1])
    assert (written.chosen["reference checkpoint"], written.left_out) == ("two.pth", ())


def test_a_trace_stands_in_for_a_model_that_is_not_there(sides):
    write_trace(sides / "torch-trace", "torch")
    assert "reference trace" not in write_project(sides, {}).chosen
    (sides / "original.py").unlink()
    chosen = write_project(sides, {}, overwrite=True).chosen
    assert (chosen["reference trace"], "reference model" in chosen) == ("torch-trace", False)
    assert read_project(sides / "align.toml").reference.trace == sides / "torch-trace"


def test_a_trace_that_is_given_needs_no_model(sides):
    (sides / "port.py").unlink()
    with pytest.raises(UsageError) as raised:
        write_project(sides, {})
    assert "--candidate-trace" in raised.value.hint
    assert write_project(sides, {"candidate trace": "there"}).chosen["candidate trace"] == "there"


def test_every_key_that_is_written_can_be_read(tmp_path):
    names = {f"{key.table} {key.name}": "file.py:name" for key in KEYS}
    write_project(tmp_path, names)
    assert read_project(tmp_path / "align.toml").candidate.trace == tmp_path / "file.py:name"


def test_what_a_program_is_told_and_its_data_are_no_models(sides):
    (sides / "tools.py").write_text(
        "import argparse, torch\ndef parse_args():\n    return argparse.ArgumentParser().parse_args()\n"
        "def options():\n    return argparse.ArgumentParser().parse_args()\n"
        "def batches():\n    return torch.utils.data.DataLoader([1])\n"
        "def main():\n    return run()\n"
    )
    assert found(sides, "model", "reference") == ["original.py:Net", "original.py:model"]


def test_what_align_repro_left_is_no_input(sides):
    (sides / "repro").mkdir()
    for name in ("inputs.npz", "candidate_output.npz", "candidate_layer.py"):
        (sides / "repro" / name).touch()
    assert "forward inputs" not in write_project(sides, {}).chosen


@pytest.mark.parametrize("ask", [None, lambda key, fits: ""])
def test_models_of_both_sides_that_are_unclear_stand_in_one_message_and_nothing_is_written(sides, ask):
    for name in ("original", "port"):
        (sides / f"{name}2.py").write_text((sides / f"{name}.py").read_text())
    with pytest.raises(UsageError) as raised:
        write_project(sides, {}, ask)
    for said in ("original.py:model, original2.py:model", "port.py:model, port2.py:model"):
        assert said in str(raised.value)
    assert raised.value.hint == "give one with --reference; give one with --candidate"
    assert not (sides / "align.toml").exists()


STEP = """

def training():
    net = model()

    def step(batch):
        return net(batch["x"])

    return {"model": net, "optimizer": None, "step": step}
"""
DATA = """
import numpy as np

CACHE = {}


def _sentences(count):
    return {"words": np.zeros((count, 4)), "kinds": np.zeros(count)}


def inputs():
    if CACHE:
        return CACHE["inputs"]
    return _sentences(2)


def batch(number=0):
    made = _sentences(8)
    return {**made, "tags": np.zeros(8)}
"""
LABELLED = """
import numpy as np


def inputs():
    return {"noise": np.zeros((2, 4)), "labels": np.zeros(2)}


def batch():
    return {"image": np.zeros((2, 4)), "labels": np.zeros(2)}
"""


@pytest.mark.parametrize("data", [DATA, LABELLED])
def test_a_training_with_a_step_and_data_from_helpers_are_found(sides, data):
    for name in ("original.py", "port.py"):
        (sides / name).write_text((sides / name).read_text() + STEP)
    (sides / "data.py").write_text(data)
    written = write_project(sides, {})
    assert written.left_out == ()
    assert written.chosen == {
        "reference model": "original.py:model",
        "reference training": "original.py:training",
        "candidate model": "port.py:model",
        "candidate training": "port.py:training",
        "forward inputs": "data.py:inputs",
        "training batch": "data.py:batch",
    }


def test_labelled_inputs_are_the_batch_where_there_is_no_other(sides):
    (sides / "data.py").write_text(LABELLED.partition("\n\ndef batch")[0])
    chosen = write_project(sides, {}).chosen
    assert chosen["forward inputs"] == chosen["training batch"] == "data.py:inputs"


def test_what_a_function_returns_early_or_inside_is_not_what_it_makes(sides):
    early = "def build(cache={}):\n    if cache:\n        for one in cache:\n            return one\n    return Net()\n"
    inner = "def make():\n    def hook(value):\n        return {'x': value}\n    net = Net()\n    return net\n"
    (sides / "port.py").write_text(source(["mindspore"], "Cell").partition("def model")[0] + early + inner)
    assert {"port.py:build", "port.py:make"} <= {*found(sides, "model", "candidate")}
