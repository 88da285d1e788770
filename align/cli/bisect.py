"""`align bisect`: halving, to find where a port goes wrong, or which layers, or switches, a model suffers from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.parts.ascend import FrameworkOption, SwitchOption, given_switches, named_driver
from align.cli.parts.shared import (
    BatchesOfStepsOption,
    CandidateArgument,
    CandidateCheckpointOption,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    RunOption,
    SeedOption,
    finish,
    given_inputs,
    inputs_source,
    progress_bar,
    read_settings,
)
from align.cli.parts.sides import made_from, requested
from align.cli.parts.train_bisection import bisect_train

if TYPE_CHECKING:
    from align.core.protocols import Batch
    from align.forward.bisect_result import Bisection, PrecisionBisection, SwitchBisection
    from align.runs.project_file import Project, ProjectSide


def bisect_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    train: Annotated[
        str | None, typer.Option(metavar="FACTORY", help="Halve the layers of a training: what `align step` takes.")
    ] = None,
    batch: BatchesOfStepsOption = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="With --train: the updates (3).")] = None,
    implementation: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="With --train: `module:function` that makes what takes a layer's place."),
    ] = None,
    points: Annotated[Path | None, typer.Option(metavar="FILE", help="Points to splice at, as TOML.")] = None,
    point: Annotated[
        list[str] | None, typer.Option(metavar="REF=CAND", help="A point: a layer of each side; repeat.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Halve the layers of one side that run in this precision.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Halve the layers of one side that run on this device.")
    ] = None,
    switches: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Halve the switches of ascend:CHIP or gpu, emulated.")
    ] = None,
    switch: SwitchOption = None,
    framework: FrameworkOption = "mindspore",
    layers: Annotated[str, typer.Option(metavar="GLOB", help="The layers to halve.")] = "*",
    limit: Annotated[float | None, typer.Option(metavar="X", help="Relative movement that is allowed.")] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="`module:function` of the outputs; it is judged instead.")
    ] = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every point.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Put the reference's values into the port at points, and halve until every stretch that goes wrong is found.

    With --precision or --device and one side: find the smallest set of its layers that moves it above the limit there.
    With --train: find the smallest set of layers whose precision, device or implementation moves a training's loss.
    With --switches: find the switches of an Ascend chip, or of a GPU, that do, all others at their most precise value.
    """
    of_training: dict[str, Any] = {"--batch": batch, "--steps": steps, "--implementation": implementation}
    of_points: dict[str, Any] = {"--points": points, "--point": point, "--map": map_file}
    of_candidate: dict[str, Any] = {"CANDIDATE": candidate, "--candidate-checkpoint": candidate_checkpoint}
    if train is not None:
        of_models: dict[str, Any] = {
            "REFERENCE": reference,
            "--reference-checkpoint": reference_checkpoint,
            **of_candidate,
        }
        of_models |= {"--inputs": inputs, "--input": made, "--switches": switches, "--loss": loss}
        _refuse({**of_models, **of_points})
        change = {"precision": precision, "device": device, "implementation": implementation}
        return bisect_train(train, batch, steps, change, (layers, limit), (run, json))
    of_one: dict[str, Any] = {"limit": limit, "loss": loss}
    alone = precision is not None or device is not None or switches is not None
    _refuse({**of_training, **({**of_candidate, **of_points} if alone else {"--limit": limit, "--loss": loss})})
    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, "" if alone else candidate, checkpoints=checkpoints, map_file=map_file)
    source = inputs_source(inputs, made, settings)
    given = given_inputs(source, made or (), seed)
    settings = replace(settings, map=None) if alone else settings
    result: Bisection | PrecisionBisection | SwitchBisection
    if switches is not None:
        result = _of_switches(settings.reference, given, switches, (framework, switch), of_one)
    elif alone:
        of_one |= {"precision": precision, "device": device, "layers": layers}
        result = _of_layers(settings.reference, given, of_one)
    else:
        result = _of_points(settings, given, points, point)
    sources = made_from(settings, inputs=source, points=points)
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


def _of_switches(
    side: ProjectSide, given: Path | Batch, target: str, driver: tuple[str, list[str] | None], judged: dict[str, Any]
) -> SwitchBisection:
    """Halve the switches of a chip that a framework drives, with those that the user sets."""
    from align.forward.bisect_switches import bisect_switches
    from align.models.open_side import open_side

    framework, switch = driver
    with progress_bar() as progress:
        return bisect_switches(
            open_side(str(side.model), side.checkpoint),
            target=target,
            inputs=given,
            framework=named_driver(framework),
            switches=given_switches(switch),
            progress=progress,
            **judged,
        )


def _of_layers(side: ProjectSide, given: Path | Batch, changed_and_judged: dict[str, Any]) -> PrecisionBisection:
    """Halve the layers of one model that run in another precision or elsewhere."""
    from align.forward.bisect_precision import bisect_precision

    with progress_bar() as progress:
        return bisect_precision(requested(side), inputs=given, progress=progress, **changed_and_judged)


def _of_points(settings: Project, given: Path | Batch, file: Path | None, point: list[str] | None) -> Bisection:
    """Halve a port by points at which it gets the reference's values; those typed come on top of the file's."""
    from align.forward.bisect_port import bisect_port, parse_points, read_points

    named = {**(read_points(file) if file else {}), **parse_points(point or ())}
    with progress_bar() as progress:
        return bisect_port(
            requested(settings.reference),
            requested(settings.candidate),
            inputs=given,
            points=named or None,
            name_map=settings.map,
            progress=progress,
        )


def _refuse(options: dict[str, Any]) -> None:
    """Raise UsageError naming those of another bisection that are given."""
    from align.errors import UsageError

    if named := [name for name, value in options.items() if value]:
        raise UsageError.of("cli_usage.of_another_bisection", names=named)
