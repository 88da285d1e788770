"""What a run after a fix finds, beside what one before it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.fixes.fix_result import FaultAfterFix, RungAfterFix
from align.runs.ladder_result import RungResult
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.fixes.fix_result import FaultAfter

Document = dict[str, Any]
Place = tuple[str, str]


def faults_after(before: Document, after: Document) -> tuple[FaultAfterFix, ...]:
    """Every part at fault in either comparison: those made worse first, then new ones, those left and those gone."""
    was, now = _by_place(before), _by_place(after)
    right = {one["candidate"] for one in before["layers"] if _was_right(one)}
    found = [_fault(one, "gone") for place, one in was.items() if place not in now]
    for place, one in now.items():
        state: FaultAfter = "left" if place in was else "worse" if one["candidate"] in right else "new"
        found.append(_fault(one, state))
    order = ("worse", "new", "left", "gone")
    return tuple(sorted(found, key=lambda one: order.index(one.state)))


def rungs_after(before: Document | None, after: Document | None) -> tuple[RungAfterFix, ...]:
    """The rungs of the ladder before and after; () where there was no climb."""
    was = {rung.name: rung.state for rung in map(RungResult.read, (before or {"rungs": []})["rungs"])}
    rungs = map(RungResult.read, (after or {"rungs": []})["rungs"])
    return tuple(RungAfterFix(rung.name, was.get(rung.name, ""), rung.state, _reason(rung)) for rung in rungs)


def _reason(rung: RungResult) -> str:
    """What a rung says; a log that the port printed before it was changed tells of that port."""
    if rung.kind == "loss" and rung.state != "passed" and rung.state != "not available":
        return sentence("fix.old_log", reason=rung.reason)
    return rung.reason


def _by_place(document: Document) -> dict[Place, Mapping[str, Any]]:
    found: dict[Place, Mapping[str, Any]] = {}
    for one in document.get("culprits", []):
        found.setdefault((one["candidate"], one["part"]), one)
    return found


def _was_right(layer: Mapping[str, Any]) -> bool:
    alone = layer.get("isolated") or {}
    return "aligned" in (layer["outcome"], alone.get("outcome"))


def _fault(one: Mapping[str, Any], state: FaultAfter) -> FaultAfterFix:
    return FaultAfterFix(one["candidate"], one["part"], one["cause"], one["line"], state)
