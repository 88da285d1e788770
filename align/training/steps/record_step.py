"""Training steps of a side on disk: what layers took and returned, the gradients that came back, and the updates."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name, numpy_dtype
from align.core.traces import Capture
from align.models.spilled_arrays import SpilledArrays
from align.traces.trace_folder import TraceFolder
from align.traces.trace_writer import TraceWriter
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide

PARTS = FORWARD, BACKWARD, UPDATES = "forward", "backward", "updates"
BEFORE, COMPUTED, GIVEN, AFTER = "before", "computed", "given", "after"
# Written and read for each of the many steps of a comparison.
HEADER_BYTES = 1 << 16  # format: room for the header of a trace
MOMENT = "moment "  # and what the optimizer calls it


def value_capture(name: str, step: int, what: str, value: Array) -> Capture:
    """A parameter's or buffer's entry in the trace of updates: its gradients, and its value after a step."""
    return Capture(step, name, step, what, "", tuple(value.shape), dtype_name(value.dtype))


def times(gradient: Array, factor: float) -> Array:
    """A gradient times a scale, in its own dtype."""
    return gradient if factor == 1.0 else np.asarray(gradient * factor, dtype=gradient.dtype)


def nothing_changed(_step: int, _values: Mapping[str, Array]) -> Mapping[str, Array]:
    """Let everything be as it is."""
    return {}


def no_moments(_step: int) -> Iterable[tuple[str, str, Array]]:
    """Read nothing of the optimizers."""
    return ()


class StepWriter(StepUnseen):
    """A StepSink that writes steps into a folder; use it as a context manager, which seals it.

    Layers are kept of the first `seen` steps; of none, an UpdateTrace reads the folder. Before a step `begun` may
    give other values, and at an update `updated` other gradients: they are given the step, and what is there.
    `moments` gives what the optimizers keep after a step: parameter, name and value. `repeated` says whether a
    parameter was updated twice in a step. What the optimizers get is kept as it is after they multiplied it
    `by_optimizers`.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        seen: int = 1,
        begun: Callable[[int], Mapping[str, Array]] = lambda _step: {},
        updated: Callable[[int, Mapping[str, Array]], Mapping[str, Array]] = nothing_changed,
        moments: Callable[[int], Iterable[tuple[str, str, Array]]] = no_moments,
    ) -> None:
        self._folder = folder
        self._writers = {
            part: TraceWriter(folder / part, environment, inputs=part == FORWARD, header_bytes=HEADER_BYTES)
            for part in (PARTS if seen else (UPDATES,))
        }
        self._stack = ExitStack()
        self._seen, self._begun, self._updated, self._moments = seen, begun, updated, moments
        self.by_optimizers = 1.0
        self._rates: dict[str, dict[int, float]] = {}
        self._step = 0
        self._computed = SpilledArrays()
        self._given: set[str] = set()
        self._awaited: dict[str, Capture] = {}
        self.losses: list[float | None] = []
        self.held: frozenset[str] = frozenset()
        self._in_order: list[frozenset[str]] = []
        self.repeated = False

    @property
    def layers(self) -> bool:
        """Only those of the first steps."""
        return self._step < self._seen

    def start(self, values: Mapping[str, Array]) -> None:
        """Write the values from which the first step begins."""
        for name, value in values.items():
            self._write(name, BEFORE, value)

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:
        """Start a step."""
        self.held = frozenset(name for name, _ in held)
        self._step, self._computed, self._given, self._awaited = step, SpilledArrays(), set(), {}
        return self._begun(step)

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Write what a call is given."""
        if self.layers:
            self._writers[FORWARD].enter(module, call, inputs)

    def add(self, capture: Capture, value: Array) -> None:
        """Write what a call returned."""
        self._writers[FORWARD].add(capture, value)

    def awaited(self, capture: Capture) -> None:
        """Await a gradient, which is zero if it does not come."""
        self._awaited[capture.key] = capture

    def arrived(self, capture: Capture, gradient: Array) -> None:
        """Write the gradient of a tensor."""
        self._awaited.pop(capture.key, None)
        self._writers[BACKWARD].add(capture, gradient)

    def computed(self, name: str, gradient: Array) -> None:
        """Add up what the ways back of a step give."""
        known = self._computed.get(name)
        self._computed[name] = gradient if known is None else known + gradient

    def rated(self, held: Sequence[tuple[str, float | None]]) -> None:
        """Keep the rates of a step, which a loop may set by itself."""
        for name, rate in held:
            if rate is not None:
                self._rates.setdefault(name, {}).setdefault(self._step, rate)

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """Write what an optimizer gets of itself."""
        found = {name: times(value, self.by_optimizers) for name, value in gradients.items() if value is not None}
        first = {name: value for name, value in found.items() if name not in self._given}
        self.repeated |= len(first) < len(found)
        for name, value in first.items():  # of a parameter in two optimizers, or updated twice, the first counts
            self._write(name, GIVEN, value)
        self._given |= first.keys()
        if first and not self._step:
            self._in_order.append(frozenset(first))
        new = self._updated(self._step, first) if first else {}
        return {name: times(value, 1.0 / self.by_optimizers) for name, value in new.items()}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """Write gradients, values and moments."""
        for capture in self._awaited.values():
            self._writers[BACKWARD].add(capture, np.zeros(capture.shape, numpy_dtype(capture.dtype)))
        self.losses.append(loss)
        for name, gradient in self._computed.items():
            self._write(name, COMPUTED, gradient)
        for name, value in values:
            self._write(name, AFTER, value)
        known = set()
        for name, moment, value in self._moments(step):
            if (name, moment) not in known:  # of a parameter in two optimizers the first counts
                known.add((name, moment))
                self._write(name, MOMENT + moment, value)

    def _write(self, name: str, what: str, value: Array) -> None:
        self._writers[UPDATES].add(value_capture(name, self._step, what, value), value)

    def trace(self) -> StepTrace:
        """Read back what was written, once it is sealed."""
        found = StepTrace(self._folder, self.losses, self.held, repeated=self.repeated)
        steps = range(len(self.losses))
        found.updates_in_order = self._in_order
        whole = {name: own for name, own in self._rates.items() if len(own) == len(steps)}
        found.rates = {name: [own[step] for step in steps] for name, own in whole.items()}
        return found

    def __enter__(self) -> StepWriter:
        for writer in self._writers.values():
            self._stack.enter_context(writer)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]


class UpdateTrace:
    """The losses of a side's steps, and gradients, values and moments, read from its folder."""

    def __init__(self, folder: Path, losses: Sequence[float | None]) -> None:
        self.updates, self.losses = TraceFolder(folder / UPDATES), losses

    @cached_property
    def _values(self) -> dict[tuple[str, int, str], Capture]:
        return {(one.module, one.call, one.output): one for one in self.updates.captures}

    def values(self, step: int, what: str) -> dict[str, Array]:
        """Gradients or values of all parameters at a step, by name."""
        found = (one for one in self._values.values() if one.call == step and one.output == what)
        return {one.module: self.updates.value(one) for one in found}

    def names(self, step: int, what: str) -> set[str]:
        """The parameters of which there are such gradients or values at a step."""
        return {name for name, at, kind in self._values if (at, kind) == (step, what)}

    def moments(self, step: int) -> set[tuple[str, str]]:
        """What the optimizers keep after a step: parameters, and what the optimizer calls the moment."""
        written = (one for one in self._values if one[1] == step and one[2].startswith(MOMENT))
        return {(name, what.removeprefix(MOMENT)) for name, _, what in written}

    def moment(self, step: int, name: str, moment: str) -> Array:
        """One of them."""
        return self.updates.value(self._values[name, step, MOMENT + moment])


