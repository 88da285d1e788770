"""Two language models as they generate, with their caches: `align generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.runs.rung import Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import (
    checkpoint_arguments,
    first_missing,
    has_place,
    map_file,
    models,
    project_argument,
    read_files,
    source,
)

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model", "forward inputs"):
        return missing
    arguments = ["--map", shown(map_file(project, run)), "--inputs", source(project.inputs or "")]
    arguments += checkpoint_arguments(project, run)
    own, places = project_argument(project, is_needed=has_place(project))
    command = ("generate", *models(project), *arguments, *own, "--run", shown(run))
    return Plan("generate", (command,), read_files(project, run, {"inputs": project.inputs, **places}))


PLUGIN = Rung(
    "generate",
    65,
    plan=_plan,
    judge=judged_by_verdict,
    needs=("parameters", "weights"),
    optional=True,
    kinds=("generate",),
    summary="what language models generate",
)
