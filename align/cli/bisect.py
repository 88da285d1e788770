"""`align bisect`: halving, to find where a port goes wrong, or which layers suffer in another precision."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli._shared import (
    CandidateArgument,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    SeedOption,
    finish,
    given_inputs,
    progress_bar,
    read_settings,
)
from align.cli._sides import given_side, opened


def bisect_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
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
    layers: Annotated[str, typer.Option(metavar="GLOB", help="The layers to halve.")] = "*",
    limit: Annotated[float | None, typer.Option(metavar="X", help="Relative movement that is allowed.")] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="`module:function` of the outputs; it is judged instead.")
    ] = None,
    reference_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every point.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Put the reference's values into the port at points, and halve until every stretch that goes wrong is found.

    With --precision or --device and one side: find the smallest set of its layers that moves it above the limit there.
    """
    from align.runs.points import parse_points, read_points
    from align.workflows.bisect_port import bisect_port
    from align.workflows.bisect_precision import bisect_precision

    alone = precision is not None or device is not None
    of_one = (("--limit", limit), ("--loss", loss))
    of_two = (("CANDIDATE", candidate), ("--points", points), ("--point", point), ("--map", map_file))
    _refuse([name for name, value in (of_two if alone else of_one) if value])
    settings = read_settings(project, reference, reference if alone else candidate)
    source = given_inputs(inputs or (None if made else settings.inputs), made or (), seed)
    side = opened(given_side(settings.reference, checkpoint=reference_checkpoint))
    made_from: dict[str, Path | str] = {"reference": side.label}
    with progress_bar() as progress:
        if alone:
            found = bisect_precision(
                side,
                inputs=source,
                precision=precision,
                device=device,
                layers=layers,
                limit=limit,
                loss=loss,
                progress=progress,
            )
            return finish(found, found.verdict, made_from, run, json)
        other = opened(given_side(settings.candidate, checkpoint=candidate_checkpoint))
        named = {**(read_points(points) if points else {}), **parse_points(point or ())}
        name_map = map_file or settings.map
        result = bisect_port(side, other, inputs=source, points=named or None, name_map=name_map, progress=progress)
    made_from |= {"candidate": other.label, **({"map": name_map} if name_map else {})}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)


def _refuse(named: list[str]) -> None:
    from align.errors import UsageError

    if named:
        hint = "--precision and --device halve the layers of one model, --limit and --loss judge that and nothing else"
        raise UsageError(f"{', '.join(named)} cannot be used here", hint)
