"""Every parameter of both sides paired, or left out with a reason: `align map`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, setting_culprit, shown
from align.runs.rung_arguments import exported_sides, first_missing, map_file, models, source
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


LAYER_LACKS = "unmatched_reason.layer_lacks"
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
    made = map_file(project, run)
    explaining = ("lint", *models(project), "--map", shown(made), "--json")
    if project.inputs and not exported_sides(project):  # where names leave something open, both models are run
        here = ["--inputs", source(project.inputs), "--trial-if-open", *here]
        read |= {"inputs": project.inputs}
    return Plan("map", (("map", *models(project), *here),), read, (made,), explaining)


def _judge(document: Mapping[str, Any]) -> Judgement:
    if "faults" in document:
        faults = [Culprit(fault["subject"], fault["message"]) for fault in document["faults"]]
        return judged_by_verdict(document, tuple(faults))
    unseen = [one["facts"] for one in document.get("warnings_from", ()) if one and one["key"] in UNREGISTERED]
    if unseen:
        return judged_by_verdict(document, tuple(map(_unregistered, unseen)))
    found = document["name_map"]
    open_names = [Culprit(name) for group in found["ambiguous"] for name in group["sources"]]
    return judged_by_verdict(document, (*map(_unmatched, found["unmatched"]), *open_names))


def _unmatched(one: Mapping[str, Any]) -> Culprit:
    """A parameter without a counterpart; where a layer of the port lacks it, that layer is at fault."""
    origin = one.get("reason_from") or {}
    if one["side"] == "source" and origin.get("key") == LAYER_LACKS:
        return Culprit(origin["facts"]["layer"], sentence("ladder.layer_lacks", name=one["name"]))
    return Culprit(one["name"], one["reason"])


def _explain(culprits: tuple[Culprit, ...], document: Mapping[str, Any]) -> tuple[Culprit, ...]:
    """Of layers that have a parameter too few or too many: the setting that makes it so, its line, what to write."""
    findings = [one for one in document["findings"] if one["severity"] != "note"]
    settings = {one["candidate"]: setting_culprit(one) for one in findings if one["candidate"]}
    found = (settings.get(one.place) or settings.get(one.place.rpartition(".")[0]) or one for one in culprits)
    return tuple(dict.fromkeys(found))


def _unregistered(facts: Mapping[str, Any]) -> Culprit:
    if "container" in facts:
        cause = sentence("ladder.unregistered", framework=facts["framework"], container=facts["container"])
    else:
        cause = sentence("ladder.unregistered_tensor", framework=facts["framework"])
    return Culprit(facts["path"], cause, facts["line"], facts["change"])


PLUGIN = Rung(
    "parameters",
    20,
    plan=_plan,
    judge=_judge,
    explain=_explain,
    kinds=("map", "check"),
    summary="which parameter is which",
)
