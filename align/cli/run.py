"""`align run`: all rungs of a project, from the environment to the training curve."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli.parts.output import print_json, tell
from align.cli.parts.shared import JsonOption, ProjectOption  # noqa: TC001 - typer reads the annotations
from align.core.about import RUN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.runs.climb_ladder import Executed
    from align.runs.ladder_result import RungResult


def run_command(
    project: ProjectOption = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help=f"Run folder; that of the project file, or {RUN_FOLDER}."),
    ] = None,
    first: Annotated[
        str, typer.Option("--from", metavar="RUNG", help="Start here; the rungs below keep what they are.")
    ] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="RUNG", help="Run this rung; may be repeated.")] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not stop at the first rung that fails.")] = False,
    json: JsonOption = False,
) -> int:
    """Compare parameters, settings, weights, outputs and training of a project, one after another up to a failure.

    A rung that has passed is kept as long as what it rests on is as it was. Exit code 0: all rungs that were asked for
    passed; 1: one failed; 2: some could not be compared or were not run.
    """
    from align.cli.parts.shared import find_settings
    from align.errors import UsageError
    from align.report.show_result import print_result
    from align.runs.climb_ladder import Climb, climb_ladder
    from align.runs.project_file import NAME
    from align.runs.run_folder import RunFolder
    from align.words.catalogue import say

    settings = find_settings(project)
    if settings.file is None:
        raise UsageError.of("cli_usage.no_project", file=NAME)
    if first and only:
        raise UsageError.of("cli_usage.from_and_only")
    chosen = folder or settings.run_folder or Path(RUN_FOLDER)
    RunFolder.check(chosen)
    climb = Climb(first, tuple(only or ()), keep_going)
    try:
        result = climb_ladder(settings, chosen, execute, climb, announce)
    except KeyboardInterrupt:
        tell(say("ladder_table.kept"), err=True)
        raise
    document = RunFolder(chosen).read("ladder") or {}
    if json:
        import json as json_module

        print_json(json_module.dumps(document, indent=1, ensure_ascii=False))
    else:
        print_result(document)
    return result.verdict.exit_code


def execute(command: Sequence[str]) -> Executed:
    """Run one command line of `align` in this process; what it prints is kept.

    A fault of mindalign itself is one of this command: what other rungs found stays, and they go on.
    """
    from align.cli.main import INTERRUPTED, internal_error, main
    from align.errors import AlignError
    from align.runs.climb_ladder import Executed

    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main(command)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        code = AlignError.exit_code
        errors.write(internal_error(type(error), error, error.__traceback__))
    if code > INTERRUPTED:
        raise KeyboardInterrupt
    return Executed(code, output.getvalue(), errors.getvalue())


def announce(name: str, result: RungResult | None) -> None:
    """Tell on a terminal which rung is being run, and how it ended."""
    if not sys.stderr.isatty():
        return
    if result is None:
        tell(f"{name} ...", err=True)
    else:
        tell(f"{name}: {result.state} ({result.seconds or 0:.0f} s)", err=True)
