"""One dataset and metric through both models: `align validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.runs.rung import Missing, Plan, Rung, judged_by_verdict, shown, shown_side
from align.runs.rung_arguments import (
    checkpoint_arguments,
    first_missing,
    has_place,
    map_file,
    models,
    project_argument,
    read_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model", "metric data"):
        return missing
    asked = {"data": project.metric.data, "metric": project.metric.metric}
    asked |= {"candidate-data": project.metric.candidate_data, "candidate-metric": project.metric.candidate_metric}
    given = [part for name, value in asked.items() if value for part in (f"--{name}", shown_side(value))]
    samples = ["--limit-samples", str(project.metric.samples)] if project.metric.samples else []
    arguments = ["--map", shown(map_file(project, run)), *checkpoint_arguments(project, run), *given, *samples]
    own, places = project_argument(project, is_needed=has_place(project))
    functions = {name: value for name, value in asked.items() if value and ":" in value}
    read = read_files(project, run, {**functions, **places})
    return Plan("validate", (("validate", *models(project), *arguments, *own, "--run", shown(run)),), read)


PLUGIN = Rung(
    "metric",
    70,
    plan=_plan,
    judge=judged_by_verdict,
    needs=("parameters", "weights"),
    kinds=("validate",),
    summary="a metric of both models",
)
