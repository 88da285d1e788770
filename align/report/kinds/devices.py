"""What a chip is expected to do to a model: the layers most at risk, what overflows, the rules with their sources."""

from __future__ import annotations

from math import log2
from typing import Any

from align.core.traces import capture_key
from align.report.blocks import (
    Block,
    Column,
    Lines,
    Row,
    Table,
    findings_blocks,
    format_number,
    layer_name,
    verdict_block,
)
from align.report.judged_run import relative_error
from align.report.thresholds import MOST_AT_RISK, NAMES_ON_A_LINE
from align.words.catalogue import say, word
from align.words.message_words import first_few


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
    columns = (
        Column(say("emulation.layer"), "path"),
        Column(say("emulation.operators"), "words"),
        Column(say("emulation.largest"), "number"),
        Column(say("emulation.smallest"), "number"),
        Column(say("emulation.flushed"), "number"),
    )
    rows = tuple(
        Row(
            (
                one["module"] or say("emulation.output"),
                one["operator"],
                format_number(one["largest"]),
                format_number(one["smallest"]),
                _share(one["flushed"]),
            )
        )
        for one in scales["layers"][:MOST_AT_RISK]
    )
    shares = {key: _share(scales[key]) for key in ("flushed", "flushed_unscaled")}
    bounds = {key: round(log2(scales[key])) for key in ("lowest", "highest")}
    line = say("emulation.scale_line", highest=scales["highest"])
    return [
        Table(say("emulation.gradients", loss=scales["loss"]), columns, rows),
        Lines("", (say("emulation.scales", **bounds, **shares), line)),
    ]


def _share(share: float) -> str:
    return f"{format_number(100 * share)} %"


def _keeping(rules: list[dict[str, Any]]) -> list[Block]:
    """Lines that keep operators in float32, if any do."""
    lines = tuple(dict.fromkeys(one["write"] for one in rules if one["write"]))
    return [Lines(say("emulation.keeps"), lines, commands=True)] if lines else []


def _layers(document: dict[str, Any], *, show_all: bool) -> Table:
    by_key = {capture_key(one["module"], one["call"], one["output"]): one for one in document["layers"]}
    at_risk = [by_key[key] for key in document["at_risk"][:MOST_AT_RISK] if key in by_key]
    outputs = [one for one in document["layers"] if not one["module"] and one not in at_risk]
    rows = document["layers"] if show_all else [*at_risk, *outputs]
    columns = (
        Column(say("emulation.layer"), "path"),
        Column(say("emulation.class"), wide=True),
        Column(say("emulation.operators"), "words"),
        Column(say("emulation.expected"), "number"),
        Column(say("emulation.alone"), "number"),
        Column(say("emulation.worst"), "number", wide=True),
    )
    title = say("emulation.all" if show_all else "emulation.title", **_target(document))
    return Table(title, columns, tuple(_row(one) for one in rows), say("emulation.note"))


def _row(one: dict[str, Any]) -> Row:
    found, alone = one["accumulated"], one["alone"]
    name = layer_name(one["module"], one["call"], one["output"]) if one["module"] else say("emulation.output")
    overflows = bool(found and found["non_finite_mismatch"])
    cells = (
        name,
        one["class_name"],
        ", ".join(one["operators"]),
        relative_error(found),
        relative_error(alone) if one["module"] else "",
        format_number(found["max_abs"]) if found else "",
    )
    return Row(cells, "bad" if overflows else "plain")


def _rules(rules: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("emulation.rule"), "words"),
        Column(say("emulation.class_of"), "words"),
        Column(say("emulation.computes"), "words"),
        Column(say("emulation.calls"), "number"),
        Column(say("emulation.certainty"), "words"),
    )
    rows = tuple(
        Row(
            (
                one["entry"],
                one["operator_class"],
                say("emulation.computed", computes=one["computes"], result=one["result"]),
                format_number(one["calls"]),
                one["certainty"],
            )
        )
        for one in rules
    )
    return Table(say("emulation.rules"), columns, rows)


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
    columns = (
        Column(say("switches.switch")),
        Column(say("switches.value")),
        Column(say("switches.widest")),
        Column(say("switches.alone"), "number"),
        Column(say("switches.factor"), "number"),
        Column(say("switches.matters")),
    )
    rows = tuple(
        Row(
            (
                one["switch"],
                one["value"],
                one["widest"],
                format_number(one["alone"]),
                format_number(one["alone_factor"]),
                say("switches.yes") if one["matters"] else "",
            ),
            "bad" if one["matters"] else "plain",
        )
        for one in document["switches"]
    )
    return Table(say("switches.title", **document), columns, rows, say("switches.note", judged=judged))


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
    ran = first_few(modules, len(modules) if show_all else NAMES_ON_A_LINE)
    return line + (say("bisect.modules", modules=ran) if modules else "")


def _named(point: dict[str, Any]) -> str:
    return f"{_short(point['reference'])} -> {_short(point['candidate'])}"


def _short(key: str) -> str:
    """A first call is not numbered."""
    return key.replace("#0", "", 1)


def _points(points: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("word.reference"), "path"),
        Column(say("word.candidate"), "path"),
        Column(say("bisect.origin")),
        Column(say("bisect.state")),
    )
    rows = tuple(
        Row(
            (
                _short(point["reference"]),
                _short(point["candidate"]),
                word("point_origin", point["origin"]),
                word("point_state", point["state"]),
            ),
            "open" if point["state"] in ("doubtful", "dropped") else "plain",
        )
        for point in points
    )
    return Table(say("bisect.points"), columns, rows)


def _bisection_notes(points: list[dict[str, Any]], runs: int) -> list[str]:
    named = {
        state: ", ".join(_named(point) for point in points if point["state"] == state)
        for state in ("dropped", "doubtful")
    }
    notes = (say(f"bisect.{state}", points=own) for state, own in named.items() if own)
    return [say("bisect.runs", points=format_number(len(points)), runs=format_number(runs)), *notes]
