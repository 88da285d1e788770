"""A checkpoint as read: tensors by name, none of them loaded until asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from align.core.dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Shape

MOST_AXES = 64  # torch's own limit; a file that claims more was not written by any framework


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a tensor's bytes lie contiguously, little-endian and in C order: `nbytes` at `offset` of `path`."""

    path: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint.

    `load` returns its value, memory-mapped and read-only where the file allows. `extent` is None where the
    bytes are not contiguous in one file: a strided view, a compressed array, or a tensor cut into `pieces`, which
    follow each other. `storage` is equal for tensors that are one tensor in the source (the same view of the same
    memory), so that ties are known; None where the format has no such notion.
    """

    name: str
    shape: Shape
    dtype: str
    load: Callable[[], Array] = field(repr=False, compare=False)
    extent: Extent | None = None
    storage: str | None = None
    pieces: tuple[Extent, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors in file order, with what else the file says.

    `other` names the entries that are none of them (an epoch, optimizer state) and what they are; `other_tensors` says
    how many tensors lie in such an entry, where there are any.
    """

    path: Path
    format: str
    tensors: dict[str, StoredTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    other_tensors: dict[str, int] = field(default_factory=dict)
