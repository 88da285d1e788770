"""A dump of another tool as the tree of its calls."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from align.core.dtypes import numpy_dtype
from align.core.trace_metadata import TensorKind, TracedCall, TracedTensor, TraceSummary
from align.measure.tensor_statistics import summarize_tensor
from align.traces.dumped_side import read_dump
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.traces import DumpedTensor, ForeignDump


Groups = dict[tuple[str, int], "list[DumpedTensor]"]


def show_dump(path: Path) -> TraceSummary:
    """Read a dump; raises MissingFileError or DumpError. Figures are those of the tool, or of the tensors."""
    dump = read_dump(path)
    sizes = [prod(one.shape) * numpy_dtype(one.dtype).itemsize for one in dump.tensors if one.load]
    return TraceSummary(
        folder=str(dump.path),
        head=None,
        environment={"tool": dump.tool, "framework": dump.framework},
        complete=True,
        running=(),
        failure="",
        calls=tuple(_calls(dump)),
        tensors=len(dump.tensors),
        nbytes=sum(sizes),
        parameters=len({(one.module, one.item) for one in dump.tensors if one.part == "parameter"}),
        noise=0,
        noise_missing=say("noise_note.of_dump", tool=dump.tool),
    )


def _calls(dump: ForeignDump) -> Iterator[TracedCall]:
    groups: Groups = {}
    for one in dump.tensors:
        if one.part in ("output", "input"):
            groups.setdefault((one.module, one.call), []).append(one)
    for (module, call), own in _outer_first(groups):
        inputs = {one.item: TensorKind(one.shape, one.dtype) for one in own if one.part == "input"}
        outputs = tuple(_tensor(one) for one in own if one.part == "output")
        place = dump.places.get((module, call), "")
        yield TracedCall(module, call, own[0].class_name, own[0].depth, place, inputs, outputs, returned=True)


def _outer_first(groups: Groups) -> list[tuple[tuple[str, int], list[DumpedTensor]]]:
    """Calls before those inside of them; tools note a call when it ends."""
    ordered: list[tuple[tuple[str, int], list[DumpedTensor]]] = []
    for (module, call), own in groups.items():
        place = len(ordered)
        inside = (f"{module}.", f"{module}/") if module else ("",)
        while place and ordered[place - 1][1][0].depth > own[0].depth and ordered[place - 1][0][0].startswith(inside):
            place -= 1
        ordered.insert(place, ((module, call), own))
    return ordered


def _tensor(one: DumpedTensor) -> TracedTensor:
    told = summarize_tensor(one.load()) if one.load and one.statistics is None else one.statistics
    return TracedTensor(one.item, one.shape, one.dtype, told, prod(one.shape) if one.load else 0)
