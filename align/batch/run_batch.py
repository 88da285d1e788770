"""A job run from its first task to its result: what is kept is reused, the rest is run where the caller says."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections import Counter, defaultdict
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from align.batch.job import (
    BatchResult,
    FirstDeparture,
    LayerOverRanks,
    RankGroup,
    TaskOutcome,
    TaskResult,
    UnequalTensor,
    input_state,
    place_order,
    without_secrets,
)
from align.batch.run_task import FUNCTION
from align.batch.thresholds import ALIKE_FACTOR, LEAST_MOVED, LEAST_RANKS, MOST_LAYERS
from align.core.about import __version__
from align.core.align_sequences import grouped
from align.core.atomic_files import write_text
from align.core.documents import COUNT, FIGURE, TEXT, Form, maybe, read_json, table
from align.core.protocols import Progress, silent
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import AlignError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from align.batch.job import Job, KnownBy, MissingSide, PlacedTask, RankGroupKind, Task, TaskState, TensorSide
    from align.batch.open_workers import Workers


def run_batch(
    job: Job, workers: AbstractContextManager[Workers], *, run: Path | None = None, progress: Progress = silent
) -> BatchResult:
    """Run all tasks that `run` keeps no outcome of, and say what all of them came to.

    Each outcome is kept as soon as it is there, so that a run that ends early goes on where it was. The workers are
    opened only if there is something to run. Raises what the workers raise where none of them can run anything.
    """
    kept = KeptOutcomes(run)
    outcomes = {one.task.id: outcome for one in job.tasks if (outcome := kept.outcome(one.task)) is not None}
    reused = frozenset(outcomes)
    left = [one.task for one in job.tasks if one.task.id not in reused]
    if left:
        with workers as place:
            outcomes |= _run(left, place, kept, len(job.tasks), progress)
    return judge_batch(job, outcomes, reused)


def _run(
    tasks: list[Task], workers: Workers, kept: KeptOutcomes, total: int, progress: Progress
) -> dict[str, TaskOutcome]:
    by_id = {task.id: task for task in tasks}
    inputs: dict[str, str] = {}
    outcomes: dict[str, TaskOutcome] = {}
    done, what = total - len(tasks), say("batch_task.running")
    progress(what, done, total)
    for outcome in workers.run(_looked_at(tasks, kept, inputs), FUNCTION):
        outcomes[outcome.task] = outcome
        kept.keep(by_id[outcome.task], outcome, inputs[outcome.task])
        progress(what, done + len(outcomes), total)
    return outcomes


def _looked_at(tasks: list[Task], kept: KeptOutcomes, inputs: dict[str, str]) -> Iterator[Task]:
    """Hand out tasks; the state of what each reads is noted before it is run."""
    for task in tasks:
        inputs[task.id] = kept.fingerprint(task)
        yield task


# What a run folder keeps of a job: one small file a task, `tasks/ID.json`, so that a later run does the rest.
#
# An outcome counts as long as its task, its inputs and mindalign are as they were: size and time of each file, or
# what object storage tells of an object. A failure is tried again. Nothing that is written holds a user, a password
# or a query of a URL; the fingerprint is a hash.

_FOLDER = "tasks"
_FORM = 1  # format: the version of these files
_WRITES = "convert"
_OUTCOME = table(
    {"task": TEXT, "state": {"enum": ["done", "failed"]}, "attempts": COUNT, "seconds": FIGURE}
    | {"peak_bytes": maybe(COUNT), "figures": {"type": "object"}, "error": TEXT, "hint": TEXT}
)
_KEPT = Form(table({"outcome": _OUTCOME, "inputs": {}, "outputs": {}}))


class KeptOutcomes:
    """The outcomes that a run folder keeps; without a folder nothing is kept."""

    def __init__(self, run: Path | None) -> None:
        self._folder = None if run is None else run / _FOLDER

    def outcome(self, task: Task) -> TaskOutcome | None:
        """What is kept of a task, None if it is to be run: never run, failed, damaged, or made from other inputs."""
        if self._folder is None:
            return None
        try:
            document = _KEPT.require(read_json(self._folder / f"{task.id}.json"))
            inputs = self.fingerprint(task)
            if not inputs or document["inputs"] != inputs or document["outputs"] != _outputs(task):
                return None
            outcome = TaskOutcome(**document["outcome"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return outcome if outcome.state == "done" else None

    def fingerprint(self, task: Task) -> str:
        """A hash of the task and the state of all that it reads; "" for what cannot be told, which never fits."""
        if self._folder is None:
            return ""
        of_task = [_FORM, __version__, task.action, dict(task.options)]
        digest = hashlib.sha256(json.dumps(of_task, sort_keys=True).encode())
        read = task.paths[:1] if task.action == _WRITES else task.paths
        try:
            for path in (*read, *([task.options["map"]] if "map" in task.options else [])):
                digest.update(
                    "\n".join((path, *input_state(path, self._folder.parent))).encode(errors="surrogateescape")
                )
        except AlignError:  # of the storage: what the task itself will meet and say
            return ""
        if task.action == _WRITES:
            digest.update(task.paths[1].encode(errors="surrogateescape"))
        return digest.hexdigest()

    def keep(self, task: Task, outcome: TaskOutcome, inputs: str) -> None:
        """Write an outcome whole or not at all; `inputs` is the fingerprint from before the task was run."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "form": _FORM,
            "action": task.action,
            "paths": [without_secrets(path) for path in task.paths],
            "inputs": inputs,
            "outputs": _outputs(task),
            "outcome": asdict(outcome),
        }
        write_text(self._folder / f"{task.id}.json", json.dumps(document) + "\n")


