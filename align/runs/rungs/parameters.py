"""Every parameter of both sides paired, or left out with a reason: `align map`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import first_missing, map_file, models
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


UNREGISTERED = ("map_warning.unregistered", "map_warning.unregistered_tensor")


def _plan(project: Project, run: Path) -> Plan | Missing:
    """Make a map; the one that the project file names is held against both sides."""
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    read: dict[str, Path | str] = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    here = ["--run", shown(run)]
    if project.map:
        command = ("map", *models(project), "--check", shown(project.map), *here)
        return Plan("check", (command,), {**read, "map": project.map})
    return Plan("map", (("map", *models(project), *here),), read, (map_file(project, run),))


def _judge(document: Mapping[str, Any]) -> Judgement:
    if "faults" in document:
        faults = [Culprit(fault["subject"], fault["message"]) for fault in document["faults"]]
        return judged_by_verdict(document, tuple(faults))
    unseen = [one["facts"] for one in document.get("warnings_from", ()) if one and one["key"] in UNREGISTERED]
    if unseen:
        return judged_by_verdict(document, tuple(map(_unregistered, unseen)))
    found = document["name_map"]
    open_names = [one["name"] for one in found["unmatched"]]
    open_names += [name for group in found["ambiguous"] for name in group["sources"]]
    return judged_by_verdict(document, tuple(Culprit(name) for name in open_names))


def _unregistered(facts: Mapping[str, Any]) -> Culprit:
    if "container" in facts:
        cause = sentence("ladder.unregistered", framework=facts["framework"], container=facts["container"])
    else:
        cause = sentence("ladder.unregistered_tensor", framework=facts["framework"])
    return Culprit(facts["path"], cause, facts["line"], facts["change"])


PLUGIN = Rung("parameters", 20, plan=_plan, judge=_judge, kinds=("map", "check"), summary="which parameter is which")
