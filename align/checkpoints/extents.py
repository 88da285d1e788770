"""The bytes of a stored tensor: mapped into memory, or read in blocks of a fixed size.

Whatever is written, compared or hashed goes through `byte_blocks`, so that none of it needs more memory than one
block, however large the tensor. A buffer of 1 MiB is the fastest way to copy that was measured; maps a tensor at a
time cost a third more, `copy_file_range` and threads gain nothing.
"""

from __future__ import annotations

import contextlib
import os
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import NotACheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    from align.core.checkpoints import Extent, StoredTensor
    from align.core.dtypes import Array
    from align.core.parameters import Shape


# Integers as wide as an element: bits are moved, never converted.
_RAW: dict[int, str] = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def byte_blocks(tensor: StoredTensor, block: int = BLOCK_BYTES) -> Iterator[memoryview]:
    """Yield the tensor's bytes (little-endian, C order) in blocks of `block` bytes, the last one shorter.

    A block is valid until the next one is asked for. Raises NotACheckpointError if the file has become shorter.
    """
    if tensor.blocks is not None:
        return tensor.blocks(block)
    if tensor.extent is not None:
        return _file_blocks((tensor.extent,), block)
    if tensor.pieces:
        return _file_blocks(tensor.pieces, block)
    return _array_blocks(tensor.load(), block)


def mapped(extent: Extent, shape: Shape, dtype: str) -> Callable[[], Array]:
    """Return a loader that maps the extent into memory as a read-only array."""

    def load() -> Array:
        kind = numpy_dtype(dtype)
        if prod(shape) == 0:
            return np.empty(shape, kind)
        try:
            raw = np.memmap(extent.path, np.uint8, "r", extent.offset, (extent.nbytes,))
        except (OSError, ValueError) as error:  # it was there, and long enough, when the header was read
            raise NotACheckpointError(extent.path, f"it cannot be mapped any more: {error}") from error
        return np.ndarray(shape, kind, raw.data)

    return load


def joined(pieces: Sequence[Extent], shape: Shape, dtype: str) -> Callable[[], Array]:
    """Return a loader that reads a tensor stored in several pieces into one read-only array."""

    def load() -> Array:
        raw = np.empty(sum(piece.nbytes for piece in pieces), np.uint8)
        done = 0
        for block in _file_blocks(pieces, BLOCK_BYTES):
            raw[done : done + len(block)] = block
            done += len(block)
        value: Array = np.ndarray(shape, numpy_dtype(dtype), raw.data)
        value.flags.writeable = False
        return value

    return load


def _file_blocks(extents: Sequence[Extent], block: int) -> Iterator[memoryview]:
    """Blocks run across the borders of the pieces, so that two layouts of one tensor yield equal blocks."""
    buffer = memoryview(bytearray(min(block, sum(extent.nbytes for extent in extents))))
    block, filled = len(buffer), 0
    for extent in extents:
        with _opened(extent.path) as stream:
            position, end = extent.offset, extent.offset + extent.nbytes
            while position < end:
                wanted = min(block - filled, end - position)
                count = os.preadv(stream.fileno(), [buffer[filled : filled + wanted]], position)
                if count == 0:
                    raise NotACheckpointError(extent.path, f"it ends at byte {position}, expected {end}")
                position, filled = position + count, filled + count
                if filled == block:
                    yield buffer
                    filled = 0
    if filled:
        yield buffer[:filled]


def _array_blocks(value: Array, block: int) -> Iterator[memoryview]:
    """Blocks of an array of any strides; only one block of it is ever copied."""
    if value.flags.c_contiguous:
        flat = value.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, block):
            yield flat[start : start + block].data
        return
    raw, size = value.view(_RAW[value.itemsize]), max(block // value.itemsize, 1)
    buffer, filled = np.empty(size, raw.dtype), 0
    flags: Any = ("external_loop", "buffered", "zerosize_ok")
    parts: Iterable[Any] = np.nditer(raw, flags, order="C", buffersize=size)
    for part in parts:  # since NumPy 2.4 they may end before `size`
        taken = 0
        while taken < part.size:
            count = min(size - filled, part.size - taken)
            buffer[filled : filled + count] = part[taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == size:
                yield buffer.view(np.uint8).data
                filled = 0
    if filled:
        yield buffer[:filled].view(np.uint8).data


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """The file for reading; what goes wrong is the source's fault, whatever is being written meanwhile."""
    try:
        with path.open("rb", buffering=0) as stream:
            yield stream
    except OSError as error:
        raise NotACheckpointError(path, error.strerror or str(error)) from error


def same_bytes(one: StoredTensor, other: StoredTensor) -> bool:
    """Tell whether the bytes of two values are equal; they are read up to the first that is not."""
    return all(equal_blocks(ours, theirs) for ours, theirs in paired_blocks(one, other))


def paired_blocks(one: StoredTensor, other: StoredTensor) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield the bytes of both side by side, in pairs of one length whatever blocks each comes in.

    What only one of them has is paired with nothing.
    """
    left, right = byte_blocks(one), byte_blocks(other)
    ours = theirs = memoryview(b"")
    while True:
        ours = ours or next(left, ours)
        theirs = theirs or next(right, theirs)
        if not ours and not theirs:
            return
        size = min(len(ours), len(theirs)) or None
        yield ours[:size], theirs[:size]
        ours, theirs = ours[size or len(ours) :], theirs[size or len(theirs) :]


def equal_blocks(ours: memoryview, theirs: memoryview) -> bool:
    """NumPy compares, eight bytes at a time where it can: `memoryview` does it item by item."""
    kind = np.uint8 if len(ours) % 8 or len(theirs) % 8 else np.uint64
    return np.array_equal(np.frombuffer(ours, kind), np.frombuffer(theirs, kind))
