"""Tensors put together of the pieces that ranks hold, and cut into such: as streams, so that none is held whole.

The elements of a piece follow each other in it as they do in the whole, whatever it was cut along. So each piece is
read once, from its first byte to its last, and the whole is made of runs that its pieces take turns to give.

Where two or three layers lie in one parameter, each rank of tensor parallelism has its part of each of them. How large
each layer is the weight behind it tells, whose input it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks, equal_blocks, paired_blocks
from align.checkpoints.thresholds import DEEPEST_TILING, LONGEST_TRACKER_BYTES
from align.core.parameters import StoredTensor, numpy_dtype
from align.core.thresholds import BLOCK_BYTES
from align.errors import NotACheckpointError, ShardsError, UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array, Shape
    from align.rules.training_rules import ShardCut

    Blocks = Callable[[int], Iterator[memoryview]]
    Tensors = Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class Box:
    """A piece and where its first element lies in the whole."""

    start: Shape
    tensor: StoredTensor


def streamed_tensor(name: str, shape: Shape, dtype: str, blocks: Blocks) -> StoredTensor:
    """A tensor whose bytes are made in blocks; only who asks for its value has it whole."""
    return StoredTensor(name, shape, dtype, partial(_load, shape, dtype, blocks), blocks=blocks)


def _load(shape: Shape, dtype: str, blocks: Blocks) -> Array:
    raw, done = np.empty(prod(shape) * numpy_dtype(dtype).itemsize, np.uint8), 0
    for block in blocks(BLOCK_BYTES):
        raw[done : done + len(block)] = block
        done += len(block)
    value: Array = np.ndarray(shape, numpy_dtype(dtype), raw.data)
    value.flags.writeable = False
    return value


def tiled_tensor(path: Path, name: str, shape: Shape, dtype: str, boxes: Sequence[Box]) -> StoredTensor:
    """The tensor that pieces make together.

    Raises NotACheckpointError, about the file at `path`, for pieces that leave a gap, overlap, or of which no cut along
    an axis sets some apart.
    """
    filled = [box for box in boxes if prod(box.tensor.shape)]
    if not filled:
        if prod(shape):
            raise NotACheckpointError(path, say("shard_fault.gap", name=name, shape=str(shape)))
        return StoredTensor(name, shape, dtype, lambda: np.empty(shape, numpy_dtype(dtype)))
    if len({box.tensor.dtype for box in filled}) > 1:
        raise NotACheckpointError(path, say("shard_fault.overlap", name=name, count=len(filled)))
    try:
        return replace(_tiled(name, (0,) * len(shape), shape, filled, DEEPEST_TILING), name=name)
    except ValueError as error:
        raise NotACheckpointError(path, str(error)) from error


def _tiled(name: str, start: Shape, shape: Shape, boxes: Sequence[Box], depth: int) -> StoredTensor:
    """The pieces of one region; raises ValueError where they are not all of it, or more."""
    if len(boxes) == 1:
        if (boxes[0].start, boxes[0].tensor.shape) != (start, shape):
            raise ValueError(say("shard_fault.gap", name=name, shape=str(shape)))
        return boxes[0].tensor
    axes = range(len(shape) if depth else 0)
    axis, groups = next(((axis, one) for axis in axes if len(one := _apart(boxes, axis)) > 1), (0, []))
    if not groups:
        raise ValueError(say("shard_fault.overlap", name=name, count=len(boxes)))
    pieces, at = [], start[axis]
    for group in groups:
        first = min(box.start[axis] for box in group)
        end = max(box.start[axis] + box.tensor.shape[axis] for box in group)
        if first != at:
            raise ValueError(say("shard_fault.gap", name=name, shape=str(shape)))
        inner = (*shape[:axis], end - first, *shape[axis + 1 :])
        pieces.append(_tiled(name, (*start[:axis], first, *start[axis + 1 :]), inner, group, depth - 1))
        at = end
    if at != start[axis] + shape[axis]:
        raise ValueError(say("shard_fault.gap", name=name, shape=str(shape)))
    return joined_along(name, pieces, axis)


def _apart(boxes: Sequence[Box], axis: int) -> list[list[Box]]:
    """The pieces in groups that do not meet along an axis, in their order."""
    groups: list[list[Box]] = []
    furthest = -1
    for box in sorted(boxes, key=lambda box: box.start[axis]):
        if box.start[axis] >= furthest:
            groups.append([])
        groups[-1].append(box)
        furthest = max(furthest, box.start[axis] + box.tensor.shape[axis])
    return groups


def joined_along(name: str, pieces: Sequence[StoredTensor], axis: int) -> StoredTensor:
    """One tensor of pieces that follow each other along an axis; raises ValueError for shapes or dtypes that differ."""
    first = pieces[0]
    if len(pieces) == 1:
        return replace(first, name=name)
    others = {(*piece.shape[:axis], *piece.shape[axis + 1 :]) for piece in pieces if axis < len(piece.shape)}
    if (
        len(others) != 1
        or len({piece.dtype for piece in pieces}) != 1
        or any(axis >= len(piece.shape) for piece in pieces)
    ):
        shapes = [f"{piece.dtype} {piece.shape}" for piece in pieces]
        raise ValueError(say("shard_fault.other_shapes", name=name, shapes=shapes, axis=axis))
    shape = (*first.shape[:axis], sum(piece.shape[axis] for piece in pieces), *first.shape[axis + 1 :])
    return streamed_tensor(name, shape, first.dtype, partial(_joined_blocks, tuple(pieces), axis))


def _joined_blocks(pieces: Sequence[StoredTensor], axis: int, block: int) -> Iterator[memoryview]:
    outer, pieces = prod(pieces[0].shape[:axis]), [piece for piece in pieces if piece.nbytes]
    if outer == 1 or len(pieces) < 2:
        for piece in pieces:
            yield from byte_blocks(piece, block)
        return
    widths = [piece.nbytes // outer for piece in pieces]
    row = sum(widths)
    rows = block // row
    streams = [_Stream(byte_blocks(piece, rows * width or block)) for piece, width in zip(pieces, widths, strict=True)]
    if not rows:
        for _ in range(outer):
            for stream, width in zip(streams, widths, strict=True):
                yield from stream.passed(width)
        return
    buffer = np.empty((min(rows, outer), row), np.uint8)
    for done in range(0, outer, rows):
        count, at = min(rows, outer - done), 0
        for stream, width in zip(streams, widths, strict=True):
            buffer[:count, at : at + width] = stream.taken(count * width).reshape(count, width)
            at += width
        yield buffer[:count].reshape(-1).data


def cut_along(name: str, tensor: StoredTensor, axis: int, start: int, stop: int) -> StoredTensor:
    """The piece of a tensor from `start` to `stop` along an axis."""
    if (start, stop) == (0, tensor.shape[axis]):
        return replace(tensor, name=name)
    shape = (*tensor.shape[:axis], stop - start, *tensor.shape[axis + 1 :])
    outer, size = prod(shape[:axis]), prod(shape[axis + 1 :]) * numpy_dtype(tensor.dtype).itemsize
    if outer == 1 and tensor.extent is not None:
        extent = replace(tensor.extent, offset=tensor.extent.offset + start * size, nbytes=(stop - start) * size)
        placed = replace(tensor, name=name, shape=shape, extent=extent, storage=None)
        return replace(placed, load=partial(_load, shape, tensor.dtype, partial(byte_blocks, placed)))
    span = (start * size, stop * size, tensor.shape[axis] * size)
    return streamed_tensor(name, shape, tensor.dtype, partial(_cut_blocks, tensor, outer, span))


def _cut_blocks(tensor: StoredTensor, outer: int, span: tuple[int, int, int], block: int) -> Iterator[memoryview]:
    """What lies between two bytes of each row, of rows that follow each other."""
    start, stop, row = span
    if not row or start == stop:
        return
    rows = block // row
    stream = _Stream(byte_blocks(tensor, rows * row or block))
    if rows:
        for done in range(0, outer, rows):
            count = min(rows, outer - done)
            part = stream.taken(count * row).reshape(count, row)[:, start:stop]
            yield np.ascontiguousarray(part).reshape(-1).data
        return
    for _ in range(outer):
        stream.skip(start)
        yield from stream.passed(stop - start)
        stream.skip(row - stop)


def reshaped(tensor: StoredTensor, name: str, shape: Shape) -> StoredTensor:
    """The same bytes under another name and shape."""
    blocks = partial(byte_blocks, tensor)
    load = partial(_load, shape, tensor.dtype, blocks)
    return replace(tensor, name=name, shape=shape, load=load, storage=None)


@dataclass(slots=True)
class _Stream:
    """Blocks of a tensor's bytes, given out again in runs of other lengths."""

    source: Iterator[memoryview]
    rest: memoryview = field(default_factory=lambda: memoryview(b""))

    def taken(self, count: int) -> Array:
        """The next bytes; they are valid until more are asked for."""
        if not len(self.rest) and count:
            self.rest = next(self.source)
        if len(self.rest) >= count:
            part, self.rest = self.rest[:count], self.rest[count:]
            return np.frombuffer(part, np.uint8)
        whole, done = np.empty(count, np.uint8), 0
        for part in self.passed(count):
            whole[done : done + len(part)] = part
            done += len(part)
        return whole

    def passed(self, count: int) -> Iterator[memoryview]:
        """The next bytes in the runs in which they come."""
        while count:
            if not len(self.rest):
                self.rest = next(self.source)
            part, self.rest = self.rest[:count], self.rest[count:]
            count -= len(part)
            yield part

    def skip(self, count: int) -> None:
        """Leave the next bytes out."""
        for _ in self.passed(count):
            pass


