"""`--run` of any command: one run at a time, and an older result that is told from that of the last run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from align.cli.main import main
from align.core.operating_system import LOCK, folder_lock
from align.report.open_run import summarize_run


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal checkpoints in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.npz", "b.npz"):
        np.savez(name, weight=np.ones((2, 3), np.float32))


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    diff = ["diff", "a.npz", "b.npz", "--run", "run"]
    assert main(diff) == 0
    result = Path("run/diff.json").read_bytes()
    with folder_lock(Path("run") / LOCK, Path("it"), "trace"):
        assert main(diff) == 2
        assert f"align: the run folder run is in use by process {os.getpid()} on " in capsys.readouterr().err
    assert Path("run/diff.json").read_bytes() == result
    assert main(diff) == 0
    assert [path.name for path in Path("run").iterdir()] == ["diff.json"]


def test_a_run_that_fails_after_a_good_one_is_never_passed() -> None:
    assert main(["diff", "a.npz", "b.npz", "--run", "run"]) == 0
    assert summarize_run("run").exit_code == 0
    assert main(["diff", "a.npz", "gone.npz", "--run", "run"]) == 2
    summary = summarize_run("run")
    assert summary.exit_code == 2
    (reason,) = (rung.reason for rung in summary.rungs if rung.name == "diff")
    assert "failed (checkpoint not found: gone.npz); the result is older than that: aligned" in reason
    assert main(["diff", "a.npz", "b.npz", "--run", "run"]) == 0
    assert summarize_run("run").exit_code == 0


def test_what_is_no_result_of_the_command_marks_nothing() -> None:
    Path("map.toml").write_text('[names]\n"weight" = "weight"\n', encoding="utf-8")
    assert main(["map", "a.npz", "--target", "torch", "--run", "run"]) in (0, 1, 2)
    assert main(["diff", "a.npz", "b.npz", "--run", "run"]) == 0
    assert main(["map", "a.npz", "gone.npz", "--check", "map.toml", "--run", "run"]) == 2
    assert not list(Path("run").glob("*.begun.json"))


def test_a_run_that_fails_at_once_leaves_no_folder() -> None:
    assert main(["diff", "a.npz", "gone.npz", "--run", "new/run"]) == 2
    assert not Path("new").exists()
