"""A climb shown: what the failing rungs found, then every rung with its state, then what to do next."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from align.core.about import RUN_FOLDER
from align.core.verdicts import Outcome
from align.names.fold_names import fold_alike
from align.report.blocks import NONE, Block, Column, Lines, Row, Table, format_number, format_shape, verdict_block
from align.report.judged_run import rung_title
from align.report.kinds.culprits import cause_words
from align.report.thresholds import CULPRITS_SHOWN
from align.runs.project_file import NAME
from align.runs.rung import RungResult
from align.runs.rung import rungs as known_rungs
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import KeysView, Mapping, Sequence

    from align.report.blocks import Tone
    from align.runs.rung import Culprit


def ladder_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.ladder` document: of a rung that failed the first culprits, or with `show_all` every one."""
    rungs = [RungResult.read(one) for one in document["rungs"]]
    failed = [rung for rung in rungs if rung.state in FAULTY]
    blocks: list[Block] = [failure_lines(rung, document["run_folder"], show_all=show_all) for rung in failed]
    columns = (Column(say("ladder_table.rung")), Column(say("ladder_table.state")), Column(say("ladder_table.reason")))
    rows = tuple(
        Row(
            (rung.name, word("rung_state", rung.state), rung.reason or NONE),
            TONES[rung.state],
        )
        for rung in rungs
    )
    table = Table(say("ladder_table.title"), columns, rows)
    return [*blocks, table, verdict_block(document["verdict"]), _next(rungs, document)]


def _next(rungs: Sequence[RungResult], document: dict[str, Any]) -> Lines:
    """What a reader pastes next: of a port that is aligned the report, then what could be compared too."""
    steps = next_steps(rungs, document)
    if document["verdict"]["outcome"] == Outcome.ALIGNED.value or not steps:
        steps = (say("ladder_table.report", folder=shlex.quote(document["run_folder"])), *steps)
    return Lines(say("ladder_table.next"), steps, "plain", commands=True)


# What a reader does after a climb: the same again, go on with a rung, or name what one lacks.

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


# A rung of the ladder in words: why it is in its state, what is at fault, and what to do about it.
#
# Culprits of one cause are one, and their places are folded.

FAULTY = ("failed", "could not compare")


def culprit_lines(culprits: Sequence[Culprit]) -> list[str]:
    """Return a line for each cause and kind of place."""
    return [one.place + say("ladder_table.culprit", **_facts(one)) for one in folded_culprits(culprits)]


