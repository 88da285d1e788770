"""Files that the user's own code reads are known by their first state; what it writes, and what others read, is not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.load_code import note_opened_files, opened_files, users_code

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_users_code_reads_is_noted_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    note_opened_files()
    monkeypatch.chdir(tmp_path)
    for name in ("before.txt", "weights.npy", "words.txt", "raw.bin"):
        np.save(tmp_path / name, np.ones(3)) if name.endswith("npy") else (tmp_path / name).write_text("1")
    (tmp_path / "before.txt").read_text()
    with users_code():
        np.load("weights.npy")
        (tmp_path / "words.txt").read_text()
        os.close(os.open(b"raw.bin", os.O_RDONLY))
        (tmp_path / "cache.json").write_text("{}")
        json.loads((tmp_path / "cache.json").read_text())
        (tmp_path / "part").write_text("{}")
        (tmp_path / "part").replace(tmp_path / "kept.json")
        (tmp_path / "kept.json").read_text()
    (tmp_path / "raw.bin").write_text("12")
    found = {path.name: state for path, state in opened_files().items() if path.parent == tmp_path}
    assert sorted(found) == ["raw.bin", "weights.npy", "words.txt"]
    assert found["raw.bin"][0] == 1  # as it was when it was read


def test_a_file_that_is_not_there_is_the_users_own_error(tmp_path: Path) -> None:
    note_opened_files()
    with users_code(), pytest.raises(FileNotFoundError, match="none"):
        (tmp_path / "none").read_text()
    assert tmp_path / "none" not in opened_files()
