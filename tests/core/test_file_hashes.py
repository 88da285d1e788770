from __future__ import annotations

import hashlib
import os

from align.core.atomic_files import hash_meanwhile, sha256_of


def test_a_file_that_changed_is_hashed_again(tmp_path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two!"):
        path.write_bytes(content)
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()


def test_a_file_of_equal_size_and_another_time_is_hashed_again(tmp_path) -> None:
    path = tmp_path / "file"
    for second, content in enumerate((b"one", b"two")):
        path.write_bytes(content)
        os.utime(path, (second, second))
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()


def test_a_file_that_is_hashed_meanwhile_is_not_read_again(tmp_path, bytes_read) -> None:
    path, content = tmp_path / "file", b"x" * (1 << 20)
    path.write_bytes(content)
    hash_meanwhile([tmp_path / "none", path])
    known = sha256_of(path)
    before = bytes_read()
    assert sha256_of(path) == known == hashlib.sha256(content).hexdigest()
    assert bytes_read() - before < len(content)
