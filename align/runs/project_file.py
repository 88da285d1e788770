"""`align.toml`, the one project file of a port: both sides, their checkpoints, the inputs, the map, what is allowed.

    [reference]
    model = "port.py:torch_model"
    checkpoint = "resnet50.pth"

    [candidate]
    model = "port.py:mindspore_model"
    checkpoint = "resnet50.ckpt"

    [forward]
    inputs = "inputs.npz"
    map = "map.toml"

    [limits]
    "head" = 3.0

Paths are relative to the file. Every command also works without it; what the command line says wins.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import existing_file
from align.curves.read_patterns import pattern_faults, read_patterns
from align.curves.read_presets import preset_faults, read_presets
from align.errors import ProjectFileError
from align.forward.allowances import NO_ALLOWANCES, Allowances, allowance_faults, read_allowances

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.curves.presets import Preset

NAME = "align.toml"
_PLACE = ("device", "dtype", "mode")
_SIDE = {"model", "checkpoint", *_PLACE}
_KEYS = {"reference": _SIDE, "candidate": _SIDE, "forward": {"inputs", "map"}}
_ALLOWED = {"limits", "accepted", "loss"}


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """One side: the factory, the checkpoint that fills it, where and how it runs; None: as the factory leaves it."""

    model: str | None = None
    checkpoint: Path | None = None
    device: str | None = None
    dtype: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """What a project file says, with paths made absolute; everything may be absent."""

    reference: ProjectSide = ProjectSide()
    candidate: ProjectSide = ProjectSide()
    inputs: Path | str | None = None
    map: Path | None = None
    allowances: Allowances = NO_ALLOWANCES
    loss_presets: dict[str, Preset] = field(default_factory=dict)
    loss_patterns: tuple[str, str] = ("", "")


def read_project(path: Path) -> Project:
    """Read a project file; raises MissingFileError, or ProjectFileError listing every unknown key and wrong type."""
    try:
        document = tomllib.loads(existing_file(path, "project file").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectFileError(path, [f"not TOML: {error}"]) from error
    if faults := [*_faults(document), *allowance_faults(document), *preset_faults(document), *pattern_faults(document)]:
        raise ProjectFileError(path, faults)
    folder = path.resolve().parent
    forward = document.get("forward", {})
    inputs = forward.get("inputs")
    return Project(
        reference=_side(document.get("reference", {}), folder),
        candidate=_side(document.get("candidate", {}), folder),
        inputs=_factory(inputs, folder) if inputs and ":" in inputs else folder / inputs if inputs else None,
        map=folder / forward["map"] if "map" in forward else None,
        allowances=read_allowances(document),
        loss_presets=read_presets(document),
        loss_patterns=read_patterns(document),
    )


def _faults(document: dict[str, Any]) -> Iterator[str]:
    for table, content in document.items():
        if table in _ALLOWED:
            continue
        if table not in _KEYS:
            known = ", ".join(f"[{name}]" for name in sorted({*_KEYS, *_ALLOWED}))
            yield f"unknown table or key {table!r}; known: {known}"
        elif not isinstance(content, dict):
            yield f"[{table}] must be a table"
        else:
            yield from _table_faults(table, content)


def _table_faults(table: str, content: dict[str, Any]) -> Iterator[str]:
    known = _KEYS[table]
    for key, value in content.items():
        if key not in known:
            yield f"[{table}] unknown key {key!r}; known: {', '.join(sorted(known))}"
        elif not isinstance(value, str) or not value.strip():
            yield f"[{table}] {key} must be text, not {value!r}"


def _side(table: dict[str, str], folder: Path) -> ProjectSide:
    model, checkpoint = table.get("model"), table.get("checkpoint")
    place = (table.get(key) for key in _PLACE)
    return ProjectSide(_factory(model, folder) if model else None, folder / checkpoint if checkpoint else None, *place)


def _factory(side: str, folder: Path) -> str:
    """Make the file of `file.py:function` absolute; leave `package.module:function` alone."""
    place, separator, name = side.rpartition(":")
    return f"{folder / place}{separator}{name}" if place.endswith(".py") else side
