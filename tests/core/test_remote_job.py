"""A job whose ranks lie in object storage: found by patterns, opened by the workers, and run again if they change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def put(bucket: str, name: str, folder: Path, value: float) -> None:
    import s3fs

    np.savez(folder / "put.npz", weight=np.full(8, value, np.float32), bias=np.arange(3.0))
    s3fs.S3FileSystem().put_file(str(folder / "put.npz"), f"{bucket}/{name}")


def states(found: dict[str, Any]) -> dict[int, tuple[str, bool]]:
    return {one["rank"]: (one["state"], one["reused"]) for one in found["tasks"]}


def test_ranks_of_a_bucket_are_compared_and_only_what_changed_is_run_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for rank in range(3):
        for side in ("ref", "port"):
            put(bucket, f"{side}/rank{rank}.npz", tmp_path, 1.0)
    job = f'[[diff]]\nreference = "{bucket}/ref/rank{{rank}}.npz"\ncandidate = "{bucket}/port/rank{{rank}}.npz"\n'
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    command = ["batch", "job.toml", "--workers", "1", "--run", "run", "--json"]
    assert main(command) == 0, capfd.readouterr()
    found = json.loads(capfd.readouterr().out)
    assert states(found) == dict.fromkeys(range(3), ("aligned", False))
    assert found["tasks"][1]["paths"] == [f"{bucket}/ref/rank1.npz", f"{bucket}/port/rank1.npz"]
    put(bucket, "port/rank1.npz", tmp_path, 2.0)
    assert main(command) == 1
    found = json.loads(capfd.readouterr().out)
    assert states(found) == {0: ("aligned", True), 1: ("not aligned", False), 2: ("aligned", True)}
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"a-secret" not in written
    assert main(["diff", f"{bucket}/ref", f"{bucket}/port", "--batch"]) == 2
    assert "write a job file" in capfd.readouterr().err
