"""A checkpoint as read: tensors by name, none of them loaded until asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from align.core.dtypes import numpy_dtype
from align.errors import UnsupportedTensorsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Shape


@dataclass(slots=True)
class Checksum:
    """The CRC-32 that a format carries of a record: of `nbytes` at `offset` of its file; `holds` once that was seen."""

    record: str
    offset: int
    nbytes: int
    crc: int
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a tensor's bytes lie contiguously, little-endian and in C order: `nbytes` at `offset` of `path`.

    `checksum` is that of the record in which they lie, None where the format has none; what reads bytes of an extent
    (`checkpoints.extents`) checks it.
    """

    path: Path
    offset: int
    nbytes: int
    checksum: Checksum | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint.

    `load` returns its value, memory-mapped and read-only where the file allows. `extent` is None where the
    bytes are not contiguous in one file: a strided view, a compressed array, or a tensor cut into `pieces`, which
    follow each other. `storage` is equal for tensors that are one tensor in the source (the same view of the same
    memory), so that ties are known; None where the format has no such notion. `blocks`, where it is given, makes the
    value's bytes (little-endian, C order) in blocks of at most so many bytes, without ever holding it whole.
    """

    name: str
    shape: Shape
    dtype: str
    load: Callable[[], Array] = field(repr=False, compare=False)
    extent: Extent | None = None
    storage: str | None = None
    pieces: tuple[Extent, ...] = ()
    blocks: Callable[[int], Iterator[memoryview]] | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def identity(self) -> object:
        """Equal for tied tensors, which may be written once under several names; unique for any other."""
        return self.name if self.storage is None else (self.storage, self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class OddTensor:
    """A tensor that is no plain strided one: `reason` names it, `remedy` says what to save instead."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping of names to tensors in a nested file, by the keys that lead to it, joined by dots; "" at the top."""

    key: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors in file order, with what else the file says.

    `other` names the entries that are none of them (an epoch, optimizer state) and what they are; `other_tensors` says
    how many tensors lie in such an entry, where there are any. `entries` lists the mappings of a nested file that can
    be asked for, `key` is the one that was taken. `files` are all files that it consists of, `path` if there is but
    one. `odd` are tensors without a plain form, for which `require_plain` refuses the checkpoint; `notes` say what
    whoever uses it must know. `told_shapes` and `told_parts` are what a training said of itself: the true shapes of
    weights, and into how many parts the model was cut, by setting. `elsewhere` are the names in the other shards, where
    the file is one of several. `checksums` are where records with a checksum lie, which is checked as they are read.
    `check` reads what nothing else vouches for (a crc over the whole file) and raises NotACheckpointError. `states` are
    the size and the time of change (in nanoseconds) of each file from before it was read.
    """

    path: Path
    format: str
    tensors: dict[str, StoredTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    other_tensors: dict[str, int] = field(default_factory=dict)
    key: str = ""
    entries: tuple[Entry, ...] = ()
    files: tuple[Path, ...] = ()
    odd: dict[str, OddTensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    told_shapes: dict[str, Shape] = field(default_factory=dict)
    told_parts: dict[str, int] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    checksums: tuple[Extent, ...] = field(default=(), repr=False, compare=False)
    check: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    states: dict[Path, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def all_files(self) -> tuple[Path, ...]:
        """Every file that it was read from."""
        return self.files or (self.path,)


def require_plain(checkpoint: Checkpoint) -> Checkpoint:
    """Raise UnsupportedTensorsError naming all odd tensors, if there are any."""
    if odd := list(checkpoint.odd.values()):
        raise UnsupportedTensorsError(checkpoint.path, [tensor.reason for tensor in odd], odd[0].remedy)
    return checkpoint
