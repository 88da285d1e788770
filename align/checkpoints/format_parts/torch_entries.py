"""From a pickled tree to a checkpoint, for every form in which torch keeps the bytes of its storages.

The forms differ only in where the pickle and the storages lie. What the tree means, which mapping in it is meant, and
what is a tensor's place in its storage is decided here, once.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import mapped
from align.checkpoints.format_parts.nested_entries import choose_entry, read_others, read_tensors
from align.checkpoints.format_parts.pickle import PickleTreeReader
from align.checkpoints.thresholds import MOST_REPEATED_BYTES, MOST_VIEWS_OF_A_BYTE
from align.core.checkpoints import Checkpoint, Extent, StoredTensor
from align.core.dtypes import numpy_dtype
from align.errors import HostileFileError, NotACheckpointError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.checkpoints.format_parts.pickle import TensorView
    from align.core.dtypes import Array


def torch_checkpoint(
    path: Path, form: str, tree: Any, storages: Mapping[str, Extent], key: str | None = None
) -> Checkpoint:
    """Choose the mapping of names to tensors and place each tensor in its storage.

    Raises what `choose_entry` raises, NotACheckpointError and HostileFileError for tensors outside their storage.
    """
    look = PickleTreeReader(path)
    chosen = choose_entry(path, tree, look, key)
    views, odd = read_tensors(chosen, look, look.view)
    tensors = {name: _tensor(path, name, view, storages.get(view.key)) for name, view in views.items()}
    _refuse_repetition(path, tensors, {view.key: storages[view.key].nbytes for view in views.values()})
    others, counts = read_others(path, tree, chosen, {*views, *odd}, look)
    return Checkpoint(path, form, tensors, {"format": "pt"}, others, counts, chosen.key, chosen.entries, odd=odd)


def _refuse_repetition(path: Path, tensors: Mapping[str, StoredTensor], storages: Mapping[str, int]) -> None:
    """Views of one storage may overlap; a few bytes could claim terabytes so, in many views if not in one."""
    claimed = sum({tensor.identity: tensor.nbytes for tensor in tensors.values()}.values())
    stored = sum(storages.values())
    if claimed > MOST_VIEWS_OF_A_BYTE * stored + MOST_REPEATED_BYTES:
        raise HostileFileError(path, say("torch_file.repeats", claimed=claimed, stored=stored))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a growing tree of records again and again: a third of the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _tensor(path: Path, name: str, view: TensorView, place: Extent | None) -> StoredTensor:
    if place is None:
        raise NotACheckpointError(path, say("torch_file.no_storage", name=name, storage=view.key))
    if place.nbytes < view.storage_bytes:
        raise NotACheckpointError(
            path, say("torch_file.other_storage", name=name, nbytes=place.nbytes, claimed=view.storage_bytes)
        )
    itemsize = numpy_dtype(view.dtype).itemsize
    # The same view of the same storage is one tensor; other views of it (flattened LSTM weights) are not tied.
    # A storage goes by its place, which is short, where its key may not be.
    storage = f"{place.offset}+{view.offset}:{view.shape}:{view.stride}"
    if view.contiguous:
        extent = Extent(path, place.offset + view.offset * itemsize, view.nbytes)
        return StoredTensor(name, view.shape, view.dtype, mapped(extent, view.shape, view.dtype), extent, storage)
    whole = Extent(path, place.offset, view.needs)
    return StoredTensor(name, view.shape, view.dtype, lambda: _strided(view, whole), None, storage)


def _strided(view: TensorView, whole: Extent) -> Array:
    """A view that is not contiguous, over its storage mapped into memory."""
    itemsize = numpy_dtype(view.dtype).itemsize
    raw = mapped(whole, (whole.nbytes,), "uint8")()  # NumPy gives out no buffer of bfloat16 or float8
    strides = tuple(step * itemsize for step in view.stride)
    return np.ndarray(view.shape, numpy_dtype(view.dtype), raw.data, view.offset * itemsize, strides)
