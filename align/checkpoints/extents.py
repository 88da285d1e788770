"""The bytes of stored tensors: mapped into memory, or read in blocks of a fixed size; which tensors are one.

Where a format carries the CRC-32 of a record, it is reckoned while the record is streamed from end to end, or before a
part of it is read or mapped; once for a file that is open.

Whatever is written, compared or hashed goes through `byte_blocks`, so that none of it needs more memory than one
block, however large the tensor. A buffer of 1 MiB is the fastest way to copy that was measured; maps a tensor at a
time cost a third more, `copy_file_range` and threads gain nothing.

The record of a conversion also says which tensors of its source were one. Since then the file may have been trained in
a framework that knows them as two: they are tied again where their values are still equal, bit for bit.
"""

from __future__ import annotations

import contextlib
import mmap
import zlib
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.operating_system import read_at, read_into
from align.core.parameters import numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import NotACheckpointError
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    from align.core.parameters import Array, Checkpoint, Checksum, Extent, Shape, StoredTensor


# Integers as wide as an element: bits are moved, never converted.
_RAW: dict[int, str] = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def byte_blocks(tensor: StoredTensor, block: int = BLOCK_BYTES) -> Iterator[memoryview]:
    """Yield the tensor's bytes (little-endian, C order) in blocks of `block` bytes, the last one shorter.

    A block is valid until the next one is asked for. Raises NotACheckpointError if the file has become shorter.
    """
    if tensor.blocks is not None:
        return tensor.blocks(block)
    if tensor.extent is not None:
        return _extent_blocks(tensor.extent, block)
    if tensor.pieces:
        return _file_blocks(tensor.pieces, block)
    return _array_blocks(tensor.load(), block)


def read_whole(tensors: Iterable[StoredTensor]) -> Iterator[bytes]:
    """Yield the bytes of each tensor (little-endian, C order): of many small ones, whose file is opened once.

    To map fifty thousand of them one by one takes seconds. Raises NotACheckpointError for a file that has become
    shorter, and for a record whose checksum is wrong.
    """
    with contextlib.ExitStack() as opened:
        path, file = None, -1
        for tensor in tensors:
            extent = tensor.extent
            if tensor.blocks is not None or extent is None or not _has_short_record(extent):
                yield b"".join(byte_blocks(tensor))
                continue
            if extent.path != path:
                opened.close()
                path, file = extent.path, opened.enter_context(_opened(extent.path)).fileno()
            yield _read_extent(file, extent)


def _has_short_record(extent: Extent) -> bool:
    checksum = extent.checksum
    return checksum is None or checksum.holds or checksum.nbytes <= BLOCK_BYTES


def _read_extent(file: int, extent: Extent) -> bytes:
    checksum = extent.checksum
    if checksum is not None and not checksum.holds:
        require_crc(extent.path, checksum, zlib.crc32(read_at(file, checksum.nbytes, checksum.offset)))
    raw = read_at(file, extent.nbytes, extent.offset)
    if len(raw) < extent.nbytes:
        position, end = extent.offset + len(raw), extent.offset + extent.nbytes
        raise NotACheckpointError(extent.path, say("checkpoint_file.too_short", position=position, end=end))
    return raw


def mapped(extent: Extent, shape: Shape, dtype: str) -> Callable[[], Array]:
    """Return a loader that maps the extent into memory as a read-only array."""
    return partial(_map, extent, shape, dtype)  # a third of a closure's memory, of hundreds of thousands


def _map(extent: Extent, shape: Shape, dtype: str) -> Array:
    kind = numpy_dtype(dtype)
    if prod(shape) == 0:
        return np.empty(shape, kind)
    check_crc(extent)
    before = extent.offset % mmap.ALLOCATIONGRANULARITY
    try:
        with extent.path.open("rb", buffering=0) as stream:  # np.memmap resolves each path
            start, size = extent.offset - before, extent.nbytes + before
            raw = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ, offset=start)
    except (OSError, ValueError) as error:  # it was there, and long enough, when the header was read
        reason = getattr(error, "strerror", None) or error  # which names the file no second time
        raise NotACheckpointError(extent.path, say("checkpoint_file.not_mapped", error=reason)) from error
    return np.ndarray(shape, kind, raw, before)


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


def check_crc(extent: Extent) -> None:
    """Read the record in which an extent lies, if it has a checksum that was not seen to hold.

    Raises NotACheckpointError for a record that is damaged.
    """
    checksum = extent.checksum
    if checksum is not None and not checksum.holds:
        for _ in _extent_blocks(replace(extent, offset=checksum.offset, nbytes=checksum.nbytes), BLOCK_BYTES):
            pass


def require_crc(path: Path, checksum: Checksum, found: int) -> None:
    """Note that a checksum holds; raises NotACheckpointError if the record has another one."""
    if found != checksum.crc:
        raise NotACheckpointError(path, say("zip_file.other_crc", name=checksum.record))
    checksum.holds = True


