"""What the headers of a checkpoint tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from align.core.checkpoints import Entry
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
class Inspection:
    """What is in a checkpoint, told by its headers alone; it decides nothing, so there is no verdict.

    `naming` is whose parameter names the file has: None where it does not say. `files` maps each
    file to its size. `entries` are those that a key can choose and `key` is the one that was taken; with several and
    none chosen, `tensors` is empty and `key` None. `overlaps` pairs names whose bytes overlap without being tied.
    `other` names what is no tensor or has no plain form, and what it is; `notes` are what must be told beside that.
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
    notes: tuple[str, ...] = ()
