"""Target tensors made of source tensors, none of them made before it is asked for.

Steps that leave the bytes as they are keep the source's place in its file, so that a writer copies without loading. A
cast is done block by block, whatever comes before it; only axes in another order need the source's array, and that is a
view of a file mapped into memory. A slice of the first axis has a place in the file as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.core.checkpoints import StoredTensor
from align.core.dtypes import numpy_dtype
from align.core.piece_transforms import Slice
from align.core.transforms import Cast, Reshape
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Fill
    from align.core.piece_transforms import Part
    from align.core.transforms import Transform


def transformed_tensor(source: StoredTensor, name: str, transform: Transform) -> StoredTensor:
    """The source's value under another name after a transform; raises ValueError if its shape does not fit.

    Tensors of one storage stay of one storage if they are made alike, and only then.
    """
    made = replace(source, name=name)
    for step in transform.steps:
        made = _after(made, step)
    if source.storage is not None and transform.steps:
        made = replace(made, storage=f"{source.storage} {[step.as_table() for step in transform.steps]}")
    return made


def joined_tensor(name: str, pieces: Sequence[tuple[StoredTensor, Part]]) -> StoredTensor:
    """One tensor of pieces that tile it, each with its place; raises ValueError if their dtypes differ.

    Along the first axis its bytes are those of the pieces one after the other, and are never held whole.
    """
    pieces = sorted(pieces, key=lambda piece: piece[1].start)
    first, part = pieces[0]
    if len(dtypes := sorted({tensor.dtype for tensor, _ in pieces})) > 1:
        raise ValueError(say("plan_fault.several_dtypes", dtypes=dtypes))

    def load() -> Array:
        whole: Array = np.empty(part.shape, numpy_dtype(first.dtype))
        for tensor, place in pieces:
            whole[place.region] = tensor.load()
        return whole

    def blocks(block: int) -> Iterator[memoryview]:
        for tensor, _ in pieces:
            yield from byte_blocks(tensor, block)

    return StoredTensor(name, part.shape, first.dtype, load, blocks=None if part.axis else blocks)


def filled_tensor(fill: Fill) -> StoredTensor:
    """A tensor of a value at hand."""
    value = fill.value
    return StoredTensor(fill.name, tuple(value.shape), value.dtype.name, lambda: value)


def _after(source: StoredTensor, step: Transform) -> StoredTensor:
    def load() -> Array:
        return step.apply(source.load())

    shape, dtype = step.output_shape(source.shape), step.output_dtype(source.dtype)
    made = replace(source, shape=shape, dtype=dtype, load=load)
    if isinstance(step, Reshape):
        return made
    if isinstance(step, Slice) and not step.axis and source.extent is not None:
        row = source.nbytes // source.shape[0]
        extent = replace(source.extent, offset=source.extent.offset + step.start * row, nbytes=made.nbytes)
        return replace(made, extent=extent)
    made = replace(made, extent=None, pieces=(), blocks=None)
    return replace(made, blocks=lambda block: _cast_blocks(source, step, block)) if isinstance(step, Cast) else made


def _cast_blocks(source: StoredTensor, cast: Cast, block: int) -> Iterator[memoryview]:
    """Blocks of the cast value; those of the source hold as many elements each."""
    before, after = numpy_dtype(source.dtype), numpy_dtype(cast.dtype)
    elements = max(block // after.itemsize, 1)
    for raw in byte_blocks(source, elements * before.itemsize):
        yield cast.apply(np.frombuffer(raw, before)).view(np.uint8).data
