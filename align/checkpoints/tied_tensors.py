"""How tensors lie in their files: which are one and the same, and which share bytes without being so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
