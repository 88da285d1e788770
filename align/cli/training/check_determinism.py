"""`align check-determinism`: whether a training step gives the same twice."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import TRAINING_SIDE, BatchOption, JsonOption, RunOption, finish, progress_bar


def check_determinism_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="SIDE", help=TRAINING_SIDE)],
    batch: BatchOption,
    candidate: Annotated[
        str | None, typer.Argument(metavar="[SIDE2]", help="Another side, checked in the same way by itself.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Threads of kernels and data pipelines.")] = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Build each side twice, take its training step twice, and name the first tensor that differs.

    Exit code 0: the same twice, bit for bit; 1: not the same; 2: it could not be run.
    """
    from align.training.check_determinism import check_determinism

    with progress_bar() as progress:
        result = check_determinism(reference, candidate, batch=batch, seed=seed, threads=threads, progress=progress)
    sources = {"reference": reference, "candidate": candidate, "batch": batch}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json)
