"""`align generate`: logits of each token, caches and greedy decoding of two language models."""

from __future__ import annotations

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
    RunOption,
    SeedOption,
    finish,
    given_inputs,
    inputs_source,
    progress_bar,
    read_settings,
)
from align.cli.parts.sides import made_from, requested

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
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Give every position a row.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare two language models over prompts of token ids and what the reference makes of them.

    The logits of each token, cache against no cache, and the first new token that differs.
    """
    from align.evaluation.compare_generation import compare_generation

    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, candidate, checkpoints=checkpoints, map_file=map_file)
    source = inputs_source(inputs, made, settings)
    prompts = given_inputs(source, made or (), seed)
    with progress_bar() as progress:
        result = compare_generation(
            requested(settings.reference),
            requested(settings.candidate),
            inputs=prompts,
            tokens=tokens,
            reference_step=reference_step,
            candidate_step=candidate_step,
            name_map=settings.map,
            progress=progress,
        )
    sources = made_from(settings, reference_step=reference_step, candidate_step=candidate_step, inputs=source)
    return finish(result, result.verdict, sources, run, json, show_all=show_all)
