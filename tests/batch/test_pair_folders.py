"""Two folders of ranks and steps as a job: everything in them is compared, missing or told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.batch.job import pair_folders
from align.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def test_what_one_side_lacks_is_named_with_the_path_that_it_could_have(tmp_path: Path) -> None:
    files(tmp_path, "a/rank0/step1.npz", "a/rank1/step1.npz", "b/step1/rank0.npz", "b/step2/rank0.npz")
    found = pair_folders("diff", tmp_path / "a", tmp_path / "b", {})
    assert [(one.rank, one.step) for one in found.tasks] == [(0, 1)]
    assert [(one.id, one.expected) for one in found.missing] == [
        ("diff-step1-rank1-candidate", str(tmp_path / "b/rank1/step1.npz")),
        ("diff-step2-rank0-reference", str(tmp_path / "a/step2/rank0.npz")),
    ]


@pytest.mark.parametrize("twice", ["rank01/step1.npz", "rank1/step_1.npz", "rank1/step1.safetensors"])
def test_two_files_of_one_rank_and_step_are_refused(tmp_path: Path, twice: str) -> None:
    files(tmp_path, "a/rank1/step1.npz", "b/rank1/step1.npz", f"b/{twice}")
    with pytest.raises(UsageError, match="these have the same rank and step"):
        pair_folders("diff", tmp_path / "a", tmp_path / "b", {})


def test_two_conversions_into_one_file_are_refused(tmp_path: Path) -> None:
    files(tmp_path, "a/x-y.pth", "a/x.pt", "a/z.npz")
    assert len(pair_folders("convert", tmp_path / "a", tmp_path / "b", {}).tasks) == 3
    files(tmp_path, "a/x.bin")
    with pytest.raises(UsageError, match="same rank and step"):
        pair_folders("convert", tmp_path / "a", tmp_path / "b", {})
