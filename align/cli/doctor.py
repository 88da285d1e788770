"""`align doctor`: what of this machine changes a comparison; what to run after a crash; whether memory grows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from align.cli.parts.output import tell_in_place
from align.cli.parts.shared import JsonOption, RunOption, finish, hand_over

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        from align.lint.advise_on_crash import advise_on_crash

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
