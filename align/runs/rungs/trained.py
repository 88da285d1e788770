"""Which parameters one training step trains: `align params`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import first_missing, map_file, source, trainings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    read = {"reference": str(project.reference.training), "candidate": str(project.candidate.training)}
    batch, chosen = project.batches[0], map_file(project, run)
    left, right = trainings(project)
    command = ("params", left, right, "--batch", source(batch), "--map", shown(chosen), "--run", shown(run))
    return Plan("params", (command,), {**read, "batch": batch, "map": chosen})


def _judge(document: Mapping[str, Any]) -> Judgement:
    return judged_by_verdict(document, tuple(Culprit(one["subject"], one["message"]) for one in document["findings"]))


PLUGIN = Rung(
    "trained",
    85,
    plan=_plan,
    judge=_judge,
    needs=("parameters",),
    optional=True,
    kinds=("params",),
    summary="which parameters a step trains",
)
