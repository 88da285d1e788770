"""How tensors lie in their files: which are one and the same, and which share bytes without being so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.checkpoints import StoredTensor


def tied_names(tensors: Iterable[StoredTensor]) -> tuple[tuple[str, ...], ...]:
    """Names of one tensor, in groups of two or more, in the order of the tensors; empty tensors are never tied."""
    groups: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.storage is not None and tensor.nbytes:
            groups.setdefault(tensor.storage, []).append(tensor.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def overlapping_names(tensors: Iterable[StoredTensor]) -> tuple[tuple[str, str], ...]:
    """Pairs of tensors that share bytes of their file and are not tied.

    Each tensor is paired once at most, with the one before it that reaches furthest; of one without an extent it is not
    known.
    """
    found = []
    reaching: StoredTensor | None = None
    for tensor in sorted((t for t in tensors if t.extent and t.nbytes), key=_place):
        tied = reaching is not None and tensor.storage is not None and tensor.storage == reaching.storage
        if reaching is not None and _end(reaching) > _place(tensor) and not tied:
            found.append((reaching.name, tensor.name))
        if reaching is None or _end(tensor) > _end(reaching):
            reaching = tensor
    return tuple(found)


def _place(tensor: StoredTensor) -> tuple[str, int]:
    return (str(tensor.extent.path), tensor.extent.offset) if tensor.extent else ("", 0)


def _end(tensor: StoredTensor) -> tuple[str, int]:
    path, offset = _place(tensor)
    return path, offset + tensor.nbytes
