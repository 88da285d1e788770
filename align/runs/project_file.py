"""`align.toml`, the one project file of a port: both sides, their checkpoints, what they run on, what is allowed.

    [reference]
    model = "port.py:torch_model"
    checkpoint = "resnet50.pth"
    training = "port.py:torch_training"
    log = "torch.log"

    [candidate]
    model = "port.py:mindspore_model"

    [forward]
    inputs = "inputs.npz"

    [training]
    batch = "port.py:batch"

    [limits]
    "head" = 3.0

Paths are relative to the file. Every command also works without it; what the command line says wins.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.about import PROJECT_FILE, PYPROJECT
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, read_toml
from align.core.load_code import file_models
from align.curves.presets import pattern_faults, preset_faults, read_patterns, read_presets
from align.errors import ProjectFileError
from align.forward.forward_result import NO_ALLOWANCES, Allowances, allowance_faults, read_allowances
from align.words.catalogue import LANGUAGES, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.presets import Preset

NAME = PROJECT_FILE
_PLACE = ("device", "dtype", "mode")
_TEXT, _TEXTS, _NUMBER, _RATIO = "text", "texts", "number", "ratio"
_FORMS = {_TEXT: "project_form.text", _TEXTS: "project_form.texts", _NUMBER: "project_form.number"}
_FORMS[_RATIO] = "project_form.ratio"
_SIDE = dict.fromkeys(("model", "checkpoint", *_PLACE, "trace", "training", "data", "log", "overlay"), _TEXT)
_METRIC = dict.fromkeys(("data", "metric", "candidate_data", "candidate_metric"), _TEXT)
_KEYS = {
    "reference": _SIDE,
    "candidate": _SIDE,
    "forward": {"inputs": _TEXT, "map": _TEXT},
    "metric": {**_METRIC, "samples": _NUMBER},
    "training": {"batch": _TEXTS, "steps": _NUMBER},
    "speed": {"reference": _TEXT, "candidate": _TEXT, "at_most": _RATIO},
    "run": {"folder": _TEXT, "rungs": _TEXTS},
}
_ALLOWED = {"limits", "accepted", "loss"}


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """One side: the factory, the checkpoint that fills it, where and how it runs; None: as the factory leaves it.

    `trace` is a folder of `align capture`, of a side whose framework is elsewhere; `training` a factory of model, loss
    and optimizer; `data` a function that returns the loader or dataset, or a folder of captured batches; `log` what its
    training printed. `overlay` is a folder of copied packages, which come before those that are installed.
    """

    model: str | None = None
    checkpoint: Path | None = None
    device: str | None = None
    dtype: str | None = None
    mode: str | None = None
    trace: Path | None = None
    training: str | None = None
    data: Path | str | None = None
    log: Path | None = None
    overlay: Path | None = None


@dataclass(frozen=True, slots=True)
class ProjectMetric:
    """The data and the metric of `align validate`; the candidate's own where it has them."""

    data: str | None = None
    metric: str | None = None
    candidate_data: str | None = None
    candidate_metric: str | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class ProjectSpeed:
    """The profiles or logs that `align advise` reads of each side, and how much slower the port may be."""

    reference: Path | None = None
    candidate: Path | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """What a project file says, with paths made absolute; everything may be absent.

    `rungs` are those that `align run` is to climb; () for all whose inputs are named.
    """

    reference: ProjectSide = ProjectSide()
    candidate: ProjectSide = ProjectSide()
    inputs: Path | str | None = None
    map: Path | None = None
    allowances: Allowances = NO_ALLOWANCES
    loss_presets: dict[str, Preset] = field(default_factory=dict)
    loss_patterns: tuple[str, str] = ("", "")
    metric: ProjectMetric = ProjectMetric()
    speed: ProjectSpeed = ProjectSpeed()
    batches: tuple[Path | str, ...] = ()
    steps: int | None = None
    run_folder: Path | None = None
    rungs: tuple[str, ...] = ()
    file: Path | None = field(default=None, compare=False)


