"""One node of an ONNX model run by onnxruntime, as a model of its own.

A model that holds one node, whose inputs are all given, has nothing that could be optimised away or fused: each value
is what the node's kernel makes of its inputs, as in a session with `ORT_DISABLE_ALL`. No initializer is copied into a
session, and no more than one node's values are in it at a time; it keeps no arena.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.onnx_graph import ELEMENT_TYPES, message, number_field
from align.core.dtypes import dtype_name
from align.models.thresholds import SMALL_NODE_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.checkpoints.onnx_graph import OnnxGraph, OnnxNode

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
