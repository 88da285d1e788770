"""A run of the whole graph, node by node, with every module's call noted; no value lives longer than it is needed.

A sink that gives a call other inputs sees to it that the nodes of that call have them, and no other node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from align.core.dtypes import is_float
from align.models.adapter_parts.onnx.run_node import run_node
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.checkpoints.onnx_graph import OnnxGraph
    from align.core.dtypes import Array
    from align.models.adapter_parts.onnx.plan_calls import Plan, PlannedCall
    from align.models.record_calls import CallRecorder


class PlannedGraph(Protocol):
    """A graph with the calls that a run of it is made of, and the values of its initializers."""

    @property
    def graph(self) -> OnnxGraph:
        """Its nodes, inputs and outputs."""

    @property
    def plan(self) -> Plan:
        """The calls."""

    def constant(self, name: str) -> Array:
        """The value of an initializer."""

    def changed_at(self, node: int, name: str) -> Array | None:
        """The value that a node is to have in the place of it, None for no other."""

    def class_name(self, path: str) -> str:
        """The class of a module."""


def run_graph(
    model: PlannedGraph,
    inputs: Mapping[str, Any],
    recorder: CallRecorder | None = None,
    stand_ins: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Return what the graph does: an array, or a tuple of several; raises OnnxNodeError for a node that fails."""
    run = _Run(model, dict(inputs), recorder, stand_ins or {})
    for number in range(len(model.graph.nodes)):
        run.enter(number)
        if not run.skips(number):
            run.node(number)
        run.leave(number)
    outputs = tuple(run.value(name) for name in model.graph.outputs)
    return outputs[0] if len(outputs) == 1 else outputs


class _Run:
    """The values of one run, and the calls that it is in; `_other` are inputs that a sink gave, innermost last."""

    def __init__(
        self,
        model: PlannedGraph,
        values: dict[str, Any],
        recorder: CallRecorder | None,
        stand_ins: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._model, self._values, self._recorder, self._stand_ins = model, values, recorder, stand_ins
        self._calls: list[PlannedCall] = []
        self._other: list[dict[str, Any]] = []
        self._answered: PlannedCall | None = None

    def value(self, name: str) -> Any:
        """The value that a name has here."""
        for other in reversed(self._other):
            if name in other:
                return other[name]
        return self._values[name] if name in self._values else self._model.constant(name)

    def enter(self, number: int) -> None:
        """Begin the calls whose first node this is."""
        for call in self._model.plan.begins.get(number, ()) if self._recorder and not self._answered else ():
            self._begin(call)

    def skips(self, number: int) -> bool:
        """Tell whether a stand-in has answered for this node."""
        return self._answered is not None and self._answered.first <= number <= self._answered.last

    def node(self, number: int) -> None:
        """Run one node."""
        node = self._model.graph.nodes[number]
        given = {name: self._given(number, name) for name in node.needs}
        made = run_node(self._model.graph, node, given)
        self._values |= zip(filter(None, node.outputs), made, strict=True)

    def leave(self, number: int) -> None:
        """End the calls whose last node this was, and let go of what nothing needs any more."""
        while self._calls and self._calls[-1].last == number:
            self._end(self._calls.pop())
        for name in self._model.plan.done_after.get(number, ()):
            self._values.pop(name, None)

    def _given(self, number: int, name: str) -> Any:
        changed = self._model.changed_at(number, name)
        return self.value(name) if changed is None else changed

    def _begin(self, call: PlannedCall) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        args = tuple(self.value(name) for name in call.inputs)
        other = recorder.begin(call.path, args, {}, self._model.class_name(call.path))
        args = other[0] if other else args
        self._calls.append(call)
        self._other.append(dict(zip(call.inputs, args, strict=True)) if other else {})
        if call.path in self._stand_ins:
            returned = [value for _, value in leaves(self._stand_ins[call.path](*args))]
            self._values |= zip(call.outputs, returned, strict=False)
            self._answered = call

    def _end(self, call: PlannedCall) -> None:
        self._other.pop()
        if self._answered is call:
            self._answered = None
        names = [name for name in call.outputs if name in self._values]
        made = [name for name in names if is_float(np.asarray(self._values[name]).dtype.name)] or names
        returned = tuple(self._values[name] for name in made)
        if self._recorder is None or not returned:
            return
        other = self._recorder.end(
            call.path, self._model.class_name(call.path), returned if returned[1:] else returned[0]
        )
        if other is not None:
            self._values |= zip(made, other if returned[1:] else (other,), strict=True)
