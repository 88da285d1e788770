from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from align.core.files import BLOCK, atomic_path, atomic_writer, existing_file, sha256_of, write_text
from align.errors import DestinationError, MissingFileError

if TYPE_CHECKING:
    from pathlib import Path


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    target.write_bytes(b"old")

    def interrupted_write() -> None:
        with atomic_writer(target) as stream:
            stream.write(b"half of the ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_nothing_appears_under_the_name_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "weights.ckpt"
    with atomic_writer(target) as stream:
        stream.write(b"new")
        stream.flush()
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["weights.ckpt"]


def test_the_written_file_gets_the_mode_of_the_users_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "map.toml", "")
    finally:
        os.umask(old)
    assert (tmp_path / "map.toml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["missing/weights.ckpt", "a-file/weights.ckpt", "x" * 400])
def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(DestinationError, match="cannot write") as caught:
        write_text(tmp_path / name, "text")
    assert str(tmp_path / name) in caught.value.message


def test_a_block_that_writes_nothing_is_an_error_not_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(DestinationError), atomic_path(tmp_path / "weights.ckpt"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="checkpoint not found"):
        existing_file(tmp_path, "checkpoint")
    present = tmp_path / "weights.pth"
    present.touch()
    assert existing_file(present, "checkpoint") == present


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_the_hash_covers_every_block(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    path = tmp_path / "file"
    path.write_bytes(content[:size])
    assert sha256_of(path) == hashlib.sha256(content[:size]).hexdigest()
