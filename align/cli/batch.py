"""`align batch`: many comparisons, conversions and checks as one job."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from align.cli.parts.batch_jobs import DaskOption, MemoryOption, WorkersOption, run_job
from align.cli.parts.shared import JsonOption, RunOption  # noqa: TC001 - typer reads the annotations


def batch_command(  # noqa: PLR0913 - one parameter an option
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Job file (.toml): tables of tasks by rank and step.")],
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    dask: DaskOption = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every task.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Run a job of many tasks; name the first rank and step that departs, and ranks and tensors that do not agree.

    With --run what is done is kept: the same command, given again, does the rest. Exit code 0: all aligned; 1:
    something departs; 2: a task could not be done, or has no file on one side.
    """
    from align.batch.read_job import read_job

    return run_job(read_job(job), (workers, memory, dask), run, json, show_all=show_all)
