"""The summary of a run folder for `report.json`, the terminal and the notebook: its rungs, and what each rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from align.core.json_data import own_fields
from align.core.verdicts import Outcome, ShownResult, Verdict
from align.errors import RunFolderError
from align.report.foreseen import emulated_coverage
from align.report.judged_run import judged_run
from align.report.kind_parts.ladder_commands import next_steps
from align.report.kind_parts.ladder_culprits import rung_reason
from align.runs.rung import rungs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.report.judged_run import JudgedRun
    from align.runs.ladder_result import RungResult, RungState
    from align.runs.rung import Rung


@dataclass(frozen=True, slots=True)
class ReportRung:
    """One rung: its state and why, and the kind of its result with its coverage, its time and what it was made from.

    `unfinished` is the run that began after the result was made and did not come to its end; None if there is none.
    """

    name: str
    state: RungState
    reason: str = ""
    kind: str = ""
    coverage: dict[str, Any] | None = None
    created: str = ""
    made_from: dict[str, dict[str, str]] | None = None
    unfinished: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReportSummary(ShownResult):
    """All rungs, the verdict over them and its outcome, and what to do next."""

    result_kind = "report"
    run_folder: str
    outcome: Outcome
    rungs: tuple[ReportRung, ...]
    verdict: Verdict
    next_steps: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict."""
        return self.verdict.exit_code


def summarize_run(path: Path | str) -> ReportSummary:
    """Summarize a run folder; raises RunFolderError if it is none, is empty or holds a damaged result."""
    run = judged_run(path)
    rungs = tuple(_rung(run, rung) for rung in run.rungs)
    steps = next_steps(run.rungs, run.climb)
    return ReportSummary(run.name, run.verdict.outcome, rungs, run.verdict, steps)


def _rung(run: JudgedRun, rung: RungResult) -> ReportRung:
    document = run.document(rung)
    begun = run.folder.unfinished(rung.kind) if rung.state == "could not compare" and document else None
    unfinished = asdict(begun) if begun else None
    told = ReportRung(rung.name, rung.state, rung_reason(rung), rung.kind, unfinished=unfinished)
    if document is None:
        return told
    try:
        coverage = own_fields(_coverage(rung, document))
        return replace(told, coverage=coverage, created=document["created"], made_from=document["made_from"])
    except (KeyError, TypeError, ValueError) as error:
        file = run.folder.file(rung.kind)
        raise RunFolderError.of("report_usage.no_verdict", file=file, error=repr(error)) from error


def _coverage(rung: RungResult, document: dict[str, Any]) -> Mapping[str, Any]:
    """How much of the two sides a rung rests on: of a result that several read, its own part."""
    if rung.kind == "emulate":
        return emulated_coverage(document)
    own: Mapping[str, Any] = document["verdict"]["coverage"]
    return next((one.judge(document).coverage for one in rungs() if _reads(one, rung)), own)


def _reads(one: Rung, rung: RungResult) -> bool:
    return one.name == rung.name and rung.kind in one.kinds
