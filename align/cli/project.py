"""`align init`: the project file of the current folder, from what lies in it."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from align.cli.given import INTERRUPTED, as_command, named_as_typed, own_hints, print_json, speaks_only_first, tell
from align.cli.shared import (
    BatchesOption,
    CandidateCheckpointOption,
    CandidateDeviceOption,
    CandidateDtypeOption,
    CandidateInputsOption,
    CandidateModeOption,
    InputSpecsOption,
    JsonOption,
    LimitsOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    ReferenceCheckpointOption,
    ReferenceDeviceOption,
    ReferenceDtypeOption,
    hand_over,
)
from align.core.about import RUN_FOLDER
from align.errors import AlignError
from align.words.catalogue import ENGLISH, VARIABLE, say, speak, speaking, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.fixes.fix_port import Executed
    from align.fixes.fix_result import FixJob, FixResult
    from align.runs.baseline import RunRecord
    from align.runs.climb_ladder import Performed
    from align.runs.project_file import Project
    from align.runs.run_folder import RunFolder
    from align.runs.rung import Call, RungResult
    from align.runs.write_project import Key


SameOfPortOption = Annotated[str | None, typer.Option(metavar="SIDE", help="The same for the port.")]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write this JUnit file for a CI system.")
]
SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="FILE", help="Write this SARIF file, which shows each finding at its line."),
]
_TRACE = "A folder of `align capture`, of an original whose framework is not here."


def init_command(  # noqa: PLR0913 - one parameter an option
    reference: Annotated[str | None, typer.Option(metavar="SIDE", help="The original: `file.py:function`.")] = None,
    candidate: Annotated[str | None, typer.Option(metavar="SIDE", help="The port: `file.py:function`.")] = None,
    reference_checkpoint: Annotated[str | None, typer.Option(metavar="FILE", help="Weights of the original.")] = None,
    candidate_checkpoint: Annotated[str | None, typer.Option(metavar="FILE", help="Weights of the port.")] = None,
    reference_trace: Annotated[str | None, typer.Option(metavar="DIR", help=_TRACE)] = None,
    candidate_trace: Annotated[str | None, typer.Option(metavar="DIR", help="The same for the port.")] = None,
    reference_training: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Returns model, loss, optimizer.")
    ] = None,
    candidate_training: SameOfPortOption = None,
    reference_data: Annotated[
        str | None, typer.Option(metavar="SIDE", help="Returns its loader, dataset or batches.")
    ] = None,
    candidate_data: SameOfPortOption = None,
    reference_log: Annotated[str | None, typer.Option(metavar="FILE", help="Log that its training printed.")] = None,
    candidate_log: Annotated[str | None, typer.Option(metavar="FILE", help="The same for the port.")] = None,
    inputs: Annotated[str | None, typer.Option(metavar="FILE", help="Arrays by name, or `file.py:function`.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="FILE", help="Inputs and labels of one training step.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace align.toml.")] = False,
) -> int:
    """Write align.toml from what the folder holds; ask on a terminal what is unclear; options override both.

    No code is run. Exit code 0: the file is written; 2: it is not.
    """
    from align.runs.write_project import write_project

    given = {
        "reference model": reference,
        "reference checkpoint": reference_checkpoint,
        "reference trace": reference_trace,
        "reference training": reference_training,
        "reference data": reference_data,
        "reference log": reference_log,
        "candidate model": candidate,
        "candidate checkpoint": candidate_checkpoint,
        "candidate trace": candidate_trace,
        "candidate training": candidate_training,
        "candidate data": candidate_data,
        "candidate log": candidate_log,
        "forward inputs": inputs,
        "training batch": batch,
    }
    ask = _ask if sys.stdin.isatty() and sys.stdout.isatty() else None
    known = {name: value for name, value in given.items() if value}
    written = write_project(Path(), known, ask, overwrite=overwrite)
    for name, value in written.chosen.items():
        tell(f"{name:<21} {value}")
    for one in written.left_out:
        facts = {"table": one.key.table, "name": one.key.name, "option": one.key.option}
        tell(say("project_key.left_out", names=one.choices, **facts))
    for side in written.sides:
        facts = {"text": side.text, "call": side.recipe.call, "origin": side.recipe.origin}
        key = "project_key.open_side" if side.line else "project_key.written_side"
        tell(say(key, line=side.line, missing=side.recipe.missing, **facts))
    for file in written.unfit:
        tell(say("project_key.unfit", file=file))
    files = dict.fromkeys(["align.toml", *(side.text.rpartition(":")[0] for side in written.sides)])
    tell(say("told.written", names=list(files)))
    places = [f"{side.text.rpartition(':')[0]}:{side.line}" for side in written.sides if side.line]
    tell(say("project_key.next_fill", places=places) if places else say("told.next_run"))
    return 0


def _ask(key: Key, fits: Sequence[str]) -> str:
    """Let the user choose by number or type another; nothing leaves the key out."""
    for number, one in enumerate(fits, 1):
        tell(f"  {number}  {one}")
    with speaking():
        about = key.about
    while True:
        answer = str(typer.prompt(f"[{key.table}] {key.name} ({about})", default="", show_default=False)).strip()
        if not answer.isdecimal():
            return answer
        if 1 <= int(answer) <= len(fits):
            return fits[int(answer) - 1]
        tell(say("project_key.no_such_number", number=answer, count=len(fits)))


# `align run`: all rungs of a project, from the environment to the training curve.


def run_command(  # noqa: PLR0913 - one parameter an option
    project: ProjectOption = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help=f"Run folder; that of the project file, or {RUN_FOLDER}."),
    ] = None,
    first: Annotated[
        str, typer.Option("--from", metavar="RUNG", help="Start at this rung; those before it keep their state.")
    ] = "",
    only: Annotated[list[str] | None, typer.Option(metavar="RUNG", help="Run only this rung; may be repeated.")] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not stop at the first rung that fails.")] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fail on what this accepted run did not have, and on nothing else."),
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Accept this run: write it as the --baseline.")
    ] = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    json: JsonOption = False,
) -> int:
    """Compare parameters, settings, weights, outputs and training of a project, one after another up to a failure.

    Each of these is a rung. One that has passed is run again only if something it rests on has changed. Exit code 0:
    all rungs that were asked for passed; 1: one failed; 2: some could not be compared or were not run. With --baseline
    no failure stops it, and the exit code is 1 if anything is new, else 0.
    """
    from align.errors import UsageError
    from align.report.show_result import print_result, print_since
    from align.runs.baseline import keep_last_run
    from align.runs.climb_ladder import Climb, climb_ladder
    from align.runs.project_file import NAME
    from align.runs.read_settings import find_settings
    from align.runs.run_folder import RunFolder

    settings = find_settings(project)
    if settings.file is None:
        raise UsageError.of("cli_usage.no_project", file=NAME)
    if first and only:
        raise UsageError.of("cli_usage.from_and_only")
    if update_baseline and baseline is None:
        raise UsageError.of("cli_usage.no_baseline_file")
    before = _accepted_run(baseline, is_needed=not update_baseline)
    chosen = folder or settings.run_folder or Path(RUN_FOLDER)
    RunFolder.check(chosen)
    climb = Climb(first, tuple(only or ()), keep_going or baseline is not None)
    try:
        result = climb_ladder(settings, chosen, perform, climb, announce)
    except KeyboardInterrupt:
        tell(say("ladder_table.kept"), err=True)
        raise
    difference = keep_last_run(result, RunFolder(chosen), settings)
    document = RunFolder(chosen).read("ladder") or {}
    if json and baseline is None:
        import json as json_module

        print_json(json_module.dumps(document, indent=1, ensure_ascii=False))
    elif not json:
        print_result(document, only_first=speaks_only_first())
        if difference is not None and baseline is None and not speaks_only_first():
            print_since(difference)
    if junit is not None or sarif is not None:
        _write_files(chosen, {"junit": junit, "sarif": sarif}, quiet=json)
    if baseline is None:
        return result.verdict.exit_code
    return _held_against(baseline, before, RunFolder(chosen), settings, accept=update_baseline, json=json)


def _accepted_run(baseline: Path | None, *, is_needed: bool) -> RunRecord | None:
    """The run of a baseline, read before anything is run; None where there is none yet."""
    from align.runs.baseline import read_baseline

    return read_baseline(baseline) if baseline is not None and (is_needed or baseline.is_file()) else None


def _write_files(folder: Path, files: Mapping[str, Path | None], *, quiet: bool) -> None:
    """Write a run for other programs, and say which files there are."""
    from align.report.write_report import write_exports

    write_exports(folder, **files)
    for path in filter(None, () if quiet else files.values()):
        tell(say("told.written", names=[path]))


def _held_against(
    file: Path, before: RunRecord | None, folder: RunFolder, settings: Project, *, accept: bool, json: bool
) -> int:
    """Show a run beside its baseline, and write it as the new one where it is accepted."""
    from align.report.judged_run import judged_run
    from align.runs.baseline import compare_with_baseline, record_run, write_baseline

    ladder = judged_run(folder.path).ladder
    record = record_run(ladder, folder, settings)
    comparison = compare_with_baseline(file, before or record, record, ladder.verdict)
    if accept:
        write_baseline(file, record, ladder.verdict)
    hand_over(comparison, {"baseline": file}, None, json)
    if accept and not json:
        tell(say("told.written", names=[file]))
    return 0 if accept else comparison.exit_code


def perform(call: Call) -> Performed:
    """Make the result of a call, keep it, and show it as its command does."""
    from align.cli.command_tree import command_tree
    from align.runs.climb_ladder import Performed

    def make() -> dict[str, Any]:
        given = {**call.given, "run": call.run}
        named = named_as_typed(lambda: command_tree(call.command), [call.command])
        with own_hints(named), as_command(call.command, given):
            result, sources, notes = call.make(**{name: given[name] for name in call.given})
            document = hand_over(result, sources, call.run, json=False)
            for note in notes:
                tell(note)
        return document

    before = speak(ENGLISH)  # what it says is read by align, and kept
    try:
        return Performed(*_with_its_prints(make))
    finally:
        speak(before)


def execute(command: Sequence[str]) -> Executed:
    """Run one command line of `align` in this process; what it prints is kept."""
    from align.cli.main import main
    from align.fixes.fix_port import Executed

    code, _, output, errors = _with_its_prints(lambda: main(command))
    if code is not None and code > INTERRUPTED:
        raise KeyboardInterrupt
    return Executed(AlignError.exit_code if code is None else code, output, errors)


T = TypeVar("T")


def _with_its_prints(work: Callable[[], T]) -> tuple[T | None, AlignError | None, str, str]:
    """What some work returns, or its error, and what it prints on both streams.

    A fault of mindalign itself is one of this work: what other rungs found stays, and they go on.
    """
    from align.cli.main import as_told, internal_error

    output, errors = io.StringIO(), io.StringIO()
    result, failure = None, None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            result = work()
        except Exception as error:
            failure = as_told(error)
            if failure is None and "--debug" in sys.argv:
                raise
            failure = failure or internal_error(type(error), error, error.__traceback__)
            tell(f"align: {failure}", err=True)
    return result, failure, output.getvalue(), errors.getvalue()


def announce(name: str, result: RungResult | None) -> None:
    """Tell on a terminal which rung is being run, and how it ended."""
    if not sys.stderr.isatty():
        return
    if result is None:
        tell(f"{name} ...", err=True)
    else:
        with speaking():
            state = word("rung_state", result.state)
        tell(say("told.rung_ended", name=name, state=state, seconds=result.seconds or 0.0), err=True)


# `align report`: notebook, page and summary of a run folder; or what a pull request and a CI system show of it.


def report_command(  # noqa: PLR0913 - one parameter an option
    run_folder: Annotated[
        Path,
        typer.Argument(metavar="RUN_DIR", help="Run folder: of `align run` (align-run), or of commands with --run."),
    ],
    no_html: Annotated[bool, typer.Option("--no-html", help="Write the notebook without the HTML page.")] = False,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write this Markdown file for a pull request."),
    ] = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Write loss curves and verdicts for TensorBoard."),
    ] = None,
    card: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write this card of the port, as .md and as .json.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Write report.ipynb (executed), report.html and report.json into a run folder, or only the files asked for.

    The exit code is that of the verdict over all rungs; in a folder of `align run` it is the same as there.
    """
    files = {"markdown": markdown, "junit": junit, "sarif": sarif, "tensorboard": tensorboard}
    if card is not None or any(files.values()):
        return _export(run_folder, files, card, json=json)
    from align.cli.shared import progress_bar
    from align.core.verdicts import Outcome
    from align.report.write_report import INSTALL, write_report

    with progress_bar() as progress:
        paths = write_report(run_folder, html=not no_html, progress=progress)
    text = paths.summary.read_text(encoding="utf-8")

    import json as json_module

    summary = json_module.loads(text)
    if json:
        print_json(text.rstrip("\n"))
    else:
        from align.core.documents import to_json_data
        from align.report.open_run import summarize_run
        from align.report.show_result import print_result

        with speaking() as language:
            told = summary if language == ENGLISH else summary | to_json_data(summarize_run(run_folder))
        print_result(told)
        for path in (paths.notebook, paths.html, paths.summary):
            if path is not None:
                tell(say("told.written", names=[run_folder / path.name]))
        if paths.notebook is None:
            tell(say("told.no_notebook", install=INSTALL), err=True)
    return Outcome(summary["outcome"]).exit_code


