"""Ranks that do alike, and those that do not: one bad card departs alone, a fault of the port on every rank.

They are compared at the first step at which any departs, by what their own comparisons say: where they depart
first, and by how much.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from align.batch.batch_result import RankGroup
from align.batch.job import place_order
from align.batch.thresholds import ALIKE_FACTOR
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.batch.batch_result import RankGroupKind, TaskResult, TaskState


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
