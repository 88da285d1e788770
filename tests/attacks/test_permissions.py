"""Folders and files that may not be written or read: one message and exit code 2, and all that was there stays.

The superuser may do everything, so commands run in a process that has given that power up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def ended(commands: Callable[..., Any], folder: Path) -> Callable[[str], tuple[int, str]]:
    """How a command line ends in the folder, and what it says of errors."""

    def ended(line: str) -> tuple[int, str]:
        done = commands(folder, line, powerless=True)
        return done.code, done.said

    return ended


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Files that commands read, a run folder, and a folder into which nobody may look."""
    monkeypatch.chdir(tmp_path)
    for name, bias in (("a", 0.0), ("b", 1.0)):
        np.savez(f"{name}.npz", **{"fc.weight": np.ones((2, 3)), "fc.bias": np.full(2, bias)})
        (tmp_path / f"{name}.csv").write_text("step,loss\n" + "".join(f"{n},{2 - n / 99}\n" for n in range(9)))
    main(["diff", "a.npz", "b.npz", "--run", "run"])
    (tmp_path / "closed").mkdir(mode=0)
    yield tmp_path
    for path in (tmp_path, tmp_path / "run", tmp_path / "closed"):
        path.chmod(0o700)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_where_nothing_may_be_written_nothing_is_changed(folder: Path, ended: Callable[[str], tuple[int, str]]) -> None:
    before = content(folder)
    (folder / "run").chmod(0o500)
    folder.chmod(0o500)
    lines = [
        "diff a.npz b.npz --run new",
        "diff a.npz b.npz --run run",
        "loss a.csv b.csv --run run",
        "convert a.npz o.npz --target torch",
        "map a.npz b.npz --out map.toml",
        "fix --undo --run run",
        "report run",
    ]
    for line in lines:
        code, said = ended(line)
        assert code == 2, (line, said)
        assert "Hint: " in said, line
        assert "cannot be written to" in said or "Permission denied" in said, (line, said)
    folder.chmod(0o700)
    assert content(folder) == before


def test_what_may_not_be_read_is_named(folder: Path, ended: Callable[[str], tuple[int, str]]) -> None:
    (folder / "map.toml").touch()
    for name in ("a.npz", "a.csv", "run/diff.json", "map.toml"):
        (folder / name).chmod(0)
    lines = {
        "map a.npz b.npz": "a.npz",
        "diff a.npz b.npz": "a.npz",
        "diff b.npz b.npz --map map.toml": "map.toml",
        "batch map.toml": "map.toml",
        "loss a.csv b.csv": "a.csv",
        "report run": "run/diff.json",
    }
    for line, name in lines.items():
        code, said = ended(line)
        assert code == 2, (line, said)
        assert name in said
        assert "Permission denied" in said, said
        assert "Hint: " in said, said


def test_a_cache_that_may_not_be_written_changes_no_verdict(ended: Callable[[str], tuple[int, str]]) -> None:
    assert [ended(line)[0] for line in ("diff a.npz b.npz", "diff a.npz a.npz")] == [1, 0]


def test_a_system_without_a_folder_for_temporary_files_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(folder / "none")])
    (folder / "job.toml").write_text('[[diff]]\nreference = "a.npz"\ncandidate = "b.npz"\n')
    assert main(["batch", "job.toml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("align: No usable temporary directory found")
    assert "Hint: " in said
