"""`align batch`, and `--batch` of other commands: a job run where its options say."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from align.cli.parts.output import tell
from align.cli.parts.shared import finish, progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.batch.job import Job

WorkersOption = Annotated[int | None, typer.Option(metavar="N", help="Processes to start; one a core by default.")]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory that each process may take, such as 4GB.")
]
DaskOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Use the Dask cluster of this scheduler, such as tcp://node1:8786."),
]
BatchOption = Annotated[
    bool, typer.Option("--batch", help="Two folders of ranks and steps: a job, as align batch runs it.")
]
Place = tuple[int | None, str | None, str | None]  # --workers, --memory, --dask


def run_job(job: Job, place: Place, run: Path | None, json: bool, *, show_all: bool = False) -> int:
    """Run a job and hand over its result; an interrupt says how to go on."""
    from align.batch.open_workers import open_dask, open_pool
    from align.batch.run_batch import run_batch
    from align.errors import UsageError

    count, memory, address = place
    if address is not None and (count is not None or memory is not None):
        raise UsageError.of("batch_usage.dask_and_pool")
    workers = open_pool(count, _bytes(memory)) if address is None else open_dask(address)
    try:
        with progress_bar() as progress:
            result = run_batch(job, workers, run=run, progress=progress)
    except KeyboardInterrupt:
        _say_how_to_go_on(run)
        raise
    sources: dict[str, Path | str] = {"job": job.file if job.file is not None else job.label}
    return finish(result, result.verdict, sources, run, json, show_all=show_all)


def run_folders(  # noqa: PLR0913 - what three commands hand on
    action: str,
    folders: tuple[Path | str | None, Path | str | None],
    options: Mapping[str, Any],
    needless: Mapping[str, object],
    run: Path | None,
    *,
    json: bool,
    show_all: bool,
) -> int:
    """Run a job of two folders (`--batch`); raises UsageError for `needless` options, and without folders."""
    from pathlib import Path

    from align.batch.pair_folders import pair_folders
    from align.errors import UsageError

    first, second = folders
    if not first or not second:
        raise UsageError.of("batch_usage.two_folders", action=action)
    if used := [name for name, value in needless.items() if value]:
        raise UsageError.of("batch_usage.not_with_batch", used=used)
    given = {name: value for name, value in options.items() if value not in (None, [], ())}  # False is a choice
    job = pair_folders(action, Path(first), Path(second), given)
    return run_job(job, (None, None, None), run, json, show_all=show_all)


def _say_how_to_go_on(run: Path | None) -> None:
    from align.words.catalogue import say

    key = "batch_resume.go_on" if run is not None else "batch_resume.nothing_kept"
    tell(say(key, command=shlex.join(["align", *sys.argv[1:]])), err=True)


def _bytes(size: str | None) -> int | None:
    """A size such as 4GB or 512MiB in bytes; raises UsageError for what is none."""
    import re

    from align.errors import UsageError

    if size is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)(i?)B?", size)
    if found is None:
        raise UsageError.of("batch_usage.memory", size=size)
    power = "kMGT".index(found[2]) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)
