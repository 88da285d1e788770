"""`align doctor`: what of this machine changes a comparison; what to run after a crash; whether memory grows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli.output import tell, tell_in_place
from align.cli.shared import (
    BatchesOption,
    CandidateArgument,
    InputSpecsOption,
    JsonOption,
    MapOption,
    ProjectOption,
    ReferenceArgument,
    RunOption,
    SeedOption,
    TorchModelArgument,
    file_or_function,
    finish,
    given_batches,
    hand_over,
    numbered_sources,
    progress_bar,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable


MEGABYTE = 1e6  # format: unit of the running line


def doctor_command(  # noqa: PLR0913 - one parameter an option
    crash: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="What to run when a training crashes or hangs: npu, cuda, mlu or cpu."),
    ] = None,
    follow: Annotated[
        int | None, typer.Option(metavar="PID", help="Follow the host memory of a process, and say whether it leaks.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often --follow looks.")] = 1.0,
    longest: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="How long; by default until it ends or Ctrl-C.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show switches that have no effect here, and the sources of --crash, too.")
    ] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """Look at versions, devices, switches, memory and missing packages, and say what to set.

    With --crash: the lines to run after a crash. With --follow: whether a process leaks memory. Exit code 0: both
    frameworks can be compared, or one, or memory is steady; 1: something installed cannot work, or memory leaks; 2:
    neither is installed, or it cannot be told.
    """
    from align.errors import UsageError

    if crash is None and follow is None:
        from align.lint.examine_environment import examine_environment

        result = examine_environment()
        return finish(result, result.verdict, {}, run, json, show_all=show_all)
    if crash is not None:
        if follow is not None and json:
            raise UsageError.of("doctor_usage.two_documents", crash=crash, pid=follow)
        from align.lint.examine_environment import advise_on_crash

        advice = advise_on_crash(crash)
        hand_over(advice, {}, run, json, show_all=show_all)
    return 0 if follow is None else _followed(follow, every, longest, run, json)


def _followed(pid: int, every: float, longest: float | None, run: Path | None, json: bool) -> int:
    from align.lint.follow_memory import follow_memory

    followed = follow_memory(pid, every, longest, _running_line())
    return finish(followed, followed.verdict, {}, run, json)


def _running_line() -> Callable[[float, int], None]:
    """Show each sample on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _seconds, _resident: None
    return lambda seconds, size: tell_in_place(f"{seconds:8.0f} s {size / MEGABYTE:10,.0f} MB")


# `align lint`: the settings of two models, compared before any run.


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


# `align scan`: what of a torch model MindSpore has, call by call, before a line of the port is written.


def scan_command(  # noqa: PLR0913 - one parameter an option
    model: TorchModelArgument,
    target: Annotated[
        str, typer.Option(metavar="NAME", help="What the port is to run on: cpu, gpu or ascend:CHIP.")
    ] = "cpu",
    inputs: BatchesOption = None,
    made: InputSpecsOption = None,
    seed: SeedOption = 0,
    show_all: Annotated[bool, typer.Option("--all", help="Show also what is the same in MindSpore.")] = False,
    skeleton: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the port's layers in MindSpore into a file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it is there.")] = False,
    run: RunOption = None,
    json: JsonOption = False,
) -> int:
    """List what a torch model calls that MindSpore has not, or has otherwise, and what to write instead.

    Exit code 0: all has a counterpart; 1: something has none, no kernel on the target, or is not known; 2: it could
    not be run or read.
    """
    from align.rules.api_table import scan_target
    from align.scan.scan_model import scan_model
    from align.words.catalogue import say

    scan_target(target)  # refused before the model is built
    if skeleton is not None:
        from align.scan.write_skeleton import write_skeleton

        write_skeleton(model, skeleton, force=force)
        tell(say("skeleton.written", path=skeleton), err=json)
    given = [file_or_function(one) for one in inputs or ()]
    source = given_batches(given, made or (), seed) if given or made else None
    with progress_bar() as progress:
        result = scan_model(model, inputs=source, target=target, progress=progress)
    sources: dict[str, Path | str] = {"model": model, "target": target, **numbered_sources("inputs", given)}
    hand_over(result, sources, run, json, show_all=show_all)
    return result.exit_code
