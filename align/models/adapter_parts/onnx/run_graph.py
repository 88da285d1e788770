"""What a run of an ONNX graph is made of: its nodes, each run alone, and the calls of modules that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.protobuf import ELEMENT_TYPES, message, number_field
from align.core.align_sequences import grouped
from align.core.parameters import dtype_name, paths_around
from align.models.thresholds import SMALL_NODE_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.checkpoints.protobuf import OnnxGraph, OnnxNode
    from align.models.adapter_parts.onnx.name_parameters import Scope


# One node of an ONNX model run by onnxruntime, as a model of its own.
#
# A model that holds one node, whose inputs are all given, has nothing that could be optimised away or fused: each
# value is what the node's kernel makes of its inputs, as in a session with `ORT_DISABLE_ALL`. No initializer is
# copied into a session, and no more than one node's values are in it at a time; it keeps no arena.

PROVIDERS = ["CPUExecutionProvider"]
_QUIET = 4  # format: fatal ones only; what fails is raised as well


class OnnxNodeError(RuntimeError):
    """A node that onnxruntime cannot run, or not on these values."""


def run_node(graph: OnnxGraph, node: OnnxNode, values: Mapping[str, Any]) -> list[Any]:
    """Return what the node makes of `values`, by the names of `node.needs`, for each of its outputs that has a name.

    Raises OnnxNodeError naming the node, its operator and what it was given.
    """
    import onnxruntime

    given = {name: values[name] for name in node.needs}
    try:
        options = _options(_threads(given.values()))
        session = onnxruntime.InferenceSession(_model(graph, node, given), options, providers=PROVIDERS)
        return list(session.run(None, {name: _contiguous(value) for name, value in given.items()}))
    except _errors() as error:
        raise OnnxNodeError(_fault(graph, node, given, error)) from error


def environment() -> dict[str, str]:
    """The version of onnxruntime, and how much it optimises."""
    import onnxruntime

    return {"onnxruntime": onnxruntime.__version__, "optimisation": "disabled", "provider": PROVIDERS[0]}


def _model(graph: OnnxGraph, node: OnnxNode, given: Mapping[str, Any]) -> bytes:
    inputs = b"".join(
        message(11, message(1, name.encode()) + message(2, _type(value))) for name, value in given.items()
    )
    outputs = b"".join(message(12, message(1, name.encode())) for name in node.outputs if name)
    return graph.head + message(7, message(1, graph.node_bytes(node)) + message(2, b"node") + inputs + outputs)


def _type(value: Any) -> bytes:
    if isinstance(value, list):
        return message(4, message(1, _type(value[0] if value else np.zeros(0, np.float32))))
    dtype = dtype_name(value.dtype)
    if dtype not in ELEMENT_TYPES:
        raise TypeError(say("onnx_model.dtype", dtype=dtype))
    return message(1, number_field(1, ELEMENT_TYPES[dtype]))


def _contiguous(value: Any) -> Any:
    return value if isinstance(value, list) else np.require(value, requirements=["C", "A"])


def _threads(values: Iterable[Any]) -> int:
    """One thread for little work, which ends before threads would have started; 0 for as many as there are cores."""
    return 0 if sum(getattr(value, "nbytes", 0) for value in values) > SMALL_NODE_BYTES else 1


@cache
def _options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = _QUIET
    options.add_session_config_entry("session.disable_prepacking", "1")
    return options


@cache
def _errors() -> tuple[type[Exception], ...]:
    """What onnxruntime raises: its classes have no base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = (one for one in vars(state).values() if isinstance(one, type) and issubclass(one, Exception))
    return (RuntimeError, ValueError, TypeError, *own)


def _fault(graph: OnnxGraph, node: OnnxNode, given: Mapping[str, Any], error: BaseException) -> str:
    version = graph.opsets.get(node.domain, graph.opsets.get("", 0))
    shown = [_shown(name, value) for name, value in given.items()]
    said = " ".join(str(error).split())
    return say("onnx_model.node_failed", node=str(node), opset=version, given=shown, said=said)


def _shown(name: str, value: Any) -> str:
    return f"{name} {value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else name


# The calls of modules that a run of the graph's nodes in their order is made of.
#
# A call begins before its first node and ends after its last one. A module that holds others runs once from its first
# node to its last, unless nodes of a module beside it come in between; one that holds none is called anew after each
# gap.


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
    ordered = sorted(calls, key=lambda call: (call.first, -call.last, len(call.path)))
    begins = grouped((call.first, call) for call in ordered)
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
    spans: list[Span] = []
    running: dict[str, list[int]] = {}  # first and last node of the call that runs, by path
    parents = {path for way in ways if way for path in way[:-1]}
    apart: dict[str, bool] = {}  # whether a module beside it, or for one without inner ones any other node, came since
    for number, way in enumerate(ways):
        if way is None:
            continue
        for path in running:
            if path not in way:
                within = set(way) <= set(paths_around(path)) and path in parents
                apart[path] = apart[path] or not within
        for path in way:
            if path in running and not apart[path]:
                running[path][1] = number
            else:
                if path in running:
                    spans.append((path, *running[path]))  # type: ignore[arg-type]
                running[path], apart[path] = [number, number], False
    spans += [(path, first, last) for path, (first, last) in running.items()]
    return spans


def _nested(spans: Sequence[Span]) -> list[Span]:
    """The spans that lie one inside the other or apart: what only overlaps is no call that could be recorded."""
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
    return grouped((number, name) for name, number in last.items() if name and name not in kept)
