"""Two runs of one training step, shown: what was held against itself, and the first tensor that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table, findings_blocks, verdict_block
from align.report.rendering.format_values import format_number, format_percentage, format_shape
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def determinism_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.determinism` document; `show_all` lists what was set, too."""
    blocks: list[Block] = [Lines(say("determinism.settings"), tuple(document["settings"]))] if show_all else []
    for side in document["sides"]:
        if side["first"] is not None:
            blocks.append(_first(side))
        blocks.append(_parts(side))
    return [*blocks, *findings_blocks(document["findings"]), verdict_block(document["verdict"])]


def _first(side: dict[str, Any]) -> Facts:
    """The first tensor that differs, by how much, and why."""
    first = side["first"]
    share = say(
        "determinism.share",
        part=format_number(first["differing"]),
        whole=format_number(first["count"]),
        share=format_percentage(first["differing"], first["count"]),
    )
    facts = (
        (word("step_part", first["part"]), f"{first['name']}  {format_shape(first['shape'])}".strip()),
        (say("determinism.differing"), share),
        (say("determinism.max_abs"), _size(first)),
        (say("determinism.builds"), word("builds", side["builds"])),
        (say("determinism.cause"), side["reason"]),
    )
    return Facts(say("determinism.title", side=side["label"]), facts, "bad")


def _size(first: dict[str, Any]) -> str:
    if first["max_abs"] is None:
        return say("determinism.once")
    relative = "" if first["relative"] is None else say("determinism.relative", share=format_number(first["relative"]))
    return format_number(first["max_abs"]) + relative


def _parts(side: dict[str, Any]) -> Table:
    columns = (
        Column(say("determinism.part")),
        Column(say("determinism.tensors"), "number"),
        Column(say("determinism.differing"), "number"),
    )
    return Table(say("determinism.compared", side=side["label"]), columns, tuple(_rows(side["parts"])))


def _rows(parts: Sequence[dict[str, Any]]) -> list[Row]:
    return [
        Row(
            (
                word("step_parts", one["part"]),
                format_number(one["tensors"]),
                format_number(one["differing"]),
            ),
            "bad" if one["differing"] else "good",
        )
        for one in parts
    ]
