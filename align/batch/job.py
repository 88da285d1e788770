"""A job: tasks by rank and step, and what is known of the tensors of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from align.batch.task import Task


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task with the rank and the step that it is of; None where its paths name none.

    `part` tells tasks of one rank and step apart: the id of their table and what `{name}` stood for.
    """

    task: Task
    rank: int | None = None
    step: int | None = None
    part: str = ""


@dataclass(frozen=True, slots=True)
class MissingSide:
    """A rank or step of which one side has no file: `expected` is a path that it could have."""

    id: str
    action: str
    rank: int | None
    step: int | None
    side: str
    expected: str


@dataclass(frozen=True, slots=True)
class Job:
    """The tasks of a job in the order of their steps and ranks.

    `replicated` and `sharded` are globs of tensors that are equal on all ranks, and of those that are not meant to be.
    """

    label: str
    tasks: tuple[PlacedTask, ...]
    missing: tuple[MissingSide, ...] = ()
    replicated: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()
    file: Path | None = None


def place_order(step: int | None, rank: int | None) -> tuple[int, int]:
    """What sorts by step, then rank; what has none comes first."""
    return -1 if step is None else step, -1 if rank is None else rank
