"""Versions, devices and switches of both sides: `align doctor`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from align.core.documents import kept_sentence
from align.lint.examine_environment import environment_facts
from align.runs.read_settings import file_or_function, path_if_there
from align.runs.rung import (
    Call,
    Culprit,
    Judgement,
    Made,
    Missing,
    Plan,
    Rung,
    capture_call,
    checkpoints,
    exported_sides,
    first_missing,
    judged_by_verdict,
    lint_call,
    map_file,
    setting_culprit,
    sides,
    source,
    typed,
)
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan_environment(_project: Project, run: Path) -> Plan:
    return Plan("doctor", (Call("doctor", _examine_environment, {}, typed(run)),), environment_facts())


def _examine_environment() -> Made:
    from align.lint.examine_environment import examine_environment

    return Made(examine_environment(), {})


def _judge_environment(document: Mapping[str, Any]) -> Judgement:
    """Errors are at fault; warnings fail nothing, and are said."""
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    judged = judged_by_verdict(
        document, tuple(Culprit(finding["subject"], kept_sentence(finding, "message")) for finding in errors)
    )
    warnings = [
        f"{finding['subject']}: {finding['message']}"
        for finding in document["findings"]
        if finding["severity"] == "warning"
    ]
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
    return Plan("lint", (lint_call(sides(project), chosen, run),), {**read, "map": chosen})


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


def _plan_parameters(project: Project, run: Path) -> Plan | Missing:
    """Make a map; the one that the project file names is held against both sides."""
    if missing := first_missing(project, "reference model", "candidate model"):
        return missing
    read: dict[str, Path | str] = {"reference": str(project.reference.model), "candidate": str(project.candidate.model)}
    if project.map:
        call = Call("map", _check_map, {**sides(project), "check": typed(project.map)}, typed(run))
        return Plan("check", (call,), {**read, "map": project.map})
    written_map, given = map_file(project, run), sides(project)
    if project.inputs and not exported_sides(project):  # where names leave something open, both models are run
        given |= {"inputs": source(project.inputs), "trial_if_open": True}
        read |= {"inputs": project.inputs}
    call = Call("map", partial(_map_parameters, typed(written_map)), given, typed(run))
    return Plan("map", (call,), read, (written_map,), lint_call(sides(project), written_map, None))


def _check_map(reference: str, candidate: str, check: Path) -> Made:
    from align.names.map_parameters import check_name_map

    made_from = {"reference": path_if_there(reference), "candidate": path_if_there(candidate), "map": check}
    return Made(check_name_map(reference, candidate, check), made_from)


def _map_parameters(
    written_map: Path, /, reference: str, candidate: str, inputs: str | None = None, *, trial_if_open: bool = False
) -> Made:
    from align.names.map_parameters import map_parameters

    trial: bool | Literal["open"] = "open" if trial_if_open else False
    result = map_parameters(reference, candidate, inputs=inputs, out=written_map, trial=trial)
    made_from = {"reference": path_if_there(reference), "candidate": path_if_there(candidate)}
    given = {"inputs": file_or_function(inputs)} if inputs else {}
    return Made(result, made_from | given, (say("told.map_file", path=written_map),))


def _judge_parameters(document: Mapping[str, Any]) -> Judgement:
    if "faults" in document:
        faults = [Culprit(fault["subject"], kept_sentence(fault, "message")) for fault in document["faults"]]
        return judged_by_verdict(document, tuple(faults))
    if unseen := document.get("unregistered"):
        return judged_by_verdict(document, tuple(map(_unregistered, unseen)))
    found = document["name_map"]
    open_names = [Culprit(name) for group in found["ambiguous"] for name in group["sources"]]
    return judged_by_verdict(document, (*map(_unmatched, found["unmatched"]), *open_names))


def _unmatched(parameter: Mapping[str, Any]) -> Culprit:
    """A parameter without a counterpart; where a layer of the port lacks it, that layer is at fault."""
    if parameter["side"] == "source" and parameter.get("lacking_layer"):
        return Culprit(parameter["lacking_layer"], sentence("ladder.layer_lacks", name=parameter["name"]))
    return Culprit(parameter["name"], kept_sentence(parameter, "reason"))


def _explain(culprits: tuple[Culprit, ...], document: Mapping[str, Any]) -> tuple[Culprit, ...]:
    """Of layers that have a parameter too few or too many: the setting that makes it so, its line, what to write."""
    findings = [one for one in document["findings"] if one["severity"] != "note"]
    settings = {one["candidate"]: setting_culprit(one) for one in findings if one["candidate"]}
    found = (settings.get(one.place) or settings.get(one.place.rpartition(".")[0]) or one for one in culprits)
    return tuple(dict.fromkeys(found))


def _unregistered(facts: Mapping[str, Any]) -> Culprit:
    if facts["container"]:
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
    captures: tuple[Call, ...] = ()
    read: dict[str, Path | str] = {"map": chosen}
    if project.reference.checkpoint:
        read["reference checkpoint"] = reference
    else:
        read |= {"reference": str(project.reference.model), "inputs": project.inputs or ""}
        captures = (capture_call(project.reference, project.inputs or "", reference.parent, noise=False),)
    captured = (reference,) if captures else ()
    if project.candidate.checkpoint:
        given = {"reference": typed(reference), "candidate": typed(candidate), "map_file": typed(chosen)}
        compare = Call("diff", _compare_checkpoints, given, typed(run))
        return Plan("diff", (*captures, compare), {**read, "candidate checkpoint": candidate}, captured)
    given = {"source": typed(reference), "destination": typed(candidate), "map_file": typed(chosen)}
    convert = Call("convert", _convert_checkpoint, {**given, "overwrite": True}, typed(run))
    return Plan("convert", (*captures, convert), read, (*captured, candidate))


def _compare_checkpoints(reference: Path, candidate: Path, map_file: Path) -> Made:
    from align.convert.diff_checkpoints import diff_checkpoints

    made_from = {"reference": reference, "candidate": candidate, "map": map_file}
    return Made(diff_checkpoints(reference, candidate, name_map=map_file), made_from)


def _convert_checkpoint(source: Path, destination: Path, map_file: Path, *, overwrite: bool) -> Made:
    from align.convert.convert_checkpoint import convert_checkpoint

    record = convert_checkpoint(source, destination, name_map=map_file, overwrite=overwrite)
    return Made(record, {"source": source, "map": map_file})


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
    given = {**sides(project), "map_file": typed(chosen)}
    return Plan("initial", (Call("initial", _compare_initial, given, typed(run)),), {**read, "map": chosen})


def _compare_initial(reference: str, candidate: str, map_file: Path) -> Made:
    from align.training.compare_initial_values import compare_initial_values

    made_from = {"reference": reference, "candidate": candidate, "map": map_file}
    return Made(compare_initial_values(reference, candidate, name_map=map_file), made_from)


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

PLUGINS = (ENVIRONMENT, SETTINGS, PARAMETERS, WEIGHTS, INITIAL)
