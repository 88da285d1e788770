"""`align repro`: one layer of both models alone in a folder, with a short script each."""

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
    SeedOption,
    given_inputs,
    hand_over,
    progress_bar,
    read_settings,
)
from align.cli._sides import given_side, opened


def repro_command(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    layer: Annotated[
        str | None, typer.Option(metavar="PATH[#CALL]", help="A layer of either side; by default the first culprit.")
    ] = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    reference_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
    ] = None,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> int:
    """Write one layer's inputs, weights and outputs of both sides, and two scripts that run it without mindalign."""
    from align.workflows.export_repro import export_repro

    settings = read_settings(project, reference, candidate)
    first = given_side(settings.reference, checkpoint=reference_checkpoint)
    second = given_side(settings.candidate, checkpoint=candidate_checkpoint)
    with progress_bar() as progress:
        result = export_repro(
            opened(first),
            opened(second),
            folder,
            inputs=given_inputs(inputs or (None if made else settings.inputs), made or (), seed),
            layer=layer,
            name_map=map_file or settings.map,
            progress=progress,
        )
    hand_over(result, {"reference": str(first.model), "candidate": str(second.model)}, None, json)
    return 0
