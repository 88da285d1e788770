"""The settings of paired layers, before any run: `align lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Judgement, Missing, Plan, Rung, judged_by_verdict, setting_culprit, shown
from align.runs.rung_arguments import exported_sides, first_missing, map_file, models
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    if exported := exported_sides(project):
        return Missing(sentence("ladder.no_live_layers", sides=exported))
    read = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    chosen = map_file(project, run)
    command = ("lint", *models(project), "--map", shown(chosen), "--run", shown(run))
    return Plan("lint", (command,), {**read, "map": chosen})


def _judge(document: Mapping[str, Any]) -> Judgement:
    found = [one for one in document["findings"] if one["severity"] != "note"]
    return judged_by_verdict(document, tuple(map(setting_culprit, found)))


PLUGIN = Rung(
    "settings",
    30,
    plan=_plan,
    judge=_judge,
    needs=("parameters",),
    kinds=("lint",),
    summary="settings of paired layers",
)
