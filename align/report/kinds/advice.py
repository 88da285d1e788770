"""Settings that differ shown: the gravest first, layers that differ only in their numbers in one row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.names.user_rules import fold_alike
from align.report.blocks import (
    NONE,
    TONES,
    Block,
    Column,
    Facts,
    Lines,
    Row,
    Table,
    Tone,
    as_float,
    findings_blocks,
    fold_rows,
    format_bytes,
    format_number,
    format_shape,
    layer_name,
    table_columns,
    verdict_block,
)
from align.report.thresholds import LIST_LINES
from align.words.catalogue import listed, phrase, say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


SEVERITY_TONES: dict[str, Tone] = {"error": "bad", "warning": "open", "note": "quiet"}
ALIKE = ("severity", "reference_setting", "candidate_setting", "change", "certain", "line")


def lint_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.lint` document; `show_all` gives every layer a row of its own."""
    findings = document["findings"]
    known = {key: format_number(document[key]) for key in ("layers", "rules", "unrun")}
    return [
        *_findings(findings, show_all=show_all),
        *_not_compared(document.get("not_compared", ())),
        *findings_blocks(document.get("fused", [])),
        Lines("", (say("lint.rules", **known),), "quiet"),
        verdict_block(document["verdict"]),
    ]


def _findings(findings: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    return [_lint_table(findings, show_all=show_all), _effects(findings)] if findings else []


def _not_compared(problems: Sequence[str]) -> list[Block]:
    return [Lines(say("lint.not_compared"), tuple(problems), "open")] if problems else []


def _lint_table(findings: list[dict[str, Any]], *, show_all: bool) -> Table:
    columns = table_columns(
        "lint.severity word.reference:path lint.setting:words word.candidate:path lint.setting:words lint.change:words"
    )
    groups = [[finding] for finding in findings]
    if not show_all:
        alike = fold_rows(findings, lambda one: (one["reference"], tuple(one.get(key) for key in ALIKE)))
        groups = [group for _, group in alike]
    note = "" if all(finding["certain"] for finding in findings) else say("lint.uncertain")
    return Table(say("lint.title"), columns, tuple(map(_lint_row, groups)), note)


def _lint_row(group: list[dict[str, Any]]) -> Row:
    first = group[0]
    severity = word("severity", first["severity"]) + ("" if first["certain"] else "?")
    cells = (
        severity + (f" ({len(group)})" if len(group) > 1 else ""),
        _names(group, "reference"),
        _setting(group),
        _names(group, "candidate"),
        first["candidate_setting"],
        say("lint.at_line", change=first["change"], line=first.get("line", "")),
    )
    return Row(cells, SEVERITY_TONES[first["severity"]])


def _names(group: list[dict[str, Any]], side: str) -> str:
    """The layers of one side as one name; where they fold into several, the first of them."""
    name = fold_alike((finding[side], None) for finding in group)[0][0]
    return name or f"({group[0][f'{side}_class']})"


def _setting(group: list[dict[str, Any]]) -> str:
    """The reference's setting, and how many parameters it is about."""
    finding, number = group[0], sum(one.get("parameters", 0) for one in group)
    if not number:
        return str(finding["reference_setting"])
    key = "lint.held" if finding["example"] else "lint.held_unnamed"
    return say(key, setting=finding["reference_setting"], count=number, example=finding["example"])


def _effects(findings: list[dict[str, Any]]) -> Lines:
    effects = dict.fromkeys((finding["rule"], finding["effect"]) for finding in findings)
    lines = tuple(say("lint.effect", rule=rule, effect=effect) for rule, effect in effects)
    return Lines(say("lint.effect_title"), lines)


# The environment shown: what to set first, then versions, switches and what is missing.


def doctor_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.doctor` document; with `show_all` switches that have no effect here, too."""
    return [
        *findings_blocks(document["findings"]),
        _frameworks(document["frameworks"]),
        *_switches(document["switches"], show_all=show_all),
        *_packages(document["packages"]),
        _machine(document["machine"]),
        _verdict(document["verdict"]),
    ]


def _frameworks(frameworks: dict[str, dict[str, str]]) -> Table:
    columns = table_columns("doctor.framework doctor.facts")
    rows = tuple(
        Row((name, listed([" ".join((word("framework_fact", key), value)) for key, value in facts.items()])))
        for name, facts in frameworks.items()
    )
    return Table(say("doctor.frameworks"), columns, rows)


def _switches(switches: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    shown = [switch for switch in switches if show_all or switch["state"] in ("as wanted", "otherwise")]
    if not shown:
        return []
    columns = tuple(Column(say(f"doctor.{name}")) for name in ("name", "value", "wanted", "state"))
    rows = tuple(
        Row(
            (switch["id"], switch["value"] or NONE, switch["wanted"], word("switch_state", switch["state"])),
            "open" if switch["state"] == "otherwise" else "plain",
        )
        for switch in shown
    )
    return [Table(say("doctor.switches"), columns, rows)]


def _packages(groups: list[dict[str, Any]]) -> list[Block]:
    lines = []
    for group in groups:
        facts = {"missing": group["missing"], "install": group["install"]}
        lines.append(say("doctor.package_line", purpose=word("purpose", group["extra"]), **facts))
    return [Lines(say("doctor.packages"), tuple(lines), "quiet")] if lines else []


def _machine(machine: dict[str, Any]) -> Facts:
    shown = {name: str(value) for name, value in machine.items() if name not in ("memory", "disk")}
    sizes = {name: say("doctor.free", size=format_bytes(machine[name])) for name in ("memory", "disk")}
    return Facts(say("doctor.machine"), tuple((word("machine", name), fact) for name, fact in (shown | sizes).items()))


def _verdict(verdict: dict[str, Any]) -> Lines:
    """Whether this machine can compare: no port is aligned by that."""
    outcome = str(verdict["outcome"])
    line = say("verdict.line", outcome=word("doctor_outcome", outcome), reason=verdict["reason"])
    return Lines("", (line,), TONES[outcome])


# What to run after a crash, shown: each step with its lines to paste.


def crash_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.crash` document; `show_all` shows the sources too."""
    steps = tuple(
        say("crash.step", title=step["title"], shows=step["shows"], lines=step["lines"]) for step in document["steps"]
    )
    blocks: list[Block] = [Lines(say("crash.title", device=document["title"]), steps)]
    if show_all:
        sources = (
            say("crash.source", id=step["id"], source=step["source"], certainty=word("certainty", step["certainty"]))
            for step in document["steps"]
        )
        blocks.append(Lines(say("crash.sources"), tuple(sources), "quiet"))
    return [*blocks, Lines("", (say("crash.legend"),), "quiet")]


# What of a model MindSpore has: what needs work first, where it stands, and what to write.

COUNTERPART_TONES: dict[str, Tone] = {"no counterpart": "bad", "no kernel": "bad", "unknown": "open", "same": "good"}
NEED_WORK = ("no counterpart", "no kernel", "other default", "other name", "unknown")


def scan_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.scan` document; `show_all` lists what is the same too."""
    calls = [one for one in document["calls"] if show_all or one["status"] != "same"]
    return [
        Lines("", (_headline(document), *_marks(document)), _tone(document)),
        *([_scan_table(document, calls)] if calls else []),
        *findings_blocks(document["findings"]),
        *_chip(document),
        Lines("", (say("scan.by_run" if document["seen_by"] == "run" else "scan.by_source"),), "quiet"),
    ]


def _headline(document: dict[str, Any]) -> str:
    counts = _counts(document)
    total = sum(counts.values())
    have = total - sum(counts[key] for key in ("no counterpart", "no kernel", "unknown"))
    facts = {key.replace(" ", "_"): counts[key] for key in counts}
    return say("scan.headline", have=have, total=total, target=document["target"], **facts)


def _counts(document: dict[str, Any]) -> dict[str, int]:
    """Calls by status; a status that no call has may be left out of the document."""
    return {status: document["counts"].get(status, 0) for status in (*NEED_WORK, "same")}


def _marks(document: dict[str, Any]) -> list[str]:
    """How many names stand behind the calls that need work."""
    names = [one["api"] for one in document["calls"] if one["status"] in NEED_WORK]
    return [say("scan.names", count=len(names), total=len(document["calls"]))] if names else []


def _tone(document: dict[str, Any]) -> Tone:
    counts = _counts(document)
    if counts["no counterpart"] or counts["no kernel"]:
        return "bad"
    return "open" if counts["unknown"] else "good"


def _scan_table(document: dict[str, Any], calls: list[dict[str, Any]]) -> Table:
    columns = table_columns(
        "scan.status:words scan.call:words scan.count:number scan.where:words scan.write:words "
        "scan.certainty:words:wide"
    )
    return Table(say("scan.title", target=document["target"]), columns, tuple(map(_scan_row, calls)))


def _scan_row(entry: dict[str, Any]) -> Row:
    cells = (
        word("scan_status", entry["status"]),
        entry["api"].removeprefix("torch."),
        format_number(entry["calls"]),
        _where(entry["places"]),
        _write(entry),
        word("certainty", entry["certainty"]),
    )
    return Row(cells, COUNTERPART_TONES.get(entry["status"], "plain"))


def _where(places: list[dict[str, Any]]) -> str:
    """The first place, and how many more there are."""
    first = places[0]
    text = say("scan.place", line=first["line"], module=first["module"])
    return say("scan.more_places", place=text, count=len(places) - 1) if len(places) > 1 else text


def _write(entry: dict[str, Any]) -> str:
    """What to write, and the settings that differ."""
    settings = [say("scan.setting", **setting) for setting in entry["settings"]]
    named = entry["counterpart"] if entry["status"] != "no kernel" or not entry["write"] else ""
    text = entry["write"] or named or say("scan.nothing_known")
    return say("scan.with_settings", text=text, settings=settings) if settings else text


def _chip(document: dict[str, Any]) -> list[Block]:
    """What the chip computes coarser, if that is known."""
    lines = tuple(
        say("scan.on_chip", api=one["api"].removeprefix("torch."), chip=one["chip"])
        for one in document["calls"]
        if one["chip"]
    )
    return [Lines(say("scan.chip_title", target=document["target"]), lines, "open")] if lines else []


# Two trainings' hyperparameters shown: the verdict first, then what differs in the order of what it does to a loss.

SIDES = ("reference", "candidate")


def hyperparameters_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.hyperparameters` document; `show_all` shows equal ones, and what changes no loss, too."""
    blocks: list[Block] = [verdict_block(document["verdict"])]
    blocks += _compared(document["differences"], "title", tone="bad")
    blocks += _reasons(document["differences"])
    blocks += _compared(document["unsettled"], "unsettled", reasons=True)
    blocks += _one_sided(document["one_sided"], show_all=show_all)
    if show_all:
        blocks += _compared(document["without_effect"], "without_effect") + _compared(document["equal"], "equal")
    elif document["without_effect"]:
        blocks.append(Lines("", (say("hyperparameters.hidden", count=len(document["without_effect"])),), "quiet"))
    return [*blocks, _settings_sides(document)]


def _compared(rows: list[dict[str, Any]], title: str, *, tone: str = "plain", reasons: bool = False) -> list[Block]:
    if not rows:
        return []
    columns = (
        Column(say("hyperparameters.parameter"), "words"),
        *(Column(word("word", side), "words") for side in SIDES),
        Column(say("hyperparameters.why") if reasons else say("hyperparameters.where"), "words"),
    )
    shown = tuple(
        Row(
            (phrase(one["title"]), *(_value(one[side]) for side in SIDES), one["why"] if reasons else _places(one)),
            "bad" if tone == "bad" else "plain",
        )
        for one in rows
    )
    return [Table(say(f"hyperparameters.{title}"), columns, shown)]


def _value(side: dict[str, Any]) -> str:
    if side["origin"] == "not given":
        return say("hyperparameters.not_given")
    if side["origin"] == "default" and not side["how"]:
        return say("hyperparameters.default", value=side["value"])
    return say("hyperparameters.derived", value=side["value"], how=side["how"]) if side["how"] else str(side["value"])


def _places(one: dict[str, Any]) -> str:
    """Both places without their folders; those, and the address of a default, stand in the document."""
    shown = [Path(one[side]["place"]).name for side in SIDES if one[side]["origin"] != "default"]
    return ", ".join(dict.fromkeys(shown))


def _reasons(rows: list[dict[str, Any]]) -> list[Block]:
    lines = {one["why"]: one["title"] for one in reversed(rows)}
    shown = tuple(say("hyperparameters.why_line", title=title, why=why) for why, title in reversed(lines.items()))
    return [Lines(say("hyperparameters.reasons"), shown)] if shown else []


def _one_sided(rows: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    shown = [row for row in rows if row["known"] or show_all]
    unknown = [row["side"] for row in rows if not row["known"]]
    columns = table_columns(
        "hyperparameters.parameter:words hyperparameters.side hyperparameters.value:words hyperparameters.where:words"
    )
    cells = tuple(
        Row((phrase(row["title"]), word("word", row["side"]), _value(row["value"]), Path(row["value"]["place"]).name))
        for row in shown
    )
    blocks: list[Block] = [Table(say("hyperparameters.one_sided"), columns, cells)] if cells else []
    if unknown and not show_all:
        counts = {side: unknown.count(side) for side in SIDES}
        blocks.append(Lines("", (say("hyperparameters.more_names", **counts),), "quiet"))
    return blocks


def _settings_sides(document: dict[str, Any]) -> Table:
    columns = tuple(Column(say(f"hyperparameters.{name}"), "words") for name in ("file", "form", "trainer", "settings"))
    rows = []
    for one in (document[side] for side in SIDES):
        trainer = one["trainer"] or say("hyperparameters.unknown_trainer")
        rows.append(Row((one["label"], ", ".join(one["formats"]), trainer, f"{one['settings']:,}")))
    return Table(say("hyperparameters.sides"), columns, tuple(rows))


# A reproducer shown: which layer of both sides, what the candidate's returns, and the two commands to run.


def repro_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.repro` document."""
    folder = document["folder"]
    commands = tuple(f"python {folder}/{document[side]['script']}" for side in ("reference", "candidate"))
    inputs_note = say("repro.own_inputs", names=listed(document["own_inputs"]))
    return [
        Facts(say("repro.title"), (*_repro_sides(document), (say("repro.folder"), folder))),
        _outputs(document["outputs"]),
        *([Lines("", (inputs_note,), "open")] if document["own_inputs"] else []),
        Lines(say("repro.commands"), commands, commands=True),
    ]


def _repro_sides(document: dict[str, Any]) -> list[tuple[str, str]]:
    facts = []
    for side in ("reference", "candidate"):
        layer = document[side]
        made = say("repro.constructor") if layer["built_by"] == "constructor" else say("repro.factory", **layer)
        name = f"{layer_name(layer['layer'], layer['call'])}  ({layer['class_name']})"
        facts.append((word("word", side), listed([name, made])))
    return facts


def _outputs(outputs: list[dict[str, Any]]) -> Table:
    columns = table_columns("repro.output word.shape forward.max_abs:number forward.relative_l2:number")
    return Table(say("repro.outputs"), columns, tuple(map(_output, outputs)))


def _output(output: dict[str, Any]) -> Row:
    shapes = dict.fromkeys(format_shape(output[f"{side}_shape"]) for side in ("reference", "candidate"))
    measured = output["measurement"] or {}
    figures = (format_number(measured.get(key)) for key in ("max_abs", "relative_l2"))
    return Row((output["name"], " | ".join(shapes), *figures))


# Advice on a slow training shown: each piece with its evidence and lines to paste, the gap, then what was read.

LEVEL_TONES: dict[str, Tone] = {"error": "bad", "warning": "open", "note": "quiet"}
IN_MS = 1e3  # format: seconds are shown in milliseconds


def advise_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.advise` document; `show_all` shows notes and all parts of a step, too."""
    shown = [one for one in document["advice"] if show_all or one["level"] != "note"]
    hidden = len(document["advice"]) - len(shown)
    blocks: list[Block] = [_advice_block(number, one) for number, one in enumerate(shown, 1)]
    if hidden:
        blocks.append(Lines("", (say("advise.notes_hidden", count=hidden),), "quiet"))
    blocks += [_gap(document["gap"], show_all=show_all)] if document["gap"] else []
    sides = [document[side] for side in SIDES if document[side] is not None]
    blocks += [] if document["gap"] else [_step_parts(side, show_all=show_all) for side in sides if side["parts"]]
    blocks.append(_read_files(sides))
    if document["unread"]:
        unread = document["unread"] if show_all else document["unread"][:LIST_LINES]
        blocks.append(Lines(say("advise.unread"), tuple(unread), "quiet"))
    notes = (*document["notes"], say("advise.rules", count=document["rules"]))
    verdict = document["verdict"]
    outcome = word("advise_outcome", verdict["outcome"])
    closing = say("advise.line", outcome=outcome, reason=verdict["reason"])
    return [*blocks, Lines("", notes, "quiet"), Lines("", (closing,), TONES[str(verdict["outcome"])])]


def _advice_block(number: int, entry: dict[str, Any]) -> Lines:
    cost = ""
    if entry["share"] is not None and entry["seconds"] is not None:
        cost = say("advise.cost", seconds=as_float(entry["seconds"]), share=as_float(entry["share"]))
    level, title = word("advise_level", entry["level"]), phrase(entry["title"])
    saved = f"{as_float(entry['saved']):.0%}" if entry["saved"] else ""
    lines = [
        say("advise.shown_at", told=entry["told"], place=entry["place"], subject=entry["subject"]),
        *([say("advise.more_places", places=entry["places"])] if entry["places"] else []),
        say("advise.change", change=entry["change"]),
        say("advise.brings", brings=phrase(entry["brings"]), saved=saved),
        say("advise.check", check=phrase(entry["check"])),
    ]
    head = say("advise.head", number=number, level=level, title=title, cost=cost)
    return Lines(head, tuple(lines), LEVEL_TONES[entry["level"]])


def _part_name(part: dict[str, Any]) -> str:
    kind = word("advise_part", part["kind"])
    if not part["operator"]:
        return kind
    return say("advise_part.of_operator", part=kind, operator=word("advise_operator", part["operator"]))


def _gap(gap: dict[str, Any], *, show_all: bool) -> Table:
    columns = table_columns(
        "advise.part:words advise.reference:number advise.candidate:number advise.difference:number "
        "advise.of_gap:number advise.dearest:words"
    )
    parts = gap["parts"] if show_all else gap["parts"][:LIST_LINES]
    rows = tuple(map(_gap_row, parts))
    difference = as_float(gap["candidate"]) - as_float(gap["reference"])
    note = say("advise.gap_note", explained=as_float(gap["explained"]), gap=difference * IN_MS)
    return Table(say("advise.gap_title"), columns, rows, note)


def _gap_row(part: dict[str, Any]) -> Row:
    before, after = as_float(part["reference"]), as_float(part["candidate"])
    figures = (format_number(seconds * IN_MS) for seconds in (before, after, after - before))
    share = f"{as_float(part['share']):.0%}"
    return Row((_part_name(part), *figures, share, part["example"]), "bad" if as_float(part["share"]) > 0 else "plain")


def _step_parts(side: dict[str, Any], *, show_all: bool) -> Table:
    total = sum(as_float(part["seconds"]) for part in side["parts"])
    columns = table_columns("advise.part:words advise.parts_ms:number advise.parts_share:number advise.dearest:words")
    rows = []
    for part in side["parts"] if show_all else side["parts"][:LIST_LINES]:
        seconds = as_float(part["seconds"])
        share = f"{seconds / total:.0%}" if total else ""
        rows.append(Row((_part_name(part), format_number(seconds * IN_MS), share, part["example"])))
    return Table(say("advise.parts_title", label=side["label"]), columns, tuple(rows))


def _read_files(sides: Sequence[dict[str, Any]]) -> Table:
    columns = table_columns("advise.file:path advise.form:words advise.steps:number advise.covers:number")
    rows = []
    for one in [file for side in sides for file in side["files"]]:
        seconds = "" if one["seconds"] is None else format_number(as_float(one["seconds"]))
        steps = "" if one["steps"] is None else format_number(one["steps"])
        rows.append(Row((one["file"], one["form"], steps, seconds)))
    return Table(say("advise.read"), columns, tuple(rows))