def equal_copies(path: Path, copies: Sequence[tuple[str, StoredTensor]]) -> StoredTensor:
    """The tensor of which several ranks hold a copy; that they are equal is looked at whenever it is read.

    Raises ValueError for shapes or dtypes that differ. Reading it raises ShardsError, about the folder at `path`, where
    values differ.
    """
    (label, first), *others = copies
    for other, copy in others:
        if (copy.shape, copy.dtype) != (first.shape, first.dtype):
            shapes = [f"{first.dtype} {first.shape} ({label})", f"{copy.dtype} {copy.shape} ({other})"]
            raise ValueError(say("shard_fault.unlike_copies", name=first.name, shapes=shapes))
    if not others:
        return first
    return streamed_tensor(first.name, first.shape, first.dtype, _Copies(path, tuple(copies)).blocks)


@dataclass(slots=True)
class _Copies:
    path: Path
    copies: tuple[tuple[str, StoredTensor], ...]
    holds: bool = False

    def blocks(self, block: int) -> Iterator[memoryview]:
        """The first copy, once all are known to be equal."""
        (label, first), *others = self.copies
        for other, copy in () if self.holds else others:
            if not all(equal_blocks(ours, theirs) for ours, theirs in paired_blocks(first, copy)):
                fault = say("shard_fault.other_values", name=first.name, ranks=[label, other])
                raise ShardsError(self.path, [fault], of_ranks=True)
        self.holds = True
        return byte_blocks(first, block)


