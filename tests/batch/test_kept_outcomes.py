"""What a run folder keeps of tasks: enough to go on, nothing of what is secret."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from align.batch.job import Task, TaskOutcome, without_secrets
from align.batch.run_batch import KeptOutcomes

if TYPE_CHECKING:
    from pathlib import Path

DONE = TaskOutcome("t", "done", 1, 0.5, 1000, {"outcome": "aligned"}, "", "")


def task_of(folder: Path) -> Task:
    (folder / "a.npz").write_bytes(b"one")
    return Task("t", "check", (str(folder / "a.npz"),), {})


def test_an_outcome_is_read_back_as_long_as_its_inputs_are_as_they_were(tmp_path: Path) -> None:
    task, kept = task_of(tmp_path), KeptOutcomes(tmp_path / "run")
    kept.keep(task, DONE, kept.fingerprint(task))
    assert KeptOutcomes(tmp_path / "run").outcome(task) == DONE
    os.utime(tmp_path / "a.npz", ns=(1, 1))
    assert KeptOutcomes(tmp_path / "run").outcome(task) is None


def test_an_input_that_changed_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    task, kept = task_of(tmp_path), KeptOutcomes(tmp_path / "run")
    before = kept.fingerprint(task)
    (tmp_path / "a.npz").write_bytes(b"other")
    kept.keep(task, DONE, before)
    assert kept.outcome(task) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": 1}', '{"inputs": "", "outputs": [], "outcome": {}}'])
def test_a_damaged_file_is_a_task_that_was_not_run(tmp_path: Path, text: str) -> None:
    task, kept = task_of(tmp_path), KeptOutcomes(tmp_path / "run")
    kept.keep(task, DONE, kept.fingerprint(task))
    (tmp_path / "run" / "tasks" / "t.json").write_text(text, encoding="utf-8")
    assert kept.outcome(task) is None


def test_a_failure_and_a_task_of_other_options_are_run_again(tmp_path: Path) -> None:
    task, kept = task_of(tmp_path), KeptOutcomes(tmp_path / "run")
    kept.keep(task, TaskOutcome("t", "failed", 2, 0.1, None, {}, "broken", ""), kept.fingerprint(task))
    assert kept.outcome(task) is None
    kept.keep(task, DONE, kept.fingerprint(task))
    assert kept.outcome(Task("t", "check", task.paths, {"key": "model"})) is None


def test_a_conversion_whose_file_is_gone_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"one")
    (tmp_path / "b.ckpt").write_bytes(b"two")
    task, kept = Task("t", "convert", (str(tmp_path / "a.npz"), str(tmp_path / "b.ckpt")), {}), KeptOutcomes(tmp_path)
    kept.keep(task, DONE, kept.fingerprint(task))
    assert kept.outcome(task) == DONE
    (tmp_path / "b.ckpt").unlink()
    assert kept.outcome(task) is None


def test_a_url_is_shown_without_user_password_and_query() -> None:
    assert without_secrets("s3://key:word@bucket/a.npz?X-Amz-Signature=abc") == "s3://bucket/a.npz"
    assert without_secrets("/data/me@home/a?b.npz") == "/data/me@home/a?b.npz"


@pytest.mark.parametrize(
    ("read", "also"),
    [
        ("model.safetensors.index.json", "part-2.safetensors"),
        ("dump.json", "dump_tensor_data/Module.fc.0.pt"),
        ("model.onnx", "model.onnx.data"),
        ("trace/backward", "trace/values.npz"),
        ("folder", "folder/inner/a.npy"),
        ("folder", "link/a.npy"),
    ],
)
def test_what_a_path_leads_to_is_an_input_too(tmp_path: Path, read: str, also: str) -> None:
    for name in ("trace/backward", "folder/inner", "link", "dump_tensor_data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "folder" / "linked").symlink_to(tmp_path / "link")
    (tmp_path / "folder" / "round").symlink_to(tmp_path / "folder")
    for name in (read, also):
        if not (tmp_path / name).is_dir():
            (tmp_path / name).write_bytes(b"one")
    task, kept = Task("t", "check", (str(tmp_path / read),), {}), KeptOutcomes(tmp_path / "run")
    kept.keep(task, DONE, kept.fingerprint(task))
    kept = KeptOutcomes(tmp_path / "run")
    assert kept.outcome(task) == DONE
    (tmp_path / also).write_bytes(b"other")
    assert kept.outcome(task) is None


def test_an_address_that_does_not_answer_is_no_input_and_no_output_that_fits(tmp_path: Path) -> None:
    kept = KeptOutcomes(tmp_path / "run")
    for task in (Task("t", "check", ("nowhere://a/b.npz",), {}), Task("t", "convert", ("a.npz", "nowhere://a/b"), {})):
        kept.keep(task, DONE, kept.fingerprint(task))
        assert "nowhere" in (tmp_path / "run" / "tasks" / "t.json").read_text(encoding="utf-8")
    assert kept.outcome(Task("t", "check", ("nowhere://a/b.npz",), {})) is None
