"""What `align fix` found, changed, and what a run after it still finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from align.core.verdicts import ShownResult
from align.runs.rung import RungResult
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.verdicts import Verdict


FixState = Literal["planned", "applied", "undone"]
FaultAfter = Literal["gone", "left", "worse", "new"]


@dataclass(frozen=True, slots=True)
class FixedPlace:
    """One place of the source that changes.

    `file` is its name in the patch, which starts at the folder `root`; `package` is that of an installed one, "" in a
    file of the project. `layers` are all layers of the port that this place makes.
    """

    file: str
    root: str
    package: str
    line: int
    before: str
    after: str
    layers: tuple[str, ...]
    cause: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A confirmed change of these layers that is not made, and why."""

    layers: tuple[str, ...]
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """The changes of all files below one `root` as a unified diff; `package` is "" for the project."""

    root: str
    package: str
    text: str


@dataclass(frozen=True, slots=True)
class FaultAfterFix:
    """A part at fault before or after: "gone", "left", "worse" (it was right before) or "new" (it was not judged)."""

    candidate: str
    part: str
    cause: str
    line: str
    state: FaultAfter


@dataclass(frozen=True, slots=True)
class RungAfterFix:
    """A rung of the ladder before ("" where it was never run) and after, with what it says now."""

    name: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunAfterFix:
    """What the same command finds once the changes are made; `rungs` are () where that is one comparison."""

    command: str
    faults: tuple[FaultAfterFix, ...]
    rungs: tuple[RungAfterFix, ...]


@dataclass(frozen=True, slots=True)
class FixResult(ShownResult):
    """The changes of a port: which are planned or applied, which are refused, and what remains.

    `faults` counts the parts whose change is confirmed, `unconfirmed` all others at fault. `backup` is the folder that
    keeps what was there before, `overlay` that of copied packages; "" where there is none. `restored` are the files
    that were put back. `next_commands` are to be typed. There is no `verdict` where nothing was compared.
    """

    result_kind = "fix"
    reference: str
    candidate: str
    state: FixState
    faults: int
    unconfirmed: int
    places: tuple[FixedPlace, ...]
    refused: tuple[RefusedChange, ...]
    patches: tuple[SourcePatch, ...]
    after: RunAfterFix | None
    backup: str
    overlay: str
    restored: tuple[str, ...]
    next_commands: tuple[str, ...]
    verdict: Verdict | None


# What a run after a fix finds, beside what one before it found.

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
