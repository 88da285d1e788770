"""The summary of a run folder: every rung with its verdict, or that it was not run; that is never a pass.

A result that is older than a run that did not come to its end says nothing of what that run was to compare: the rung
could not be compared, whatever the older result says.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.json_data import own_fields
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import RunFolderError
from align.runs.run_folder import KINDS, LADDER, RunFolder
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.runs.unfinished_runs import UnfinishedRun

NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: its outcome (or "not run"), the reason, its coverage, and the hashes it was made from.

    `unfinished` is the run that began after the result was made and did not come to its end; None if there is none.
    """

    name: str
    outcome: str
    reason: str = ""
    coverage: dict[str, Any] | None = None
    created: str = ""
    made_from: dict[str, dict[str, str]] | None = None
    unfinished: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReportSummary(ShownResult):
    """All rungs and the worst outcome among those that were run."""

    result_kind = "report"
    run_folder: str
    outcome: Outcome
    rungs: tuple[Rung, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the worst rung that was run."""
        return self.outcome.exit_code


def summarize_run(path: Path | str) -> ReportSummary:
    """Summarize a run folder; raises RunFolderError if it is none, is empty or holds a damaged result."""
    folder = RunFolder.open(Path(path))
    found = ((kind, _rung(folder, kind)) for kind in KINDS)
    rungs = tuple(rung for kind, rung in found if kind in LADDER or rung.outcome != NOT_RUN)
    return ReportSummary(
        folder.path.resolve().name, worst_outcome(r.outcome for r in rungs if r.outcome != NOT_RUN), rungs
    )


def worst_outcome(outcomes: Iterable[str]) -> Outcome:
    """Return the worst of some outcomes; nothing at all could not be compared."""
    return max((Outcome(outcome) for outcome in outcomes), key=lambda o: o.exit_code, default=Outcome.NOT_COMPARED)


def unfinished_text(run: UnfinishedRun) -> str:
    """Say of a run that did not come to its end when it began, and what is known of its end."""
    return say(f"rung.{run.ended or 'unfinished'}", since=run.since, reason=run.reason)


def _rung(folder: RunFolder, kind: str) -> Rung:
    run = folder.unfinished(kind)
    rung = _as_written(folder, kind)
    if run is None:
        return rung
    earlier = say("rung.earlier", outcome=word("outcome", rung.outcome), reason=rung.reason)
    outcome = say("rung.no_result") if rung.outcome == NOT_RUN else earlier
    reason = f"{unfinished_text(run)}; {outcome}"
    return replace(rung, outcome=Outcome.NOT_COMPARED.value, reason=reason, unfinished=asdict(run))


def _as_written(folder: RunFolder, kind: str) -> Rung:
    document = folder.read(kind)
    if document is None:
        return Rung(kind, NOT_RUN)
    try:
        written = document["verdict"]
        coverage = own_fields(written["coverage"])
        verdict = Verdict(Outcome(written["outcome"]), written["reason"], Coverage(**coverage))
        made = document["created"], document["made_from"]
        return Rung(kind, verdict.outcome.value, verdict.reason, coverage, *made)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{folder.file(kind)} holds no sound verdict: {error!r}"
        raise RunFolderError(message, "run the command that writes it again") from error
