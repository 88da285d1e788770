"""Two trainings' hyperparameters shown: the verdict first, then what differs in the order of what it does to a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from align.report.rendering.blocks import Block, Column, Lines, Row, Table, verdict_block
from align.words.catalogue import say, word

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
    return [*blocks, _sides(document)]


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


def _sides(document: dict[str, Any]) -> Table:
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
