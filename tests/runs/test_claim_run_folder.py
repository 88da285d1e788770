from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from align.errors import FolderInUseError, UsageError
from align.runs.run_folder import RunFolder, claim_run_folder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class SmallResult:
    result_kind = "forward"
    worst: float
    mindalign: str = "another version"


def make_result(path: Path, worst: float = 1.0) -> RunFolder:
    with claim_run_folder(path, "forward"):
        folder = RunFolder.create(path)
        folder.write(SmallResult(worst), {})
    return folder


def test_a_run_that_ends_leaves_its_result_and_nothing_else(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "run")
    assert folder.unfinished("forward") is None
    assert [path.name for path in folder.path.iterdir()] == ["forward.json"]


@pytest.mark.parametrize(
    ("error", "ended", "reason"),
    [(UsageError("no map", "give one"), "failed", "no map"), (KeyboardInterrupt(), "interrupted", "")],
)
def test_a_run_that_does_not_end_leaves_the_older_result_marked_until_there_is_a_new_one(
    tmp_path: Path, error: BaseException, ended: str, reason: str
) -> None:
    folder = make_result(tmp_path / "run", worst=1.0)
    written = folder.file("forward").read_bytes()
    with pytest.raises(type(error)), claim_run_folder(folder.path, "forward"):
        raise error
    run = folder.unfinished("forward")
    assert run is not None
    assert (run.pid, run.ended, run.reason) == (os.getpid(), ended, reason)
    assert folder.file("forward").read_bytes() == written
    assert folder.unfinished("map") is None
    make_result(folder.path, worst=2.0)
    assert folder.unfinished("forward") is None


def test_a_run_that_is_going_on_or_was_killed_is_seen(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "run")
    with claim_run_folder(folder.path, "forward"):
        run = folder.unfinished("forward")
        assert run is not None
        assert (run.pid, run.ended) == (os.getpid(), "")


def test_a_mark_that_cannot_be_read_counts_as_one(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "run")
    (folder.path / "forward.begun.json").write_text("{", encoding="utf-8")
    assert folder.unfinished("forward") is not None


def test_a_second_run_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "run")
    with claim_run_folder(folder.path, "map"):
        (folder.path / "traces.part").mkdir()
        with (
            pytest.raises(FolderInUseError, match=f"run folder {folder.path} is in use by process {os.getpid()}"),
            claim_run_folder(folder.path, "forward"),
        ):
            pass
        assert (folder.path / "traces.part").is_dir()
    assert folder.unfinished("forward") is None


def test_folders_made_for_a_run_that_fails_go_and_those_of_the_user_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for path in (tmp_path / "mine", tmp_path / "new" / "run"):
        with pytest.raises(UsageError), claim_run_folder(path, "forward"):
            raise UsageError("no map")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


def test_what_dead_runs_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    dead, own = tmp_path / ".forward.json.0a1b2c3d.part", tmp_path / ".thesis.0a1b2c3d.part"
    for folder, name in ((dead, "forward.json"), (own, "chapter.txt"), (tmp_path / "traces.part", "manifest.jsonl")):
        folder.mkdir()
        (folder / name).write_text("x", encoding="utf-8")
    with claim_run_folder(tmp_path, "map"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {own.name, "traces.part"}
    make_result(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {own.name, "forward.json"}
