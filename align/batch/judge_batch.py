"""The result of a job out of the outcomes of its tasks: what departs first, and the verdict over all."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from align.batch.job import (
    BatchResult,
    FirstDeparture,
    LayerOverRanks,
    RankGroup,
    TaskResult,
    UnequalTensor,
    place_order,
)
from align.batch.job_files import without_secrets
from align.batch.thresholds import ALIKE_FACTOR, LEAST_MOVED, LEAST_RANKS, MOST_LAYERS
from align.core.verdicts import Coverage, Outcome, Verdict
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.batch.job import (
        Job,
        KnownBy,
        MissingSide,
        PlacedTask,
        RankGroupKind,
        Task,
        TaskOutcome,
        TaskState,
        TensorSide,
    )


DEPARTS = "not aligned"
UNDONE = ("failed", "missing", "could not compare")


def judge_batch(job: Job, outcomes: Mapping[str, TaskOutcome], reused: Collection[str] = ()) -> BatchResult:
    """Say what the outcomes of all tasks of a job come to."""
    tasks = [_task_result(one, outcomes[one.task.id], one.task.id in reused) for one in job.tasks]
    figures = {one.task.id: dict(outcomes[one.task.id].figures) for one in job.tasks}
    first = _first_departure(tasks, figures)
    groups, unequal = group_ranks(tasks), find_unequal(job, figures)
    renumbered = renumbered_ranks(job, figures, first)
    unused = unused_globs(job, figures) if all(figures.values()) else ()  # a task that failed may hold the tensor
    more = {"unused": [*unused], "renumbered": [f"{rank} is {was}" for rank, was in renumbered if rank != was]}
    tasks += [_missing(one) for one in job.missing]
    tasks.sort(key=lambda one: place_order(one.step, one.rank))
    ranks = sorted({one.rank for one in tasks if one.rank is not None})
    return BatchResult(
        job=job.label,
        tasks=tuple(tasks),
        ranks=tuple(ranks),
        steps=tuple(sorted({one.step for one in tasks if one.step is not None})),
        first=first,
        groups=groups,
        unequal=unequal,
        unused=unused,
        renumbered=renumbered,
        layers=layers_over_ranks(tasks, figures, ranks, "" if first is None else first.action),
        next_commands=next_commands(job, tasks, first),
        verdict=_verdict(tasks, _departures(tasks, first, groups, unequal) | more),
    )


def _task_result(placed: PlacedTask, outcome: TaskOutcome, reused: bool) -> TaskResult:
    figures = outcome.figures
    rows = figures.get("rows", [])
    departing = [row for row in rows if row[1] == DEPARTS]
    state: TaskState = "failed" if outcome.state == "failed" else figures["outcome"]
    return TaskResult(
        id=placed.task.id,
        action=placed.task.action,
        rank=placed.rank,
        step=placed.step,
        paths=tuple(without_secrets(path) for path in placed.task.paths),
        state=state,
        reason=str(figures.get("reason", "")),
        layer=departing[0][0] if departing else None,
        value=departing[0][2] if departing else None,
        departing=len(departing),
        compared=int(figures.get("compared", 0)),
        not_comparable=sum(row[1] == "not comparable" for row in rows),
        attempts=outcome.attempts,
        seconds=outcome.seconds,
        peak_bytes=outcome.peak_bytes,
        reused=reused,
        error=outcome.error,
        hint=outcome.hint,
    )


def _missing(one: MissingSide) -> TaskResult:
    path = without_secrets(one.expected)
    error = say("batch_task.missing", side=one.side, path=path)
    return TaskResult(
        one.id, one.action, one.rank, one.step, (path,), "missing", "",
        error=error, hint=say("batch_task.missing_hint"),
    )  # fmt: skip


def _first_departure(tasks: Sequence[TaskResult], figures: Mapping[str, dict[str, Any]]) -> FirstDeparture | None:
    """The earliest step, in it the layer that comes first in the run of any rank, and the ranks on which it departs."""
    departing = [one for one in tasks if one.state == DEPARTS]
    if not departing:
        return None
    step = min(place_order(one.step, None) for one in departing)
    there = [one for one in departing if place_order(one.step, None) == step]
    earliest = min(there, key=lambda one: _order(figures[one.id]))
    alike = [one for one in there if one.action == earliest.action and _departs_in(figures[one.id], earliest.layer)]
    ranks = sorted({one.rank for one in alike if one.rank is not None})
    return FirstDeparture(earliest.action, earliest.step, tuple(ranks), earliest.layer, earliest.value, earliest.id)


def _departs_in(figures: Mapping[str, Any], layer: str | None) -> bool:
    return layer is None or any(row[:2] == [layer, DEPARTS] for row in figures.get("rows", ()))


def _order(figures: Mapping[str, Any]) -> int:
    """The place in execution order of the first row that departs; behind all where none does."""
    rows = figures.get("rows", [])
    return next((place for place, row in enumerate(rows) if row[1] == DEPARTS), len(rows))


def _verdict(tasks: Sequence[TaskResult], said: Mapping[str, Any]) -> Verdict:
    undone = [one for one in tasks if one.state in UNDONE]
    coverage = Coverage("tasks", len(tasks) - len(undone), unmatched_reference=0, excluded=0)
    outcome, key = Outcome.ALIGNED, "aligned"
    if undone or said["unused"]:
        outcome, key = Outcome.NOT_COMPARED, "undone" if undone else "unused"
    elif said["departing"] or said["unequal"]:
        outcome, key = Outcome.NOT_ALIGNED, "departs" if said["departing"] else "unequal"
    facts = {"total": len(tasks), "undone": len(undone), "first": undone[0].id if undone else ""}
    facts["unlike"] = next((one.id for one in tasks if one.not_comparable), "")
    facts["layers"] = sum(one.not_comparable for one in tasks)
    return Verdict(outcome, sentence(f"batch_verdict.{key}", **facts, **said), coverage)


def _departures(
    tasks: Sequence[TaskResult],
    first: FirstDeparture | None,
    groups: Sequence[RankGroup],
    unequal: Sequence[UnequalTensor],
) -> dict[str, Any]:
    odd = [rank for group in groups if group.kind == "odd" for rank in group.ranks]
    return {
        "departing": sum(one.state == DEPARTS for one in tasks),
        "place": "" if first is None else _words(first),
        "odd": [f"rank {rank}" for rank in odd],
        "tensors": [one.name for one in unequal],
        "unequal": len(unequal),
    }


def _words(first: FirstDeparture) -> str:
    return say(
        "batch_verdict.place",
        step="" if first.step is None else str(first.step),
        ranks=[*map(str, first.ranks)],
        count=len(first.ranks),
        layer=first.layer or first.task,
    )


# Ranks that do alike, and those that do not: one bad card departs alone, a fault of the port on every rank.
#
# They are compared at the first step at which any departs, by what their own comparisons say: where they depart
# first, and by how much.


def group_ranks(tasks: Sequence[TaskResult]) -> tuple[RankGroup, ...]:
    """Group the ranks, the largest group first; () where none departs or there is but one rank."""
    departing = [one for one in tasks if one.state == "not aligned" and one.rank is not None]
    first = min(departing, key=lambda one: place_order(one.step, None), default=None)
    if first is None:
        return ()
    by_rank = _by_rank([one for one in tasks if (one.action, one.step) == (first.action, first.step)])
    if len(by_rank) < 2:
        return ()
    groups = sorted(_alike(by_rank), key=lambda ranks: (-len(ranks), ranks))
    return tuple(_group(ranks, groups, by_rank) for ranks in groups)


def _by_rank(tasks: Sequence[TaskResult]) -> dict[int, TaskResult]:
    """The task of each rank; of several the first that departs."""
    found: dict[int, TaskResult] = {}
    for state in ("not aligned", "aligned"):
        for one in tasks:
            if one.state == state and one.rank is not None:
                found.setdefault(one.rank, one)
    return found


def _alike(by_rank: Mapping[int, TaskResult]) -> Iterator[list[int]]:
    """Ranks that are aligned, and those that depart in one layer with no gap of the factor between their amounts."""
    buckets: dict[tuple[bool, str | None, bool], list[int]] = defaultdict(list)
    for rank, one in by_rank.items():
        buckets[one.state == "aligned", one.layer, bool(one.value)].append(rank)
    for (aligned, _, measured), ranks in buckets.items():
        if aligned or not measured:
            yield sorted(ranks)
        else:
            yield from _without_gaps([(abs(by_rank[rank].value or 0.0), rank) for rank in ranks])


def _without_gaps(amounts: list[tuple[float, int]]) -> Iterator[list[int]]:
    """The ranks of amounts, apart where one is more than the factor above the next smaller one."""
    before, group = math.inf, list[int]()
    for value, rank in sorted(amounts):
        if value > before * ALIKE_FACTOR:
            yield sorted(group)
            group = []
        group.append(rank)
        before = value
    yield sorted(group)


def _group(ranks: list[int], groups: Sequence[list[int]], by_rank: Mapping[int, TaskResult]) -> RankGroup:
    one = by_rank[ranks[0]]
    total, most = len(by_rank), len(groups[0])
    aligned = sum(task.state == "aligned" for task in by_rank.values())
    odd = len(ranks) < most and most * 2 > total
    kind: RankGroupKind = "odd" if odd else "aligned" if one.state == "aligned" else "alike"
    facts = {"count": len(ranks), "rest": total - len(ranks), "aligned": aligned, "most": most}
    says = _says(kind, one.state, **facts)
    key = f"batch_checks.{says}" if one.action == "check" else f"batch_ranks.{says}"
    reason = sentence(key, **facts)
    return RankGroup(kind, tuple(ranks), one.step, one.layer, reason)


def _says(kind: RankGroupKind, state: TaskState, *, rest: int, aligned: int, most: int, **_: int) -> str:
    """Which sentence is true of a group."""
    if state == "aligned":
        return "odd_aligned" if kind == "odd" else "aligned"
    if kind == "odd":
        return "odd" if aligned == rest else "odd_apart" if aligned == most else "odd_otherwise"
    return "alike" if rest else "all_alike"


# Ranks of the candidate that hold what other ranks of the reference hold: both sides number their ranks otherwise.
#
# Only tensors tell it that are bit for bit those of one rank of the reference and of no other, as shards are.

Shards = dict[tuple[str, str], str]  # the fingerprint of a tensor, by part and name


def renumbered_ranks(
    job: Job, figures: Mapping[str, Mapping[str, Any]], first: FirstDeparture | None
) -> tuple[tuple[int, int], ...]:
    """The rank of the candidate and the one of the reference that it is, where at least two have changed places."""
    if first is None:
        return ()
    mine, theirs = _sides(job, figures, first)
    pairs = [(rank, was) for rank, held in theirs.items() if held for was, own in mine.items() if own == held]
    moved = [rank for rank, was in pairs if rank != was]
    one_to_one = len(dict(pairs)) == len({was for _, was in pairs}) == len(pairs)
    return tuple(sorted(pairs)) if len(moved) >= LEAST_MOVED and one_to_one else ()


def _sides(
    job: Job, figures: Mapping[str, Mapping[str, Any]], first: FirstDeparture
) -> tuple[dict[int, Shards], dict[int, Shards]]:
    """The tensors of each rank, on both sides, that no two ranks of the reference hold alike."""
    mine: dict[int, Shards] = defaultdict(dict)
    theirs: dict[int, Shards] = defaultdict(dict)
    for one in job.tasks:
        if (one.task.action, one.step) == (first.action, first.step) and one.rank is not None:
            for name, own, other in figures[one.task.id].get("prints", ()):
                mine[one.rank] |= {(one.part, name): own} if own else {}
                theirs[one.rank] |= {(one.part, name): other} if other else {}
    values: dict[tuple[str, str], list[str]] = defaultdict(list)
    for held in mine.values():
        for name, value in held.items():
            values[name].append(value)
    alone = {name for name, found in values.items() if len(set(found)) == len(found) > 1}
    return _only(mine, alone), _only(theirs, alone)


def _only(ranks: Mapping[int, Shards], names: set[tuple[str, str]]) -> dict[int, Shards]:
    return {rank: {name: value for name, value in held.items() if name in names} for rank, held in ranks.items()}


# Tensors that should be equal on all ranks and are not, told from those that are sharded.
#
# A tensor is known to be replicated if the job file says so, if the reference's are equal on all ranks while the
# candidate's are not, or if more than half of at least three ranks hold the same values. The last does not count for
# constants, which a sharded tensor may be by chance; with tensor and data parallelism no group of ranks is a
# majority. A tensor of other shapes on other ranks is sharded.

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


# Each layer on each rank: the worst of all steps, for a picture and a table.

Cell = tuple[str, float | None]
_GRAVER = ("", "aligned", "accepted", "not comparable", "not aligned")


def layers_over_ranks(
    tasks: Sequence[TaskResult], figures: Mapping[str, Mapping[str, Any]], ranks: Sequence[int], action: str = ""
) -> tuple[LayerOverRanks, ...]:
    """The layers of `action`, else of the one that most tasks have, in execution order; of many those that depart."""
    counts = Counter(one.action for one in tasks if one.rank is not None and figures.get(one.id, {}).get("rows"))
    if not counts:
        return ()
    action = max(sorted(counts), key=lambda one: (one == action, counts[one]))
    worst: dict[str, dict[int, Cell]] = {}
    for task in tasks:
        if task.action == action and task.rank is not None:
            for name, outcome, value in figures.get(task.id, {}).get("rows", ()):
                own = worst.setdefault(name, {})
                own[task.rank] = max(own.get(task.rank, ("", None)), (outcome, value), key=_gravity)
    return tuple(_layer(name, worst[name], ranks) for name in _shown(worst))


def _shown(worst: Mapping[str, Mapping[int, Cell]]) -> list[str]:
    if len(worst) <= MOST_LAYERS:
        return [*worst]
    departing = [name for name, own in worst.items() if any(cell[0] == "not aligned" for cell in own.values())]
    rest = [name for name in worst if name not in set(departing)]
    kept = {*departing[:MOST_LAYERS], *rest[: max(MOST_LAYERS - len(departing), 0)]}
    return [name for name in worst if name in kept]


def _layer(name: str, own: Mapping[int, Cell], ranks: Sequence[int]) -> LayerOverRanks:
    cells = [own.get(rank, ("", None)) for rank in ranks]
    return LayerOverRanks(name, tuple(cell[0] for cell in cells), tuple(cell[1] for cell in cells))


def _gravity(cell: Cell) -> tuple[int, float]:
    """Graver is larger; what departs without a figure (NaN, another shape) is the gravest."""
    outcome, value = cell
    place = _GRAVER.index(outcome) if outcome in _GRAVER else 0
    return place, float("inf") if value is None and outcome == "not aligned" else value or 0.0


# What to type next: the command that shows alone the task that departs first, and the first that failed.


def next_commands(job: Job, tasks: Sequence[TaskResult], first: FirstDeparture | None) -> tuple[str, ...]:
    """The commands, each as it can be pasted; a check is looked into by `align inspect`."""
    failed = next((one.id for one in tasks if one.state in ("failed", "could not compare")), "")
    wanted = ["" if first is None else first.task, failed]
    by_id = {one.task.id: one.task for one in job.tasks}
    return tuple(dict.fromkeys(_command(by_id[name]) for name in wanted if name in by_id))


def _command(task: Task) -> str:
    verb = "inspect" if task.action == "check" else task.action
    paths = [without_secrets(path) for path in task.paths]
    return shlex.join(
        ["align", verb, *paths, *(word for name in task.options for word in _option(name, task.options[name]))]
    )


def _option(name: str, value: Any) -> Iterator[str]:
    """An option of a job file as its command spells it."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        if name == "verify":
            yield from [] if value else ["--no-verify"]
        elif value:
            yield flag
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        yield from (flag, without_secrets(str(one)))
