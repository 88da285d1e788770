"""Tensors that should be equal on all ranks and are not, told from those that are sharded.

A tensor is known to be replicated if the job file says so, if the reference's are equal on all ranks while the
candidate's are not, or if more than half of at least three ranks hold the same values. The last does not count for
constants, which a sharded tensor may be by chance; with tensor and data parallelism no group of ranks is a majority.
A tensor of other shapes on other ranks is sharded.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from align.batch.batch_result import UnequalTensor
from align.batch.thresholds import LEAST_RANKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.batch.batch_result import TaskResult
    from align.batch.job import Job

Prints = dict[int, str]  # by rank
KnownBy = Literal["job file", "reference", "majority"]
CONSTANT = "="


def find_unequal(
    job: Job, tasks: Sequence[TaskResult], figures: Mapping[str, Mapping[str, Any]]
) -> tuple[UnequalTensor, ...]:
    """Name each tensor once, at the first step at which ranks hold other values of it."""
    found: dict[tuple[str, str], UnequalTensor] = {}
    groups = {(one.action, one.step): None for one in tasks if one.rank is not None}
    for action, step in sorted(groups, key=lambda one: (-1 if one[1] is None else one[1], one[0])):
        own = [one for one in tasks if (one.action, one.step) == (action, step) and one.rank is not None]
        for one in _at_one_step(job, own, figures, step):
            found.setdefault((one.name, one.side), one)
    return tuple(found.values())


def _at_one_step(
    job: Job, tasks: Sequence[TaskResult], figures: Mapping[str, Mapping[str, Any]], step: int | None
) -> Iterator[UnequalTensor]:
    sides: tuple[dict[str, Prints], dict[str, Prints]] = {}, {}
    for task in tasks:
        for name, *prints in figures[task.id].get("prints", ()):
            for side, value in zip(sides, prints, strict=True):
                if value is not None:
                    side.setdefault(name, {})[int(task.rank or 0)] = value
    for name in dict.fromkeys((*sides[0], *sides[1])):
        if _fits(name, job.sharded):
            continue
        named = _fits(name, job.replicated)
        reference, candidate = sides[0].get(name, {}), sides[1].get(name, {})
        yield from _judged(name, "reference", step, reference, _why(reference, {}, named=named))
        yield from _judged(name, "candidate", step, candidate, _why(candidate, reference, named=named))


def _why(prints: Prints, others: Prints, *, named: bool) -> KnownBy | None:
    """Why a tensor should be equal on all ranks; None if nothing says so."""
    if named:
        return "job file"
    if len({_shape(value) for value in prints.values()}) != 1:
        return None
    if _equal_in_reference(prints, others):
        return "reference"
    return "majority" if _has_majority(prints) else None


def _equal_in_reference(prints: Prints, others: Prints) -> bool:
    """Whether the reference holds one value, of the candidate's shape, on all these ranks."""
    same = {others.get(rank, "") for rank in prints}
    return len(prints) > 1 and len(same) == 1 and _shape(next(iter(same))) == _shape(next(iter(prints.values())))


def _has_majority(prints: Prints) -> bool:
    counts = Counter(prints.values())
    value, most = max(counts.items(), key=lambda one: one[1])
    return len(prints) >= LEAST_RANKS and most * 2 > len(prints) and not value.startswith(CONSTANT)


def _judged(
    name: str, side: Literal["reference", "candidate"], step: int | None, prints: Prints, why: KnownBy | None
) -> Iterator[UnequalTensor]:
    counts = Counter(prints.values())
    if why is None or len(counts) < 2:
        return
    usual = max(counts, key=lambda value: (counts[value], value))
    odd = tuple(sorted(rank for rank, value in prints.items() if value != usual))
    yield UnequalTensor(name, side, step, odd, counts[usual], why)


def _shape(value: str) -> str:
    return value.removeprefix(CONSTANT).partition(":")[0] if value else "?"


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
