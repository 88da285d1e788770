"""`align fix`: the confirmed changes of a port as a patch, applied and undone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli.parts.output import tell
from align.cli.parts.shared import (
    BatchesOption,
    CandidateCheckpointOption,
    CandidateInputsOption,
    InputSpecsOption,
    JsonOption,
    LimitsOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    find_settings,
    hand_over,
)
from align.cli.parts.sides import (
    CandidateDeviceOption,
    CandidateDtypeOption,
    CandidateModeOption,
    ReferenceDeviceOption,
    ReferenceDtypeOption,
    made_from,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.fixes.fix_job import FixJob
    from align.fixes.fix_result import FixResult
    from align.runs.climb_ladder import Executed
    from align.runs.project_file import Project

LOCK = ".mindalign.fix.lock"
PROGRAM = "from align.cli.main import run; run()"


def fix_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    port: Annotated[
        str | None, typer.Argument(metavar="PORT", help="The port, by default the candidate of the project file.")
    ] = None,
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: Annotated[int | None, typer.Option(help="Seed of --input.")] = None,
    candidate_inputs: CandidateInputsOption = None,
    reference_checkpoint: ReferenceCheckpointOption = None,
    candidate_checkpoint: CandidateCheckpointOption = None,
    map_file: MapOption = None,
    reference_device: ReferenceDeviceOption = None,
    candidate_device: CandidateDeviceOption = None,
    reference_dtype: ReferenceDtypeOption = None,
    candidate_dtype: CandidateDtypeOption = None,
    candidate_mode: CandidateModeOption = None,
    limit: LimitsOption = None,
    patch: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the patch into this file.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the changes, and run everything again.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Put back what the last --apply changed.")] = False,
    project: ProjectOption = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Run folder: its results, the backup, and copies of packages."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Write the confirmed changes of a port as a patch of its source; with --apply make them and say what remains.

    Files of the project are changed, and kept in the run folder first. An installed package stays as it is: a copy of
    it in the run folder is changed. Without --apply nothing is changed.
    """
    from align.errors import UsageError

    given = {
        "inputs": inputs,
        "input": made,
        "seed": seed,
        "candidate-inputs": candidate_inputs,
        "reference-checkpoint": reference_checkpoint,
        "candidate-checkpoint": candidate_checkpoint,
        "map": map_file,
        "reference-device": reference_device,
        "candidate-device": candidate_device,
        "reference-dtype": reference_dtype,
        "candidate-dtype": candidate_dtype,
        "candidate-mode": candidate_mode,
        "limit": limit,
    }
    if apply and undo:
        raise UsageError.of("fix_usage.apply_and_undo")
    typed = [*_typed(given)]
    job = _job_to_undo(project, run) if undo else _job((reference, port), typed, project, run)
    with _held(job.run):
        result = _undone(job) if undo else _fixed(job, patch, apply=apply)
    settings = _sides_of(job, result)
    hand_over(result, made_from(settings), job.run, json)
    return 0 if result.verdict is None else result.verdict.exit_code


def _typed(given: Mapping[str, object]) -> Iterator[str]:
    """The options that were given, as `align forward` takes them."""
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                yield from (f"--{name}", str(one))


def _job(sides: tuple[str | None, str | None], typed: list[str], project: Path | None, run: Path | None) -> FixJob:
    """What is asked for: two models, a project, or a run folder."""
    from align.errors import UsageError
    from align.fixes.fix_job import job_of_folder, job_of_models, job_of_project
    from align.runs.project_file import NAME, ProjectSide

    reference, port = sides
    if reference is not None and port is not None:
        named = ["--project", str(project)] if project is not None else []
        settings = find_settings(project) if project is not None else find_nothing()
        return job_of_models(ProjectSide(model=port), [reference, port, *typed, *named], run, settings)
    if reference is not None:
        raise UsageError.of("fix_usage.one_model", name=reference)
    if typed:
        raise UsageError.of("fix_usage.options_of_models", names=[one for one in typed if one.startswith("--")])
    settings = find_settings(project)
    if settings.file is not None:
        return job_of_project(settings, settings.file, run)
    if run is None:
        raise UsageError.of("fix_usage.nothing_named", file=NAME)
    return job_of_folder(run)


def _job_to_undo(project: Path | None, run: Path | None) -> FixJob:
    """The run folder to undo a fix in; what the project names need not be there."""
    from align.core.about import RUN_FOLDER
    from align.fixes.fix_job import FixJob, job_of_project

    settings = find_settings(project, with_overlays=False)
    if settings.file is not None:
        return job_of_project(settings, settings.file, run)
    return FixJob(settings.candidate, run or Path(RUN_FOLDER), Path.cwd(), (), (), ())


def find_nothing() -> Project:
    """The settings of no project file."""
    from align.runs.project_file import Project

    return Project()


def _held(run: Path) -> AbstractContextManager[None]:
    """Hold the run folder against another fix; the commands that it runs hold it themselves."""
    from align.runs.run_folder import RunFolder
    from align.traces.folder_lock import folder_lock

    RunFolder.create(run)
    return folder_lock(run / LOCK, run, "run")


def _fixed(job: FixJob, patch: Path | None, *, apply: bool) -> FixResult:
    from align.cli.run import execute
    from align.fixes.fix_port import apply_fix, plan_fix
    from align.fixes.plan_changes import patch_files

    planned = plan_fix(job, execute)
    if patch is not None:
        from align.core.atomic_files import atomic_writer

        for path, content in patch_files(planned.changes, patch).items():
            with atomic_writer(path) as stream:
                stream.write(content)
    if not apply or not planned.changes.changes:
        return planned.result
    if sys.stderr.isatty():
        from align.words.catalogue import say

        tell(say("fix.running", command=f"align {shlex.join(job.again)}"), err=True)
    return apply_fix(planned, run_in_fresh_process)


def _undone(job: FixJob) -> FixResult:
    from align.fixes.fix_port import undo_fix

    return undo_fix(job)


def run_in_fresh_process(command: Sequence[str], first_on_path: Path | None) -> Executed:
    """Run one command line of `align` in a process of its own, with a folder first on its import path."""
    from align.runs.climb_ladder import Executed

    paths = [str(first_on_path)] if first_on_path is not None else []
    known = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *([known] if known else [])])}
    done = subprocess.run(  # noqa: S603 - this program itself
        [sys.executable, "-c", PROGRAM, *command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    return Executed(done.returncode, done.stdout, done.stderr)


def _sides_of(job: FixJob, result: FixResult) -> Project:
    """Both sides, as what the result was made from."""
    settings = find_nothing()
    sides = {"reference": result.reference or None, "candidate": result.candidate or job.candidate.model}
    return replace(settings, **{name: replace(getattr(settings, name), model=model) for name, model in sides.items()})