def _outputs(task: Task) -> list[str]:
    """The state of what a task writes: one that is gone is written again."""
    if task.action != _WRITES:
        return []
    try:
        return [without_secrets(line) for line in input_state(task.paths[1], entry=False)]
    except AlignError:
        return []


# The result of a job out of the outcomes of its tasks: what departs first, and the verdict over all.


DEPARTS = "not aligned"
UNDONE = ("failed", "missing", "could not compare")


def judge_batch(job: Job, outcomes: Mapping[str, TaskOutcome], reused: Collection[str] = ()) -> BatchResult:
    """Say what the outcomes of all tasks of a job come to."""
    tasks = [_task_result(placed, outcomes[placed.task.id], placed.task.id in reused) for placed in job.tasks]
    figures = {placed.task.id: dict(outcomes[placed.task.id].figures) for placed in job.tasks}
    first = _first_departure(tasks, figures)
    groups, unequal = group_ranks(tasks), find_unequal(job, figures)
    renumbered = renumbered_ranks(job, figures, first)
    unused = unused_globs(job, figures) if all(figures.values()) else ()  # a task that failed may hold the tensor
    more = {"unused": [*unused], "renumbered": [f"{rank} is {was}" for rank, was in renumbered if rank != was]}
    tasks += [_missing(missing) for missing in job.missing]
    tasks.sort(key=lambda task: place_order(task.step, task.rank))
    ranks = sorted({task.rank for task in tasks if task.rank is not None})
    return BatchResult(
        job=job.label,
        tasks=tuple(tasks),
        ranks=tuple(ranks),
        steps=tuple(sorted({task.step for task in tasks if task.step is not None})),
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


def _missing(missing: MissingSide) -> TaskResult:
    path = without_secrets(missing.expected)
    error = sentence("batch_task.missing", side=missing.side, path=path)
    return TaskResult(
        missing.id, missing.action, missing.rank, missing.step, (path,), "missing", "",
        error=error, hint=sentence("batch_task.missing_hint"),
    )  # fmt: skip


def _first_departure(tasks: Sequence[TaskResult], figures: Mapping[str, dict[str, Any]]) -> FirstDeparture | None:
    """The earliest step, in it the layer that comes first in the run of any rank, and the ranks on which it departs."""
    departing = [task for task in tasks if task.state == DEPARTS]
    if not departing:
        return None
    step = min(place_order(task.step, None) for task in departing)
    there = [task for task in departing if place_order(task.step, None) == step]
    earliest = min(there, key=lambda task: _order(figures[task.id]))
    alike = [task for task in there if task.action == earliest.action and _departs_in(figures[task.id], earliest.layer)]
    ranks = sorted({task.rank for task in alike if task.rank is not None})
    return FirstDeparture(earliest.action, earliest.step, tuple(ranks), earliest.layer, earliest.value, earliest.id)


def _departs_in(figures: Mapping[str, Any], layer: str | None) -> bool:
    return layer is None or any(row[:2] == [layer, DEPARTS] for row in figures.get("rows", ()))


def _order(figures: Mapping[str, Any]) -> int:
    """The place in execution order of the first row that departs; behind all where none does."""
    rows = figures.get("rows", [])
    return next((place for place, row in enumerate(rows) if row[1] == DEPARTS), len(rows))


def _verdict(tasks: Sequence[TaskResult], said: Mapping[str, Any]) -> Verdict:
    undone = [task for task in tasks if task.state in UNDONE]
    coverage = Coverage("tasks", len(tasks) - len(undone), unmatched_reference=0, excluded=0)
    outcome, key = Outcome.ALIGNED, "aligned"
    if undone or said["unused"]:
        outcome, key = Outcome.NOT_COMPARED, "undone" if undone else "unused"
    elif said["departing"] or said["unequal"]:
        outcome, key = Outcome.NOT_ALIGNED, "departs" if said["departing"] else "unequal"
    facts = {"total": len(tasks), "undone": len(undone), "first": undone[0].id if undone else ""}
    facts["unlike"] = next((task.id for task in tasks if task.not_comparable), "")
    facts["layers"] = sum(task.not_comparable for task in tasks)
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
    departing = [task for task in tasks if task.state == "not aligned" and task.rank is not None]
    first = min(departing, key=lambda task: place_order(task.step, None), default=None)
    if first is None:
        return ()
    by_rank = _by_rank([task for task in tasks if (task.action, task.step) == (first.action, first.step)])
    if len(by_rank) < 2:
        return ()
    groups = sorted(_alike(by_rank), key=lambda ranks: (-len(ranks), ranks))
    return tuple(_group(ranks, groups, by_rank) for ranks in groups)


def _by_rank(tasks: Sequence[TaskResult]) -> dict[int, TaskResult]:
    by_rank: dict[int, TaskResult] = {}
    for state in ("not aligned", "aligned"):
        for task in tasks:
            if task.state == state and task.rank is not None:
                by_rank.setdefault(task.rank, task)
    return by_rank


def _alike(by_rank: Mapping[int, TaskResult]) -> Iterator[list[int]]:
    """Ranks that are aligned, and those that depart in one layer with no gap of the factor between their amounts."""
    buckets = grouped(((one.state == "aligned", one.layer, bool(one.value)), rank) for rank, one in by_rank.items())
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
    first = by_rank[ranks[0]]
    total, most = len(by_rank), len(groups[0])
    aligned = sum(task.state == "aligned" for task in by_rank.values())
    odd = len(ranks) < most and most * 2 > total
    kind: RankGroupKind = "odd" if odd else "aligned" if first.state == "aligned" else "alike"
    facts = {"count": len(ranks), "rest": total - len(ranks), "aligned": aligned, "most": most}
    says = _says(kind, first.state, **facts)
    key = f"batch_checks.{says}" if first.action == "check" else f"batch_ranks.{says}"
    reason = sentence(key, **facts)
    return RankGroup(kind, tuple(ranks), first.step, first.layer, reason)


def _says(kind: RankGroupKind, state: TaskState, *, rest: int, aligned: int, most: int, **_: int) -> str:
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
    for placed in job.tasks:
        if (placed.task.action, placed.step) == (first.action, first.step) and placed.rank is not None:
            for name, own, other in figures[placed.task.id].get("prints", ()):
                mine[placed.rank] |= {(placed.part, name): own} if own else {}
                theirs[placed.rank] |= {(placed.part, name): other} if other else {}
    values = grouped(item for prints in mine.values() for item in prints.items())
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
    first_seen: dict[tuple[str, str], UnequalTensor] = {}
    series = grouped(((one.task.action, one.step), one) for one in job.tasks if one.rank is not None)
    for (action, step), tasks in sorted(series.items(), key=lambda one: (place_order(one[0][1], None), one[0][0])):
        for tensor in _at_one_step(job, action, step, _tensors(tasks, figures)):
            first_seen.setdefault((tensor.name, tensor.side), tensor)
    return tuple(first_seen.values())


def unused_globs(job: Job, figures: Mapping[str, Figures]) -> tuple[str, ...]:
    """The globs of the job file that fit no tensor: what they say was not looked at."""
    names = {name for own in figures.values() for name, *_ in own.get("prints", ())}
    globs = dict.fromkeys((*job.replicated, *job.sharded))
    return tuple(glob for glob in globs if not any(fnmatchcase(name, glob) for name in names))


def _tensors(tasks: Sequence[PlacedTask], figures: Mapping[str, Figures]) -> dict[tuple[str, str], list[Prints]]:
    """Fingerprints of both sides by rank, for each name; by part too where a rank has several tensors of that name."""
    by_tensor = grouped(
        (name, (placed, prints))
        for placed in tasks
        for name, *prints in figures.get(placed.task.id, {}).get("prints", ())
    )
    by_name: dict[tuple[str, str], list[Prints]] = {}
    for name, places in by_tensor.items():
        several = len({placed.rank for placed, _ in places}) < len(places)
        for placed, prints in places:
            sides = by_name.setdefault((name, placed.part if several else ""), [{}, {}])
            for side, value in zip(sides, prints, strict=True):
                if value is not None:
                    side[int(placed.rank or 0)] = value
    return by_name


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
