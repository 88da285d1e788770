"""A climb shown, and what stands beside it: the layers at risk on a chip, and layers found by halving."""

from __future__ import annotations

import datetime as dt
import shlex
from dataclasses import asdict, replace
from math import log2
from typing import TYPE_CHECKING, Any

from align.core.about import RUN_FOLDER
from align.core.align_sequences import grouped
from align.core.traces import capture_key
from align.core.verdicts import Outcome
from align.names.user_rules import fold_alike
from align.report.blocks import (
    NONE,
    Block,
    Column,
    Lines,
    Row,
    Table,
    findings_blocks,
    format_number,
    format_shape,
    layer_name,
    table_columns,
    verdict_block,
)
from align.report.judged_run import relative_error, rung_title
from align.report.kinds.culprits import cause_words
from align.report.thresholds import CULPRITS_SHOWN, DIFFERENCES_SHOWN, MOST_AT_RISK, NAMES_ON_A_LINE
from align.runs.project_file import NAME
from align.runs.rung import CAUSES, RungResult, lacks_groups
from align.runs.rung import rungs as known_rungs
from align.words.catalogue import few, listed, say, word

if TYPE_CHECKING:
    from collections.abc import KeysView, Mapping, Sequence

    from align.report.blocks import Tone
    from align.runs.rung import Culprit


def ladder_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.ladder` document: of a rung that failed the first culprits, or with `show_all` every one."""
    rungs = [RungResult.read(one) for one in document["rungs"]]
    failed = [rung for rung in rungs if rung.state in FAULTY]
    blocks: list[Block] = [failure_lines(rung, document["run_folder"], show_all=show_all) for rung in failed]
    columns = table_columns("ladder_table.rung ladder_table.state ladder_table.reason")
    rows = tuple(
        Row((rung.name, word("rung_state", rung.state), rung.reason or NONE), TONES[rung.state]) for rung in rungs
    )
    table = Table(say("ladder_table.title"), columns, rows)
    return [*blocks, table, verdict_block(document["verdict"]), _next(rungs, document)]


def _next(rungs: Sequence[RungResult], document: dict[str, Any]) -> Lines:
    """What a reader pastes next: of a port that is aligned the report, then what could be compared too."""
    steps = next_steps(rungs, document)
    if document["verdict"]["outcome"] == Outcome.ALIGNED.value or not steps:
        steps = (say("ladder_table.report", folder=shlex.quote(document["run_folder"])), *steps)
    return Lines(say("ladder_table.next"), steps, "plain", commands=True)


# A run beside the one that was accepted, and that one by itself.


def against_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.against` document: what is new, what is mended, and what changed beneath."""
    groups = {"new": "bad", "mended": "good"}
    blocks: list[Block] = [
        Lines(say(f"against.{name}", count=len(document[name])), _differences(document[name], show_all), tone)  # type: ignore[arg-type]
        for name, tone in groups.items()
        if document[name]
    ]
    changed, facts = document["changed"], {"file": document["file"], "known": document["known"]}
    last = [say("against.something" if document["new"] else "against.nothing", **facts)]
    last += [say("against.changed", names=changed)] if changed else []
    return [*blocks, Lines("", tuple(last), "bad" if document["new"] else "good")]


def since_line(document: Mapping[str, Any]) -> str:
    """Count what is new, mended and still there since the run before of a folder, of a `mindalign.against` document."""
    when = dt.datetime.fromisoformat(document["since"]).astimezone(dt.timezone.utc)
    counts = {name: _faults(document[name]) for name in ("new", "mended")}
    return say("against.since", since=f"{when:%Y-%m-%d %H:%M} UTC", known=document["known"], **counts)


def _faults(differences: Sequence[Mapping[str, Any]]) -> int:
    """How many differences there are; the state of a rung is one where nothing else is said of it."""
    named = {one["rung"] for one in differences if one["kind"] == "finding"}
    return sum(one["kind"] != "rung" or one["rung"] not in named for one in differences)


def _differences(differences: Sequence[Mapping[str, Any]], show_all: bool) -> tuple[str, ...]:
    shown = differences if show_all else differences[:DIFFERENCES_SHOWN]
    lines = [one["text"] + (say("against.at", line=one["line"]) if one["line"] else "") for one in shown]
    rest = len(differences) - len(shown)
    return (*lines, *([say("ladder_table.more", count=rest)] if rest else []))


def baseline_blocks(document: dict[str, Any], **_options: bool) -> list[Block]:
    """Show a `mindalign.baseline` document: its rungs and the verdict that they had."""
    columns = table_columns("ladder_table.rung ladder_table.state ladder_table.reason")
    rows = (
        Row((one["name"], word("rung_state", one["state"]), one["reason"] or NONE), TONES[one["state"]])
        for one in document["record"]["rungs"]
    )
    return [Table(say("ladder_table.title"), columns, tuple(rows)), verdict_block(document["verdict"])]


def card_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.card` document: what a baseline would show of it, and what was not verified."""
    lines = tuple(document["unverified"])
    return [*baseline_blocks(document, show_all=show_all), Lines(say("card.unverified"), lines, "open")]


