"""A run of a model streamed into a trace folder: each call as it begins and ends, each tensor with its figures.

A process that is killed, or a kernel that fails, leaves a trace that ends at the call that was running.
"""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from align.core.trace_metadata import TensorStatistics
from align.core.traces import Capture
from align.errors import AlignError, DestinationError
from align.measure.tensor_statistics import summarize_tensor
from align.traces.kept_elements import is_kept, keep_part
from align.traces.stored.manifest import capture_as_json
from align.traces.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from align.core.dtypes import Array
    from align.core.trace_metadata import CallStart, ReturnedParts, TraceHead

_FIGURES = tuple(one.name for one in fields(TensorStatistics))


class CallWriter:
    """A CallSink that writes a trace folder; memory is that of one tensor. Use it as a context manager.

    `later` names the files that are noted after the run.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str], head: TraceHead, *, later: Sequence[str] = ()
    ) -> None:
        self._kept, self.functions = head.kept, head.functions
        self._writer = TraceWriter(folder, environment, inputs=head.layer_inputs, head=head, later=later)
        self._outputs = 0
        self._latest: dict[str, dict[str, Any]] = {}  # what was noted of the tensors of the call that ended last
        self._current: dict[str, dict[str, Any]] = {}

    def begin(self, start: CallStart) -> None:
        """Note a call that begins."""
        inputs = {name: [kind.shape, kind.dtype] for name, kind in start.inputs.items()}
        self._writer.note(
            {
                "begin": start.module,
                "call": start.call,
                "parent": start.parent,
                "class_name": start.class_name,
                "place": start.place,
                "inputs": inputs,
            }
        )

    def returned(self, parts: ReturnedParts) -> None:
        """Note what the model returned that is no tensor."""
        self._writer.returned(parts)

    def add(self, capture: Capture, value: Array) -> None:
        """Note a tensor with its figures, and keep of it what is to be kept."""
        part = keep_part(self._kept, capture, value)
        noted: dict[str, Any] = {"statistics": _figures(summarize_tensor(value)), "offset": None}
        if part is not None:
            noted |= self._writer.append(capture, part)
            if part.shape != capture.shape:
                noted["kept"] = part.size
        self._note(capture, noted)

    def again(self, capture: Capture, value: Array, known: Capture) -> None:
        """Note that a tensor is one that was just noted."""
        noted = self._latest.get(known.key)
        if noted is None or (noted["offset"] is None) == is_kept(self._kept, capture):
            self.add(capture, value)
        else:
            self._note(capture, noted)

    def _note(self, capture: Capture, noted: dict[str, Any]) -> None:
        self._outputs += capture.role == "output"
        self._current[capture.key] = noted
        self._writer.note({**capture_as_json(capture), **noted}, flush=False)  # the end of the call does

    def finish(self, module: str, call: int) -> None:
        """Note a call that returned."""
        self._latest, self._current = self._current, {}
        self._writer.note({"end": module, "call": call})

    def __enter__(self) -> CallWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            said = error.message if isinstance(error, AlignError) else kind.__name__ if kind else ""
            with contextlib.suppress(DestinationError):  # a full disk is what it failed with
                self._writer.note({"failed": said})
        self._writer.__exit__(kind, error, tb)


class GivenWriter(CallWriter):
    """A CallWriter that also keeps what calls are given; what was written before is not written again."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Note the tensors that a call is given."""
        for name, value in inputs.items():
            shape, dtype = tuple(value.shape), value.dtype.name
            self.add(Capture(self._outputs, module, call, name, "", shape, dtype, role="input"), value)


def _figures(statistics: TensorStatistics) -> dict[str, float | None]:
    return {name: getattr(statistics, name) for name in _FIGURES}  # all finite: JSON can hold them
