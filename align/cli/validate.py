"""`align validate`: the same dataset and metric through both models, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import (
    CandidateArgument,
    CandidateCheckpointOption,
    JsonOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    RunOption,
    finish,
    progress_bar,
    read_settings,
)
from align.cli.parts.sides import made_from, requested

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