def verify_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.verify` document: all that differs from the card, and whether it holds."""
    groups = {"differs": document["differs"]} | {
        name: [{"text": text, "line": ""} for text in document[name]] for name in ("files", "made", "versions")
    }
    breaking = ("differs", "files")
    blocks: list[Block] = [
        Lines(say(f"card.found_{name}"), _differences(found, show_all), "bad" if name in breaking else "open")
        for name, found in groups.items()
        if found
    ]
    fails = any(document[name] for name in breaking)
    line = say("card.fails") if fails else say("card.holds", stated=document["stated"])
    return [*blocks, Lines("", (line,), "bad" if fails else "good")]


# What a reader does after a climb: the same again, go on with a rung, or name what one lacks.

WAITING = ("stale", "not run")
FIXED = ("settings", "forward")  # rungs whose changes `align fix` can make
OF_LISTS = ("([...])", "({...})")  # ends of what is to stand around a plain list of layers, which it can make too


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
    known += [one for rung in faulty if rung.kind == "map" for one in rung.culprits if one.change.endswith(OF_LISTS)]
    known += [one for rung in faulty for one in rung.culprits if lacks_groups(one) and one.line]
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
    groups = grouped((replace(one, place="", cause=cause_in_words(one.cause)), one.place) for one in culprits)
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
    """The words of a cause that is an id, or of what is wrong with a curve; a sentence stays as it is."""
    texts = {one: cause_words(one) for one in cause.split(CAUSES)}
    words = [word("trouble", word("step_cause", one)) if text == one else text for one, text in texts.items()]
    return listed(words, "; ")


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
    columns = table_columns("rung.rung rung.state rung.compared rung.reason:words")
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
    columns = table_columns("sources.rung sources.role sources.source:path sources.hash:path sources.created")
    blocks: list[Block] = [Table(say("sources.title"), columns, tuple(rows))]
    ran = documents.get("forward") or documents.get("step")
    return blocks + (_of_run(ran) if ran else [])


def _source(kind: str, document: dict[str, Any], role: str) -> Row:
    source = document["made_from"][role]
    what = source.get("path", source.get("text", ""))
    return Row((word("rung", kind), _role(role), what, source.get("sha256", NONE), document["created"]))


def _role(role: str) -> str:
    """What a source is to a result, in words; of several a number stands behind it."""
    name, _, number = role.rpartition(" ")
    return f"{word('role', name)} {number}" if number.isdigit() else word("role", role)


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


# What a chip is expected to do to a model: the layers most at risk, what overflows, the rules with their sources.


def emulate_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.emulate` document; `show_all` shows every layer, in the order of the run."""
    return [
        _layers(document, show_all=show_all),
        _rules(document["rules"]),
        *_scales(document),
        *findings_blocks(document["findings"]),
        *_keeping(document["rules"]),
        Lines(say("emulation.sources"), tuple(say("emulation.source", **one) for one in document["rules"]), "quiet"),
        Lines("", tuple(_emulation_notes(document)), "open"),
    ]


def _scales(document: dict[str, Any]) -> list[Block]:
    """The gradients that become float16, the largest first, and the loss scales that fit them."""
    scales = document.get("scales")
    if scales is None:
        return []
    columns = table_columns(
        "emulation.layer:path emulation.operators:words emulation.largest:number emulation.smallest:number "
        "emulation.flushed:number"
    )
    rows = []
    for one in scales["layers"][:MOST_AT_RISK]:
        figures = (format_number(one[key]) for key in ("largest", "smallest"))
        name = one["module"] or say("emulation.output")
        rows.append(Row((name, one["operator"], *figures, _share(one["flushed"]))))
    shares = {key: _share(scales[key]) for key in ("flushed", "flushed_unscaled")}
    bounds = {key: round(log2(scales[key])) for key in ("lowest", "highest")}
    line = say("emulation.scale_line", highest=scales["highest"])
    return [
        Table(say("emulation.gradients", loss=scales["loss"]), columns, tuple(rows)),
        Lines("", (say("emulation.scales", **bounds, **shares), line)),
    ]


def _share(share: float) -> str:
    return f"{format_number(100 * share)} %"


def _keeping(rules: list[dict[str, Any]]) -> list[Block]:
    """Lines that keep operators in float32, if any do."""
    lines = tuple(dict.fromkeys(one["write"] for one in rules if one["write"]))
    return [Lines(say("emulation.keeps"), lines, commands=True)] if lines else []


def _layers(document: dict[str, Any], *, show_all: bool) -> Table:
    by_key = {capture_key(layer["module"], layer["call"], layer["output"]): layer for layer in document["layers"]}
    at_risk = [by_key[key] for key in document["at_risk"][:MOST_AT_RISK] if key in by_key]
    outputs = [layer for layer in document["layers"] if not layer["module"] and layer not in at_risk]
    rows = document["layers"] if show_all else [*at_risk, *outputs]
    columns = table_columns(
        "emulation.layer:path emulation.class:wide emulation.operators:words emulation.expected:number "
        "emulation.alone:number emulation.worst:number:wide"
    )
    title = say("emulation.all" if show_all else "emulation.title", **_target(document))
    return Table(title, columns, tuple(_row(layer) for layer in rows), say("emulation.note"))


def _row(layer: dict[str, Any]) -> Row:
    accumulated, alone = layer["accumulated"], layer["alone"]
    name = layer_name(layer["module"], layer["call"], layer["output"]) if layer["module"] else say("emulation.output")
    overflows = bool(accumulated and accumulated["non_finite_mismatch"])
    cells = (
        name,
        layer["class_name"],
        ", ".join(layer["operators"]),
        relative_error(accumulated),
        relative_error(alone) if layer["module"] else "",
        format_number(accumulated["max_abs"]) if accumulated else "",
    )
    return Row(cells, "bad" if overflows else "plain")


def _rules(rules: list[dict[str, Any]]) -> Table:
    columns = table_columns(
        "emulation.rule:words emulation.class_of:words emulation.computes:words emulation.calls:number "
        "emulation.certainty:words"
    )
    rows = []
    for one in rules:
        kind, certainty = word("operator_class", one["operator_class"]), word("certainty", one["certainty"])
        computed = say("emulation.computed", computes=one["computes"], result=one["result"])
        rows.append(Row((one["entry"], kind, computed, format_number(one["calls"]), certainty)))
    return Table(say("emulation.rules"), columns, tuple(rows))


def _emulation_notes(document: dict[str, Any]) -> list[str]:
    headroom = document["headroom"]
    notes = [say("emulation.headroom", headroom=format_number(headroom))] if headroom and headroom > 1.0 else []
    return [*notes, say("emulation.not_verified")]


def _target(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("target", "product", "framework")}


# The switches of a chip that a model suffers from, and the lines to run on a card.


def switches_blocks(document: dict[str, Any]) -> list[Block]:
    """Show a `mindalign.switches` document."""
    matter = tuple(one["write"] for one in document["switches"] if one["matters"])
    judged = word("judged", document["judged"])
    figures = {key: format_number(document[key]) for key in FIGURES}
    return [
        _table(document, judged),
        Lines("", (say("switches.all", judged=judged, **figures),)),
        Lines(say("switches.lines_widest"), tuple(document["widest_lines"]), commands=True),
        *([Lines(say("switches.lines_matter"), matter, commands=True)] if matter else []),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


FIGURES = ("all_moved", "all_factor", "widest_moved", "widest_factor", "runs")


def _table(document: dict[str, Any], judged: str) -> Table:
    columns = table_columns(
        "switches.switch switches.value switches.widest switches.alone:number switches.factor:number switches.matters"
    )
    rows = []
    for one in document["switches"]:
        figures = (format_number(one[key]) for key in ("alone", "alone_factor"))
        cells = one["switch"], one["value"], one["widest"], *figures, say("switches.yes") if one["matters"] else ""
        rows.append(Row(cells, "bad" if one["matters"] else "plain"))
    return Table(say("switches.title", **document), columns, tuple(rows), say("switches.note", judged=judged))


# A bisected port shown: each stretch that goes wrong, what is known of the points, and what it took.


def bisect_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.bisect` document; `show_all` shows all points, not those alone of which something is known."""
    points = document["points"]
    shown = points if show_all else [point for point in points if point["state"] != "untried"]
    stretches = tuple(_stretch(stretch, points, show_all=show_all) for stretch in document["stretches"])
    notes = tuple(_bisection_notes(points, document["runs"]))
    return [
        *([Lines(say("bisect.title"), stretches, "bad")] if stretches else []),
        *([_points(shown)] if shown else []),
        Lines("", notes),
        *findings_blocks(document["findings"]),
        verdict_block(document["verdict"]),
    ]


