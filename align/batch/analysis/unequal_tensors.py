"""Tensors that should be equal on all ranks and are not, told from those that are sharded.

A tensor is known to be replicated if the job file says so, if the reference's are equal on all ranks while the
candidate's are not, or if more than half of at least three ranks hold the same values. The last does not count for
constants, which a sharded tensor may be by chance; with tensor and data parallelism no group of ranks is a majority.
A tensor of other shapes on other ranks is sharded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from align.batch.batch_result import UnequalTensor
from align.batch.job import place_order
from align.batch.thresholds import LEAST_RANKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.batch.batch_result import KnownBy, TensorSide
    from align.batch.job import Job, PlacedTask

Figures = dict[str, Any]
Prints = dict[int, str]  # by rank
CONSTANT = "="


def find_unequal(job: Job, figures: Mapping[str, Figures]) -> tuple[UnequalTensor, ...]:
    """Name each tensor once, at the first step at which ranks hold other values of it."""
    found: dict[tuple[str, str], UnequalTensor] = {}
    series: dict[tuple[str, int | None], list[PlacedTask]] = defaultdict(list)
    for one in job.tasks:
        if one.rank is not None:
            series[one.task.action, one.step].append(one)
    for (action, step), tasks in sorted(series.items(), key=lambda one: (place_order(one[0][1], None), one[0][0])):
        for tensor in _at_one_step(job, action, step, _tensors(tasks, figures)):
            found.setdefault((tensor.name, tensor.side), tensor)
    return tuple(found.values())


def unused_globs(job: Job, figures: Mapping[str, Figures]) -> tuple[str, ...]:
    """The globs of the job file that fit no tensor: what they say was not looked at."""
    names = {name for own in figures.values() for name, *_ in own.get("prints", ())}
    globs = dict.fromkeys((*job.replicated, *job.sharded))
    return tuple(glob for glob in globs if not any(fnmatchcase(name, glob) for name in names))


def _tensors(tasks: Sequence[PlacedTask], figures: Mapping[str, Figures]) -> dict[tuple[str, str], list[Prints]]:
    """Fingerprints of both sides by rank, for each name; by part too where a rank has several tensors of that name."""
    held: dict[str, list[tuple[PlacedTask, list[str | None]]]] = defaultdict(list)
    for one in tasks:
        for name, *prints in figures.get(one.task.id, {}).get("prints", ()):
            held[name].append((one, prints))
    found: dict[tuple[str, str], list[Prints]] = {}
    for name, places in held.items():
        several = len({one.rank for one, _ in places}) < len(places)
        for one, prints in places:
            sides = found.setdefault((name, one.part if several else ""), [{}, {}])
            for side, value in zip(sides, prints, strict=True):
                if value is not None:
                    side[int(one.rank or 0)] = value
    return found


def _at_one_step(
    job: Job, action: str, step: int | None, tensors: Mapping[tuple[str, str], list[Prints]]
) -> Iterator[UnequalTensor]:
    for (name, part), (reference, candidate) in tensors.items():
        if _fits(name, job.sharded):
            continue
        named, label = _fits(name, job.replicated), f"{name} ({part})" if part else name
        if why := _why(reference, {}, named=named):
            yield from _judged(label, "reference", step, reference, why)
        if why := _why(candidate, reference, named=named):
            yield from _judged(label, "file" if action == "check" else "candidate", step, candidate, why, reference)


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
    value, most = Counter(prints.values()).most_common(1)[0]
    return len(prints) >= LEAST_RANKS and most * 2 > len(prints) and not value.startswith(CONSTANT)


def _judged(
    name: str, side: TensorSide, step: int | None, prints: Prints, why: KnownBy, others: Mapping[int, str] | None = None
) -> Iterator[UnequalTensor]:
    """Ranks that hold other values than most; of as many on both sides, than those that hold the reference's."""
    counts = Counter(prints.values())
    if len(counts) < 2:
        return
    right = set((others or {}).values())
    usual = max(counts, key=lambda value: (counts[value], value in right))  # then the lowest rank's
    odd = tuple(sorted(rank for rank, value in prints.items() if value != usual))
    yield UnequalTensor(name, side, step, odd, counts[usual], why)


def _shape(value: str) -> str:
    return value.removeprefix(CONSTANT).partition(":")[0] if value else "?"


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