def read_project(path: Path) -> Project:
    """Read a project file, of a `pyproject.toml` its table `[tool.align]`.

    Raises MissingFileError, or ProjectFileError listing every unknown key and wrong type.
    """
    try:
        document = read_toml(existing_file(path, "project file"))
        if path.name == PYPROJECT:
            document = document.get("tool", {}).get("align", {})
    except DocumentFault as fault:
        raise ProjectFileError(path, [str(fault)]) from fault
    if faults := [*_faults(document), *allowance_faults(document), *preset_faults(document), *pattern_faults(document)]:
        raise ProjectFileError(path, faults)
    folder = path.resolve().parent
    forward = document.get("forward", {})
    inputs = forward.get("inputs")
    training, run = document.get("training", {}), document.get("run", {})
    return Project(
        reference=_side(document.get("reference", {}), folder),
        candidate=_side(document.get("candidate", {}), folder),
        inputs=_source(inputs, folder) if inputs else None,
        map=_below(folder, forward["map"]) if "map" in forward else None,
        allowances=read_allowances(document),
        loss_presets=read_presets(document),
        loss_patterns=read_patterns(document),
        metric=_metric(document.get("metric", {}), folder),
        speed=_speed(document.get("speed", {}), folder),
        batches=tuple(_source(batch, folder) for batch in _listed(training.get("batch"))),
        steps=training.get("steps"),
        run_folder=_below(folder, run["folder"]) if "folder" in run else None,
        rungs=tuple(_listed(run.get("rungs"))),
        file=path,
    )


def _faults(document: dict[str, Any]) -> Iterator[str]:
    for table, content in document.items():
        if table in _ALLOWED:
            continue
        if table == "language":
            if content not in LANGUAGES:
                yield say("project_fault.language", known=[*LANGUAGES], value=repr(content))
            continue
        if table not in _KEYS:
            known = [f"[{name}]" for name in sorted({*_KEYS, *_ALLOWED})]
            yield say("project_fault.no_such_table", name=repr(table), known=known)
        elif not isinstance(content, dict):
            yield say("project_fault.no_table", place=f"[{table}]")
        else:
            yield from _table_faults(table, content)


def _table_faults(table: str, content: dict[str, Any]) -> Iterator[str]:
    known = _KEYS[table]
    for key, value in content.items():
        if key not in known:
            yield say("project_fault.no_such_key", place=f"[{table}]", name=repr(key), known=sorted(known))
        elif not _fits(value, known[key]):
            yield say("project_fault.form", place=f"[{table}] {key}", kind=say(_FORMS[known[key]]), value=repr(value))


def _fits(value: object, kind: str) -> bool:
    if kind == _NUMBER:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if kind == _RATIO:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1
    if kind == _TEXTS and isinstance(value, list):
        return bool(value) and all(_fits(one, _TEXT) for one in value)
    return isinstance(value, str) and bool(value.strip())


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def _side(table: dict[str, str], folder: Path) -> ProjectSide:
    paths = {key: _below(folder, table[key]) for key in ("checkpoint", "trace", "log", "overlay") if key in table}
    factories = {key: _factory(table[key], folder) for key in ("model", "training") if key in table}
    data = {"data": _source(table["data"], folder)} if "data" in table else {}
    return ProjectSide(**data, **{key: table[key] for key in _PLACE if key in table}, **paths, **factories)  # type: ignore[arg-type]


def _metric(table: dict[str, Any], folder: Path) -> ProjectMetric:
    """The functions' files made absolute; the names of metrics that `align validate` knows stay names."""
    absolute = {key: _factory(value, folder) for key, value in table.items() if key != "samples"}
    return ProjectMetric(**absolute, samples=table.get("samples"))


def _speed(table: dict[str, Any], folder: Path) -> ProjectSpeed:
    files = {side: _below(folder, table[side]) for side in ("reference", "candidate") if side in table}
    return ProjectSpeed(**files, at_most=table.get("at_most"))


def _source(source: str, folder: Path) -> Path | str:
    """A file as a path; `file.py:function` with its file made absolute."""
    return _factory(source, folder) if ":" in source else _below(folder, source)


def _factory(side: str, folder: Path) -> str:
    """Make the file of `file.py:function` absolute, and one that holds a model; leave `package.module:function`."""
    place, separator, name = side.rpartition(":")
    if not separator and file_models(side) is not None:
        return str(_below(folder, side))
    return f"{_below(folder, place)}{separator}{name}" if place.endswith(".py") else side


def _below(folder: Path, name: str) -> Path:
    """A path of the file, without steps up and down again."""
    return Path(os.path.normpath(folder / name))
