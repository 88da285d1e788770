"""`align repro`: one layer of both models alone in a folder, with a short script each."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import (
    CandidateArgument,
    CandidateCheckpointOption,
    InputsOption,
    InputSpecsOption,
    JsonOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    SeedOption,
    given_inputs,
    hand_over,
    inputs_source,
    progress_bar,
    read_settings,
)
from align.cli.parts.sides import made_from, requested


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
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    project: ProjectOption = None,
    json: JsonOption = False,
) -> int:
    """Write one layer's inputs, weights and outputs of both sides, and two scripts that run it without mindalign."""
    from align.forward.export_repro import export_repro

    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, candidate, checkpoints=checkpoints, map_file=map_file)
    source = inputs_source(inputs, made, settings)
    with progress_bar() as progress:
        result = export_repro(
            requested(settings.reference),
            requested(settings.candidate),
            folder,
            inputs=given_inputs(source, made or (), seed),
            layer=layer,
            name_map=settings.map,
            progress=progress,
        )
    hand_over(result, made_from(settings, inputs=source), None, json)
    return 0
