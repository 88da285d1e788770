"""Both models on the same inputs, layer by layer: `align forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.json_data import kept_sentence
from align.forward.forward_result import NO_ALLOWANCES
from align.runs.rung import (
    Command,
    Culprit,
    Judgement,
    Missing,
    Plan,
    Rung,
    checkpoint_arguments,
    first_missing,
    has_place,
    judged_by_verdict,
    map_file,
    models,
    own_place,
    place_arguments,
    project_argument,
    read_files,
    shown,
    shown_side,
    source,
    trainings,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project, ProjectSide


def _plan_forward(project: Project, run: Path) -> Plan | Missing:
    if project.reference.trace or project.candidate.trace:
        return _of_traces(project, run)
    if missing := first_missing(project, "reference model", "candidate model", "forward inputs"):
        return missing
    arguments = ["--map", shown(map_file(project, run)), "--inputs", source(project.inputs or "")]
    arguments += [*checkpoint_arguments(project, run), *place_arguments(project)]
    own, allowing = _allowing(project)
    command = ("forward", *models(project), *arguments, *own, "--run", shown(run))
    return Plan("forward", (command,), read_files(project, run, {"inputs": project.inputs, **allowing}))


def _allowing(project: Project) -> tuple[list[str], dict[str, Path | str]]:
    """The project file for its limits and accepted deviations, which decide as much as the models."""
    return project_argument(project, is_needed=project.allowances != NO_ALLOWANCES or bool(project.reference.mode))


def _of_traces(project: Project, run: Path) -> Plan | Missing:
    """Compare two trace folders; a side that can run here is captured on the other's inputs."""
    traces: dict[str, Path | str] = {}
    commands: list[Command] = []
    folders: list[str] = []
    made: list[Path] = []
    for name, side, other in (
        ("reference", project.reference, project.candidate),
        ("candidate", project.candidate, project.reference),
    ):
        if side.trace:
            traces[f"{name} trace"] = side.trace / "manifest.jsonl"
            folders.append(shown(side.trace))
            continue
        if missing := first_missing(project, f"{name} model") or _lacks_weights(name, side, other):
            return missing
        made.append(run / "captured" / name / "manifest.jsonl")
        folders.append(shown(made[-1].parent))
        inputs = shown(other.trace / "inputs.npz") if other.trace else ""
        filled = ["--checkpoint", shown(side.checkpoint)] if side.checkpoint else []
        traces[name] = str(side.model)
        traces |= {f"{name} checkpoint": side.checkpoint} if side.checkpoint else {}
        given = ["--inputs", inputs, *filled, *own_place(side)]
        commands.append(("capture", shown_side(str(side.model)), *given, "--out", folders[-1]))
    chosen = ["--map", shown(project.map)] if project.map else []
    own, allowing = _allowing(project)
    commands.append(("forward", *folders, *chosen, *own, "--run", shown(run)))
    read = traces | allowing | ({"map": project.map} if project.map else {})
    return Plan("forward", tuple(commands), read, tuple(made))


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
    arguments = ["--map", shown(map_file(project, run)), "--inputs", source(project.inputs or "")]
    arguments += checkpoint_arguments(project, run)
    own, places = project_argument(project, is_needed=has_place(project))
    command = ("generate", *models(project), *arguments, *own, "--run", shown(run))
    return Plan("generate", (command,), read_files(project, run, {"inputs": project.inputs, **places}))


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
    asked = {"data": project.metric.data, "metric": project.metric.metric}
    asked |= {"candidate-data": project.metric.candidate_data, "candidate-metric": project.metric.candidate_metric}
    given = [part for name, value in asked.items() if value for part in (f"--{name}", shown_side(value))]
    samples = ["--limit-samples", str(project.metric.samples)] if project.metric.samples else []
    arguments = ["--map", shown(map_file(project, run)), *checkpoint_arguments(project, run), *given, *samples]
    own, places = project_argument(project, is_needed=has_place(project))
    functions = {name: value for name, value in asked.items() if value and ":" in value}
    read = read_files(project, run, {**functions, **places})
    return Plan("validate", (("validate", *models(project), *arguments, *own, "--run", shown(run)),), read)


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
    left, right = trainings(project)
    command = ("params", left, right, "--batch", source(batch), "--map", shown(chosen), "--run", shown(run))
    return Plan("params", (command,), {**read, "batch": batch, "map": chosen})


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

PLUGINS = (
    FORWARD,
    GENERATE,
    METRIC,
    TRAINED,
)
