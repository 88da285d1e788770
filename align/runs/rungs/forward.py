"""Both models on the same inputs, layer by layer: `align forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Command, Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown, shown_side
from align.runs.rung_arguments import (
    checkpoint_arguments,
    first_missing,
    map_file,
    models,
    place_arguments,
    read_files,
    source,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project, ProjectSide


def _plan(project: Project, run: Path) -> Plan | Missing:
    if project.reference.trace or project.candidate.trace:
        return _of_traces(project, run)
    if missing := first_missing(project, "reference model", "candidate model", "forward inputs"):
        return missing
    arguments = ["--map", shown(map_file(project, run)), "--inputs", source(project.inputs or "")]
    arguments += [*checkpoint_arguments(project, run), *place_arguments(project)]
    own = ["--project", shown(project.file)] if project.file else []
    command = ("forward", *models(project), *arguments, *own, "--run", shown(run))
    return Plan("forward", (command,), read_files(project, run, {"inputs": project.inputs, "project": project.file}))


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
        commands.append(("capture", shown_side(str(side.model)), "--inputs", inputs, *filled, "--out", folders[-1]))
    chosen = ["--map", shown(project.map)] if project.map else []
    commands.append(("forward", *folders, *chosen, "--run", shown(run)))
    return Plan("forward", tuple(commands), traces | ({"map": project.map} if project.map else {}), tuple(made))


def _lacks_weights(name: str, side: ProjectSide, other: ProjectSide) -> Missing | None:
    """A model beside a trace is to be filled with the weights that the trace was captured with."""
    if side.checkpoint or not other.trace:
        return None
    reason = sentence("ladder.no_weights", side=name, other="candidate" if name == "reference" else "reference")
    return Missing(reason, f'[{name}] checkpoint = "{name}.ckpt"')


def _judge(document: Mapping[str, Any]) -> Judgement:
    return judged_by_verdict(document, tuple(map(_culprit, document["culprits"])))


def _culprit(one: Mapping[str, Any]) -> Culprit:
    return Culprit(one["candidate"] or one["candidate_class"], one["cause"], one["line"], one["change"])


PLUGIN = Rung(
    "forward",
    60,
    plan=_plan,
    judge=_judge,
    needs=("parameters", "weights"),
    kinds=("forward",),
    summary="every layer's output",
)
