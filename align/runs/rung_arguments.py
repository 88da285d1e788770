"""What the commands of several rungs are given: sides, checkpoints, the map, as one would type them.

Where the project file names no map, the rung `parameters` makes one in the run folder; where it names no checkpoint of
a side, the rung `weights` makes one there. The later rungs read these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.registry import file_models
from align.runs.rung import Missing, shown, shown_side
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from align.runs.project_file import Project, ProjectSide

CAPTURED = "reference"  # the folder of the run folder that keeps the reference's own values
EXAMPLES = {
    "model": '"file.py:function"',
    "training": '"file.py:function"',
    "checkpoint": '"weights.pth"',
    "log": '"train.log"',
    "inputs": '"inputs.npz"',
    "batch": '"file.py:function"',
    "data": '"file.py:function"',
}


def first_missing(project: Project, *keys: str) -> Missing | None:
    """Return what is said of those of these keys, such as `reference model`, that the project file lacks."""
    sides: dict[str, ProjectSide] = {"reference": project.reference, "candidate": project.candidate}
    of_sides = ("model", "checkpoint", "training", "log")
    given = {f"{name} {key}": getattr(side, key) for name, side in sides.items() for key in of_sides}
    given |= {"forward inputs": project.inputs, "metric data": project.metric.data, "training batch": project.batches}
    lacking = [tuple(key.split()) for key in keys if not given[key]]
    if not lacking:
        return None
    named = {role: value for key in keys for role, value in _by_role(key, given[key])}
    for table, name in lacking:
        if name in ("model", "training") and sides[table].trace:
            return Missing(sentence("ladder.side_is_trace", side=table), made_from=named)
    reason = sentence("ladder.no_key", names=[f"[{table}] {name}" for table, name in lacking])
    settle = "\n".join(f"[{table}] {name} = {EXAMPLES[name]}" for table, name in lacking)
    return Missing(reason, settle, named)


def _by_role(key: str, value: Path | str | tuple[Path | str, ...] | None) -> Iterator[tuple[str, Path | str]]:
    """What the project file gives for a key, by the role that it has where a rung reads it."""
    if isinstance(value, tuple):
        yield from ((f"batch {number}", one) for number, one in enumerate(value, 1))
    elif value:
        table, _, name = key.partition(" ")
        role = name if table not in ("reference", "candidate") else key
        yield role.removesuffix(" model").removesuffix(" training"), value


def exported_sides(project: Project) -> list[str]:
    """The sides that are files with a model in them, such as ONNX: they hold their own weights, and no live layers."""
    sides = {"reference": project.reference, "candidate": project.candidate}
    return [name for name, side in sides.items() if file_models(side.model) is not None]


def map_file(project: Project, run: Path) -> Path:
    """The map that the rungs above `parameters` go by."""
    return project.map or run / "map.toml"


def checkpoints(project: Project, run: Path) -> tuple[Path | None, Path | None]:
    """What fills both sides, so that they start from equal weights.

    Where the project file names no checkpoint of the reference, it is the values that its factory gives it, captured
    once; where it names none of the candidate, what the reference's is converted into. (None, None) where there is
    neither a checkpoint nor anything to capture on. A candidate that is an exported file is filled from nothing.
    """
    reference, candidate = project.reference.checkpoint, project.candidate.checkpoint
    if "candidate" in exported_sides(project):
        return reference, None
    if reference is None and project.inputs and project.reference.model:
        reference = run / CAPTURED / "values.safetensors"
    if reference is None or candidate is not None:
        return reference, candidate
    return reference, run / ("candidate.pth" if reference.suffix == ".ckpt" else "candidate.ckpt")


def checkpoint_arguments(project: Project, run: Path) -> list[str]:
    """`--reference-checkpoint` and `--candidate-checkpoint`, as far as there are any."""
    found = zip(("reference", "candidate"), checkpoints(project, run), strict=True)
    return [part for side, path in found if path for part in (f"--{side}-checkpoint", shown(path))]


def place_arguments(project: Project) -> list[str]:
    """Devices, precisions and the mode of both sides, as the project file says."""
    return [*own_place(project.reference, "reference-"), *own_place(project.candidate, "candidate-")]


def own_place(side: ProjectSide, prefix: str = "") -> list[str]:
    """Device, precision and mode of one side as options; no command has an option for the mode of a reference."""
    places = {what: getattr(side, what) for what in ("device", "dtype", "mode")}
    given = {f"--{prefix}{what}": value for what, value in places.items() if value}
    return [part for option, value in given.items() if option != "--reference-mode" for part in (option, value)]


def has_place(project: Project) -> bool:
    """Tell whether the project file says where, or in which precision or mode, a side computes."""
    return any(own_place(side) for side in (project.reference, project.candidate))


def project_argument(project: Project, *, is_needed: bool) -> tuple[list[str], dict[str, Path | str]]:
    """`--project` and what it reads, where a command is to take something of it that no option of its own gives."""
    if not is_needed or project.file is None:
        return [], {}
    return ["--project", shown(project.file)], {"project": project.file}


def models(project: Project) -> list[str]:
    """Both models as one would type them."""
    return [shown_side(str(side.model)) for side in (project.reference, project.candidate)]


def trainings(project: Project) -> list[str]:
    """Both training factories as one would type them."""
    return [shown_side(str(side.training)) for side in (project.reference, project.candidate)]


def source(value: Path | str) -> str:
    """A file or `file.py:function` as one would type it."""
    return shown_side(value) if isinstance(value, str) else shown(value)


def read_files(project: Project, run: Path, others: Mapping[str, Path | str | None]) -> dict[str, Path | str]:
    """What rungs that run both models read, by role: models, checkpoints, the map, and others that are given."""
    filling = checkpoints(project, run)
    found = {
        "reference": project.reference.model,
        "candidate": project.candidate.model,
        "reference checkpoint": filling[0],
        "candidate checkpoint": filling[1],
        "map": map_file(project, run),
        **others,
    }
    return {role: value for role, value in found.items() if value}
