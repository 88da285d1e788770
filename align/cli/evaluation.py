"""`align generate`: logits of each token, caches and greedy decoding of two language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align.cli.comparisons import DaskOption, MemoryOption, WorkersOption, run_job
from align.cli.shared import (
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
    made_from,
    progress_bar,
    read_settings,
    requested,
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


# `align validate`: the same dataset and metric through both models, side by side.

Function = Annotated[str | None, typer.Option(metavar="FUNCTION", help="The candidate's own, if it has one.")]


def validate_command(  # noqa: PLR0913 - one parameter an option
    data: Annotated[
        str, typer.Option(metavar="FUNCTION", help="`module:function` that returns batches (inputs, labels).")
    ],
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    metric: Annotated[
        str,
        typer.Option(metavar="METRIC", help="accuracy, top5, mean-squared-error, or `module:function`."),
    ] = "accuracy",
    candidate_data: Function = None,
    candidate_metric: Function = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    limit_samples: Annotated[int | None, typer.Option(metavar="N", help="Take the first N samples only.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List every flipped sample that was kept, and the worst ones always.")
    ] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run one dataset through both models; name the samples that differ.

    If the two sides differ, exchange their data, metric and weights one at a time until the cause is alone.
    """
    from align.evaluation.validate_models import validate_models

    checkpoints = reference_checkpoint, candidate_checkpoint
    settings = read_settings(project, reference, candidate, checkpoints=checkpoints, map_file=map_file)
    with progress_bar() as progress:
        result = validate_models(
            requested(settings.reference),
            requested(settings.candidate),
            data=data,
            metric=metric,
            candidate_data=candidate_data,
            candidate_metric=candidate_metric,
            name_map=settings.map,
            limit_samples=limit_samples,
            progress=progress,
        )
    sources = made_from(
        settings, data=data, metric=metric, candidate_data=candidate_data, candidate_metric=candidate_metric
    )
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


# `align batch`: many comparisons, conversions and checks as one job.


def batch_command(  # noqa: PLR0913 - one parameter an option
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file (.toml): tables of tasks by rank and step.")],
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    dask: DaskOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every task.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a job of many tasks; name the first rank and step that departs, and ranks and tensors that do not agree.

    With --run what is done is kept: the same command, given again, does the rest. Exit code 0: all aligned; 1:
    something departs; 2: a task could not be done, or has no file on one side.
    """
    from align.batch.read_job import read_job

    return run_job(read_job(job), (workers, memory, dask), run, json, show_all=show_all)
