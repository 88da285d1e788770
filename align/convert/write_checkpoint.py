"""Tensors written to a file, or to shards with an index: verified under temporary names before any takes its place.

So a destination is absent, old or complete, never half. Of shards the index comes last, and what was there before goes
just before the new files take its place: an old index would claim new shards, an old file be taken for a new index.
Every tensor is hashed while it is written, read back, and hashed again: XXH3 of 128 bits costs less than reading the
source once more would, and two contents with one hash are met by chance once in 10^38. Two threads take tensors in
turn: reading and hashing leave the interpreter free. A thread flushes behind the writer, so that the final fsync finds
little left: a copy with fsync took two thirds of the time of `cp` and `sync` together.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import xxhash

from align.checkpoints.extents import byte_blocks
from align.convert.thresholds import FLUSH_BYTES, READING_THREADS
from align.core.atomic_files import atomic_path, atomic_writer
from align.core.protocols import silent
from align.core.thresholds import BLOCK_BYTES
from align.errors import NotACheckpointError, UnsupportedCheckpointError, VerificationError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from align.core.parameters import StoredTensor
    from align.core.protocols import CheckpointFormat, FolderFormat, Progress


HashKind = Literal["xxh3", "sha256"]


@dataclass(frozen=True, slots=True)
class TensorHashes:
    """The hashes of tensors, as `xxh3:` or `sha256:` and hexadecimal digits; `written` has those of what was written.

    SHA-256 is for who signs what he has; against chance XXH3 of 128 bits does as well, and at the speed of memory.
    """

    kind: HashKind = "xxh3"
    written: dict[object, str] = field(default_factory=dict)

    def of_bytes(self, blocks: Iterable[ReadableBuffer]) -> str:
        """The hash of bytes that come in blocks."""
        digest = self._new()
        for block in blocks:
            digest.update(block)
        return self._text(digest)

    def watched(self, tensor: StoredTensor) -> StoredTensor:
        """The same tensor, which is hashed as its blocks are read."""
        return replace(tensor, blocks=partial(self._watched_blocks, tensor))

    def of_source(self, tensor: StoredTensor) -> str:
        """The hash of a tensor as it was written; where it was not watched, it is read now."""
        return self.written.get(tensor.identity) or self.of_bytes(byte_blocks(tensor))

    def _watched_blocks(self, tensor: StoredTensor, block: int = BLOCK_BYTES) -> Iterator[memoryview]:
        digest = self._new()
        for part in byte_blocks(tensor, block):
            digest.update(part)
            yield part
        self.written[tensor.identity] = self._text(digest)

    def _new(self) -> xxhash.xxh3_128 | hashlib._Hash:
        return hashlib.sha256() if self.kind == "sha256" else xxhash.xxh3_128()

    def _text(self, digest: xxhash.xxh3_128 | hashlib._Hash) -> str:
        return f"{self.kind}:{digest.hexdigest()}"


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
    output: Output, require_source: Callable[[], None], hashes: TensorHashes | None, progress: Progress
) -> dict[str, str]:
    """Write, read back, compare and rename; return each tensor's hash, nothing where `hashes` is None: not read back.

    `require_source` is called before anything takes its place, and raises if the source was changed meanwhile. Raises
    DestinationError or VerificationError; what was there before is then still there, unless the disk refuses to rename
    what it has just taken.
    """
    read_back: dict[str, str] = {}
    steps = WrittenBytes(progress, output.nbytes)
    with contextlib.ExitStack() as renames:
        if output.index is not None:
            renames.enter_context(atomic_writer(output.index[0])).write(output.index[1])
        for file in output.files:
            temporary = renames.enter_context(atomic_path(file.path, file.nbytes))
            tensors = file.tensors if hashes is None else [hashes.watched(tensor) for tensor in file.tensors]
            with SyncedWriter(temporary, steps.show, file.nbytes) as stream:
                output.plugin.write(stream, tensors, output.metadata)
            if hashes is not None:
                read_back |= verify_written(file.tensors, output.plugin, (temporary, file.path), hashes, steps.show)
            steps.base += file.nbytes
        require_source()
        if output.index is not None or len(output.old) > 1:
            for path in output.old:
                path.unlink(missing_ok=True)
    return read_back


@dataclass
class WrittenBytes:
    """The progress of one file as a part of that of all files."""

    progress: Progress
    total: int
    base: int = 0

    def show(self, what: str, done: int, total: int) -> None:  # noqa: ARG002 - the file's own total
        """Tell how far the whole is; headers may count beyond it."""
        self.progress(what, min(self.base + done, self.total), self.total)


def verify_written(
    expected: Sequence[StoredTensor],
    plugin: CheckpointFormat | FolderFormat,
    places: tuple[Path, Path],
    hashes: TensorHashes,
    progress: Progress,
) -> dict[str, str]:
    """Return the hash of each tensor by name; raises VerificationError listing all that was not written as it is.

    `places` are where the file was written, and what it is to become.
    """
    written, destination = places
    try:
        written_tensors = plugin.read(written).tensors
    except (NotACheckpointError, UnsupportedCheckpointError) as error:
        raise VerificationError(destination, [error.message]) from error
    unexpected = sorted(written_tensors.keys() - {tensor.name for tensor in expected})
    problems = [say("plan_fault.unexpected", name=name) for name in unexpected]
    read: dict[str, str] = {}
    done, total = 0, sum(tensor.nbytes for tensor in expected)
    with ThreadPoolExecutor(READING_THREADS) as pool:
        outcomes = pool.map(lambda tensor: _verified(tensor, written_tensors.get(tensor.name), hashes), expected)
        for tensor, (problem, text) in zip(expected, outcomes, strict=True):
            read[tensor.name] = text
            if problem:
                problems.append(say("fault_list.one", head=tensor.name, fault=problem))
            done += tensor.nbytes
            progress("verifying", done, total)
    if problems:
        raise VerificationError(destination, problems)
    return read


def _verified(expected: StoredTensor, actual: StoredTensor | None, hashes: TensorHashes) -> tuple[str, str]:
    """What is wrong with a tensor, "" if nothing is, and the hash of what was read back."""
    if actual is None:
        return say("plan_fault.not_written"), ""
    if expected.shape != actual.shape:
        return say("plan_fault.written_shape", found=str(actual.shape), expected=str(expected.shape)), ""
    if expected.dtype != actual.dtype:
        return say("plan_fault.written_dtype", found=actual.dtype, expected=expected.dtype), ""
    text = hashes.of_bytes(byte_blocks(actual))
    return "" if text == hashes.of_source(expected) else say("plan_fault.written_bytes"), text


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


def files_to_replace(destination: Path) -> list[Path]:
    """What stands in the place of a checkpoint: its file, or the index with all shards beside it."""
    index = destination.with_name(index_name(destination.name))
    # `Path.exists` raises where only the name of the index is too long.
    files = [path for path in (index, destination) if os.path.lexists(path)]
    if index in files:
        shard = re.compile(rf"{re.escape(destination.stem)}-\d{{5}}-of-\d{{5}}{re.escape(destination.suffix)}")
        files += sorted(path for path in destination.parent.iterdir() if shard.fullmatch(path.name))
    return files


def shard_names(name: str, count: int) -> list[str]:
    """File names of `count` shards of a checkpoint called `name`; a single one keeps the name and needs no index.

    >>> shard_names("model.safetensors", 2)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    if count == 1:
        return [name]
    path = PurePath(name)
    return [f"{path.stem}-{number:05d}-of-{count:05d}{path.suffix}" for number in range(1, count + 1)]


def index_name(name: str) -> str:
    """File name of the index of a checkpoint called `name`."""
    return f"{name}.index.json"


def index_bytes(shards: Sequence[Iterable[StoredTensor]], names: Sequence[str]) -> bytes:
    """The index: the bytes of all values together, and which of the files `names` holds each tensor."""
    total = sum(tensor.nbytes for shard in shards for tensor in shard)
    weight_map = {tensor.name: name for shard, name in zip(shards, names, strict=True) for tensor in shard}
    document = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
