"""`align validate`: the same dataset and metric through both models, side by side."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli._shared import (
    CandidateArgument,
    JsonOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    hand_over,
    progress_bar,
    read_settings,
)

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
    reference_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the reference.")] = None,
    candidate_checkpoint: Annotated[Path | None, typer.Option(metavar="FILE", help="Fills the candidate.")] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="Map file; without one the models are matched.")
    ] = None,
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
    from align.workflows.sides import open_side
    from align.workflows.validate_models import validate_models

    settings = read_settings(project, reference, candidate)
    checkpoints = (
        reference_checkpoint or settings.reference.checkpoint,
        candidate_checkpoint or settings.candidate.checkpoint,
    )
    models = str(settings.reference.model), str(settings.candidate.model)
    map_file = map_file or settings.map
    with progress_bar() as progress:
        result = validate_models(
            open_side(models[0], checkpoints[0]),
            open_side(models[1], checkpoints[1]),
            data=data,
            metric=metric,
            candidate_data=candidate_data,
            candidate_metric=candidate_metric,
            name_map=map_file,
            limit_samples=limit_samples,
            progress=progress,
        )
    sources: dict[str, Path | str | None] = {"reference": models[0], "candidate": models[1], "map": map_file}
    sources |= {"data": data, "metric": metric, "candidate data": candidate_data, "candidate metric": candidate_metric}
    sources |= {"reference checkpoint": checkpoints[0], "candidate checkpoint": checkpoints[1]}
    made_from = {role: source for role, source in sources.items() if source is not None}
    hand_over(result, made_from, run, json, show_all=show_all)
    return result.verdict.exit_code
