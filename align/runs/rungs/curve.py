"""Two loss logs on one axis: `align loss`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import first_missing
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference log", "candidate log"):
        return missing
    logs = {side: getattr(project, side).log for side in ("reference", "candidate")}
    own = ["--project", shown(project.file)] if project.file else []
    command = ("loss", *map(shown, logs.values()), *own, "--run", shown(run))
    read: dict[str, Path | str] = {f"{side} log": log for side, log in logs.items()}
    return Plan("loss", (command,), read | ({"project": project.file} if project.file else {}))


def _judge(document: Mapping[str, Any]) -> Judgement:
    step = document["first_divergent_step"]
    place = "" if step is None else sentence("ladder.step", step=step)
    found = (Culprit(place, str(document["trouble"] or "")),) if place else ()
    return judged_by_verdict(document, found)


PLUGIN = Rung("curve", 110, plan=_plan, judge=_judge, kinds=("loss",), summary="the loss curves of two trainings")
