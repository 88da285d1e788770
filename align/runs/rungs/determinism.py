"""Whether a side gives the same twice: `align check-determinism`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.runs.rung import Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import first_missing, source, trainings

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    read = {"reference": str(project.reference.training), "candidate": str(project.candidate.training)}
    batch = project.batches[0]
    command = ("check-determinism", *trainings(project), "--batch", source(batch), "--run", shown(run))
    return Plan("determinism", (command,), {**read, "batch": batch})


PLUGIN = Rung(
    "determinism",
    12,
    plan=_plan,
    judge=judged_by_verdict,
    optional=True,
    kinds=("determinism",),
    summary="whether each side repeats itself",
)
