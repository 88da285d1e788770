"""`align report`: notebook, page and summary of a run folder; or what a pull request and a CI system show of it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import Annotated

import typer

from align.cli.parts.output import print_json, tell
from align.cli.parts.shared import JsonOption  # noqa: TC001 - as above


def report_command(
    run_folder: Annotated[
        Path,
        typer.Argument(metavar="RUN_DIR", help="Run folder: of `align run` (align-run), or of commands with --run."),
    ],
    no_html: Annotated[bool, typer.Option("--no-html", help="Write the notebook without the HTML page.")] = False,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write this for a pull request, and no notebook.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write this for a CI system, and no notebook.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Write report.ipynb (executed), report.html and report.json into a run folder.

    The exit code is that of the verdict over all rungs, as `align run` has it where the folder holds its rungs.
    """
    if markdown is not None or junit is not None:
        return _export(run_folder, markdown, junit, json=json)
    from align.cli.parts.shared import progress_bar
    from align.core.verdicts import Outcome
    from align.report.write_report import write_report

    with progress_bar() as progress:
        paths = write_report(run_folder, html=not no_html, progress=progress)
    text = paths.summary.read_text(encoding="utf-8")

    import json as json_module

    summary = json_module.loads(text)
    if json:
        print_json(text.rstrip("\n"))
    else:
        from align.report.show_result import print_result

        print_result(summary)
        for path in (paths.notebook, paths.html, paths.summary):
            if path is not None:
                tell(f"Written: {run_folder / path.name}")
    return Outcome(summary["outcome"]).exit_code


def _export(run_folder: Path, markdown: Path | None, junit: Path | None, *, json: bool) -> int:
    """Write a run for other programs; nothing else is written."""
    from align.cli.parts.shared import finish
    from align.report.write_exports import write_exports

    ladder = write_exports(run_folder, markdown=markdown, junit=junit)
    if json:
        return finish(ladder, ladder.verdict, {}, None, json=True)
    from align.report.show_result import print_verdict

    print_verdict(ladder.verdict)
    for path in (markdown, junit):
        if path is not None:
            tell(f"Written: {path}")
    return ladder.verdict.exit_code
