"""Equal weights on both sides: converted from the reference's checkpoint, or compared with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.runs.rung import Culprit, Judgement, Missing, Plan, Rung, judged_by_verdict, shown
from align.runs.rung_arguments import candidate_checkpoint, first_missing, map_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.runs.project_file import Project


def _plan(project: Project, run: Path) -> Plan | Missing:
    """Compare two checkpoints; convert the only one into the candidate's, which the later rungs read."""
    if missing := first_missing(project, "reference.checkpoint"):
        return missing
    reference, candidate = Path(str(project.reference.checkpoint)), Path(str(candidate_checkpoint(project, run)))
    chosen = map_file(project, run)
    files = [shown(reference), shown(candidate), "--map", shown(chosen)]
    read: dict[str, Path | str] = {"reference checkpoint": reference, "map": chosen}
    if project.candidate.checkpoint:
        command = ("diff", *files, "--run", shown(run))
        return Plan("diff", (command,), {**read, "candidate checkpoint": candidate})
    return Plan("convert", (("convert", *files, "--overwrite", "--run", shown(run)),), read)


def _judge(document: Mapping[str, Any]) -> Judgement:
    differ = [
        one for one in document.get("tensors", ()) if one.get("outcome", "equal") not in ("equal", "dtypes differ")
    ]
    return judged_by_verdict(document, tuple(Culprit(one["candidate"], one["outcome"]) for one in differ))


PLUGIN = Rung("weights", 40, "weights, converted or compared", _plan, _judge, needs=("parameters",))
