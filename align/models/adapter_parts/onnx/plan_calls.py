"""The calls of modules that a run of the graph's nodes in their order is made of.

A call begins before its first node and ends after its last one. A module that holds others runs once from its first
node to its last, unless nodes of a module beside it come in between; one that holds none is called anew after each gap.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.checkpoints.onnx_graph import OnnxGraph, OnnxNode
    from align.models.adapter_parts.onnx.module_scopes import Scope


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a module by the numbers of its first and last node, with the values that go in and come out."""

    path: str
    first: int
    last: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls that begin before each node, outermost first, and when each value is used last."""

    begins: Mapping[int, Sequence[PlannedCall]]
    done_after: Mapping[int, Sequence[str]]


def plan_calls(graph: OnnxGraph, scopes: Sequence[Scope | None], constants: Iterable[str]) -> Plan:
    """Plan a run; `constants` are the names of initializers."""
    moving = _moving(graph)
    ways = [
        scope.paths if scope and _is_moving(node, moving) else None
        for node, scope in zip(graph.nodes, scopes, strict=True)
    ]
    spans = _nested(_spans(ways))
    reach = _reach(graph)
    calls = [_call(graph, span, moving, reach) for span in spans]
    calls = [call for call in calls if call.outputs]
    begins: dict[int, list[PlannedCall]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.first, -call.last, len(call.path))):
        begins[call.first].append(call)
    return Plan(begins, _last_uses(graph, calls, constants))


def _moving(graph: OnnxGraph) -> set[str]:
    """Names of the values that depend on the inputs."""
    moving = {one.name for one in graph.inputs}
    for node in graph.nodes:
        if _is_moving(node, moving):
            moving.update(node.outputs)
    return moving


def _is_moving(node: OnnxNode, moving: set[str]) -> bool:
    return any(name in moving for name in node.needs)


Span = tuple[str, int, int]


def _spans(ways: Sequence[tuple[str, ...] | None]) -> list[Span]:
    """Where each module runs, by its path and the numbers of the first and last node."""
    found: list[Span] = []
    running: dict[str, list[int]] = {}  # first and last node of the call that runs, by path
    parents = {path for way in ways if way for path in way[:-1]}
    apart: dict[str, bool] = {}  # whether a module beside it, or for one without inner ones any other node, came since
    for number, way in enumerate(ways):
        if way is None:
            continue
        for path in running:
            if path not in way:
                within = set(way) <= set(_around(path)) and path in parents
                apart[path] = apart[path] or not within
        for path in way:
            if path in running and not apart[path]:
                running[path][1] = number
            else:
                if path in running:
                    found.append((path, *running[path]))  # type: ignore[arg-type]
                running[path], apart[path] = [number, number], False
    found += [(path, first, last) for path, (first, last) in running.items()]
    return found


def _around(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _nested(spans: Sequence[Span]) -> list[Span]:
    """Those that lie one inside the other or apart: what only overlaps is no call that could be recorded."""
    kept: list[Span] = []
    open_spans: list[Span] = []
    for span in sorted(spans, key=lambda one: (one[1], -one[2], len(one[0]))):
        while open_spans and open_spans[-1][2] < span[1]:
            open_spans.pop()
        if not open_spans or span[2] <= open_spans[-1][2]:
            kept.append(span)
            open_spans.append(span)
    return kept


def _reach(graph: OnnxGraph) -> dict[str, int]:
    """The number of the last node that uses each value; outputs of the graph are used behind all nodes."""
    last = {name: number for number, node in enumerate(graph.nodes) for name in node.needs}
    return last | dict.fromkeys(graph.outputs, len(graph.nodes))


def _call(graph: OnnxGraph, span: Span, moving: set[str], reach: Mapping[str, int]) -> PlannedCall:
    path, first, last = span
    inside = graph.nodes[first : last + 1]
    made = {name: None for node in inside for name in node.outputs if name in moving}
    used = dict.fromkeys(name for node in inside for name in node.needs if name in moving)
    outputs = tuple(name for name in made if reach.get(name, -1) > last)
    return PlannedCall(path, first, last, tuple(name for name in used if name not in made), outputs)


def _last_uses(graph: OnnxGraph, calls: Iterable[PlannedCall], constants: Iterable[str]) -> dict[int, list[str]]:
    last: dict[str, int] = {}
    for number, node in enumerate(graph.nodes):
        last |= dict.fromkeys((*node.outputs, *node.needs), number)
    for call in calls:
        for name in call.outputs:
            last[name] = max(last[name], call.last)
    kept = {*graph.outputs, *constants}
    done: dict[int, list[str]] = defaultdict(list)
    for name, number in last.items():
        if name and name not in kept:
            done[number].append(name)
    return done