def _export(run_folder: Path, files: Mapping[str, Path | None], card: Path | None, *, json: bool) -> int:
    """Write a run for other programs; nothing else is written."""
    from align.cli.shared import finish
    from align.report.card import write_card
    from align.report.judged_run import judged_run
    from align.runs.run_folder import RunFolder

    read = cache(RunFolder(run_folder).read)
    written = write_card(run_folder, card, read) if card is not None else ()
    if any(files.values()):
        _write_files(run_folder, files, quiet=True)
    ladder = judged_run(run_folder, read).ladder
    if json:
        return finish(ladder, {}, None, json=True)
    from align.report.show_result import print_verdict

    print_verdict(ladder.verdict)
    for path in filter(None, (*files.values(), *written)):
        tell(say("told.written", names=[path]))
    return ladder.verdict.exit_code


# `align fix`: the confirmed changes of a port as a patch, applied and undone.

LOCK = ".mindalign.fix.lock"
PROGRAM = "from align.cli.main import run; run()"


def fix_command(  # noqa: PLR0913 - one parameter an option
    reference: ReferenceArgument = None,
    port: Annotated[
        str | None, typer.Argument(metavar="PORT", help="The port, by default the candidate of the project file.")
    ] = None,
    inputs: BatchesOption = None,
    input_specs: InputSpecsOption = None,
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

    Files of the project are changed, after a backup in the run folder. An installed package stays as it is: a copy of
    it in the run folder is changed. Without --apply nothing is changed.
    """
    from align.errors import UsageError
    from align.runs.read_settings import made_from

    given = {
        "inputs": inputs,
        "input": input_specs,
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
    from align.fixes.fix_result import job_of_folder, job_of_models, job_of_project
    from align.runs.project_file import NAME, ProjectSide
    from align.runs.read_settings import find_settings

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
    from align.fixes.fix_result import FixJob, job_of_project
    from align.runs.read_settings import find_settings

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
    from align.core.operating_system import folder_lock
    from align.runs.run_folder import RunFolder

    RunFolder.create(run)
    return folder_lock(run / LOCK, run, "run")


def _fixed(job: FixJob, patch: Path | None, *, apply: bool) -> FixResult:
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
        tell(say("fix.running", command=f"align {shlex.join(job.again)}"), err=True)
    return apply_fix(planned, run_in_fresh_process)


def _undone(job: FixJob) -> FixResult:
    from align.fixes.fix_port import undo_fix

    return undo_fix(job)


def run_in_fresh_process(command: Sequence[str], first_on_path: Path | None) -> Executed:
    """Run one command line of `align` in a process of its own, with a folder first on its import path."""
    from align.fixes.fix_port import Executed

    paths = [str(first_on_path)] if first_on_path is not None else []
    known = os.environ.get("PYTHONPATH", "")
    on_path = {"PYTHONPATH": os.pathsep.join([*paths, *([known] if known else [])])}
    environment = os.environ | on_path | {VARIABLE: ENGLISH}  # what it says is read by align, not by a user
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
