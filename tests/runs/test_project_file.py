"""`align.toml`: paths relative to it, and every fault of one file in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.errors import MissingFileError, ProjectFileError
from align.runs.project_file import Project, ProjectSide, read_project
from align.runs.rung import Missing, rungs

if TYPE_CHECKING:
    from pathlib import Path

TABLES = "[accepted], [candidate], [forward], [limits], [loss], [metric], [reference], [run], [speed], [training]"
SIDE = "checkpoint, data, device, dtype, log, mode, model, overlay, trace, training"


def project(folder: Path, text: str) -> Path:
    path = folder / "align.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file_and_modules_are_left_alone(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        """
        [reference]
        model = "nets/original.py:build"
        checkpoint = "weights/original.pth"
        [candidate]
        model = "port.models.net:build"
        [forward]
        inputs = "inputs.npz"
        map = "map.toml"
        """,
    )
    assert read_project(path) == Project(
        reference=ProjectSide(f"{tmp_path}/nets/original.py:build", tmp_path / "weights/original.pth"),
        candidate=ProjectSide("port.models.net:build", None),
        inputs=tmp_path / "inputs.npz",
        map=tmp_path / "map.toml",
    )


def test_an_exported_file_is_a_side_with_its_own_weights_and_without_settings(tmp_path: Path) -> None:
    text = '[reference]\nmodel = "net.py:build"\ncheckpoint = "net.pth"\n[candidate]\nmodel = "net.onnx"\n'
    read = read_project(project(tmp_path, text + '[forward]\ninputs = "inputs.npz"\n'))
    assert read.candidate == ProjectSide(f"{tmp_path}/net.onnx")
    plans = {rung.name: rung.plan(read, tmp_path / "run") for rung in rungs()}
    assert [isinstance(plans[name], Missing) for name in ("settings", "weights", "forward")] == [True, True, False]
    (command,) = plans["forward"].lines
    assert [side.rpartition("/")[2] for side in command[1:3]] == ["net.py:build", "net.onnx"]
    assert "--candidate-checkpoint" not in command


def test_absolute_paths_stay(tmp_path: Path) -> None:
    text = f'[reference]\nmodel = "{tmp_path}/net.py:build"\ncheckpoint = "{tmp_path}/net.pth"\n'
    side = read_project(project(tmp_path, text)).reference
    assert side == ProjectSide(f"{tmp_path}/net.py:build", tmp_path / "net.pth")


@pytest.mark.parametrize(
    ("inputs", "read"), [("data.py:inputs", "{}/data.py:inputs"), ("port.data:inputs", "port.data:inputs")]
)
def test_inputs_may_be_a_function(tmp_path: Path, inputs: str, read: str) -> None:
    assert read_project(project(tmp_path, f'[forward]\ninputs = "{inputs}"')).inputs == read.format(tmp_path)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read_project(project(tmp_path, "")) == Project()


def test_all_faults_are_listed_together(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        """
        candidate = "port.py:build"
        colour = "red"
        [reference]
        model = 3
        checkpint = "net.pth"
        [forward]
        inputs = ["a.npz"]
        map = ""
        [forwards]
        """,
    )
    with pytest.raises(ProjectFileError) as caught:
        read_project(path)
    assert caught.value.faults == (
        "[candidate] must be a table",
        f"unknown table or key 'colour'; known: {TABLES}",
        "[reference] model must be text, not 3",
        f"[reference] unknown key 'checkpint'; known: {SIDE}",
        "[forward] inputs must be text, not ['a.npz']",
        "[forward] map must be text, not ''",
        f"unknown table or key 'forwards'; known: {TABLES}",
    )
    assert str(caught.value).startswith(f"{path} cannot be used (7 faults)\n")
    assert "docs/project-file.md" in caught.value.hint


@pytest.mark.parametrize("content", [b"[reference", b"[reference]\nmodel = '\xff'", b"\x00"])
def test_a_file_that_is_not_toml_is_refused_with_the_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "align.toml").write_bytes(content)
    with pytest.raises(ProjectFileError, match="not TOML"):
        read_project(tmp_path / "align.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="project file not found"):
        read_project(tmp_path / "gone.toml")


def test_what_a_ladder_needs_is_read_with_its_paths(tmp_path: Path) -> None:
    file = tmp_path / "align.toml"
    file.write_text(
        '[reference]\ntraining = "a.py:train"\nlog = "a.log"\ntrace = "captured"\n'
        '[metric]\ndata = "d.py:batches"\nmetric = "accuracy"\nsamples = 8\n'
        '[training]\nbatch = ["one.npz", "d.py:two"]\nsteps = 2\n[run]\nfolder = "runs"\nrungs = "forward"\n'
    )
    project = read_project(file)
    assert project.reference.training == f"{tmp_path}/a.py:train"
    assert (project.reference.log, project.reference.trace) == (tmp_path / "a.log", tmp_path / "captured")
    assert (project.metric.data, project.metric.metric) == (f"{tmp_path}/d.py:batches", "accuracy")
    assert project.batches == (tmp_path / "one.npz", f"{tmp_path}/d.py:two")
    assert (project.metric.samples, project.steps, project.rungs) == (8, 2, ("forward",))
    assert project.run_folder == tmp_path / "runs"


def test_values_of_another_type_are_refused_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "align.toml"
    file.write_text("[training]\nsteps = 0\nbatch = []\n[run]\nrungs = 3\n")
    with pytest.raises(ProjectFileError) as caught:
        read_project(file)
    assert all(f"{key} must be" in str(caught.value) for key in ("steps", "batch", "rungs"))


def test_paths_up_from_the_folder_of_the_file_are_shown_without_a_detour(tmp_path: Path) -> None:
    (tmp_path / "port").mkdir()
    path = project(tmp_path / "port", '[reference]\ncheckpoint = "../weights.pth"\n[run]\nfolder = "../runs"\n')
    found = read_project(path)
    assert found.reference.checkpoint == tmp_path / "weights.pth"
    assert found.run_folder == tmp_path / "runs"
