"""What a loss comparison tells beside its points: drift, events, the other metrics of the logs, and speed."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table
from align.report.rendering.format_values import NONE, format_number
from align.words.catalogue import say, word

LOSS_DIGITS = 6


def curve_blocks(document: dict[str, Any]) -> list[Block]:
    """Show what there is of them."""
    blocks: list[Block] = []
    if document["drift"]:
        blocks.append(_drift(document["drift"]))
    if document["events"]:
        blocks.append(Lines(say("loss.events"), tuple(_events(document["events"]))))
    if document["others"]:
        blocks.append(_others(document["others"]))
    if document["speed"]:
        blocks.append(_speed(document["speed"]))
    return blocks


def _drift(tests: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("loss.test"), "words"),
        Column(say("loss.statistic"), "number"),
        Column(say("loss.p_value"), "number"),
        Column(say("loss.level"), "number"),
        Column(say("loss.drifts")),
        Column(say("loss.slope"), "number"),
        Column(say("loss.assumption"), "words", wide=True),
    )
    rows = tuple(
        Row(
            (
                test["name"],
                *(format_number(test[key]) for key in ("statistic", "p_value", "level")),
                say("loss.drift_found" if test["drifts"] else "loss.no_drift"),
                format_number(test["slope"]),
                test["assumption"],
            ),
            "open" if test["drifts"] else "good",
        )
        for test in tests
    )
    return Table(say("loss.drift"), columns, rows)


def _events(events: list[dict[str, Any]]) -> list[str]:
    """Say for each kind and side how many events there are, and where the first is."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by_kind.setdefault(event_text(event), []).append(event)
    return [_event_line(text, found) for text, found in by_kind.items()]


def _event_line(text: str, found: list[dict[str, Any]]) -> str:
    first = found[0]
    value = (
        say("loss.event_value", value=format_number(first["value"], LOSS_DIGITS)) if first["value"] is not None else ""
    )
    step = format_number(first["step"])
    if len(found) == 1:
        return say("loss.event", event=text, step=step) + value
    return say("loss.event_many", event=text, step=step, count=format_number(len(found))) + value


def _others(others: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("loss.metric")),
        Column(say("loss.compared"), "number"),
        Column(say("loss.outside_count"), "number"),
        Column(say("loss.first_outside"), "number"),
        Column(say("loss.largest"), "number"),
        Column(say("loss.largest_at"), "number"),
    )
    rows = tuple(
        Row(
            (
                one["metric"],
                format_number(one["compared"]),
                format_number(one["compared"] - one["within"]),
                _steps(one["first_divergent_step"], one.get("last_divergent_step")),
                format_number(one["largest_difference"]),
                format_number(one["largest_at"]),
            ),
            "good" if one["within"] == one["compared"] else "bad",
        )
        for one in others
    )
    return Table(say("loss.others"), columns, rows)


def _steps(first: int | None, last: int | None) -> str:
    """Say from which step on a metric differs, and up to which if it agrees again."""
    return format_number(first) if last is None else f"{format_number(first)} … {format_number(last)}"


def _speed(speed: dict[str, Any]) -> Facts:
    sides = [speed["reference"], speed["candidate"]]
    both = [(say("loss.median"), "median"), (say("loss.tail"), "tail"), (say("loss.first_step"), "first_step")]
    facts = [
        (say("loss.ratio"), say("loss.times", ratio=format_number(speed["ratio"]))),
        *((label, " | ".join(_seconds(side[key]) for side in sides)) for label, key in both),
        (say("loss.data_share"), " | ".join(_share(side["data_share"]) for side in sides)),
        (say("loss.warm_up"), " | ".join(format_number(side["warm_up"]) for side in sides)),
        (say("loss.slow_in"), word("slow_in", speed["slow_in"])),
        *((say("loss.note"), note) for note in speed["notes"]),
    ]
    tone: Any = "plain" if speed["slow_in"] == "none" else "open"
    return Facts(say("loss.speed"), tuple(facts), tone)


def _seconds(value: float | None) -> str:
    return NONE if value is None else say("loss.seconds", value=format_number(value))


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.0%}"


def event_text(event: dict[str, Any]) -> str:
    """Say what an event is, and at which side."""
    side = f" ({word('word', event['side'])})" if event["side"] else ""
    return word("event", event["kind"]) + side
