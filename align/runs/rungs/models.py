"""Rungs that run what is compared: both models, their data, their training steps; and their loss logs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.documents import kept_sentence
from align.core.verdicts import Outcome
from align.forward.forward_result import NO_ALLOWANCES
from align.runs.read_settings import (
    SIDES,
    AskedInputs,
    compare_models,
    file_or_function,
    find_settings,
    given_inputs,
    made_from,
    read_settings,
    requested,
)
from align.runs.rung import (
    Call,
    Culprit,
    Judgement,
    Made,
    Missing,
    Plan,
    Rung,
    capture_call,
    checkpoint_arguments,
    explain_steps,
    first_missing,
    has_place,
    judge_loss,
    judge_steps,
    judged_by_verdict,
    map_file,
    places,
    plan_steps,
    project_argument,
    read_files,
    sides,
    source,
    typed,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.runs.project_file import Project, ProjectSide

MANIFEST = "manifest.jsonl"


def _plan_forward(project: Project, run: Path) -> Plan | Missing:
    if project.reference.trace or project.candidate.trace:
        return _of_traces(project, run)
    if missing := first_missing(project, "reference model", "candidate model", "forward inputs"):
        return missing
    own, allowing = _allowing(project)
    given = _models(project, run, project.inputs or "")
    given |= {**places(project.reference, "reference_"), **places(project.candidate, "candidate_"), **own}
    call = Call("forward", partial(_compare_models, typed(run)), given | {"inputs": [given["inputs"]]}, typed(run))
    return Plan("forward", (call,), read_files(project, run, {"inputs": project.inputs, **allowing}))


def _models(project: Project, run: Path, inputs: Path | str) -> dict[str, Any]:
    """Both models, their map, inputs and checkpoints, as arguments."""
    chosen = typed(map_file(project, run))
    return {**sides(project), "map_file": chosen, "inputs": source(inputs), **checkpoint_arguments(project, run)}


def _compare_models(run: Path, /, inputs: list[str], project: Path | None = None, **of_sides: Any) -> Made:
    settings = read_settings(project, **of_sides)
    asked = AskedInputs([*map(file_or_function, inputs)])
    return Made(*compare_models(settings, asked, run, allowances=settings.allowances))


def _allowing(project: Project) -> tuple[dict[str, Any], dict[str, Path | str]]:
    """The project file for its limits and accepted deviations, which decide as much as the models."""
    return project_argument(project, is_needed=project.allowances != NO_ALLOWANCES or bool(project.reference.mode))


def _of_traces(project: Project, run: Path) -> Plan | Missing:
    """Compare two trace folders; a side that can run here is captured on the other's inputs."""
    read: dict[str, Path | str] = {}
    captures: list[Call] = []
    folders: list[Path] = []
    manifests: list[Path] = []
    for name, side, other in (
        ("reference", project.reference, project.candidate),
        ("candidate", project.candidate, project.reference),
    ):
        if side.trace:
            read[f"{name} trace"] = side.trace / MANIFEST
            folders.append(side.trace)
            continue
        if missing := first_missing(project, f"{name} model") or _lacks_weights(name, side, other):
            return missing
        folders.append(run / "captured" / name)
        inputs = other.trace / "inputs.npz" if other.trace else ""
        captures.append(capture_call(side, inputs, folders[-1], **places(side)))
        manifests.append(folders[-1] / MANIFEST)
        read[name] = str(side.model)
        read |= {f"{name} checkpoint": side.checkpoint} if side.checkpoint else {}
    own, allowing = _allowing(project)
    given = {**dict(zip(SIDES, map(source, folders), strict=True)), "map_file": typed(project.map), **own}
    call = Call("forward", _compare_folders, given, typed(run))
    read |= allowing | ({"map": project.map} if project.map else {})
    return Plan("forward", (*captures, call), read, tuple(manifests))


def _compare_folders(reference: str, candidate: str, **given: Any) -> Made:
    from align.forward.compare_trace_folders import compare_trace_folders

    settings = read_settings(given.get("project"), reference, candidate, given.get("map_file"))
    folders = Path(reference), Path(candidate)
    result = compare_trace_folders(*folders, name_map=settings.map, allowances=settings.allowances)
    return Made(result, {"reference": folders[0], "candidate": folders[1], "map": settings.map})


