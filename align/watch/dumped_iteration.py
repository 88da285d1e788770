"""One iteration of a loop as it is written: calls of modules and the gradients that come back, in trace folders.

Layers are computed again in float64 when the iteration has ended: what fails then fails in nobody's way back.
"""

from __future__ import annotations

import inspect
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import dtype_name
from align.core.trace_metadata import KeptValues, TraceHead
from align.core.traces import Capture
from align.core.training import ModelFreezer
from align.errors import UserCodeError
from align.measure.measure_arrays import measure
from align.models.inputs import describe_inputs, save_inputs
from align.models.nested_values import leaves, with_leaves
from align.models.record_calls import call_start
from align.models.spilled_arrays import SpilledArrays
from align.traces.capture_trace import BACKWARD, CallWriter, GivenWriter
from align.traces.stored_model import write_model, write_values
from align.watch.dump_thresholds import DUMP_HEADER_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from align.core.dtypes import Array
    from align.core.layer_settings import LayerSettings
    from align.models.loop_hooks import LoopHooks
    from align.models.loop_watcher import LoopCall, LoopHost
    from align.models.open_side import Side


_INPUTS = "inputs.npz"  # in a trace folder


@dataclass(frozen=True, slots=True)
class DumpPlan:
    """What is written of each chosen iteration."""

    kept: KeptValues = field(default_factory=KeptValues)
    backward: bool = True
    layer_inputs: bool = False
    values: bool = False
    float64: bool = False


@dataclass(slots=True)
class _Again:
    """A call that is to be computed again: the layer, its values, what it was given, and what it returned by key."""

    module: Any
    values: Mapping[str, Array]
    given: tuple[Any, Any]
    random: bytes
    outputs: dict[str, Capture] = field(default_factory=dict)
    drew: bool = False


