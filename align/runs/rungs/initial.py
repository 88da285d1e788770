"""How both sides draw their initial values: `align initial`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.runs.rung import Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import first_missing, map_file, models

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    read = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    chosen = map_file(project, run)
    command = ("initial", *models(project), "--map", shown(chosen), "--run", shown(run))
    return Plan("initial", (command,), {**read, "map": chosen})


PLUGIN = Rung(
    "initial",
    35,
    plan=_plan,
    judge=judged_by_verdict,
    needs=("parameters",),
    optional=True,
    kinds=("initial",),
    summary="initial values",
)
