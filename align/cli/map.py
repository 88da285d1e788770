"""`align map`: which parameter of the one model is which of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align.cli._shared import (
    CandidateArgument,
    JsonOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    finish,
    read_settings,
)


def map_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Map file with names and patterns that are never overruled.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Run both models on these inputs: the order of execution becomes evidence."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Map file to write; map.toml of the run folder by default.")
    ] = None,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Map the parameters of two models and write the map as a file to edit.

    Exit code 0: every parameter is paired, or dropped with a reason; 1: some are not.
    """
    from align.runs.folder import RunFolder
    from align.runs.mapfile import write_map
    from align.workflows.map_parameters import map_parameters

    settings = read_settings(project, reference, candidate)
    sides = str(settings.reference.model), str(settings.candidate.model)
    result = map_parameters(*sides, rules=rules, inputs=inputs)
    if out is not None:
        write_map(out, result.name_map)
    kept = RunFolder.create(run).path / "map.toml" if run is not None else None
    if kept is not None:
        write_map(kept, result.name_map)
    made_from: dict[str, Path | str] = {"reference": sides[0], "candidate": sides[1]}
    given = {"rules": rules, "inputs": Path(inputs) if inputs and ":" not in inputs else inputs}
    made_from |= {role: source for role, source in given.items() if source is not None}
    code = finish(result, result.verdict, made_from, run, json)
    if not json:
        for path in filter(None, (out, kept)):
            typer.echo(f"Map file: {path}")
    return code
