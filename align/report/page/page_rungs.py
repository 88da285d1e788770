"""The rungs of a run folder with their places on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.report.judged_run import rung_title

if TYPE_CHECKING:
    from align.report.judged_run import JudgedRun
    from align.runs.ladder_result import RungResult


@dataclass(frozen=True, slots=True)
class PageRung:
    """One rung with its place on the page: `title` is its name in words, `document` its result, None if it has none.

    `told_under` is the anchor of another rung that shows the same result, "" where this one does.
    """

    result: RungResult
    title: str
    document: dict[str, Any] | None
    anchor: str
    told_under: str = ""

    @property
    def is_faulty(self) -> bool:
        """Tell whether a reader should look at it at once."""
        return self.result.state in ("failed", "could not compare")


def page_rungs(run: JudgedRun) -> tuple[PageRung, ...]:
    """Give each rung an anchor; of several that read one result the first that failed shows it, or else the first."""
    anchors = [f"rung-{place}-{one.name}" for place, one in enumerate(run.rungs, 1)]
    owners: dict[str, int] = {}
    for place in sorted(range(len(run.rungs)), key=lambda place: run.rungs[place].state != "failed"):
        if run.document(run.rungs[place]) is not None:
            owners.setdefault(run.rungs[place].kind, place)
    placed = []
    for place, (result, anchor) in enumerate(zip(run.rungs, anchors, strict=True)):
        owner = owners.get(result.kind, place)
        document = run.document(result)
        told_under = "" if document is None or owner == place else anchors[owner]
        placed.append(PageRung(result, rung_title(result), document, anchor, told_under))
    return tuple(placed)