def _stretch(stretch: dict[str, Any], points: list[dict[str, Any]], *, show_all: bool) -> str:
    after, before = stretch["after"], stretch["before"]
    modules = stretch["modules"]
    line = say(
        "bisect.stretch",
        after=say("bisect.inputs") if after is None else _named(points[after]),
        before=say("bisect.output") if before is None else _named(points[before]),
        factor=format_number(stretch["factor"]),
    )
    ran = few(modules, len(modules) if show_all else NAMES_ON_A_LINE)
    return line + (say("bisect.modules", modules=ran) if modules else "")


def _named(point: dict[str, Any]) -> str:
    return f"{_short(point['reference'])} -> {_short(point['candidate'])}"


def _short(key: str) -> str:
    """A first call is not numbered."""
    return key.replace("#0", "", 1)


def _points(points: list[dict[str, Any]]) -> Table:
    columns = table_columns("word.reference:path word.candidate:path bisect.origin bisect.state")
    rows = []
    for point in points:
        names = (_short(point[side]) for side in ("reference", "candidate"))
        cells = *names, word("point_origin", point["origin"]), word("point_state", point["state"])
        rows.append(Row(cells, "open" if point["state"] in ("doubtful", "dropped") else "plain"))
    return Table(say("bisect.points"), columns, tuple(rows))


def _bisection_notes(points: list[dict[str, Any]], runs: int) -> list[str]:
    named = {
        state: listed([_named(point) for point in points if point["state"] == state])
        for state in ("dropped", "doubtful")
    }
    notes = (say(f"bisect.{state}", points=own) for state, own in named.items() if own)
    return [say("bisect.runs", points=format_number(len(points)), runs=format_number(runs)), *notes]
