"""`align lint`: the settings of two models, compared before any run."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.shared import (
    CandidateArgument,
    JsonOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    hand_over,
    read_settings,
)


def lint_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    candidate: CandidateArgument = None,
    map_file: MapOption = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps over which learning rates are compared. [default: all, or 1000 and more]"),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Give every layer a row of its own.")] = False,
    project: ProjectOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Compare the settings of all paired layers (or of two optimizers) before any run; say which line to change.

    Exit code 0: nothing above a note; 1: findings; 2: nothing could be compared.
    """
    from align.lint.lint_models import lint_models

    settings = read_settings(project, reference, candidate, map_file=map_file)
    sides = {"reference": str(settings.reference.model), "candidate": str(settings.candidate.model)}
    result = lint_models(*sides.values(), name_map=settings.map, steps=steps)
    made_from: dict[str, Path | str] = {**sides, **({"map": settings.map} if settings.map else {})}
    hand_over(result, made_from, run, json, show_all=show_all)
    return result.verdict.exit_code
