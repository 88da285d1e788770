"""What a job of many tasks finds at fault, for the summary and the exports: ranks, tensors, tasks not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.rendering.format_values import format_ranges
from align.runs.rung import Culprit
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = ("failed", "missing", "could not compare")


def batch_culprits(document: dict[str, Any]) -> tuple[Culprit, ...]:
    """The culprits of a `mindalign.batch` document, ranks that depart first."""
    return (*_departing(document), *map(_unequal, document["unequal"]), *_undone(document["tasks"]))


def _departing(document: dict[str, Any]) -> Iterator[Culprit]:
    """Groups of ranks that depart; without groups the task that departs first."""
    groups, first = [one for one in document["groups"] if one["layer"]], document["first"]
    for one in groups:
        where = say("batch.on_ranks", layer=one["layer"], count=len(one["ranks"]), ranks=format_ranges(one["ranks"]))
        yield Culprit(where, one["reason"])
    if first and not groups:
        yield Culprit(first["layer"] or first["task"])


def _unequal(one: dict[str, Any]) -> Culprit:
    step = "" if one["step"] is None else str(one["step"])
    facts = {"ranks": format_ranges(one["ranks"]), "count": len(one["ranks"]), "step": step}
    return Culprit(one["name"], say("batch.unequal_cause", side=one["side"], equal=one["equal"], **facts))


def _undone(tasks: list[dict[str, Any]]) -> Iterator[Culprit]:
    return (Culprit(one["id"], one["error"] or one["reason"]) for one in tasks if one["state"] in FAILED)
