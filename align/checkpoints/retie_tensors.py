"""Ties that are only told: tensors said to be one, tied again where their values are still equal, bit for bit.

The record of a conversion tells which tensors of its source were one. Since then the file may have been trained in a
framework that knows them as two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.extents import same_bytes
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.checkpoints import StoredTensor


def retie_tensors(
    tensors: Iterable[StoredTensor], told: Sequence[Sequence[str]]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Return the tensors by name, those of a told tie with one storage if they are equal, and a warning for each other.

    The tensors of a tie are read, in blocks.
    """
    tied = {tensor.name: tensor for tensor in tensors}
    warnings: list[str] = []
    for names in told:
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
