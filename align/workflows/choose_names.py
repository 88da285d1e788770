"""Which name becomes which: by a map, a record, models, a family, or the file alone, and in which direction.

Whose names the source has, its format says; where it does not, the names do. Whose names the target has, the
destination's suffix says, or the user (`target`). Nothing about names is decided silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.core.names import Fill, NameMap
from align.errors import UsageError
from align.runs.mapfile import read_map
from align.workflows.map_from_file import map_from_file

if TYPE_CHECKING:
    from align.core.checkpoints import Checkpoint
    from align.core.protocols import FrameworkName

Naming = Literal["nn", "mint", "torch"]


@dataclass(frozen=True, slots=True)
class NameRequest:
    """What the user said of names; everything may be left out."""

    name_map: NameMap | Path | str | None = None
    source_model: str | None = None
    target_model: str | None = None
    family: str | None = None
    target: Naming | None = None
    layers: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChosenNames:
    """The map from the file's names, prefixes included, to those to write, and whose names these are.

    `fills` are tensors that the target has and the source lacks; `ties` names of targets known to be one tensor, by
    a record; `origin` says in words where the map comes from.
    """

    name_map: NameMap
    framework: FrameworkName
    warnings: tuple[str, ...] = ()
    fills: tuple[Fill, ...] = ()
    ties: tuple[tuple[str, ...], ...] = ()
    origin: str = ""


def choose_names(
    checkpoint: Checkpoint, request: NameRequest, destination_framework: FrameworkName | None
) -> ChosenNames:
    """Decide the names; `destination_framework` is None where the destination's format does not tell.

    Raises UsageError, OpenNamesError or MapError, each with everything that stands against it.
    """
    if request.name_map is None:
        family = request.target if request.target != "torch" else None
        name_map, warnings = map_from_file(checkpoint, family, request.layers)
        return ChosenNames(name_map, destination_framework or "mindspore", warnings, origin="the file alone")
    if request.target is not None or request.layers:
        given = "--target" if request.target is not None else "--layer"
        raise UsageError(
            f"{given} does not go with a map", "the map names every target: change it there, or drop --map"
        )
    if isinstance(request.name_map, NameMap):
        return ChosenNames(request.name_map, destination_framework or "mindspore", origin="a map")
    name_map = read_map(Path(request.name_map), list(checkpoint.tensors), None)
    return ChosenNames(name_map, destination_framework or "mindspore", origin=f"the map {request.name_map}")
