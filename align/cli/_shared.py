"""What the commands share: common options, the progress bar and the way a result leaves the program."""

from __future__ import annotations

import contextlib
import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.progress import Progress
    from align.core.verdicts import Verdict
    from align.runs.folder import Result

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RunOption = Annotated[Path | None, typer.Option("--run", help="Run folder to write the result into.", metavar="DIR")]


def finish(result: Result, verdict: Verdict, made_from: Mapping[str, Path | str], run: Path | None, json: bool) -> int:
    """Write the result into the run folder if one is given, print it, and return the exit code."""
    from align.runs.folder import RunFolder, as_document

    written = RunFolder.create(run).write(result, made_from) if run is not None else None
    document = as_document(result, made_from)
    if json:
        typer.echo(json_module.dumps(document, indent=1, ensure_ascii=False))
    else:
        from align.report.text import print_result

        print_result(document)
        if written is not None:
            typer.echo(f"Written: {written}")
    return verdict.exit_code


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a Progress that draws a bar on standard error, on a terminal only."""
    from align.core.progress import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    tasks: dict[str, int] = {}
    with Bar(console=Console(stderr=True), transient=True) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total))
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show