class StepTrace(UpdateTrace):
    """The steps of a side, whose layers were seen too; `held` are the parameters in its optimizers, None if not known.

    `repeated` says whether a parameter was updated twice in a step.
    """

    def __init__(
        self,
        folder: Path,
        losses: Sequence[float | None],
        held: frozenset[str] | None = None,
        *,
        repeated: bool = False,
    ) -> None:
        super().__init__(folder, losses)
        self.forward, self.backward = TraceFolder(folder / FORWARD), TraceFolder(folder / BACKWARD)
        self.held, self.repeated = held, repeated
        self.rates: Mapping[str, Sequence[float]] = {}  # of each step, at the update itself; of a live side
        self.updates_in_order: Sequence[frozenset[str]] = ()  # what each update of the first step moved; of a live side

    @cached_property
    def gradients(self) -> dict[str, Capture]:
        """The gradients of tensors that layers took and returned, by their keys."""
        return {one.key: one for one in (*self.backward.captures, *self.backward.inputs)}

    @cached_property
    def leaders(self) -> dict[str, Capture]:
        """Of inputs that one call was given twice, by the key of each: the first of them.

        A gradient of one may come back to the other, as a layer that is given one tensor twice likes.
        """
        first: dict[tuple[str, int, int], Capture] = {}
        found = {}
        for one in self.forward.inputs:
            place = self.forward.manifest.places[one.key]
            found[one.key] = first.setdefault((one.module, one.call, place.offset), one)
        twice = {leader.key for key, leader in found.items() if key != leader.key}
        return {key: leader for key, leader in found.items() if leader.key in twice}

    def gradient(self, capture: Capture) -> Array | None:
        """The gradient of a tensor that a layer took or returned; None if none came back.

        To the first of several inputs that are one tensor comes the gradient of all of them.
        """
        leader = self.leaders.get(capture.key)
        keys = [capture.key] if leader is None else [key for key, one in self.leaders.items() if one.key == leader.key]
        found = [self.backward.value(self.gradients[key]) for key in keys if key in self.gradients]
        if not found:
            return None
        return found[0] if len(found) == 1 else np.asarray(sum(found))


def take_again(side: TrainingSide, batches: Sequence[Batch], folder: Path, start: Mapping[str, Array]) -> UpdateTrace:
    """Take steps as a side takes them by itself, from `start`, {} for its own values; of layers nothing is kept."""
    with StepWriter(folder, {}, seen=0, begun=lambda _: start) as writer:
        side.trainer.take_steps(side.training, batches, writer)
    return UpdateTrace(folder, writer.losses)