class DumpedIteration:
    """A LoopSink that writes one iteration. Nothing is written before the first call: its inputs head the trace."""

    hooks: LoopHooks

    def __init__(
        self,
        place: tuple[Side, LoopHost],
        folder: Path,
        step: int,
        plan: DumpPlan,
        described: tuple[Sequence[LayerSettings], Callable[[], Mapping[str, str]]],
    ) -> None:
        (self._side, self._host), self.folder, self._step, self._plan = place, folder, step, plan
        self._settings, self._environment = described
        self._stack = ExitStack()
        self._forward: CallWriter | None = None
        self._backward: CallWriter | None = None
        self._orders = [0, 0]
        self._home = f"{Path.cwd()}{os.sep}"
        self._again: list[_Again] = []
        self._running: list[_Again | None] = []
        self._returned = SpilledArrays()
        self._values: dict[int, Mapping[str, Array]] = {}
        reader, model = self._side.reader, self._side.model
        known = reader.dropouts(model) if plan.float64 and isinstance(reader, ModelFreezer) else ()
        self._draws = {path for path, module, _ in known if module.training}

    @property
    def begun(self) -> bool:
        """Tell whether a module was called, and so whether there is a folder."""
        return self._forward is not None

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a call that begins."""
        given = dict(enumerate(args)) | dict(kwargs)
        writer = self._forward or self._open(call, module, args, kwargs)
        running = self.hooks.running
        parent = running[-2][0].path if len(running) > 1 else None
        writer.begin(call_start((call.path, call.number, parent, call.class_name), given, self._home))
        if isinstance(writer, GivenWriter):
            writer.enter(call.path, call.number, self._arrays(given))
        if self._plan.float64:
            del self._running[call.depth :]
            again = self._to_compute(module, args, kwargs)
            if again is not None:
                again.drew = call.path in self._draws
            self._running.append(again)

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Note what a call returned."""
        assert self._forward is not None  # noqa: S101 - for the type checker: calls begin before they return
        again = self._running[call.depth] if self._plan.float64 else None
        for name, array in self._arrays(output).items():
            capture = self._capture(0, call, name, array)
            self._forward.add(capture, array)
            if again is not None and array.dtype.kind in "fV":
                self._returned[capture.key] = array
                again.outputs[name] = capture
        self._forward.finish(call.path, call.number)
        if again is not None:
            again.drew |= self._host.random_state() != again.random
            self._again.append(again)

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """Note a gradient that came back to what a call returned."""
        array = self._host.loop_forms.as_array(gradient)
        if self._backward is not None and array is not None:
            self._backward.add(self._capture(1, call, name, array), array)

    def _capture(self, direction: int, call: LoopCall, name: str, array: Array) -> Capture:
        order = self._orders[direction]
        self._orders[direction] += 1
        shape, dtype = tuple(array.shape), dtype_name(array.dtype)
        return Capture(order, call.path, call.number, name, call.class_name, shape, dtype, call.depth)

    def _arrays(self, value: Any) -> dict[str, Array]:
        found = ((name, self._host.loop_forms.as_array(leaf)) for name, leaf in leaves(value))
        return {name: array for name, array in found if array is not None}

    def _open(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallWriter:
        """Make the folder, describe the model and the batch, and begin to write."""
        side, plan = self._side, self._plan
        inputs = {} if call.path else self._arrays(_named(module, args, kwargs))
        head = TraceHead(
            side.label,
            side.reader.name,
            describe_inputs(inputs),
            mode="training",
            step=self._step,
            layer_inputs=plan.layer_inputs,
            kept=plan.kept,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_model(self.folder, side.reader.read_parameters(side.model, side.label), self._settings)
        if plan.values:
            write_values(self.folder, side.reader.read_values(side.model))
        if plan.kept.globs:
            save_inputs(self.folder / _INPUTS, inputs)
        kind = GivenWriter if plan.layer_inputs else CallWriter
        self._forward = self._stack.enter_context(self._writer(kind, self.folder, head))
        if plan.backward:
            back = TraceHead(
                head.side, head.framework, head.inputs, head.mode, head.step, direction="backward", kept=plan.kept
            )
            self._backward = self._stack.enter_context(self._writer(CallWriter, self.folder / BACKWARD, back))
        return self._forward

    def _writer(self, kind: type[CallWriter], folder: Path, head: TraceHead) -> CallWriter:
        return kind(folder, self._environment(), head, header_bytes=DUMP_HEADER_BYTES, magnitudes=True)

    def _to_compute(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Again | None:
        """Keep what a layer without others inside needs to be computed again."""
        if len(self._host.loop_modules(module)) > 1:
            return None
        kept = SpilledArrays()

        def array(name: str, leaf: Any) -> Any:
            value = self._host.loop_forms.as_array(leaf)
            if value is None:
                return leaf
            kept[name] = value
            return kept[name]

        if id(module) not in self._values:
            self._values[id(module)] = SpilledArrays(self._host.own_values(module))
        given = with_leaves((args, dict(kwargs)), array)
        return _Again(module, self._values[id(module)], given, self._host.random_state())

    def _compute_again(self) -> None:
        assert self._forward is not None  # noqa: S101 - for the type checker
        for one in self._again:
            wide, reason = self._wide(one)
            for name, capture in one.outputs.items():
                error = None
                if name in wide and wide[name].shape == capture.shape:
                    error = measure(wide[name], self._returned[capture.key]).relative_l2
                    reason = "" if error is not None else say("loop_dump_reason.reference_zero")
                self._forward.recomputed(capture, error, reason)

    def _wide(self, one: _Again) -> tuple[dict[str, Array], str]:
        """What the layer returns in float64, or why that is not known."""
        if one.drew:
            return {}, say("loop_dump_reason.draws")
        try:
            output = self._host.recomputed(one.module, one.values, one.given)
        except UserCodeError as error:
            return {}, error.message.partition("\n")[0]
        return {name: leaf for name, leaf in leaves(output) if isinstance(leaf, np.ndarray)}, ""

    def __enter__(self) -> DumpedIteration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._stack:
            if kind is None and self._again:
                self._compute_again()
            elif error is not None:
                self._stack.__exit__(kind, error, tb)


def _named(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the model is given, by the names of its parameters where they say it."""
    method = getattr(module, "forward", None) or module.construct
    try:
        return inspect.signature(method).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {**{str(place): one for place, one in enumerate(args)}, **kwargs}
