"""Versions, devices and switches of both sides: `align doctor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from align.core.json_data import kept_sentence
from align.lint.examine_environment import environment_facts
from align.runs.rung import (
    Command,
    Culprit,
    Judgement,
    Missing,
    Plan,
    Rung,
    checkpoints,
    exported_sides,
    first_missing,
    judged_by_verdict,
    map_file,
    models,
    setting_culprit,
    shown,
    shown_side,
    source,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan_environment(_project: Project, run: Path) -> Plan:
    return Plan("doctor", (("doctor", "--run", shown(run)),), environment_facts())


def _judge_environment(document: Mapping[str, Any]) -> Judgement:
    """Errors are at fault; warnings fail nothing, and are said."""
    errors = [one for one in document["findings"] if one["severity"] == "error"]
    judged = judged_by_verdict(
        document, tuple(Culprit(one["subject"], kept_sentence(one, "message")) for one in errors)
    )
    warnings = [f"{one['subject']}: {one['message']}" for one in document["findings"] if one["severity"] == "warning"]
    return (
        replace(judged, reason=sentence("ladder.warnings", reason=judged.reason, warnings=warnings))
        if warnings
        else judged
    )


ENVIRONMENT = Rung(
    "environment",
    10,
    plan=_plan_environment,
    judge=_judge_environment,
    kinds=("doctor",),
    summary="versions, devices and switches",
)


# The settings of paired layers, before any run: `align lint`.


def _plan_settings(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    if exported := exported_sides(project):
        return Missing(sentence("ladder.no_live_layers", sides=exported))
    read = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    chosen = map_file(project, run)
    command = ("lint", *models(project), "--map", shown(chosen), "--run", shown(run))
    return Plan("lint", (command,), {**read, "map": chosen})


def _judge_settings(document: Mapping[str, Any]) -> Judgement:
    found = [one for one in document["findings"] if one["severity"] != "note"]
    return judged_by_verdict(document, tuple(map(setting_culprit, found)))


SETTINGS = Rung(
    "settings",
    30,
    plan=_plan_settings,
    judge=_judge_settings,
    needs=("parameters",),
    kinds=("lint",),
    summary="settings of paired layers",
)


# Every parameter of both sides paired, or left out with a reason: `align map`.

LAYER_LACKS = "unmatched_reason.layer_lacks"
UNREGISTERED = ("map_warning.unregistered", "map_warning.unregistered_tensor")


def _plan_parameters(project: Project, run: Path) -> Plan | Missing:
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


def _judge_parameters(document: Mapping[str, Any]) -> Judgement:
    if "faults" in document:
        faults = [Culprit(fault["subject"], kept_sentence(fault, "message")) for fault in document["faults"]]
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
    return Culprit(one["name"], kept_sentence(one, "reason"))


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


PARAMETERS = Rung(
    "parameters",
    20,
    plan=_plan_parameters,
    judge=_judge_parameters,
    explain=_explain,
    kinds=("map", "check"),
    summary="which parameter is which",
)


# Equal weights on both sides: converted from the reference's checkpoint, or compared with it.


def _plan_weights(project: Project, run: Path) -> Plan | Missing:
    """Compare two checkpoints; convert the only one, or what the reference's factory gives it, for the candidate."""
    if "candidate" in exported_sides(project):
        return Missing(sentence("ladder.own_weights", side="candidate"))
    reference, candidate = checkpoints(project, run)
    if reference is None or candidate is None:
        return (
            first_missing(project, "reference model") or first_missing(project, "reference checkpoint") or Missing("")
        )
    chosen = map_file(project, run)
    commands: list[Command] = []
    read: dict[str, Path | str] = {"map": chosen}
    if project.reference.checkpoint:
        read["reference checkpoint"] = reference
    else:
        model, inputs = str(project.reference.model), project.inputs or ""
        read |= {"reference": model, "inputs": inputs}
        capture = (
            "capture",
            shown_side(model),
            "--inputs",
            source(inputs),
            "--no-noise",
            "--out",
            shown(reference.parent),
        )
        commands.append(capture)
    captured = () if project.reference.checkpoint else (reference,)
    files = [shown(reference), shown(candidate), "--map", shown(chosen)]
    if project.candidate.checkpoint:
        compare = ("diff", *files, "--run", shown(run))
        return Plan("diff", (*commands, compare), {**read, "candidate checkpoint": candidate}, captured)
    convert = ("convert", *files, "--overwrite", "--run", shown(run))
    return Plan("convert", (*commands, convert), read, (*captured, candidate))


def _judge_weights(document: Mapping[str, Any]) -> Judgement:
    differ = [
        one for one in document.get("tensors", ()) if one.get("outcome", "equal") not in ("equal", "dtypes differ")
    ]
    return judged_by_verdict(document, tuple(Culprit(one["candidate"], one["outcome"]) for one in differ))


WEIGHTS = Rung(
    "weights",
    40,
    plan=_plan_weights,
    judge=_judge_weights,
    needs=("parameters",),
    kinds=("convert", "diff"),
    summary="weights, converted or compared",
)


# How both sides draw their initial values: `align initial`.


def _plan_initial(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    read = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    chosen = map_file(project, run)
    command = ("initial", *models(project), "--map", shown(chosen), "--run", shown(run))
    return Plan("initial", (command,), {**read, "map": chosen})


INITIAL = Rung(
    "initial",
    35,
    plan=_plan_initial,
    judge=judged_by_verdict,
    needs=("parameters",),
    optional=True,
    kinds=("initial",),
    summary="initial values",
)

PLUGINS = (
    ENVIRONMENT,
    SETTINGS,
    PARAMETERS,
    WEIGHTS,
    INITIAL,
)
