"""What a command or a rung compares: sides and inputs, as the project file says and as given beside it.

It imports a capability only when that is called: help needs this module too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.about import RUN_FOLDER, find_project
from align.core.load_code import put_first, require_file
from align.errors import InputsError, UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Inputs
    from align.forward.forward_result import ForwardComparison
    from align.models.open_side import SideRequest
    from align.runs.project_file import Project, ProjectSide

    Sources = Mapping[str, Path | str | None]


SIDES = ("reference", "candidate")


def find_settings(project: Path | None, *, with_overlays: bool = True) -> Project:
    """Read the project file, by default that of the current folder or of one above it; its overlays come first.

    Results go beside a file above, and modules are found there, as from its own folder.
    """
    from align.runs.project_file import Project, read_project

    chosen = find_project() if project is None else project
    settings = Project() if chosen is None else read_project(chosen)
    if project is None and chosen is not None and chosen.is_absolute():
        put_first(chosen.parent)
        settings = replace(settings, run_folder=settings.run_folder or chosen.parent / RUN_FOLDER)
    for side in (settings.reference, settings.candidate):
        if side.overlay is not None and with_overlays:
            _import_first(side.overlay)
    return settings


def _import_first(overlay: Path) -> None:
    if not overlay.is_dir():
        raise UsageError.of("cli_usage.no_overlay", folder=overlay)
    put_first(overlay)


def read_settings(
    project: Path | None, reference: str | None, candidate: str | None, map_file: Path | None = None, **of_sides: Any
) -> Project:
    """Return the project file's settings (by default those of `find_settings`) with what is given here.

    A side that a command does not use is "". `of_sides` has checkpoints, devices, dtypes and modes by names such as
    `candidate_dtype`; None leaves them to the file. Raises UsageError if a side is named nowhere.
    """
    from align.runs.project_file import NAME, Project

    in_file = find_settings(project) if project is not None or None in (reference, candidate) else Project()
    sides = []
    for name, model in zip(SIDES, (reference, candidate), strict=True):
        own = {what: of_sides.get(f"{name}_{what}") for what in ("checkpoint", "device", "dtype", "mode")}
        given = {what: value for what, value in {"model": model, **own}.items() if value is not None}
        sides.append(replace(getattr(in_file, name), **given))
        if sides[-1].model is None:
            raise UsageError.of("cli_usage.no_model", side=name, file=NAME)
    settings = replace(in_file, reference=sides[0], candidate=sides[1], map=map_file or in_file.map)
    _require_files(settings)
    return settings


def _require_files(settings: Project) -> None:
    """Raise MissingFileError for a model, checkpoint or map that is not there; of a side that is not used for none."""
    from align.core.atomic_files import existing_file

    used = [side for side in (settings.reference, settings.candidate) if side.model]
    for side in used:
        requested(side).check()
    if settings.map is not None and len(used) == len(SIDES):
        existing_file(settings.map, "map file")


def inputs_source(inputs: str | None, made: Sequence[str] | None, settings: Project) -> Path | str | None:
    """Return the file or function of the inputs: the one given here, else the project file's unless they are made."""
    chosen = inputs or (None if made else settings.inputs)
    source = file_or_function(chosen) if isinstance(chosen, str) else chosen
    if source is not None:
        require_source(source)
    return source


def require_source(source: Path | str, what: str = "inputs file") -> None:
    """Raise MissingFileError if a file, or that of a function, is not there."""
    from align.core.atomic_files import existing_file

    if isinstance(source, Path) or ":" not in source:
        existing_file(Path(source), what)
    else:
        require_file(source, what)


def file_or_function(source: str) -> Path | str:
    """A file as a path; the name of a function stays a name."""
    return source if ":" in source else Path(source)


def path_if_there(side: str) -> Path | str:
    """A checkpoint, or a file that is a model, as a path; what names a function stays a text."""
    return Path(side) if Path(side).exists() else side


def given_inputs(
    inputs: Path | str | None, specs: Sequence[str], seed: int, kept: Path | None = None
) -> Path | dict[str, Array]:
    """Return the inputs to use: drawn, read, or those that a run folder keeps from an earlier run."""
    from align.models.inputs import make_inputs, read_inputs

    if inputs and specs:
        raise UsageError.of("cli_usage.two_inputs")
    if specs:
        return make_inputs(specs, seed)
    if inputs is not None:
        return read_inputs(inputs)
    if kept is not None and kept.is_file():
        return kept
    raise InputsError.of("cli_usage.no_inputs", spec=say("inputs_fault.form"))


