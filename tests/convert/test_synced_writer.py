"""A file flushed behind its writer: what fails anywhere is raised, and nothing stays open."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from align.convert import write_checkpoint
from align.convert.write_checkpoint import SyncedWriter


def test_what_is_written_is_there_and_told(tmp_path) -> None:
    told = []
    with SyncedWriter(tmp_path / "f", lambda *step: told.append(step), 1 << 20) as stream:
        stream.write(b"ab")
        stream.write(bytes(1 << 20))
    assert (tmp_path / "f").read_bytes() == b"ab" + bytes(1 << 20)
    assert [(what, done) for what, done, _ in told] == [("writing", 2), ("writing", 2 + (1 << 20))]


def test_a_file_that_exists_is_not_touched(tmp_path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        SyncedWriter(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_failed_flush_behind_the_writer_is_raised_at_the_end(tmp_path, monkeypatch) -> None:
    failed = threading.Event()

    def refuse(descriptor: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(write_checkpoint, "FLUSH_BYTES", 10)
    monkeypatch.setattr(os, "fdatasync", refuse)
    before = threading.active_count()
    stream = SyncedWriter(tmp_path / "f")
    stream.write(bytes(100))
    assert failed.wait(10)
    with pytest.raises(OSError, match="Input/output error"):
        stream.close()
    assert stream.closed
    assert threading.active_count() == before
    stream.close()


def test_an_error_of_the_caller_ends_the_thread_and_closes_the_file(tmp_path) -> None:
    before = threading.active_count()
    stream = SyncedWriter(tmp_path / "f")
    with pytest.raises(ValueError, match="mine"), stream:
        raise ValueError("mine")
    assert stream.closed
    assert threading.active_count() == before


def test_without_a_thread_the_file_is_flushed_at_the_end(tmp_path, monkeypatch) -> None:
    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with SyncedWriter(tmp_path / "f") as stream:
        stream.write(b"whole")
    assert (tmp_path / "f").read_bytes() == b"whole"
