"""`align hyperparameters`: what two trainings are set to, compared by meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import JsonOption, RunOption, finish

_SIDE = (
    "A configuration, a shell script, a log with printed arguments, or a trace folder; commas between several files."
)


def hyperparameters_command(
    first: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The same of the port's training.")],
    show_all: Annotated[
        bool, typer.Option("--all", help="Show equal settings too, unknown names, and what changes no loss.")
    ] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the hyperparameters of two trainings by meaning: names, units and defaults of their trainers.

    Exit code 0: all that is known of both is equal; 1: some differ; 2: they could not be read or compared.
    """
    from align.hyperparameters.compare_hyperparameters import compare_hyperparameters
    from align.hyperparameters.read_settings import settings_files

    result = compare_hyperparameters(first, second)
    files = {
        f"{side}{'' if len(found) == 1 else number}": path
        for side, given in (("reference", first), ("candidate", second))
        for found in [[one for one in settings_files(given) if one.is_file()]]
        for number, path in enumerate(found, 1)
    }
    return finish(result, result.verdict, files, run, json, show_all=show_all)