def _lacks_weights(name: str, side: ProjectSide, other: ProjectSide) -> Missing | None:
    """A model beside a trace is to be filled with the weights that the trace was captured with."""
    if side.checkpoint or not other.trace:
        return None
    reason = sentence("ladder.no_weights", side=name, other="candidate" if name == "reference" else "reference")
    return Missing(reason, f'[{name}] checkpoint = "{name}.ckpt"')


def _judge_forward(document: Mapping[str, Any]) -> Judgement:
    return judged_by_verdict(document, tuple(map(_culprit, document["culprits"])))


def _culprit(one: Mapping[str, Any]) -> Culprit:
    return Culprit(one["candidate"] or one["candidate_class"], one["cause"], one["line"], one["change"])


FORWARD = Rung(
    "forward",
    60,
    plan=_plan_forward,
    judge=_judge_forward,
    needs=("parameters", "weights"),
    kinds=("forward",),
    summary="every layer's output",
)


# Two language models as they generate, with their caches: `align generate`.


def _plan_generate(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model", "forward inputs"):
        return missing
    own, read = project_argument(project, is_needed=has_place(project))
    given = {**_models(project, run, project.inputs or ""), **own}
    call = Call("generate", _compare_generation, given, typed(run))
    return Plan("generate", (call,), read_files(project, run, {"inputs": project.inputs, **read}))


def _compare_generation(inputs: str, project: Path | None = None, **of_sides: Any) -> Made:
    from align.evaluation.compare_generation import compare_generation

    settings, source = read_settings(project, **of_sides), file_or_function(inputs)
    both = requested(settings.reference), requested(settings.candidate)
    result = compare_generation(*both, inputs=given_inputs(source, (), 0), name_map=settings.map)
    return Made(result, made_from(settings, inputs=source))


GENERATE = Rung(
    "generate",
    65,
    plan=_plan_generate,
    judge=judged_by_verdict,
    needs=("parameters", "weights"),
    optional=True,
    kinds=("generate",),
    summary="what language models generate",
)


# One dataset and metric through both models: `align validate`.


def _plan_metric(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference model", "candidate model", "metric data"):
        return missing
    metric = project.metric
    metric_arguments = {
        name: typed(getattr(metric, name)) for name in ("data", "metric", "candidate_data", "candidate_metric")
    }
    project_given, read = project_argument(project, is_needed=has_place(project))
    given = {
        **sides(project),
        "map_file": typed(map_file(project, run)),
        **checkpoint_arguments(project, run),
        **metric_arguments,
    }
    call = Call("validate", _validate, {**given, "limit_samples": metric.samples, **project_given}, typed(run))
    functions = {
        name.replace("_", "-"): getattr(metric, name)
        for name, value in metric_arguments.items()
        if value and ":" in value
    }
    return Plan("validate", (call,), read_files(project, run, {**functions, **read}))


def _validate(data: str, metric: str = "accuracy", project: Path | None = None, **given: Any) -> Made:
    from align.evaluation.validate_models import validate_models

    own = {name: given.pop(name, None) for name in ("candidate_data", "candidate_metric")}
    samples, settings = given.pop("limit_samples", None), read_settings(project, **given)
    both = requested(settings.reference), requested(settings.candidate)
    asked = {"data": data, "metric": metric, **own}
    result = validate_models(*both, **asked, name_map=settings.map, limit_samples=samples)
    return Made(result, made_from(settings, **asked))


METRIC = Rung(
    "metric",
    70,
    plan=_plan_metric,
    judge=judged_by_verdict,
    needs=("parameters", "weights"),
    kinds=("validate",),
    summary="a metric of both models",
)


# Which parameters one training step trains: `align params`.


def _plan_trained(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    read = {"reference": str(project.reference.training), "candidate": str(project.candidate.training)}
    batch, chosen = project.batches[0], map_file(project, run)
    given = {**sides(project, "training"), "batch": source(batch), "map_file": typed(chosen)}
    return Plan(
        "params", (Call("params", _check_parameters, given, typed(run)),), {**read, "batch": batch, "map": chosen}
    )


def _check_parameters(reference: str, candidate: str, batch: str, map_file: Path) -> Made:
    from align.training.check_parameters import check_parameters

    made_from = {"reference": reference, "candidate": candidate, "map": map_file, "batch": batch}
    return Made(check_parameters(reference, candidate, batch=batch, name_map=map_file), made_from)


def _judge_trained(document: Mapping[str, Any]) -> Judgement:
    return judged_by_verdict(
        document, tuple(Culprit(one["subject"], kept_sentence(one, "message")) for one in document["findings"])
    )


TRAINED = Rung(
    "trained",
    85,
    plan=_plan_trained,
    judge=_judge_trained,
    needs=("parameters",),
    optional=True,
    kinds=("params",),
    summary="which parameters a step trains",
)


# The batches of both data pipelines: `align data`.


def _plan_data(project: Project, run: Path) -> Plan | Missing:
    """Compare both pipelines; where trainings are named, labels are held against the classes that their losses take."""
    if missing := first_missing(project, "reference data", "candidate data"):
        return missing
    read = {f"{side} data": getattr(project, side).data for side in SIDES}
    given = {side: source(getattr(project, side).data) for side in SIDES}
    if project.batches and any(trained := (project.reference.training, project.candidate.training)):
        losses = {"training": trained[0], "candidate_training": trained[1], "batch": project.batches[0]}
        given |= {name: source(one) for name, one in losses.items() if one}
        read |= {name.replace("_", "-"): one for name, one in losses.items() if one}
    return Plan("data", (Call("data", _compare_data, given, typed(run)),), read)


def _compare_data(
    reference: str,
    candidate: str,
    training: str | None = None,
    candidate_training: str | None = None,
    batch: str | None = None,
) -> Made:
    from align.training.check_parameters import compare_labelled_data

    result = compare_labelled_data(reference, candidate, (training, candidate_training), batch)
    made_from = {"reference": reference, "candidate": candidate, "batch": batch}
    return Made(result, made_from | {"reference training": training, "candidate training": candidate_training})


def _judge_data(document: Mapping[str, Any]) -> Judgement:
    side = document["candidate"]["label"]
    causes = [Culprit(cause["field"] or side, kept_sentence(cause, "message")) for cause in document["causes"]]
    faults = [Culprit(finding["subject"], kept_sentence(finding, "message"))
              for finding in document["findings"] if finding["severity"] == "error"]  # fmt: skip
    return judged_by_verdict(document, (*causes, *faults))


DATA = Rung("data", 50, plan=_plan_data, judge=_judge_data, kinds=("data",), summary="batches of both data pipelines")


# The loss of a fixed batch: `align step` compares it first.

LOSS = Rung(
    "loss",
    80,
    plan=plan_steps,
    kinds=("step",),
    summary="the loss of a fixed batch",
    judge=judge_loss,
    needs=("parameters",),
)


# Gradients of every layer and parameter: `align step`.

GRADIENTS = Rung(
    "gradients",
    90,
    plan=plan_steps,
    kinds=("step",),
    summary="gradients of every layer and parameter",
    judge=partial(judge_steps, kinds=("forward", "backward", "gradients", "buffer"), compared="gradients"),
    needs=("parameters",),
    explain=explain_steps,
)


# What the optimizer does with right gradients: `align step`.

OPTIMIZER = Rung(
    "optimizer",
    100,
    plan=plan_steps,
    kinds=("step",),
    summary="what the optimizer makes of them",
    judge=partial(judge_steps, kinds=("update",), compared="updates"),
    needs=("parameters",),
    explain=explain_steps,
)


# Whether a side gives the same twice: `align check-determinism`.


def _plan_determinism(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    read = {"reference": str(project.reference.training), "candidate": str(project.candidate.training)}
    batch = project.batches[0]
    given = {**sides(project, "training"), "batch": source(batch)}
    call = Call("check-determinism", _check_determinism, given, typed(run))
    return Plan("determinism", (call,), {**read, "batch": batch})


def _check_determinism(reference: str, candidate: str, batch: str) -> Made:
    from align.training.check_determinism import check_determinism

    made_from = {"reference": reference, "candidate": candidate, "batch": batch}
    return Made(check_determinism(reference, candidate, batch=batch), made_from)


DETERMINISM = Rung(
    "determinism",
    12,
    plan=_plan_determinism,
    judge=judged_by_verdict,
    optional=True,
    kinds=("determinism",),
    summary="whether each side repeats itself",
)


# Two loss logs on one axis: `align loss`.


def _plan_curve(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference log", "candidate log"):
        return missing
    logs = {side: getattr(project, side).log for side in SIDES}
    own, settings = project_argument(project, is_needed=True)
    call = Call("loss", _compare_logs, {**sides(project, "log"), **own}, typed(run))
    return Plan("loss", (call,), {f"{side} log": log for side, log in logs.items()} | settings)


def _compare_logs(reference: Path, candidate: Path, project: Path | None = None) -> Made:
    from align.curves.compare_losses import LogReading, compare_readings, refuse_one_log

    settings, logs = find_settings(project), (reference, candidate)
    first, second = (LogReading(pattern=pattern or None) for pattern in settings.loss_patterns)
    refuse_one_log(logs, (first, second))
    result = compare_readings(logs, (first, second), presets=settings.loss_presets)
    return Made(result, {"reference": reference, "candidate": candidate})


def _judge_training(document: Mapping[str, Any]) -> Judgement:
    step = document["first_divergent_step"]
    place = "" if step is None else sentence("ladder.step", step=step)
    found = (Culprit(place, str(document["trouble"] or "")),) if place else ()
    return judged_by_verdict(document, found)


CURVE = Rung(
    "curve", 110, plan=_plan_curve, judge=_judge_training, kinds=("loss",), summary="the loss curves of two trainings"
)

# Whether a step of the port takes longer than the reference's, and why: `align advise`.


def _plan_speed(project: Project, run: Path) -> Plan | Missing:
    """Read the profiles of `[speed]`; a side that has none there is judged by its log."""
    files = {side: getattr(project.speed, side) or getattr(project, side).log for side in SIDES}
    lacking = [f"{side} log" for side in SIDES if files[side] is None]
    if missing := first_missing(project, *lacking):
        return missing
    given = {"candidate": [typed(files["candidate"])], "baseline": [typed(files["reference"])]}
    call = Call("advise", _advise, {**given, "at_most": project.speed.at_most}, typed(run))
    return Plan("advise", (call,), {f"{side} profile": path for side, path in files.items()})


def _advise(candidate: list[Path], baseline: list[Path], at_most: float | None = None) -> Made:
    from align.advice.advise import advise

    bound = {} if at_most is None else {"at_most": at_most}
    return Made(advise(candidate, baseline=baseline, **bound), {"candidate": candidate[0], "reference": baseline[0]})


def _judge_speed(document: Mapping[str, Any]) -> Judgement:
    """Judge the ratio of the steps alone: what a fast port could do faster is no fault."""
    ratio, at_most = document["ratio"], document["at_most"]
    coverage = document["verdict"]["coverage"]
    if ratio is None:
        return Judgement(Outcome.NOT_COMPARED, sentence("speed_rung.no_ratio"), (), coverage)
    if ratio <= at_most:
        reason = sentence("speed_rung.fast", ratio=ratio, at_most=at_most)
        return Judgement(Outcome.ALIGNED, reason, (), coverage)
    advised = [one for one in document["advice"] if one["level"] != "note"]
    culprits = tuple(Culprit(one["place"], one["title"], "", one["change"]) for one in advised)
    reason = sentence("speed_rung.slower", ratio=ratio, at_most=at_most)
    return Judgement(Outcome.NOT_ALIGNED, reason, culprits, coverage)


SPEED = Rung(
    "speed",
    115,
    plan=_plan_speed,
    judge=_judge_speed,
    optional=True,
    kinds=("advise",),
    summary="the time of a step, and what makes it longer",
)

PLUGINS = (FORWARD, GENERATE, METRIC, TRAINED, DATA, LOSS, GRADIENTS, OPTIMIZER, DETERMINISM, CURVE, SPEED)