def batches_source(inputs: Sequence[str] | None, made: Sequence[str] | None, settings: Project) -> list[Path | str]:
    """The files or functions of all batches, as `inputs_source` chooses one; [] if none is named."""
    chosen = [inputs_source(one, made, settings) for one in inputs or (None,)]
    return [one for one in chosen if one]


def given_batches(
    sources: Sequence[Path | str], specs: Sequence[str], seed: int, kept: Path | None = None
) -> Path | Inputs:
    """Return the batches to use, as `given_inputs` returns one."""
    from align.models.inputs import read_batches

    if not sources or specs:
        return given_inputs(sources[0] if sources else None, specs, seed, kept)
    return read_batches([*sources])


def requested(side: ProjectSide) -> SideRequest:
    """The side as it is to be opened, which waits until both are built: they may share what would be filled."""
    from align.models.open_side import SideRequest

    return SideRequest(str(side.model), side.checkpoint, side.device, side.dtype, side.mode)


def numbered_sources(role: str, sources: Sequence[Path | str]) -> dict[str, Path | str]:
    """Several sources of one role by names of their own: `inputs`, `inputs 2`."""
    return {f"{role} {number}" if number > 1 else role: one for number, one in enumerate(sources, 1)}


def made_from(settings: Project, **others: Path | str | None) -> dict[str, Path | str | None]:
    """What a result is made from, by roles: models, checkpoints, places, map and others."""
    parts: dict[str, Path | str | None] = {}
    for name in SIDES:
        side: ProjectSide = getattr(settings, name)
        if side.model:
            place = " ".join(filter(None, (side.device, side.dtype, side.mode)))
            parts |= {name: side.model, f"{name} checkpoint": side.checkpoint, f"{name} place": place}
    return {**parts, "map": settings.map, **{role.replace("_", " "): source for role, source in others.items()}}


# The comparison of two models, whose inputs a run folder keeps for every later run.

_INPUTS, _OF_CANDIDATE = "inputs.npz", "candidate_inputs.npz"


class AskedInputs(NamedTuple):
    """Files or functions of batches, or specs of one to draw from a seed; and the candidate's own where it has them."""

    sources: Sequence[Path | str]
    specs: Sequence[str] = ()
    seed: int = 0
    of_candidate: Sequence[str] = ()


def compare_models(
    settings: Project, wanted: AskedInputs, run: Path | None, **how: Any
) -> tuple[ForwardComparison, Sources]:
    """Run both models, and return the comparison with what it may be made from, by role.

    A run folder keeps the inputs of a comparison that came to its end: they are taken where none are asked for. `how`
    is handed to `compare_forward`.
    """
    from align.forward.compare_forward import compare_forward

    kept = run / _INPUTS if run is not None else None
    inputs = given_batches(wanted.sources, wanted.specs, wanted.seed, kept)
    of_candidate = _candidate_batches(wanted.of_candidate, run, is_kept=inputs is kept)
    result = compare_forward(
        requested(settings.reference),
        requested(settings.candidate),
        inputs=inputs,
        candidate_inputs=of_candidate,
        name_map=settings.map,
        traces=None if run is None else run / "traces",
        **how,
    )
    written = _keep_inputs(inputs, kept)
    if run is not None and of_candidate is None:
        (run / _OF_CANDIDATE).unlink(missing_ok=True)
    elif run is not None and of_candidate is not None:
        _keep_inputs(of_candidate, run / _OF_CANDIDATE)
    named = numbered_sources("inputs", [written] if written else wanted.sources)
    named |= numbered_sources("candidate inputs", [file_or_function(one) for one in wanted.of_candidate])
    return result, made_from(settings, **named, witness=how.get("witness"))


def _candidate_batches(given: Sequence[str], run: Path | None, *, is_kept: bool) -> Path | Inputs | None:
    """What the candidate alone is given: as named, or as a run folder keeps it beside inputs that it keeps."""
    if given:
        return given_batches([file_or_function(one) for one in given], (), 0)
    path = None if run is None else run / _OF_CANDIDATE
    return path if is_kept and path is not None and path.is_file() else None


def _keep_inputs(inputs: Path | Inputs, kept: Path | None) -> Path | None:
    """Save inputs that were drawn or read, and return where inputs are kept."""
    from align.models.inputs import save_inputs
    from align.runs.run_folder import RunFolder

    if kept is not None and not isinstance(inputs, Path):
        RunFolder.create(kept.parent)
        save_inputs(kept, inputs)
    return kept