def file_state(path: Path) -> tuple[int, int]:
    """Size and time of change: a file that has both as before is taken to be as before."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def require_unchanged(checkpoint: Checkpoint) -> None:
    """Raise NotACheckpointError for a file that was written to, replaced or removed since it was opened.

    What was read of it may be of two contents.
    """
    for path, state in checkpoint.states.items():
        if not path.is_file() or file_state(path) != state:
            reason, hint = texts("checkpoint_file.changed")
            raise NotACheckpointError(path, reason, hint=hint)


def check_whole(checkpoint: Checkpoint) -> None:
    """Read all that a format has checksums of; raises NotACheckpointError for what is damaged."""
    if checkpoint.check is not None:
        checkpoint.check()
    for extent in checkpoint.checksums:
        check_crc(extent)
    for tensor in checkpoint.tensors.values():
        for _ in tensor.blocks(BLOCK_BYTES) if tensor.blocks is not None else ():
            pass
    require_unchanged(checkpoint)


def _extent_blocks(extent: Extent, block: int) -> Iterator[memoryview]:
    """The crc of a record is reckoned on the way to its end, or beforehand where the extent ends elsewhere."""
    checksum = extent.checksum
    if checksum is None or checksum.holds:
        yield from _file_blocks((extent,), block)
        return
    before = replace(extent, offset=checksum.offset, nbytes=extent.offset - checksum.offset)
    if before.nbytes > BLOCK_BYTES or before.nbytes + extent.nbytes != checksum.nbytes:
        check_crc(extent)
        yield from _file_blocks((extent,), block)
        return
    crc, left = 0, extent.nbytes
    for piece in _file_blocks((before,), BLOCK_BYTES):
        crc = zlib.crc32(piece, crc)
    if not left:
        require_crc(extent.path, checksum, crc)
    for piece in _file_blocks((extent,), block):
        crc, left = zlib.crc32(piece, crc), left - len(piece)
        if not left:  # before the last piece is given out: nobody need ask whether there are more
            require_crc(extent.path, checksum, crc)
        yield piece


def _file_blocks(extents: Sequence[Extent], block: int) -> Iterator[memoryview]:
    """Blocks run across the borders of the pieces, so that two layouts of one tensor yield equal blocks."""
    buffer = memoryview(bytearray(min(block, sum(extent.nbytes for extent in extents))))
    block, filled = len(buffer), 0
    for extent in extents:
        with _opened(extent.path) as stream:
            position, end = extent.offset, extent.offset + extent.nbytes
            while position < end:
                wanted = min(block - filled, end - position)
                count = read_into(stream.fileno(), buffer[filled : filled + wanted], position)
                if count == 0:
                    raise NotACheckpointError(extent.path, say("checkpoint_file.too_short", position=position, end=end))
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


def paired_blocks(first: StoredTensor, second: StoredTensor) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield the bytes of both side by side, in pairs of one length whatever blocks each comes in.

    What only one of them has is paired with nothing.
    """
    left, right = byte_blocks(first), byte_blocks(second)
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


def tied_names(tensors: Iterable[StoredTensor]) -> tuple[tuple[str, ...], ...]:
    """Names of one tensor, in groups of two or more, in the order of the tensors; empty tensors are never tied."""
    groups: dict[object, list[str]] = {}
    for tensor in tensors:
        if tensor.storage is not None and tensor.nbytes:
            groups.setdefault(tensor.identity, []).append(tensor.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def overlapping_names(tensors: Iterable[StoredTensor]) -> tuple[tuple[str, str], ...]:
    """Pairs of tensors that share bytes of their file and are not tied.

    Each tensor is paired once at most, with the one before it that reaches furthest; of one without an extent it is not
    known.
    """
    spans = sorted(
        (str(t.extent.path), t.extent.offset, -t.extent.nbytes, t.storage or t.name, t.name)
        for t in tensors
        if t.extent is not None and t.extent.nbytes
    )
    overlaps = []
    reaching, furthest = ("", 0, 0, "", ""), 0
    for span in spans:
        path, start, negative_size, storage, name = span
        if path == reaching[0] and start < furthest and storage != reaching[3]:
            overlaps.append((reaching[4], name))
        if path != reaching[0] or start - negative_size > furthest:
            reaching, furthest = span, start - negative_size
    return tuple(overlaps)


def retie_tensors(
    tensors: Iterable[StoredTensor], recorded: Sequence[Sequence[str]]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Return the tensors by name, those of a tie with one storage if still equal, and a warning for each other.

    The tensors of a tie are read, in blocks.
    """
    tied = {tensor.name: tensor for tensor in tensors}
    warnings: list[str] = []
    for names in recorded:
        present = [tied[name] for name in names if name in tied]
        if len({tensor.identity for tensor in present}) < 2:
            continue  # nothing to tie, or tied already
        if all(_are_equal(present[0], other) for other in present[1:]):
            storage = present[0].storage or f"tied to {present[0].name}"
            tied |= {tensor.name: replace(tensor, storage=storage) for tensor in present}
        else:
            warnings.append(sentence("checkpoint_note.written_apart", names=[t.name for t in present]))
    return tied, warnings


def _are_equal(one: StoredTensor, other: StoredTensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype) and same_bytes(one, other)
