"""The calls of a run with what each was given and returned, functional calls among them, as a graph of values.

A tensor is known by its bytes, so whoever is given what another call returned follows it, whatever passes it on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from align.forward.thresholds import MOST_RECORDED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array
    from align.core.trace_metadata import CallStart
    from align.core.traces import Capture
    from align.forward.isolation.isolated_calls import Isolation
    from align.traces.pair_inputs import CallKey

TensorKey = bytes


@dataclass
class RecordedCall:
    """A call of a module or of a function: where it was made, and the keys of what it was given and returned."""

    path: str
    call: int
    name: str
    place: str
    given: list[TensorKey] = field(default_factory=list)
    returned: list[TensorKey] = field(default_factory=list)

    @property
    def is_function(self) -> bool:
        """Tell whether it is no module's."""
        return is_function(self.path)


def is_function(path: str) -> bool:
    """Tell whether a path is that of a functional call, `module/function`."""
    return "/" in path


class CallRecord:
    """A sink that records calls; the modules of a port are given and return what an `isolation` says.

    `wanted` tells of a module's path whether the functions that its code calls are recorded. `instead` holds what
    single functions are to return. What is beyond MOST_RECORDED_BYTES is left out, and `is_whole` is False.
    """

    functions = True

    def __init__(
        self,
        wanted: Callable[[str], bool],
        isolation: Isolation | None = None,
        instead: Mapping[CallKey, Array] | None = None,
    ) -> None:
        self._wanted, self.isolation, self._instead = wanted, isolation, instead or {}
        self.calls: dict[CallKey, RecordedCall] = {}
        self.values: dict[TensorKey, Array] = {}
        self.makers: dict[TensorKey, RecordedCall] = {}
        self.is_whole = True
        self._nbytes = 0

    @property
    def overwrites(self) -> bool:
        """As the isolation says."""
        return self.isolation is not None and self.isolation.overwrites

    def begin(self, start: CallStart) -> None:
        """Take a call that begins."""
        owner = start.module.rpartition("/")[0] if is_function(start.module) else start.module
        if self._wanted(owner):
            key = start.module, start.call
            self.calls[key] = RecordedCall(*key, start.class_name, start.place)

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Keep what a call is given; return what it is to get instead."""
        if own := self.calls.get((module, call)):
            own.given += [self._kept(value) for value in inputs.values()]
        if self.isolation is None or is_function(module):
            return None
        return self.isolation.enter(module, call, inputs)

    def add(self, capture: Capture, value: Array) -> None:
        """Keep what a call returned."""
        if own := self.calls.get((capture.module, capture.call)):
            key = self._kept(value)
            own.returned.append(key)
            if key not in own.given:
                self.makers.setdefault(key, own)
        if self.isolation is not None and not is_function(capture.module):
            self.isolation.add(capture, value)

    def again(self, capture: Capture, value: Array, known: Capture) -> None:  # noqa: ARG002
        """Keep what a call returned as another one had made it."""
        self.add(capture, value)

    def finish(self, module: str, call: int) -> None:
        """Nothing is to be done at the end of a call."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what a call is to return."""
        if is_function(capture.module):
            return None if capture.output else self._instead.get((capture.module, capture.call))
        return None if self.isolation is None else self.isolation.instead(capture, value)

    def _kept(self, value: Array) -> TensorKey:
        value = np.ascontiguousarray(value)
        key = blake2b(value.tobytes(), person=f"{value.dtype.name}{value.ndim}".encode()[:16], digest_size=16).digest()
        if key not in self.values:
            if self._nbytes + value.nbytes > MOST_RECORDED_BYTES:
                self.is_whole = False
                return key
            self._nbytes += value.nbytes
            self.values[key] = np.array(value)
        return key
