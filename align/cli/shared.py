"""What the commands share: common options, the progress bar and the way a result leaves the program."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.given import require_source
from align.cli.output import print_json, tell
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.progress import Progress
    from align.core.protocols import Inputs
    from align.core.verdicts import Verdict
    from align.models.open_side import SideRequest
    from align.runs.project_file import Project, ProjectSide
    from align.runs.run_folder import Result


JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_SIDE = "A model: `package.module:function` or `file.py:function`, by default that of the project file."
ReferenceArgument = Annotated[str | None, typer.Argument(help=_SIDE, metavar="REFERENCE")]
CandidateArgument = Annotated[str | None, typer.Argument(help=_SIDE, metavar="CANDIDATE")]
ProjectOption = Annotated[
    Path | None, typer.Option("--project", help="Project file; align.toml of the current folder by default.")
]
TorchModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A torch model: `package.module:function` or `file.py:function`.")
]
PortOfTrainingArgument = Annotated[str, typer.Argument(metavar="CANDIDATE", help="The same of the port.")]
CheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the model.")]
ReferenceCheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")]
CandidateCheckpointOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")]
MapOption = Annotated[
    Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
]

InputsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Arrays by name (.npz), or `module:function` that returns them.")
]
BatchesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="Arrays by name (.npz), or `module:function` that returns them; repeat for batches one after another.",
    ),
]
CandidateInputsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="What the candidate alone is given, in the place of --inputs; one a batch."),
]
InputSpecsOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="SPEC", help="Draw an input from the seed: x=float32[2,3,224,224]"),
]
TRAINING_SIDE = (
    "`module:function` or `file.py:function` that returns (model, loss, optimizer), or a dict of these and a step."
)
BatchOption = Annotated[
    str, typer.Option(metavar="FILE", help="Inputs and labels by name (.npz), or `module:function`: one batch.")
]
BatchesOfStepsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--batch",
        metavar="FILE",
        help="Inputs and labels by name (.npz), or `module:function`; repeat for batches one after another.",
    ),
]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB=VALUE", help="Multiply the limit of layers whose path fits; wins over the file's."),
]
AllLayersOption = Annotated[bool, typer.Option("--all", help="Show every layer, and all parts at fault.")]
AllTensorsOption = Annotated[bool, typer.Option("--all", help="List every tensor, unfolded.")]
ThoroughOption = Annotated[bool, typer.Option("--thorough", help="Look into wrong code with as many runs as it takes.")]
SeedOption = Annotated[int, typer.Option(help="Seed of --input.")]
TrustPickleOption = Annotated[
    bool, typer.Option("--trust-pickle", help="Let torch run the code in the file: only for files you trust.")
]


def _usable_run_folder(run: Path | None) -> Path | None:
    """Refuse a run folder that cannot be written before any work is done."""
    if run is not None:
        from align.runs.run_folder import RunFolder

        RunFolder.check(run)
    return run


RunOption = Annotated[
    Path | None,
    typer.Option("--run", help="Run folder to write the result into.", metavar="DIR", callback=_usable_run_folder),
]


def finish(
    result: Result,
    verdict: Verdict,
    made_from: Mapping[str, Path | str],
    run: Path | None,
    json: bool,
    *,
    show_all: bool = False,
) -> int:
    """Hand a result over and return the exit code of its verdict."""
    hand_over(result, made_from, run, json, show_all=show_all)
    return verdict.exit_code


def hand_over(
    result: Result, made_from: Mapping[str, Path | str], run: Path | None, json: bool, *, show_all: bool = False
) -> None:
    """Write the result into the run folder if one is given, and print it, as a document or for the eye."""
    from align.core.json_data import json_text
    from align.runs.run_folder import RunFolder, as_document

    written = RunFolder.create(run).write(result, made_from) if run is not None else None
    hashed = json or run is not None  # for the eye alone, nobody need wait until every file is read once more
    document = as_document(result, made_from, hashed=hashed)
    if json:
        print_json(json_text(document))
        return
    from align.report.show_result import print_result

    print_result(document, show_all=show_all)
    if written is not None:
        tell(say("told.written", names=[written]))


def import_report_meanwhile() -> None:
    """Import what prints results in a thread, for commands whose work leaves the interpreter free most of the time."""

    def load() -> None:
        import align.report.show_result  # noqa: F401 - loaded, to be there when the work is done

    threading.Thread(target=load, daemon=True).start()


def find_settings(project: Path | None, *, with_overlays: bool = True) -> Project:
    """Read the project file, by default the current folder's align.toml if there is one; its overlays come first."""
    from align.runs.project_file import NAME, Project, read_project

    if project is None and Path(NAME).is_file():
        project = Path(NAME)
    settings = read_project(project) if project is not None else Project()
    for side in (settings.reference, settings.candidate):
        if side.overlay is not None and with_overlays:
            _import_first(side.overlay)
    return settings


def _import_first(overlay: Path) -> None:
    from align.core.import_user_code import put_first
    from align.errors import UsageError

    if not overlay.is_dir():
        raise UsageError.of("cli_usage.no_overlay", folder=overlay)
    put_first(overlay)


def read_settings(
    project: Path | None,
    reference: str | None,
    candidate: str | None,
    *,
    checkpoints: tuple[Path | None, Path | None] = (None, None),
    map_file: Path | None = None,
) -> Project:
    """Return the project file's settings (the current folder's align.toml by default) with what is given here.

    A side that a command does not use is "". Raises UsageError if a side is named nowhere.
    """
    import dataclasses

    from align.errors import UsageError
    from align.runs.project_file import NAME, Project

    found = find_settings(project) if project is not None or None in (reference, candidate) else Project()
    sides = []
    for name, model, checkpoint in zip(SIDES, (reference, candidate), checkpoints, strict=True):
        side = given_side(getattr(found, name), model=model, checkpoint=checkpoint)
        if side.model is None:
            raise UsageError.of("cli_usage.no_model", side=name, file=NAME)
        sides.append(side)
    settings = dataclasses.replace(found, reference=sides[0], candidate=sides[1], map=map_file or found.map)
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


def file_or_function(source: str) -> Path | str:
    """A file as a path; the name of a function stays a name."""
    return source if ":" in source else Path(source)


def given_inputs(
    inputs: Path | str | None, specs: Sequence[str], seed: int, kept: Path | None = None
) -> Path | dict[str, Array]:
    """Return the inputs to use: drawn, read, or those that a run folder keeps from an earlier run."""
    from align.errors import InputsError, UsageError
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


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a Progress that draws a bar on standard error, on a terminal only."""
    from align.core.progress import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    tasks: dict[str, int] = {}
    with Bar(console=Console(stderr=True), transient=True) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total))
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show


# The models of a command: options for where and in which precision they compute, and sides asked for as they say.

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
