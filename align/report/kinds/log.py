"""What was understood of one loss log, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.kinds.loss import window_text
from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table
from align.report.rendering.format_values import format_number
from align.report.thresholds import LOG_ITEMS_SHOWN, LOSS_DIGITS, METRICS_SHOWN
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def log_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.log` document: how the log counts, what its values are, where they are missing or repeated."""
    facts = (
        (say("log.format"), document["format"]),
        (say("log.metric"), document["metric"]),
        (say("log.counting"), _counting(document)),
        (say("log.range"), _range(document)),
        (say("loss.window"), window_text(document["window"])),
        (
            say("log.values"),
            " … ".join(format_number(document[key], LOSS_DIGITS) for key in ("first_value", "last_value")),
        ),
        (
            say("loss.resolution"),
            format_number(document["resolution"]) if document["resolution"] else say("loss.all_digits"),
        ),
        (say("log.gaps"), _listed([f"{before} … {after}" for before, after in document["gaps"]])),
        (say("log.duplicates"), format_number(document["duplicates"])),
        (say("log.non_finite"), _listed([str(step) for step in document["non_finite_steps"]])),
        (say("log.skipped"), _listed([_skipped(*run) for run in document["skipped_steps"]])),
        (say("log.ignored"), format_number(document["ignored_lines"])),
    )
    notes: list[Block] = [Lines(say("loss.notes"), tuple(document["notes"]))] if document["notes"] else []
    metrics, more = document["metrics"][:METRICS_SHOWN], len(document["metrics"]) - METRICS_SHOWN
    rest: list[Block] = [Lines("", (say("log.more_metrics", count=format_number(more)),))] if more > 0 else []
    return [Facts(document["label"], facts), _metrics(metrics), *rest, *notes]


def _metrics(metrics: list[dict[str, Any]]) -> Table:
    columns = (
        Column(say("log.metric")),
        Column(say("log.values_of_it"), "number"),
        Column(say("loss.window")),
        Column(say("log.phase")),
    )
    rows = tuple(
        Row((one["name"], format_number(one["points"]), window_text(one["window"]), word("phase", one["phase"])))
        for one in metrics
    )
    return Table(say("log.metrics"), columns, rows)


def _counting(document: dict[str, Any]) -> str:
    length = document["steps_per_epoch"]
    epoch = say("log.epoch_length", steps=format_number(length)) if length is not None else ""
    return say("log.counted", counting=word("counting", document["counting"]), base=document["base"]) + epoch


def _range(document: dict[str, Any]) -> str:
    figures = {key: format_number(document[key]) for key in ("points", "first_step", "last_step", "cadence")}
    return say("log.points", axis=word("axis", document["axis"]), **figures)


def _skipped(first: int, last: int, count: int) -> str:
    span = str(first) if first == last else f"{first} … {last}"
    return span if count > last - first else say("log.some_of", count=format_number(count), span=span)


def _listed(items: Sequence[str]) -> str:
    """List the first few and count all; "none" for nothing."""
    if not items:
        return say("log.none")
    shown = ", ".join(items[:LOG_ITEMS_SHOWN])
    return shown if len(items) <= LOG_ITEMS_SHOWN else say("log.more", shown=shown, count=format_number(len(items)))
