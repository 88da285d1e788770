"""`align step`: training steps of both sides, and what of the port's is wrong by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import (
    TRAINING_SIDE,
    BatchesOfStepsOption,
    JsonOption,
    MapOption,
    PortOfTrainingArgument,
    RunOption,
    ThoroughOption,
    finish,
    progress_bar,
)
from align.cli.parts.sides import numbered_sources

FOLDER = "Or a folder of captured steps."


def step_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=f"{TRAINING_SIDE} {FOLDER}")],
    candidate: PortOfTrainingArgument,
    batch: BatchesOfStepsOption = None,
    map_file: MapOption = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many steps (3), at least one a batch; folders bring theirs."),
    ] = None,
    thorough: ThoroughOption = False,
    show_all: Annotated[bool, typer.Option("--all", help="List all layers and gradients.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take training steps on both sides from the reference's state; name what is wrong by itself.

    Exit code: 0 if losses, gradients, updates and statistics agree, 1 if not, 2 if they cannot be compared.
    """
    from align.training.compare_training_step import compare_training_step

    with progress_bar() as progress:
        result = compare_training_step(
            reference, candidate, batch=batch, name_map=map_file, steps=steps, thorough=thorough, progress=progress
        )
    sources = {
        "reference": reference,
        "candidate": candidate,
        "map": map_file,
        **numbered_sources("batch", batch or []),
    }
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)
