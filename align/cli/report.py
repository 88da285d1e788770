"""`align report`: notebook, page and summary of a run folder."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import Annotated

import typer

from align.cli.parts.shared import JsonOption  # noqa: TC001 - as above


def report_command(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Run folder that commands wrote with --run.")],
    no_html: Annotated[bool, typer.Option("--no-html", help="Write the notebook without the HTML page.")] = False,
    json: JsonOption = False,
) -> int:
    """Write report.ipynb (executed), report.html and report.json into a run folder.

    The exit code is that of the worst rung that was run.
    """
    from align.cli.parts.shared import progress_bar
    from align.core.verdicts import Outcome
    from align.report.write_report import write_report

    with progress_bar() as progress:
        paths = write_report(run_folder, html=not no_html, progress=progress)
    text = paths.summary.read_text(encoding="utf-8")

    import json as json_module

    summary = json_module.loads(text)
    if json:
        typer.echo(text, nl=False)
    else:
        from align.report.show_result import print_result

        print_result(summary)
        for path in (paths.notebook, paths.html, paths.summary):
            if path is not None:
                typer.echo(f"Written: {run_folder / path.name}")
    return Outcome(summary["outcome"]).exit_code
