"""What is in a checkpoint of any format. Only headers are read: a large file takes no longer than a small one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from align.checkpoints.extents import check_whole, overlapping_names, tied_names
from align.checkpoints.names_in_file import declared_framework, training_notes
from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.open_trusted import open_trusted
from align.checkpoints.unfinished_weights import unfinished_notes
from align.core.progress import collector_paused
from align.core.verdicts import ShownResult
from align.errors import SeveralEntriesError

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.checkpoints import Checkpoint, Entry, StoredTensor
    from align.core.parameters import Shape


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor of a checkpoint as its header tells it.

    `contiguous` says whether its bytes lie in the file as they are in memory: in C order, not compressed.
    """

    name: str
    shape: Shape
    dtype: str
    nbytes: int
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Inspection(ShownResult):
    """What is in a checkpoint, by its headers alone; it decides nothing, so there is no verdict.

    `naming` is whose parameter names the file has: None where it does not say. `files` maps each
    file to its size. `entries` are those that a key can choose and `key` is the one that was taken; with several and
    none chosen, `tensors` is empty and `key` None. `overlaps` pairs names whose bytes overlap without being tied.
    `other` names what is no tensor or has no plain form, and what it is; `notes` are what must be said beside that.
    `crc_unchecked` says that the file carries a crc that was not checked, `crc_checked` that it was and holds.
    """

    result_kind = "inspect"
    path: str
    format: str
    naming: Literal["torch", "mindspore"] | None
    files: dict[str, int]
    metadata: dict[str, str]
    key: str | None
    entries: tuple[Entry, ...]
    tensors: tuple[TensorFacts, ...]
    ties: tuple[tuple[str, ...], ...]
    overlaps: tuple[tuple[str, str], ...]
    other: dict[str, str]
    crc_unchecked: bool
    crc_checked: bool = False
    notes: tuple[str, ...] = ()


@collector_paused()
def inspect_checkpoint(
    path: Path | str, key: str | None = None, *, trust_pickle: bool = False, check: bool = False
) -> Inspection:
    """Read the headers of a checkpoint and say what is in it.

    `key` chooses an entry of a nested file. Without it, a file of several entries that could be the weights is
    described by those entries, without tensors. `trust_pickle` lets torch run what the file pickles. `check` reads all
    of which the file carries a crc. Raises what opening the file raises, NotACheckpointError for a crc that differs.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "model.npz")
    >>> numpy.savez(path, **{"fc.weight": numpy.ones((2, 3), numpy.float32), "fc.bias": numpy.ones(2, numpy.float32)})
    >>> found = inspect_checkpoint(path)
    >>> found.format, [(tensor.name, tensor.shape, tensor.dtype) for tensor in found.tensors]
    ('npz', [('fc.weight', (2, 3), 'float32'), ('fc.bias', (2,), 'float32')])
    """
    opened = partial(open_trusted if trust_pickle else open_checkpoint, path, odd_too=True)
    try:
        found = opened(key)
        described = _described(found)
    except SeveralEntriesError as error:
        found = opened(error.keys[0])
        described = _undecided(found, error)
    if not check:
        return described
    check_whole(found)
    return replace(described, crc_unchecked=False, crc_checked=described.crc_unchecked)


def _described(checkpoint: Checkpoint) -> Inspection:
    tensors = checkpoint.tensors.values()
    return Inspection(
        path=str(checkpoint.path),
        format=checkpoint.format,
        naming=declared_framework(checkpoint.metadata),
        files={str(path): path.stat().st_size for path in checkpoint.all_files},
        metadata=checkpoint.metadata,
        key=checkpoint.key,
        entries=checkpoint.entries,
        tensors=tuple(_facts(tensor) for tensor in tensors),
        ties=tied_names(tensors),
        overlaps=overlapping_names(tensors),
        other={name: tensor.reason for name, tensor in checkpoint.odd.items()} | checkpoint.other,
        crc_unchecked=checkpoint.check is not None or _carries_crc(checkpoint),
        notes=(*checkpoint.notes, *training_notes(checkpoint), *unfinished_notes(checkpoint)),
    )


def _carries_crc(checkpoint: Checkpoint) -> bool:
    return bool(checkpoint.checksums) or any(tensor.blocks is not None for tensor in checkpoint.tensors.values())


def _undecided(checkpoint: Checkpoint, error: SeveralEntriesError) -> Inspection:
    """What can be said before an entry is chosen; the first of them, which was opened, stands for none."""
    entries = tuple(entry for entry in checkpoint.entries if entry.key in error.keys)
    other = {name: what for name, what in checkpoint.other.items() if name not in error.keys}
    nothing = replace(checkpoint, tensors={}, odd={}, other=other, entries=entries)
    return replace(_described(nothing), key=None)


def _facts(tensor: StoredTensor) -> TensorFacts:
    contiguous = tensor.extent is not None or bool(tensor.pieces) or tensor.nbytes == 0
    return TensorFacts(tensor.name, tensor.shape, tensor.dtype, tensor.nbytes, contiguous)
