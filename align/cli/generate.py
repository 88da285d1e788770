"""`align generate`: logits of each token, caches and greedy decoding of two language models."""

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
    given_inputs,
    hand_over,
    progress_bar,
    read_settings,
)

StepOption = Annotated[
    str | None,
    typer.Option(metavar="FUNCTION", help="`module:function(model)` that returns step(ids, cache) -> (logits, cache)."),
]


def generate_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    inputs: InputsOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    tokens: Annotated[int, typer.Option(metavar="N", help="How many new tokens.")] = 16,
    reference_step: StepOption = None,
    candidate_step: StepOption = None,
    reference_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Give every position a row.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two language models over prompts of token ids and what the reference makes of them.

    The logits of each token, cache against no cache, and the first new token that differs.
    """
    from align.workflows.compare_generation import compare_generation
    from align.workflows.sides import open_side

    settings = read_settings(project, reference, candidate)
    prompts = given_inputs(inputs or (None if made else settings.inputs), made or (), seed, None)
    checkpoints = (
        reference_checkpoint or settings.reference.checkpoint,
        candidate_checkpoint or settings.candidate.checkpoint,
    )
    models = str(settings.reference.model), str(settings.candidate.model)
    map_file = map_file or settings.map
    with progress_bar() as progress:
        result = compare_generation(
            open_side(models[0], checkpoints[0]),
            open_side(models[1], checkpoints[1]),
            inputs=prompts,
            tokens=tokens,
            reference_step=reference_step,
            candidate_step=candidate_step,
            name_map=map_file,
            progress=progress,
        )
    sources: dict[str, Path | str | None] = {"reference": models[0], "candidate": models[1], "map": map_file}
    sources |= {"reference step": reference_step, "candidate step": candidate_step}
    sources |= {"reference checkpoint": checkpoints[0], "candidate checkpoint": checkpoints[1], "inputs": inputs}
    made_from = {role: source for role, source in sources.items() if source is not None}
    hand_over(result, made_from, run, json, show_all=show_all)
    return result.verdict.exit_code
