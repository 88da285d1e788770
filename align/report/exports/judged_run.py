"""The rungs of a run folder: as the last climb left them or, where nobody climbed, one for each kind of result.

A rung is not taken for what it was where its result has changed since, or where a later run did not come to its end.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from align.core.verdicts import Outcome
from align.errors import RunFolderError
from align.report.notebook.run_summary import NOT_RUN, summarize_run, unfinished_text
from align.runs.evidence import is_unchanged
from align.runs.ladder_result import JUDGED, LadderResult, RungResult, RungState, judge_ladder
from align.runs.run_folder import COMMANDS, RunFolder
from align.runs.rung import rungs
from align.words.catalogue import say, sentence, word

if TYPE_CHECKING:
    from align.report.notebook.run_summary import Rung
    from align.runs.rung import Culprit


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run folder, its rungs with the verdict over them, and when the newest of what they rest on was written."""

    folder: RunFolder
    ladder: LadderResult
    created: dt.datetime

    def holds(self, rung: RungResult) -> bool:
        """Tell whether the folder holds a result that a rung was judged by."""
        return rung.state in (*JUDGED.values(), "stale") and self.folder.file(rung.kind).is_file()


def judged_run(path: Path | str) -> JudgedRun:
    """Return the rungs of a run folder; raises RunFolderError if it is none, is empty or holds a damaged result."""
    folder = RunFolder(Path(path))
    document = folder.read("ladder")
    try:
        found, written = _single(folder) if document is None else _climbed(folder, document)
        created = dt.datetime.fromisoformat(written).astimezone(dt.timezone.utc)
    except (KeyError, TypeError, ValueError) as error:
        message = f"a result in {folder.path} is not what it should be: {error!r}"
        raise RunFolderError(message, "run the command that writes it again") from error
    return JudgedRun(folder, LadderResult(folder.path.resolve().name, found, judge_ladder(found)), created)


def _climbed(folder: RunFolder, document: dict[str, Any]) -> tuple[tuple[RungResult, ...], str]:
    read = [RungResult.read(one) for one in document["rungs"]]
    if strange := {rung.state for rung in read} - {*get_args(RungState)}:
        msg = f"no rung is {', '.join(strange)}"
        raise ValueError(msg)
    return tuple(_as_it_is_now(folder, rung) for rung in read), document["created"]


def _as_it_is_now(folder: RunFolder, rung: RungResult) -> RungResult:
    """Return a rung, with another state where its result is not the one that it was judged by."""
    if rung.state not in JUDGED.values():
        return rung
    if run := folder.unfinished(rung.kind):
        return replace(rung, state=JUDGED[Outcome.NOT_COMPARED], reason=unfinished_text(run), culprits=())
    result = folder.file(rung.kind).name
    if result in rung.evidence and not is_unchanged({result: rung.evidence[result]}, folder.path):
        return replace(rung, state="stale", reason=sentence("ladder.stale", state=rung.state))
    return rung


def _single(folder: RunFolder) -> tuple[tuple[RungResult, ...], str]:
    """Take each result for a rung; the verdict rests on those that there are."""
    summary = summarize_run(folder.path)
    return tuple(_of_result(folder, rung) for rung in summary.rungs), max(rung.created for rung in summary.rungs)


def _of_result(folder: RunFolder, rung: Rung) -> RungResult:
    name = word("rung", rung.name)
    if rung.outcome == NOT_RUN:
        hint = say("rung.how_to_run", command=COMMANDS.get(rung.name, rung.name), folder=folder.path.name)
        return RungResult(name, "not run", hint, asked=False, kind=rung.name)
    culprits = () if rung.unfinished else _culprits(rung.name, folder.read(rung.name) or {})
    return RungResult(name, JUDGED[Outcome(rung.outcome)], rung.reason, kind=rung.name, culprits=culprits)


def _culprits(kind: str, document: dict[str, Any]) -> tuple[Culprit, ...]:
    """What the rungs that read such a result find at fault in it."""
    return tuple(one for rung in rungs() if kind in rung.kinds for one in rung.judge(document).culprits)