# Folders of one step, in the folder of a run that tells which was the last.

TRACKERS = ("latest_checkpointed_iteration.txt", "latest")  # of Megatron and of DeepSpeed


def tracked_folder(path: Path, holds: Callable[[Path], bool]) -> Path | None:
    """The folder that holds parts: this one, the last of those below it by what its tracker says, or the only one.

    Raises UsageError for several of which none is said to be the last.
    """
    if not path.is_dir():
        return None
    if holds(path):
        return path
    inner = {one.name: one for one in sorted(path.iterdir()) if one.is_dir() and holds(one)}
    for tracker in TRACKERS if inner else ():
        if (path / tracker).is_file():
            with (path / tracker).open("rb") as stream:
                last = stream.read(LONGEST_TRACKER_BYTES).decode("utf-8", "replace").strip()
            if found := inner.get(last) or inner.get(f"iter_{last:0>7}") or inner.get(f"iteration_{last:0>8}"):
                return found
    if len(inner) > 1:
        raise UsageError.of("checkpoint_file.several_in_folder", folder=path, count=len(inner), names=[*inner])
    return next(iter(inner.values()), None)


def join_ranks(
    path: Path, name: str, ranks: Sequence[tuple[str, Tensors]], cut: ShardCut | None, local: str
) -> StoredTensor:
    """The parameter that ranks hold under the name `local`, each with its label; raises ValueError for odd pieces."""
    pieces = [(label, tensors[local]) for label, tensors in ranks]
    if len(pieces) == 1:
        return pieces[0][1]
    if cut is None:
        raise ValueError(say("shard_fault.unknown_cut", name=name, shape=str(pieces[0][1].shape)))
    if cut.axis is None:
        return equal_copies(path, pieces)
    axis = cut.axis
    sizes = [_block_sizes(cut, local, tensors) for _, tensors in ranks]
    if len({len(one) for one in sizes}) > 1:
        raise ValueError(say("shard_fault.unlike_blocks", name=name))
    blocks = []
    for number in range(len(sizes[0])):
        parts = []
        for (_, piece), own in zip(pieces, sizes, strict=True):
            start = sum(own[:number])
            parts.append(cut_along(name, piece, axis, start, start + own[number]))
        blocks.append(joined_along(name, parts, axis))
    return joined_along(name, blocks, axis)


