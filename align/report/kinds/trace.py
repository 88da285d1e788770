"""A trace folder shown: what was run, the tree of calls with the figures of what they returned, and where it ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from align.report.rendering.blocks import Block, Column, Facts, Lines, Row, Table
from align.report.rendering.format_values import format_bytes, format_number, format_shape, layer_name
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator

INDENT = "  "
FIGURES = ("min", "max", "mean", "rms")
FURTHER = ("magnitude", "rounding")


def trace_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.trace` document; `show_all` shows where calls came from and what they were given too."""
    return [
        _facts(document),
        *([_tree(document["calls"], show_all=show_all)] if document["calls"] else []),
        _end(document),
    ]


def _facts(document: dict[str, Any]) -> Facts:
    head = document["head"] or {}
    facts = [(say("trace.folder"), document["folder"])]
    if head:
        inputs = (f"{name} {one['dtype']}{one['shape']}" for name, one in head["inputs"].items())
        run = {key: head[key] for key in ("mode", "direction", "seed")}
        facts += [
            (say("trace.model"), f"{head['side']} ({head['framework']})"),
            (say("trace.mode"), say("trace.mode_fact", **run)),
            (say("trace.inputs"), ", ".join(inputs)),
        ]
    tensors = say(
        "trace.tensors_fact", tensors=format_number(document["tensors"]), size=format_bytes(document["nbytes"])
    )
    noise = (
        say("trace.noise_fact", count=format_number(document["noise"]))
        if document["noise"]
        else document["noise_missing"]
    )
    facts += [(say("trace.tensors"), tensors), (say("trace.noise"), noise)]
    facts += [(say("trace.parameters"), format_number(document["parameters"]))]
    return Facts(say("trace.title"), tuple(facts))


def _tree(calls: list[dict[str, Any]], *, show_all: bool) -> Table:
    tensors = [tensor for call in calls for tensor in call["outputs"]]
    further = tuple(name for name in FURTHER if any(_further(tensor, name) is not None for tensor in tensors))
    columns = (
        Column(say("trace.call"), "words"),
        Column(say("trace.class")),
        Column(say("word.shape")),
        Column(say("word.dtype"), wide=not show_all),
        *(Column(say(f"trace.{name}"), "number") for name in FIGURES),
        *(Column(say(f"trace.{name}"), "number") for name in further),
        Column(say("trace.non_finite"), "number"),
        Column(say("trace.place"), "path", wide=not show_all),
    )
    return Table(say("trace.calls"), columns, tuple(row for call in calls for row in _rows(call, further)))


def _further(tensor: dict[str, Any], name: str) -> Any:
    """A figure that only some traces have."""
    return (tensor if name == "rounding" else tensor["statistics"] or {}).get(name)


def _rows(call: dict[str, Any], further: tuple[str, ...]) -> Iterator[Row]:
    """One row a tensor; a call that returned none has one too."""
    path = re.split(r"[./]", call["module"])[-1] if call["depth"] else call["module"]
    name = INDENT * call["depth"] + layer_name(path, call["call"])
    if not call["outputs"]:
        note = "" if call["returned"] else say("trace.not_returned")
        yield Row(
            (name, call["class_name"], note, *[""] * (len(FIGURES) + len(further) + 2), call["place"]),
            "plain" if call["returned"] else "bad",
        )
    for place, tensor in enumerate(call["outputs"]):
        first = (name, call["class_name"]) if place == 0 else ("", "")
        output = f"{tensor['name']} " if tensor["name"] else ""
        figures = tensor["statistics"] or {}
        shown = tuple(format_number(figures.get(key)) for key in FIGURES)
        odd = figures.get("nan", 0) + figures.get("inf", 0)
        cells = (
            *first,
            output + format_shape(tensor["shape"]),
            tensor["dtype"],
            *shown,
            *(format_number(_further(tensor, key)) for key in further),
            format_number(odd) if odd else "",
            call["place"],
        )
        yield Row(cells, "bad" if odd else "plain")


def _end(document: dict[str, Any]) -> Lines:
    if document["complete"]:
        uncalled = document["uncalled"]
        said = say("trace_finding.uncalled", count=len(uncalled), modules=uncalled, share=document["uncalled_share"])
        return Lines("", (said,), "open") if uncalled else Lines("", (say("trace.complete"),), "good")
    running = document["running"]
    lines = [say("trace.ends_in", module=layer_name(running[-1])) if running else say("trace.cut_short")]
    lines += [say("trace.running", modules=" > ".join(map(layer_name, running)))] if len(running) > 1 else []
    lines += [document["failure"]] if document["failure"] else []
    return Lines("", tuple(lines), "bad")
