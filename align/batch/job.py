"""A job: tasks by rank and step, and what is known of the tensors of its ranks."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.core.verdicts import Verdict


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


# A task of a job, and what became of it: both are small, for they travel between processes and machines.


@dataclass(frozen=True, slots=True)
class Task:
    """One comparison, conversion or check; `paths` are local paths or URLs, `options` what JSON can hold."""

    id: str  # unique in the job, used as a file name of its outcome: [A-Za-z0-9._-]
    action: str  # "diff" | "forward" | "convert" | "check"
    paths: tuple[str, ...]
    options: Mapping[str, Any]
    timeout: float | None = None  # seconds that an attempt may take


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of a task; `error` and `hint` are those of its last failure, `figures` empty when it failed."""

    task: str
    state: Literal["done", "failed"]
    attempts: int
    seconds: float  # of the last attempt
    peak_bytes: int | None  # of the process that ran it, while it ran
    figures: Mapping[str, Any]
    error: str
    hint: str


# Ids of tasks: file names of a run folder that say action, step and rank, and that no two tasks share by chance.

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 160  # format: a file name may have 255 bytes, with the suffix and what writing it adds
_DIGITS: Final = 6  # format: of the hash that tells apart what is spelled alike after odd signs are gone


def task_id(begin: str, rank: int | None, step: int | None, name: str) -> str:
    """The id of a task; what a file name cannot hold is replaced, and told apart by a hash.

    >>> task_id("diff", 3, 10, "")
    'diff-step10-rank3'
    """
    numbers = (f"{what}{number}" for what, number in (("step", step), ("rank", rank)) if number is not None)
    whole = "-".join(filter(None, (begin, *numbers, name)))
    plain = _ODD.sub("_", whole)[:_LONGEST]
    if plain == whole:
        return whole
    return f"{plain}-{hashlib.sha256(whole.encode(errors='surrogateescape')).hexdigest()[:_DIGITS]}"


# What a job of many tasks came to: each task, and what all of them say together over ranks and steps.

TaskState = Literal["aligned", "not aligned", "could not compare", "failed", "missing"]
RankGroupKind = Literal["aligned", "alike", "odd"]
TensorSide = Literal["reference", "candidate", "file"]  # the last is that of a check
KnownBy = Literal["job file", "reference", "majority"]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task, and the first layer in execution order that departs.

    `value` says how far it does: as a multiple of its limit in a comparison of outputs, relative to the reference (L2)
    in one of checkpoints.
    `departing` of `compared` layers or tensors depart; further ones are `not_comparable`. `reused` is what an earlier
    run had done. `error` and `hint` are those of a task that failed, or that has no file on one side.
    """

    id: str
    action: str
    rank: int | None
    step: int | None
    paths: tuple[str, ...]
    state: TaskState
    reason: str
    layer: str | None = None
    value: float | None = None
    departing: int = 0
    compared: int = 0
    not_comparable: int = 0
    attempts: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None
    reused: bool = False
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class FirstDeparture:
    """The earliest step at which anything departs, the layer that comes first there, and the ranks on which it does."""

    action: str
    step: int | None
    ranks: tuple[int, ...]
    layer: str | None
    value: float | None
    task: str


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that do alike: `aligned` with their references, departing `alike`, or `odd` among the others.

    `step` is the one that is looked at: the first at which any rank departs.
    """

    kind: RankGroupKind
    ranks: tuple[int, ...]
    step: int | None
    layer: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class UnequalTensor:
    """A tensor that should be equal on all ranks and is not: `ranks` hold other values than the `equal` ones.

    `step` is the first at which that is so. `side` is where it was found; `known_by` says why it should be equal: by
    the job file's `replicated`, because the reference's are, or because most ranks hold the same.
    """

    name: str
    side: TensorSide
    step: int | None
    ranks: tuple[int, ...]
    equal: int
    known_by: KnownBy


@dataclass(frozen=True, slots=True)
class LayerOverRanks:
    """One layer in execution order, and the worst that each rank has of it over all steps, as the result's `ranks`.

    `outcomes` are "aligned", "not aligned", "not comparable" or "" where the rank has no such layer.
    """

    layer: str
    outcomes: tuple[str, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class BatchResult(ShownResult):
    """A job: its tasks by step and rank, and what they say together.

    `groups` are empty where no rank departs. `layers` are of the action that departs first, else of that with most
    tasks: all that depart and, of the others, as many as a picture shows. `unused` are globs of the job file's
    `[ranks]` that fit no tensor. `renumbered` are ranks of the candidate, each with that of
    the reference whose shards it holds, where both sides number them otherwise. `next_commands` show alone what departs
    first, and what failed first.
    """

    result_kind = "batch"
    job: str
    tasks: tuple[TaskResult, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    first: FirstDeparture | None
    groups: tuple[RankGroup, ...]
    unequal: tuple[UnequalTensor, ...]
    unused: tuple[str, ...]
    renumbered: tuple[tuple[int, int], ...]
    layers: tuple[LayerOverRanks, ...]
    next_commands: tuple[str, ...]
    verdict: Verdict
