"""How tensors lie in their files: which are one and the same, and which share bytes without being so.

The record of a conversion also says which tensors of its source were one. Since then the file may have been trained in
a framework that knows them as two: they are tied again where their values are still equal, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.extents import same_bytes
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.checkpoints import StoredTensor


def tied_names(tensors: Iterable[StoredTensor]) -> tuple[tuple[str, ...], ...]:
    """Names of one tensor, in groups of two or more, in the order of the tensors; empty tensors are never tied."""
    groups: dict[object, list[str]] = {}
    for tensor in tensors:
        if tensor.nbytes:
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
    found = []
    reaching, furthest = ("", 0, 0, "", ""), 0
    for span in spans:
        path, start, negative_size, storage, name = span
        if path == reaching[0] and start < furthest and storage != reaching[3]:
            found.append((reaching[4], name))
        if path != reaching[0] or start - negative_size > furthest:
            reaching, furthest = span, start - negative_size
    return tuple(found)


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
