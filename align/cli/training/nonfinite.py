"""`align nonfinite`: the first NaN, Inf or explosion of a training, where it begins and why."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    JsonOption,
    RunOption,
    finish,
    progress_bar,
)
from align.watch.thresholds import EXPLOSION_FACTOR, KEPT_STEPS, STEPS


def nonfinite_command(  # noqa: PLR0913 - one parameter an option
    factory: Annotated[str, typer.Argument(metavar="FACTORY", help=TRAINING_SIDE)],
    batch: BatchesOfStepsOption = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps to take, the batches over and over.")] = STEPS,
    keep: Annotated[int, typer.Option(metavar="N", help="Steps of which figures are shown.")] = KEPT_STEPS,
    factor: Annotated[
        float, typer.Option(help="A tensor explodes above so many times its running median.")
    ] = EXPLOSION_FACTOR,
    loss_scale: Annotated[
        float, typer.Option(metavar="SCALE", help="What the loss is multiplied by on the way back.")
    ] = 1.0,
    steps_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that gets a line a step, and outlives a killed process.")
    ] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take steps until a value is not finite or explodes: step, layer, way, line of code, reason and remedy.

    Exit code 0: nothing was found; 1: found; 2: it could not be run. In a loop of your own: align.watch_nonfinite().
    """
    from align.watch.locate_nonfinite import locate_nonfinite

    with progress_bar() as progress:
        result = locate_nonfinite(
            factory,
            batches=batch or [],
            steps=steps,
            keep=keep,
            factor=factor,
            loss_scale=loss_scale,
            steps_file=steps_file,
            progress=progress,
        )
    made_from = {"training": factory, **{f"batch {number}": one for number, one in enumerate(batch or [])}}
    return finish(result, result.verdict, made_from, run, json)
