"""Settings that differ shown: the gravest first, layers that differ only in their numbers in one row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike
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
    findings_blocks,
    format_bytes,
    format_number,
    format_shape,
    layer_name,
    verdict_block,
)
from align.words.catalogue import say, word

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
        Lines("", (say("lint.rules", **known),), "quiet"),
        verdict_block(document["verdict"]),
    ]


def _findings(findings: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    return [_lint_table(findings, show_all=show_all), _effects(findings)] if findings else []


def _not_compared(problems: Sequence[str]) -> list[Block]:
    return [Lines(say("lint.not_compared"), tuple(problems), "open")] if problems else []


def _lint_table(findings: list[dict[str, Any]], *, show_all: bool) -> Table:
    columns = (
        Column(say("lint.severity")),
        Column(say("word.reference"), "path"),
        Column(say("lint.setting"), "words"),
        Column(say("word.candidate"), "path"),
        Column(say("lint.setting"), "words"),
        Column(say("lint.change"), "words"),
    )
    if show_all:
        groups = [[finding] for finding in findings]
    else:
        alike = ((finding["reference"], tuple(finding.get(key) for key in ALIKE)) for finding in findings)
        groups = [[findings[place] for place in places] for _, places in fold_alike(alike)]
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
    columns = (Column(say("doctor.framework")), Column(say("doctor.facts")))
    rows = tuple(
        Row((name, ", ".join(f"{key} {value}" for key, value in facts.items()))) for name, facts in frameworks.items()
    )
    return Table(say("doctor.frameworks"), columns, rows)


def _switches(switches: list[dict[str, Any]], *, show_all: bool) -> list[Block]:
    shown = [one for one in switches if show_all or one["state"] in ("as wanted", "otherwise")]
    if not shown:
        return []
    columns = tuple(Column(say(f"doctor.{name}")) for name in ("name", "value", "wanted", "state"))
    rows = tuple(
        Row(
            (one["id"], one["value"] or NONE, one["wanted"], one["state"]),
            "open" if one["state"] == "otherwise" else "plain",
        )
        for one in shown
    )
    return [Table(say("doctor.switches"), columns, rows)]


def _packages(groups: list[dict[str, Any]]) -> list[Block]:
    lines = tuple(
        say(
            "doctor.package_line",
            missing=group["missing"],
            purpose=word("purpose", group["extra"]),
            install=group["install"],
        )
        for group in groups
    )
    return [Lines(say("doctor.packages"), lines, "quiet")] if lines else []


def _machine(machine: dict[str, Any]) -> Facts:
    shown = {name: str(value) for name, value in machine.items() if name not in ("memory", "disk")}
    sizes = {name: say("doctor.free", size=format_bytes(machine[name])) for name in ("memory", "disk")}
    return Facts(say("doctor.machine"), tuple({**shown, **sizes}.items()))


def _verdict(verdict: dict[str, Any]) -> Lines:
    """Whether this machine can compare: no port is aligned by that."""
    outcome = str(verdict["outcome"])
    line = say("verdict.line", outcome=word("doctor_outcome", outcome), reason=verdict["reason"])
    return Lines("", (line,), TONES[outcome])


# What to run after a crash, shown: each step with its lines to paste.


def crash_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.crash` document; `show_all` shows the sources too."""
    steps = tuple(
        say("crash.step", title=one["title"], shows=one["shows"], lines=one["lines"]) for one in document["steps"]
    )
    blocks: list[Block] = [Lines(say("crash.title", device=document["title"]), steps)]
    if show_all:
        facts = ({name: one[name] for name in ("id", "source", "certainty")} for one in document["steps"])
        blocks.append(Lines(say("crash.sources"), tuple(say("crash.source", **one) for one in facts), "quiet"))
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
    columns = (
        Column(say("scan.status"), "words"),
        Column(say("scan.call"), "words"),
        Column(say("scan.count"), "number"),
        Column(say("scan.where"), "words"),
        Column(say("scan.write"), "words"),
        Column(say("scan.certainty"), "words", wide=True),
    )
    return Table(say("scan.title", target=document["target"]), columns, tuple(map(_scan_row, calls)))


