"""What a reader does after a climb: the same again, go on with a rung, or name what one lacks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.core.about import RUN_FOLDER
from align.report.kind_parts.ladder_culprits import settle_line
from align.runs.project_file import NAME
from align.runs.rung import rungs as known_rungs
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import KeysView, Mapping, Sequence

    from align.runs.ladder_result import RungResult

WAITING = ("stale", "not run")
FIXED = ("settings", "forward")  # rungs whose changes `align fix` can make


def next_steps(rungs: Sequence[RungResult], climb: Mapping[str, Any]) -> tuple[str, ...]:
    """What is left to do: after a failure, for a rung that waits, and for one that lacks a line of the project file.

    () where all has passed that could be asked for, or where nobody climbed.
    """
    if not climb:
        return ()
    faulty = [rung for rung in rungs if rung.state in ("failed", "could not compare")]
    if any(rung.asked for rung in faulty):
        again = climb_again(climb, [rung.name for rung in faulty if rung.asked])
        return (*_fix(climb, faulty), *_pair(climb, faulty), again)
    beside = (climb_again(climb, [rung.name for rung in faulty]),) if faulty else ()
    barring = [rung.blocked_by for rung in rungs if rung.state == "blocked"]
    waiting = [rung.name for rung in rungs if rung.state in WAITING and rung.asked]
    if first := next((rung.name for rung in rungs if rung.name in (*barring, *waiting)), ""):
        return (climb_from(climb, first), *beside)
    lacking = [rung for rung in rungs if rung.state == "not available" and rung.settle]
    return (*beside, *(_add(climb, group) for group in _sharing(lacking)))


def _fix(climb: Mapping[str, Any], faulty: Sequence[RungResult]) -> tuple[str, ...]:
    """The command that makes changes of layers, where a rung knows what to write, and in which line."""
    known = [one for rung in faulty if rung.name in FIXED for one in rung.culprits if one.change and one.line]
    return (say("ladder_table.fix", options=_options(climb, folder="--run")),) if known else ()


def _pair(climb: Mapping[str, Any], faulty: Sequence[RungResult]) -> tuple[str, ...]:
    """The map that the climb made, where parameters are left that no line of the port is at fault for."""
    left = [one for rung in faulty if rung.kind == "map" for one in rung.culprits if not (one.change or one.line)]
    file = f"{climb.get('run_folder', RUN_FOLDER)}/map.toml"
    return (say("ladder_table.pair", file=shlex.quote(file)),) if left else ()


def climb_again(climb: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """The words that end a climb in which these failed; optional ones are run again where they are named."""
    optional = [rung.name for rung in known_rungs() if rung.optional]
    only = [f" --only {name}" for name in names] if set(names) <= {*optional} else []
    return say("ladder_table.again", options=_options(climb) + "".join(only))


def climb_from(climb: Mapping[str, Any], name: str) -> str:
    """The command that goes on with a rung."""
    return say("ladder_table.go_on", options=_options(climb), name=name)


def _sharing(lacking: Sequence[RungResult]) -> list[list[RungResult]]:
    """Rungs that lack a line of the project file together are one group."""
    groups: list[list[RungResult]] = []
    for rung in lacking:
        near = [group for group in groups if _lines(group) & _lines([rung])]
        groups = [group for group in groups if group not in near]
        groups.append([*(one for group in near for one in group), rung])
    return groups


def _lines(group: Sequence[RungResult]) -> KeysView[str]:
    return dict.fromkeys(line for rung in group for line in rung.settle.splitlines()).keys()


def _add(climb: Mapping[str, Any], group: Sequence[RungResult]) -> str:
    """What to write into the project file for rungs: lines to paste, each with its place in a comment."""
    lines = [settle_line(line, "ladder_table.to_paste") for line in _lines(group)]
    return say("ladder_table.add", names=[rung.name for rung in group], file=_project(climb), lines=lines)


def _options(climb: Mapping[str, Any], folder: str = "--folder") -> str:
    """The project file and the run folder that the climb was given, if they are not those taken without a word."""
    project, run = _project(climb), climb.get("run_folder", RUN_FOLDER)
    given = {"--project": project if project != NAME else "", folder: run if run != RUN_FOLDER else ""}
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given.items() if value)


def _project(climb: Mapping[str, Any]) -> str:
    return str(climb.get("made_from", {}).get("project", {}).get("path", NAME))