def folded_culprits(culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return one culprit for all of one cause whose places differ in numbers only; its place says how many.

    >>> from align.runs.rung import Culprit
    >>> folded_culprits([Culprit("layer.0.norm", "eps"), Culprit("layer.1.norm", "eps")])[0].place
    'layer.{0…1}.norm (2)'
    """
    groups: dict[Culprit, list[str]] = {}
    for one in culprits:
        groups.setdefault(replace(one, place="", cause=cause_in_words(one.cause)), []).append(one.place)
    return [
        replace(alike, place=f"{place} ({len(members)})" if len(members) > 1 else place)
        for alike, places in groups.items()
        for place, members in fold_alike((place, "") for place in places)
    ]


def rung_reason(rung: RungResult) -> str:
    """Why a rung is in its state, with what to write into the project file to make it available."""
    if rung.state == "not available" and rung.settle:
        lines = [settle_line(line) for line in rung.settle.splitlines()]
        return say("ladder_table.settle", reason=rung.reason, lines=lines)
    return rung.reason


def settle_line(line: str, form: str = "ladder_table.under") -> str:
    """Return a line for the project file with the place where it belongs.

    >>> settle_line('[reference] log = "a.log"')
    'under [reference]: log = "a.log"'
    >>> settle_line('[reference] log = "a.log"', "ladder_table.to_paste")
    'log = "a.log"  # under [reference]'
    """
    table, _, own = line.partition(" ")
    return say(form, table=table, line=own)


def remedy_lines(rung: RungResult) -> list[str]:
    """What to do about a command that could not run, and that command: its hint may name an option to add."""
    if not rung.hint:
        return []
    again = [say("ladder_table.again_alone", command=rung.commands[-1])] if rung.commands else []
    return [say("ladder_table.hint", hint=rung.hint), *again]


def failure_lines(rung: RungResult, folder: str, *, show_all: bool) -> Lines:
    """What a rung found that failed or could not compare, and where all of it stands."""
    title = say("ladder_table.failure", name=rung.name, state=word("rung_state", rung.state), reason=rung.reason)
    lines = culprit_lines(rung.culprits)
    shown = lines if show_all else lines[:CULPRITS_SHOWN]
    more = [say("ladder_table.more", count=len(lines) - len(shown))] if len(shown) < len(lines) else []
    text = next((path for path in rung.evidence if path.endswith(".txt")), "")
    whole = [say("ladder_table.whole", path=shlex.quote(f"{folder}/{text}"))] if text else []
    return Lines(title, (*shown, *more, *remedy_lines(rung), *whole), "bad")


def _facts(culprit: Culprit) -> dict[str, str]:
    return {name: fact for name, fact in asdict(culprit).items() if name != "place"}


def cause_in_words(cause: str) -> str:
    """The words of a cause that is an id; a sentence stays as it is."""
    words = cause_words(cause)
    is_unknown = words == cause.replace(" + ", "; ")
    return "; ".join(word("step_cause", one) for one in cause.split(" + ")) if is_unknown else words


# The frame of a report shown: the rungs with their verdicts, and what every result was made from.

TONES: dict[str, Tone] = {
    "passed": "good",
    "failed": "bad",
    "could not compare": "bad",
    "blocked": "open",
    "stale": "open",
    "not run": "quiet",
    "not available": "quiet",
    "foreseen": "open",
}


def summary_blocks(summary: dict[str, Any]) -> list[Block]:
    """Show a `mindalign.report` document: one row a rung, then the verdict over all, then what to do next."""
    columns = (
        Column(say("rung.rung")),
        Column(say("rung.state")),
        Column(say("rung.compared")),
        Column(say("rung.reason"), "words"),
    )
    table = Table(say("rung.title"), columns, tuple(map(_rung, summary["rungs"])))
    steps = tuple(summary["next_steps"])
    return [
        table,
        verdict_block(summary["verdict"]),
        *([Lines(say("ladder_table.next"), steps, commands=True)] if steps else []),
    ]


def _rung(rung: dict[str, Any]) -> Row:
    coverage = rung["coverage"]
    compared = NONE
    if coverage:
        count, unit = format_number(coverage["compared"]), word("unit", coverage["unit"])
        compared = say("rung.compared_of", count=count, unit=unit)
    title = rung_title(RungResult(rung["name"], rung["state"], kind=rung["kind"]))
    return Row((title, word("rung_state", rung["state"]), compared, rung["reason"] or NONE), TONES[rung["state"]])


def source_blocks(documents: dict[str, dict[str, Any]]) -> list[Block]:
    """Show the sources of every result with their hashes, the environments and the inputs of a run of both models."""
    rows = [_source(kind, document, role) for kind, document in documents.items() for role in document["made_from"]]
    columns = (
        Column(say("sources.rung")),
        Column(say("sources.role")),
        Column(say("sources.source"), "path"),
        Column(say("sources.hash"), "path"),
        Column(say("sources.created")),
    )
    blocks: list[Block] = [Table(say("sources.title"), columns, tuple(rows))]
    ran = documents.get("forward") or documents.get("step")
    return blocks + (_of_run(ran) if ran else [])


def _source(kind: str, document: dict[str, Any], role: str) -> Row:
    source = document["made_from"][role]
    what = source.get("path", source.get("text", ""))
    return Row((word("rung", kind), role, what, source.get("sha256", NONE), document["created"]))


def _of_run(document: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    if environments := document["environment"]:
        names = sorted({name for environment in environments.values() for name in environment})
        rows = tuple(Row((name, *(str(env.get(name, NONE)) for env in environments.values()))) for name in names)
        columns = (Column(say("sources.name")), *(Column(word("word", side), "path") for side in environments))
        blocks.append(Table(say("sources.environment"), columns, rows))
    if inputs := document.get("inputs"):
        columns = tuple(Column(say(key)) for key in ("sources.name", "word.shape", "word.dtype", "sources.hash"))
        blocks.append(Table(say("sources.inputs"), columns, tuple(_input(name, inputs[name]) for name in inputs)))
    return blocks


def _input(name: str, facts: dict[str, Any]) -> Row:
    dimensions = facts.get("shape")
    shown = format_shape(dimensions) if isinstance(dimensions, list) else NONE
    return Row((name, shown, str(facts.get("dtype", NONE)), str(facts.get("sha256", NONE))))