def _scan_row(one: dict[str, Any]) -> Row:
    cells = (
        one["status"],
        one["api"].removeprefix("torch."),
        format_number(one["calls"]),
        _where(one["places"]),
        _write(one),
        one["certainty"],
    )
    return Row(cells, COUNTERPART_TONES.get(one["status"], "plain"))


def _where(places: list[dict[str, Any]]) -> str:
    """The first place, and how many more there are."""
    first = places[0]
    text = say("scan.place", line=first["line"], module=first["module"])
    return say("scan.more_places", place=text, count=len(places) - 1) if len(places) > 1 else text


def _write(one: dict[str, Any]) -> str:
    """What to write, and the settings that differ."""
    settings = [say("scan.setting", **setting) for setting in one["settings"]]
    named = one["counterpart"] if one["status"] != "no kernel" or not one["write"] else ""
    text = one["write"] or named or say("scan.nothing_known")
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
            (
                one["title"],
                *(_value(one[side]) for side in SIDES),
                one["why"] if reasons else _places(one),
            ),
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
    shown = [one for one in rows if one["known"] or show_all]
    unknown = [one["side"] for one in rows if not one["known"]]
    columns = (
        Column(say("hyperparameters.parameter"), "words"),
        Column(say("hyperparameters.side")),
        Column(say("hyperparameters.value"), "words"),
        Column(say("hyperparameters.where"), "words"),
    )
    cells = tuple(
        Row((one["title"], word("word", one["side"]), _value(one["value"]), Path(one["value"]["place"]).name))
        for one in shown
    )
    blocks: list[Block] = [Table(say("hyperparameters.one_sided"), columns, cells)] if cells else []
    if unknown and not show_all:
        counts = {side: unknown.count(side) for side in SIDES}
        blocks.append(Lines("", (say("hyperparameters.more_names", **counts),), "quiet"))
    return blocks


def _settings_sides(document: dict[str, Any]) -> Table:
    columns = tuple(Column(say(f"hyperparameters.{name}"), "words") for name in ("file", "form", "trainer", "settings"))
    rows = tuple(
        Row(
            (
                one["label"],
                ", ".join(one["formats"]),
                one["trainer"] or say("hyperparameters.unknown_trainer"),
                f"{one['settings']:,}",
            )
        )
        for one in (document[side] for side in SIDES)
    )
    return Table(say("hyperparameters.sides"), columns, rows)


# A reproducer shown: which layer of both sides, what the candidate's returns, and the two commands to run.


def repro_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.repro` document."""
    folder = document["folder"]
    commands = tuple(f"python {folder}/{document[side]['script']}" for side in ("reference", "candidate"))
    own = say("repro.own_inputs", names=", ".join(document["own_inputs"]))
    return [
        Facts(say("repro.title"), (*_repro_sides(document), (say("repro.folder"), folder))),
        _outputs(document["outputs"]),
        *([Lines("", (own,), "open")] if document["own_inputs"] else []),
        Lines(say("repro.commands"), commands, commands=True),
    ]


def _repro_sides(document: dict[str, Any]) -> list[tuple[str, str]]:
    facts = []
    for side in ("reference", "candidate"):
        layer = document[side]
        made = say("repro.constructor") if layer["built_by"] == "constructor" else say("repro.factory", **layer)
        facts.append(
            (word("word", side), f"{layer_name(layer['layer'], layer['call'])}  ({layer['class_name']}), {made}")
        )
    return facts


def _outputs(outputs: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("repro.output")),
        Column(say("word.shape")),
        Column(say("forward.max_abs"), "number"),
        Column(say("forward.relative_l2"), "number"),
    )
    return Table(say("repro.outputs"), columns, tuple(map(_output, outputs)))


def _output(output: dict[str, Any]) -> Row:
    shapes = dict.fromkeys(format_shape(output[f"{side}_shape"]) for side in ("reference", "candidate"))
    measured = output["measurement"] or {}
    figures = (format_number(measured.get(key)) for key in ("max_abs", "relative_l2"))
    return Row((output["name"], " | ".join(shapes), *figures))
