"""Ranks that do alike, and those that do not: one bad card departs alone, a fault of the port on every rank.

They are compared at the first step at which any departs, by what their own comparisons say: where they depart
first, and by how much to a power of ten.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from align.batch.batch_result import RankGroup
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.batch.batch_result import RankGroupKind, TaskResult

Signature = tuple[bool, str, int | None]


def group_ranks(tasks: Sequence[TaskResult]) -> tuple[RankGroup, ...]:
    """Group the ranks, the largest group first; () where none departs or there is but one rank."""
    departing = [one for one in tasks if one.state == "not aligned" and one.rank is not None]
    first = min(departing, key=_step, default=None)
    if first is None:
        return ()
    step = _step(first)
    there = [one for one in tasks if (one.action, _step(one)) == (first.action, step) and one.rank is not None]
    there.sort(key=lambda one: one.state == "not aligned")  # of several tasks of a rank the one that departs counts
    signatures = {one.rank: _signature(one) for one in there if one.state in ("aligned", "not aligned")}
    if len(signatures) < 2:
        return ()
    members: dict[Signature, list[int]] = defaultdict(list)
    for rank, signature in sorted(signatures.items(), key=lambda one: one[0] or 0):
        members[signature].append(int(rank or 0))
    ordered = sorted(members.items(), key=lambda one: (-len(one[1]), one[1]))
    most = len(ordered[0][1])
    majority = most * 2 > len(signatures)
    return tuple(
        _group(signature, ranks, None if step < 0 else step, len(signatures), odd=majority and len(ranks) < most)
        for signature, ranks in ordered
    )


def _step(one: TaskResult) -> int:
    return -1 if one.step is None else one.step


def _signature(one: TaskResult) -> Signature:
    if one.state == "aligned":
        return True, "", None
    value = one.value
    return False, one.layer or "", round(math.log10(value)) if value else None


def _group(signature: Signature, ranks: list[int], step: int | None, total: int, *, odd: bool) -> RankGroup:
    aligned, layer, _ = signature
    kind: RankGroupKind = "odd" if odd else "aligned" if aligned else "alike"
    key = {"odd": "batch_ranks.odd", "aligned": "batch_ranks.aligned", "alike": "batch_ranks.alike"}[kind]
    if odd and aligned:
        key = "batch_ranks.odd_aligned"
    elif kind == "alike" and len(ranks) == total:
        key = "batch_ranks.all_alike"
    facts = {"count": len(ranks), "rest": total - len(ranks), "layer": layer, "step": step}
    return RankGroup(kind, tuple(ranks), step, layer or None, sentence(key, **facts))
