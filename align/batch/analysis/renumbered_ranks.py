"""Ranks of the candidate that hold what other ranks of the reference hold: both sides number their ranks otherwise.

Only tensors tell it that are bit for bit those of one rank of the reference and of no other, as shards are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from align.batch.thresholds import LEAST_MOVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.batch.batch_result import FirstDeparture
    from align.batch.job import Job

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
