"""`align params`: which parameters one training step trains, and why others stay."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import TRAINING_SIDE, BatchOption, JsonOption, MapOption, RunOption, finish, progress_bar
from align.errors import UsageError


def params_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=TRAINING_SIDE)],
    batch: BatchOption,
    candidate: Annotated[
        str | None, typer.Argument(metavar="[CANDIDATE]", help="The same of the port; left out, one side is checked.")
    ] = None,
    map_file: MapOption = None,
    ddp_indices: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Name the parameters that torch's DistributedDataParallel gives by number."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List trained parameters and buffers too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Take one training step; list the parameters that it does not train, each with the reason.

    Exit code of one side: 0 if all trainable parameters are trained, else 1. Of two: 0 if both train the same.
    """
    from align.training.check_parameters import check_parameters

    with progress_bar() as progress:
        result = check_parameters(
            reference,
            candidate,
            batch=batch,
            name_map=map_file,
            ddp_indices=_numbers(ddp_indices),
            progress=progress,
        )
    sources = {"reference": reference, "candidate": candidate, "map": map_file, "batch": batch}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)


def _numbers(text: str | None) -> list[int]:
    parts = [part for part in (text or "").replace(",", " ").split() if part]
    if strange := [part for part in parts if not part.isdecimal()]:
        raise UsageError.of("cli_usage.no_index", text=repr(strange[0]))
    return [int(part) for part in parts]
