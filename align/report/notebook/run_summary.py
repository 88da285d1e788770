"""The summary of a run folder: every rung with its verdict, or that it was not run; that is never a pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import RunFolderError
from align.runs.run_folder import KINDS, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: its outcome (or "not run"), the reason, its coverage, and the hashes it was made from."""

    name: str
    outcome: str
    reason: str = ""
    coverage: dict[str, Any] | None = None
    created: str = ""
    made_from: dict[str, dict[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class ReportSummary:
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
    rungs = tuple(_rung(folder, kind) for kind in KINDS)
    return ReportSummary(
        folder.path.resolve().name, worst_outcome(r.outcome for r in rungs if r.outcome != NOT_RUN), rungs
    )


def worst_outcome(outcomes: Iterable[str]) -> Outcome:
    """Return the worst of some outcomes; nothing at all could not be compared."""
    return max((Outcome(outcome) for outcome in outcomes), key=lambda o: o.exit_code, default=Outcome.NOT_COMPARED)


def _rung(folder: RunFolder, kind: str) -> Rung:
    document = folder.read(kind)
    if document is None:
        return Rung(kind, NOT_RUN)
    try:
        said = document["verdict"]
        verdict = Verdict(Outcome(said["outcome"]), said["reason"], Coverage(**said["coverage"]))
        made = document["created"], document["made_from"]
        return Rung(kind, verdict.outcome.value, verdict.reason, dict(said["coverage"]), *made)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{folder.file(kind)} holds no sound verdict: {error!r}"
        raise RunFolderError(message, "run the command that writes it again") from error
