"""Tensors written to a file, or to shards with an index: verified under temporary names before any takes its place.

So a destination is absent, old or complete, never half. Of shards the index comes last, and what was there before goes
just before the new files take its place: an old index would claim new shards, an old file be taken for a new index.
Every tensor is read back and compared bit for bit. Two threads take tensors in turn: reading, comparing and hashing
leave the interpreter free. A thread flushes behind the writer, so that the final fsync finds little left: a copy with
fsync took two thirds of the time of `cp` and `sync` together.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.checkpoints.extents import equal_blocks, paired_blocks
from align.convert.thresholds import FLUSH_BYTES, READING_THREADS
from align.core.atomic_files import atomic_path, atomic_writer
from align.core.progress import silent
from align.errors import NotACheckpointError, UnsupportedCheckpointError, VerificationError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from align.core.checkpoints import StoredTensor
    from align.core.progress import Progress
    from align.core.protocols import CheckpointFormat


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file to be written, with the tensors that go into it."""

    path: Path
    tensors: tuple[StoredTensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Output:
    """What is to be written: one file, `destination` itself, or shards and an index, which take its place.

    `old` are the files of a checkpoint under that name, in either form.
    """

    plugin: CheckpointFormat
    metadata: Mapping[str, str]
    destination: Path
    files: tuple[OutputFile, ...]
    index: tuple[Path, bytes] | None = None
    old: tuple[Path, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(file.nbytes for file in self.files)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, first the one by which the checkpoint is opened."""
        return (*((self.index[0],) if self.index else ()), *(file.path for file in self.files))


def write_output(
    output: Output, require_source: Callable[[], None], *, verify: bool, progress: Progress
) -> dict[str, str]:
    """Write, read back, compare and rename; return each tensor's SHA-256, nothing where `verify` is False.

    `require_source` is called before anything takes its place, and raises if the source was changed meanwhile. Raises
    DestinationError or VerificationError; what was there before is then still there, unless the disk refuses to rename
    what it has just taken.
    """
    hashes: dict[str, str] = {}
    steps = _Steps(progress, output.nbytes)
    with contextlib.ExitStack() as renames:
        if output.index is not None:
            renames.enter_context(atomic_writer(output.index[0])).write(output.index[1])
        for file in output.files:
            temporary = renames.enter_context(atomic_path(file.path, file.nbytes))
            with SyncedWriter(temporary, steps.show, file.nbytes) as stream:
                output.plugin.write(stream, file.tensors, output.metadata)
            if verify:
                hashes |= verify_written(file.tensors, output.plugin, temporary, file.path, steps.show)
            steps.base += file.nbytes
        require_source()
        if output.index is not None or len(output.old) > 1:
            for path in output.old:
                path.unlink(missing_ok=True)
    return hashes


@dataclass
class _Steps:
    """The progress of one file as a part of that of all files."""

    progress: Progress
    total: int
    base: int = 0

    def show(self, what: str, done: int, total: int) -> None:  # noqa: ARG002 - the file's own total
        """Tell how far the whole is; headers may count beyond it."""
        self.progress(what, min(self.base + done, self.total), self.total)


def verify_written(
    expected: Sequence[StoredTensor], plugin: CheckpointFormat, written: Path, destination: Path, progress: Progress
) -> dict[str, str]:
    """Return the SHA-256 of each tensor's bytes by name; raises VerificationError, about `destination`, listing all."""
    try:
        found = plugin.read(written).tensors
    except (NotACheckpointError, UnsupportedCheckpointError) as error:
        raise VerificationError(destination, [error.message]) from error
    unexpected = sorted(found.keys() - {tensor.name for tensor in expected})
    problems = [say("plan_fault.unexpected", name=name) for name in unexpected]
    hashes: dict[str, str] = {}
    done, total = 0, sum(tensor.nbytes for tensor in expected)
    with ThreadPoolExecutor(READING_THREADS) as pool:
        outcomes = pool.map(lambda tensor: _verified(tensor, found.get(tensor.name)), expected)
        for tensor, (problem, digest) in zip(expected, outcomes, strict=True):
            hashes[tensor.name] = digest
            if problem:
                problems.append(say("fault_list.one", head=tensor.name, fault=problem))
            done += tensor.nbytes
            progress("verifying", done, total)
    if problems:
        raise VerificationError(destination, problems)
    return hashes


def _verified(expected: StoredTensor, found: StoredTensor | None) -> tuple[str, str]:
    """What is wrong with a tensor, "" if nothing is, and the SHA-256 of its bytes."""
    if found is None:
        return "missing", ""
    if expected.shape != found.shape:
        return f"shape {found.shape}, expected {expected.shape}", ""
    if expected.dtype != found.dtype:
        return f"dtype {found.dtype}, expected {expected.dtype}", ""
    equal, digest = True, hashlib.sha256()
    for ours, theirs in paired_blocks(expected, found):
        equal = equal and equal_blocks(ours, theirs)
        digest.update(theirs)
    problem = "" if equal else "the bytes differ"
    return problem, digest.hexdigest()


KEEP_SIZE = 1  # format: FALLOC_FL_KEEP_SIZE of linux/falloc.h: the file is as long as what was written


class SyncedWriter(io.BufferedWriter):
    """A new file, flushed to disk behind the writer and wholly when it is closed; it tells `progress` of its bytes.

    Raises FileExistsError for a path that exists; what the disk refuses is raised by `close` at the latest. Room for
    `nbytes` is taken at once.
    """

    def __init__(self, path: Path, progress: Progress = silent, nbytes: int = 0) -> None:
        super().__init__(io.FileIO(path, "xb"))
        _take_room(self.fileno(), nbytes)
        self._progress = progress
        self._done = self._flushed = 0
        self._wake = threading.Semaphore(0)
        self._ended = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._flush_behind, daemon=True)
        with contextlib.suppress(RuntimeError):  # where no thread can be had, the disk comes last
            self._thread.start()

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, tell, and wake the thread now and then."""
        written = super().write(data)
        self._done += written
        if self._done - self._flushed >= FLUSH_BYTES:
            self._flushed = self._done
            self._wake.release()
        self._progress("writing", self._done, 0)
        return written

    def close(self) -> None:
        """Write out what is buffered, wait for the disk, close."""
        if self.closed:
            return
        try:
            self.flush()
            self._stop()
            os.fsync(self.fileno())
        finally:
            self._stop()
            super().close()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        self._ended = True
        self._wake.release()
        if self._thread.ident is not None:
            self._thread.join()

    def _flush_behind(self) -> None:
        while True:
            self._wake.acquire()
            if self._ended or self._failure is not None:
                return
            try:
                os.fdatasync(self.fileno())
            except OSError as error:  # the kernel tells a failed write-back only once
                self._failure = error


def _take_room(descriptor: int, nbytes: int) -> None:
    """Let the file system choose all blocks together: writing costs a fifth less. Where it cannot, nothing is lost.

    `os.posix_fallocate` would write into every block on a file system that has no such call; Linux's own does not.
    """
    if nbytes and hasattr(libc := ctypes.CDLL(None), "fallocate"):
        libc.fallocate(descriptor, KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(nbytes))
