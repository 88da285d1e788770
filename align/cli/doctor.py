"""`align doctor`: what of this machine changes a comparison, and what to set."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.shared import JsonOption, RunOption, finish


def doctor_command(
    show_all: Annotated[bool, typer.Option("--all", help="Show switches that have no effect here, too.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Look at versions, devices, switches, memory and missing packages, and say what to set.

    Exit code 0: both frameworks can be compared, or one; 1: something installed cannot work; 2: neither is installed.
    """
    from align.lint.examine_environment import examine_environment

    result = examine_environment()
    return finish(result, result.verdict, {}, run, json, show_all=show_all)
