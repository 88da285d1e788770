"""Rows of a forward comparison without a figure, and why: those that the table shows with a dash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.names.fold_names import fold_alike, fold_names
from align.report.rendering.blocks import Block, Lines
from align.report.rendering.format_values import format_number, layer_name
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES_SHOWN = 3
REASONS_SHOWN = 8


def reason_blocks(layers: Iterable[dict[str, Any]], *, show_all: bool) -> list[Block]:
    """A line a reason, with the names of its rows; nothing if every row was judged."""
    told = [(reason, _name(layer)) for layer in layers if (reason := _reason(layer))]
    groups = [
        (reason, [told[place][1] for place in places]) for reason, places in fold_alike((one, "") for one, _ in told)
    ]
    shown = groups if show_all else groups[:REASONS_SHOWN]
    lines = [
        say("forward.reason_line", names=_names(names, show_all=show_all), reason=reason) for (reason, names) in shown
    ]
    if rest := len(groups) - len(shown):
        lines.append(say("word.and_more", count=format_number(rest)))
    return [Lines(say("forward.not_comparable"), tuple(lines), "open")] if lines else []


def _reason(layer: dict[str, Any]) -> str:
    """Why a row has no figure; of one that is off, why it has none alone."""
    alone = layer.get("isolated") or {}
    if layer["outcome"] == "not comparable":
        return str(layer["note"] or alone.get("note", ""))
    is_open = layer["outcome"] == "not aligned" and alone.get("outcome") == "not comparable"
    return say("forward.alone_reason", reason=alone["note"]) if is_open and alone["note"] else ""


def _name(layer: dict[str, Any]) -> str:
    return layer_name(layer["reference"], layer["call"], layer["output"])


def _names(names: list[str], *, show_all: bool) -> str:
    folded: list[str] = [*fold_names(names)]
    shown = folded if show_all else folded[:NAMES_SHOWN]
    rest = len(folded) - len(shown)
    return ", ".join(shown) + (say("word.and_more", count=rest) if rest else "")
