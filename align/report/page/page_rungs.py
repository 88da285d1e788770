"""The rungs of a run folder as the page shows them, and the verdict over all of them.

The ladder that `align run` left tells their states. Where a result is newer than the ladder, it is judged anew; without
a ladder the results that are there are the rungs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome, Verdict
from align.report.notebook.run_summary import NOT_RUN, summarize_run
from align.runs.evidence import is_unchanged
from align.runs.ladder_result import JUDGED, RungResult, judge_ladder
from align.runs.rung import rungs
from align.words.catalogue import word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.report.notebook.run_summary import Rung
    from align.runs.run_folder import RunFolder

    Reader = Callable[[str], dict[str, Any] | None]  # of results by kind


SHOWN = (*JUDGED.values(), "stale")  # states in which a rung has a result of its own


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


def page_rungs(folder: RunFolder) -> tuple[tuple[PageRung, ...], Verdict]:
    """Return all rungs from the lowest to the highest, and the verdict over them.

    Raises RunFolderError for a folder whose results are damaged.
    """
    found = _Results(folder, {rung.name: rung for rung in summarize_run(folder.path).rungs}, cache(folder.read))
    climbed = found.climbed()
    kinds = {one.kind for one in climbed}
    beside = [one for one in map(_of_summary, found.summary.values()) if one.kind not in kinds]
    if climbed:
        beside = [one for one in beside if one.state != NOT_RUN]
    titles = [*(word("rung_name", one.name) for one in climbed), *(word("rung", one.name) for one in beside)]
    results = [*climbed, *beside]
    named = [replace(one, name=title) for one, title in zip(results, titles, strict=True)]
    return _placed(results, titles, found.read), judge_ladder(named)


@dataclass(frozen=True, slots=True)
class _Results:
    """What a run folder holds: its results, each read once, and what they say by themselves."""

    folder: RunFolder
    summary: dict[str, Rung]
    read: Reader

    def climbed(self) -> list[RungResult]:
        """The rungs of the ladder as they are now; none where no ladder was climbed."""
        ladder = self.read("ladder")
        if ladder is None:
            return []
        return [self._as_it_is(RungResult.read(one), ladder["created"]) for one in ladder["rungs"]]

    def _as_it_is(self, rung: RungResult, climbed: str) -> RungResult:
        """Judge a rung whose result was written again, or was to be, since the ladder was `climbed`."""
        of_kind = self.summary.get(rung.kind)
        if of_kind and of_kind.unfinished:
            return replace(rung, state="could not compare", reason=of_kind.reason, culprits=())
        document = self.read(rung.kind) if rung.kind else None
        judge = next((one.judge for one in rungs() if one.name == rung.name), None)
        if document is None or judge is None or not self._is_newer(document, rung, climbed):
            return rung
        judged = judge(document)
        return replace(rung, state=JUDGED[judged.outcome], reason=judged.reason, culprits=judged.culprits)

    def _is_newer(self, document: dict[str, Any], rung: RungResult, climbed: str) -> bool:
        """Tell whether a result is another one than the ladder knew."""
        known = {path: facts for path, facts in rung.evidence.items() if path == f"{rung.kind}.json"}
        return not is_unchanged(known, self.folder.path) if known else str(document["created"]) > climbed


def _of_summary(rung: Rung) -> RungResult:
    if rung.outcome == NOT_RUN:
        return RungResult(rung.name, "not run", asked=False, kind=rung.name)
    return RungResult(rung.name, JUDGED[Outcome(rung.outcome)], rung.reason, kind=rung.name)


def _placed(results: Sequence[RungResult], titles: Sequence[str], read: Reader) -> tuple[PageRung, ...]:
    """Give each an anchor; of several that read one result the first that failed shows it, or else the first."""
    anchors = [f"rung-{place}-{one.name}" for place, one in enumerate(results, 1)]
    owners: dict[str, int] = {}
    for place in sorted(range(len(results)), key=lambda place: results[place].state != "failed"):
        owners.setdefault(results[place].kind, place)
    placed = []
    for place, (result, title) in enumerate(zip(results, titles, strict=True)):
        document = read(result.kind) if result.kind and result.state in SHOWN else None
        told_under = "" if document is None or owners[result.kind] == place else anchors[owners[result.kind]]
        placed.append(PageRung(result, title, document, anchors[place], told_under))
    return tuple(placed)
