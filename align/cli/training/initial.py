"""`align initial`: whether a port draws its initial values as the original does."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import JsonOption, MapOption, PortOfTrainingArgument, RunOption, finish, progress_bar

_SIDE = "`module:function` or `file.py:function` that builds a model, sets no seed and loads no weights."


def initial_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help=_SIDE)],
    candidate: PortOfTrainingArgument,
    map_file: MapOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Build each side from so many seeds; as many as it takes if left out."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="List parameters that are drawn alike too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare how both sides draw their initial values: family, scale, and what the scale follows from.

    Exit code 0: all paired parameters are drawn alike; 1: some are not; 2: they could not be compared.
    """
    from align.training.compare_initial_values import compare_initial_values

    with progress_bar() as progress:
        result = compare_initial_values(reference, candidate, name_map=map_file, seeds=seeds, progress=progress)
    sources = {"reference": reference, "candidate": candidate, "map": map_file}
    made_from = {role: source for role, source in sources.items() if source}
    return finish(result, result.verdict, made_from, run, json, show_all=show_all)
