"""The first NaN, Inf or explosion of a training, shown: what was found, why, what to write, the figures before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import TONES, Block, Column, Facts, Lines, Row, Table, findings_blocks
from align.report.rendering.format_values import format_number
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def nonfinite_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.nonfinite` document."""
    event = document["event"]
    blocks: list[Block] = []
    if event is not None:
        blocks.append(_event(event))
    if document["before"]:
        blocks.append(_before(document["shown_steps"], document["before"]))
    if document["near"]:
        blocks.append(_near(document["near"]))
    blocks += findings_blocks(document["findings"])
    seen = (
        (say("nonfinite.steps"), format_number(document["steps"])),
        (say("nonfinite.tensors"), format_number(document["tensors"])),
    )
    blocks.append(Facts(document["label"], seen, "bad" if event is not None else "good"))
    return [*blocks, _verdict(document["verdict"])]


def _verdict(verdict: dict[str, Any]) -> Lines:
    """What was looked for and found; one training alone is aligned with nothing."""
    return Lines("", (verdict["reason"], say("nonfinite.one_training")), TONES[str(verdict["outcome"])])


def _event(event: dict[str, Any]) -> Facts:
    part = word("nonfinite_part", event["part"])
    facts = [
        (say("nonfinite.reason"), event["reason"]),
        (say("nonfinite.remedy"), event["remedy"]),
        (say("nonfinite.place"), _place(event)),
        (say("nonfinite.part"), f"{part} {event['tensor']}".strip()),
        (say("nonfinite.weights"), event["weights"]),
    ]
    if event["operator"]:
        facts.insert(3, (say("nonfinite.operator"), f"{event['operator']}  {event['line']}".strip()))
    if event["samples"]:
        facts.append((say("nonfinite.samples"), ", ".join(map(str, event["samples"]))))
    if event["loss_scale"] is not None:
        facts.append((say("nonfinite.scale"), format_number(event["loss_scale"])))
    if event["better_scale"] is not None:
        facts.append((say("nonfinite.better"), format_number(event["better_scale"])))
    return Facts(say("nonfinite.title"), tuple(facts), "bad")


def _place(event: dict[str, Any]) -> str:
    """The layer, or what lies outside of all."""
    if event["direction"] == "step":
        return word("nonfinite_direction", "step")
    return str(event["layer"] or say("nonfinite.outside"))


def _before(steps: Sequence[int], rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("nonfinite.layer"), "path"),
        Column(say("nonfinite.operator")),
        *(Column(say("nonfinite.step", step=step), "number") for step in steps),
    )
    made = tuple(
        Row(
            (
                one["layer"] or say("nonfinite.outside"),
                one["operator"],
                *("" if rms is None else format_number(rms) for rms in one["rms"]),
            ),
            "bad" if place == len(rows) - 1 else "plain",
        )
        for place, one in enumerate(rows)
    )
    return Table(say("nonfinite.before"), columns, made)


def _near(rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        Column(say("nonfinite.layer"), "path"),
        Column(say("nonfinite.operator")),
        Column(say("nonfinite.direction")),
        Column(say("nonfinite.largest"), "number"),
        Column(say("nonfinite.better"), "number"),
    )
    made = tuple(
        Row(
            (
                one["layer"] or say("nonfinite.outside"),
                one["operator"],
                word("nonfinite_direction", one["direction"]),
                format_number(one["largest"]),
                "" if one["better_scale"] is None else format_number(one["better_scale"]),
            ),
            "quiet",
        )
        for one in rows
    )
    return Table(say("nonfinite.near"), columns, made)