def cut_for_rank(name: str, tensors: Tensors, cut: ShardCut, rank: int, count: int) -> StoredTensor:
    """The piece of a parameter that one of `count` ranks holds; raises ValueError where it cannot be cut evenly."""
    whole = tensors[name]
    if cut.axis is None or count == 1:
        return whole
    if cut.axis >= len(whole.shape):
        raise ValueError(say("shard_fault.no_axis", name=name, shape=str(whole.shape), axis=cut.axis))
    parts, start = [], 0
    for size in _block_sizes(cut, name, tensors):
        if size % count:
            raise ValueError(say("shard_fault.uneven", name=name, shape=str(whole.shape), size=size, count=count))
        step = size // count
        parts.append(cut_along(name, whole, cut.axis, start + rank * step, start + (rank + 1) * step))
        start += size
    return joined_along(name, parts, cut.axis)


def _block_sizes(cut: ShardCut, name: str, tensors: Tensors) -> list[int]:
    """How long each of the layers is that lie in one parameter; one size where there is but one."""
    tensor, axis = tensors[name], cut.axis or 0
    if axis >= len(tensor.shape):
        raise ValueError(say("shard_fault.no_axis", name=name, shape=str(tensor.shape), axis=axis))
    length = tensor.shape[axis]
    if not cut.neighbour(name):
        return [length]
    behind = tensors.get(cut.neighbour(name))
    if behind is None or len(behind.shape) != 2:
        raise ValueError(say("shard_fault.no_neighbour", name=name, other=cut.neighbour(name)))
    taken = behind.shape[1]
    if cut.gated:
        if length not in (taken, 2 * taken):
            raise ValueError(
                say("shard_fault.odd_gate", name=name, length=length, other=cut.neighbour(name), taken=taken)
            )
        return [taken] * (length // taken)
    rest = length - taken
    if rest <= 0 or rest % 2:
        raise ValueError(say("shard_fault.odd_gate", name=name, length=length, other=cut.neighbour(name), taken=taken))
    return [taken, rest // 2, rest // 2]
