"""The models of a command: options for where and in which precision they compute, and sides asked for as they say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from align.models.open_side import SideRequest
    from align.runs.project_file import Project, ProjectSide

SIDES = ("reference", "candidate")
_DEVICE = "Device that the {} runs on: cpu, cuda:1, npu; for MindSpore CPU, GPU, Ascend:1."
_DTYPE = "Cast the {}: float16, bfloat16, float32 or float64."
_MODE = "MindSpore's mode for the {}: graph (only the network's outputs are compared) or pynative."


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar=metavar, help=text.format(name.partition("-")[0]))


ReferenceDeviceOption = Annotated[str | None, _option("reference-device", "DEVICE", _DEVICE)]
CandidateDeviceOption = Annotated[str | None, _option("candidate-device", "DEVICE", _DEVICE)]
ReferenceDtypeOption = Annotated[str | None, _option("reference-dtype", "DTYPE", _DTYPE)]
CandidateDtypeOption = Annotated[str | None, _option("candidate-dtype", "DTYPE", _DTYPE)]
CandidateModeOption = Annotated[str | None, _option("candidate-mode", "MODE", _MODE)]
DeviceOption = Annotated[str | None, typer.Option(metavar="DEVICE", help=_DEVICE.format("model"))]
DtypeOption = Annotated[str | None, typer.Option(metavar="DTYPE", help=_DTYPE.format("model"))]
ModeOption = Annotated[str | None, typer.Option(metavar="MODE", help=_MODE.format("model"))]


def given_side(side: ProjectSide, **given: Any) -> ProjectSide:
    """Return the project file's side with what the command line gives for it."""
    return replace(side, **{name: value for name, value in given.items() if value is not None})


def requested(side: ProjectSide) -> SideRequest:
    """The side as it is to be opened, which waits until both are built: they may share what would be filled."""
    from align.models.open_side import SideRequest

    return SideRequest(str(side.model), side.checkpoint, side.device, side.dtype, side.mode)


def numbered_sources(role: str, sources: Sequence[Path | str]) -> dict[str, Path | str]:
    """Several sources of one role by names of their own: `inputs`, `inputs 2`."""
    return {f"{role} {number}" if number > 1 else role: one for number, one in enumerate(sources, 1)}


def made_from(settings: Project, **others: Path | str | None) -> dict[str, Path | str]:
    """What a result is made from, by roles, as far as it is chosen: models, checkpoints, places, map and others."""
    parts: dict[str, Path | str | None] = {}
    for name in SIDES:
        side: ProjectSide = getattr(settings, name)
        if side.model:
            place = " ".join(filter(None, (side.device, side.dtype, side.mode)))
            parts |= {name: side.model, f"{name} checkpoint": side.checkpoint, f"{name} place": place}
    parts |= {"map": settings.map, **{role.replace("_", " "): source for role, source in others.items()}}
    return {role: source for role, source in parts.items() if source}
