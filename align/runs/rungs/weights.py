"""Equal weights on both sides: converted from the reference's checkpoint, or compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.runs.rung import Command, Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown, shown_side
from align.runs.rung_arguments import checkpoints, exported_sides, first_missing, map_file, source
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
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


def _judge(document: Mapping[str, Any]) -> Judgement:
    differ = [
        one for one in document.get("tensors", ()) if one.get("outcome", "equal") not in ("equal", "dtypes differ")
    ]
    return judged_by_verdict(document, tuple(Culprit(one["candidate"], one["outcome"]) for one in differ))


PLUGIN = Rung(
    "weights",
    40,
    plan=_plan,
    judge=_judge,
    needs=("parameters",),
    kinds=("convert", "diff"),
    summary="weights, converted or compared",
)
