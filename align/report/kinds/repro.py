"""A reproducer shown: which layer of both sides, what the candidate's returns, and the two commands to run."""

from __future__ import annotations

from typing import Any

from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table
from align.report.rendering.format_values import format_number, format_shape, layer_name
from align.words.catalogue import say, word


def repro_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:  # noqa: ARG001
    """Show a `mindalign.repro` document."""
    folder = document["folder"]
    commands = tuple(f"python {folder}/{document[side]['script']}" for side in ("reference", "candidate"))
    own = say("repro.own_inputs", names=", ".join(document["own_inputs"]))
    return [
        Facts(say("repro.title"), (*_sides(document), (say("repro.folder"), folder))),
        _outputs(document["outputs"]),
        *([Lines("", (own,), "open")] if document["own_inputs"] else []),
        Lines(say("repro.commands"), commands, commands=True),
    ]


def _sides(document: dict[str, Any]) -> list[tuple[str, str]]:
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
