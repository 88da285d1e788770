"""Training steps of a side on disk: what layers took and returned, the gradients that came back, and the updates."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.parameters import dtype_name, numpy_dtype
from align.core.traces import Capture
from align.measure.tensor_statistics import LearnedLayouts, PermutedLayout, relative_rms_distance
from align.models.inputs import SpilledArrays
from align.traces.module_calls import call_key, inputs_of_calls, pair_inputs
from align.traces.trace_folder import TraceFolder, TraceWriter
from align.training.open_training import StepUnseen
from align.training.thresholds import (
    LAYOUT_FEWEST_ELEMENTS,
    LAYOUT_MOST_AXES,
    LAYOUT_SAMPLES,
    OTHER_LAYOUT_DISTANCE,
    SAME_LAYOUT_DISTANCE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from align.core.parameters import Array
    from align.core.protocols import Batch
    from align.core.traces import CaptureSink
    from align.measure.tensor_statistics import Layout
    from align.traces.module_calls import CallPair
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
        updated: Callable[[int, Mapping[str, Array]], Mapping[str, Array]] = lambda _step, _values: {},
        moments: Callable[[int], Iterable[tuple[str, str, Array]]] = lambda _step: (),
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
        trace = StepTrace(self._folder, self.losses, self.held, repeated=self.repeated)
        steps = range(len(self.losses))
        trace.updates_in_order = self._in_order
        whole = {name: own for name, own in self._rates.items() if len(own) == len(steps)}
        trace.rates = {name: [own[step] for step in steps] for name, own in whole.items()}
        return trace

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
        held_names: frozenset[str] | None = None,
        *,
        repeated: bool = False,
    ) -> None:
        super().__init__(folder, losses)
        self.forward, self.backward = TraceFolder(folder / FORWARD), TraceFolder(folder / BACKWARD)
        self.held, self.repeated = held_names, repeated
        self.rates: Mapping[str, Sequence[float]] = {}  # of each step, at the update itself; of a live side
        self.updates_in_order: Sequence[frozenset[str]] = ()  # what each update of the first step moved; of a live side

    @cached_property
    def gradients(self) -> dict[str, Capture]:
        """The gradients of tensors that layers took and returned, by their keys."""
        return {one.key: one for one in (*self.backward.captures, *self.backward.inputs)}

    @cached_property
    def leaders(self) -> dict[str, Capture]:
        """For inputs that one call was given twice, by key: the first of them.

        A gradient of one may come back to the other, as a layer that is given one tensor twice likes.
        """
        first: dict[tuple[str, int, int], Capture] = {}
        leaders = {}
        for capture in self.forward.inputs:
            place = self.forward.manifest.places[capture.key]
            leaders[capture.key] = first.setdefault((capture.module, capture.call, place.offset), capture)
        twice = {leader.key for key, leader in leaders.items() if key != leader.key}
        return {key: leader for key, leader in leaders.items() if leader.key in twice}

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


class LossesOfSteps(StepUnseen):
    """A StepSink that begins from `values` and keeps the losses; it may show another sink the functional calls."""

    def __init__(self, values: Mapping[str, Array] | None = None, functions: CaptureSink | None = None) -> None:
        self._values, self.functions = values or {}, functions
        self.losses: list[float | None] = []

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the given values."""
        return {} if step else self._values

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Keep the loss."""
        self.losses.append(loss)


def take_again(side: TrainingSide, batches: Sequence[Batch], folder: Path, start: Mapping[str, Array]) -> UpdateTrace:
    """Take steps as a side takes them by itself, from `start`, {} for its own values; of layers nothing is kept."""
    with StepWriter(folder, {}, seen=0, begun=lambda _: start) as writer:
        side.trainer.take_steps(side.training, batches, writer)
    return UpdateTrace(folder, writer.losses)


# A step in which each layer is given the reference's tensors, and the reference's gradients come back to it.
#
# So what each layer computes, forth and back, is seen by itself, and what the code between layers does too: nothing
# that is wrong at one place reaches another one.

Way = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class ReplacedTensor:
    """A tensor of a replaced step, or its gradient, beside the reference's, both in the reference's layout.

    `capture` is the reference's, `own` the side's. `value` is None where no gradient came back or the sizes differ,
    `meant` where none came back to the reference's.
    """

    way: Way
    capture: Capture
    own: Capture
    meant: Array | None
    value: Array | None


class Themselves:
    """The partners of the reference's own tensors: the same ones of its ordinary run."""

    def __init__(self, reference: StepTrace) -> None:
        self._inputs = {(one.module, one.call, one.output): one for one in reference.forward.inputs}
        self._outputs = {one.key: one for one in reference.forward.captures}

    def inputs(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Capture]:
        """Return the inputs by their own names."""
        found = {name: self._inputs.get((module, call, name)) for name in inputs}
        return {name: one for name, one in found.items() if one is not None}

    def output(self, own: Capture) -> Capture | None:
        """The same one."""
        return self._outputs.get(own.key)

    def is_certain(self, own: Capture) -> bool:  # noqa: ARG002
        """Each is itself."""
        return True


class PairedLayers:
    """The partners of a port's tensors, by its paired calls."""

    def __init__(self, reference: StepTrace, pairs: Sequence[CallPair]) -> None:
        given = inputs_of_calls(reference.forward)
        self._given = {call_key(pair): given.get((pair.reference.module, pair.reference.call), []) for pair in pairs}
        self._returned = {
            b.key: a
            for pair in pairs
            if len(pair.reference.outputs) == len(pair.candidate.outputs)
            for a, b in zip(pair.reference.outputs, pair.candidate.outputs, strict=True)
        }
        self._certain = {call_key(pair) for pair in pairs if pair.certain}

    def inputs(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Capture]:
        """Return the inputs that the counterpart was given."""
        return pair_inputs(self._given.get((module, call), ()), inputs)

    def output(self, own: Capture) -> Capture | None:
        """What the counterpart returned there."""
        return self._returned.get(own.key)

    def is_certain(self, own: Capture) -> bool:
        """Tell whether the calls surely end at the same place."""
        return (own.module, own.call) in self._certain


class ReplacedStep(StepUnseen):
    """A StepSink for one step of a side. `seen` is called with each tensor as the side made it, and each gradient.

    It returns the multiple of the limit: where a pair is not certain, only what is within it gives way. The values of
    parameters to begin with are `values`; gradients of parameters and values after the step are kept. All that is given
    to the side is `moved` first, so that the effect of its rounding can be seen. The side multiplies its loss by
    `scale` times what the reference does: gradients are given to it so much larger, and kept so much smaller. With
    values of parameters at the end of the reference's step, `meant_after`, those that an optimizer has updated, or that
    none holds, go on with these: what runs behind an update is given what the reference has there.
    """

    layers = True

    def __init__(
        self,
        reference: StepTrace,
        partners: Themselves | PairedLayers,
        seen: Callable[[ReplacedTensor], float],
        values: Mapping[str, Array] | None = None,
        moved: Callable[[Array], Array] = np.asarray,
        scale: float = 1.0,
    ) -> None:
        self._reference, self._partners, self._seen, self._values = reference, partners, seen, values or {}
        self._moved, self.scale, self.by_optimizers = moved, scale, 1.0
        self.meant_after: Mapping[str, Array] = {}
        self._held: set[str] = set()
        self._layouts = StepLayouts()
        self._views: dict[str, tuple[Capture, Layout]] = {}
        self._awaited: dict[str, Capture] = {}
        self._gathered: dict[str, tuple[Capture, Capture, Array]] = {}
        self._sent: set[str] = set()
        self._unmet: dict[str, Array] = {}
        self.computed_gradients, self.given_gradients, self.after = SpilledArrays(), SpilledArrays(), SpilledArrays()
        self.last_gradients = SpilledArrays()  # of the last part of a batch, where there are several
        self.loss: float | None = None

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the given values."""
        self._held = {name for name, _ in held}
        return self._values

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Let inputs give way, but those of the model itself."""
        if not module:
            return {}
        new = {}
        for name, mine in self._partners.inputs(module, call, inputs).items():
            value = inputs[name]
            if value.dtype.kind in "iu" and value.ndim == 1 and name != next(iter(inputs)):
                continue  # lengths or the order of samples beside the data, which sides write in their own ways
            shape, dtype = tuple(value.shape), dtype_name(value.dtype)
            other = self._replacement(mine, Capture(0, module, call, name, "", shape, dtype, role="input"), value)
            if other is not None:
                new[name] = other
        return new

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Let an output give way."""
        mine = self._partners.output(capture)
        return None if mine is None else self._replacement(mine, capture, value)

    def _replacement(self, mine: Capture, theirs: Capture, value: Array) -> Array | None:
        meant = self._reference.forward.value(mine)
        view = self._layouts.find(mine, meant, value)
        turned = None if view is None else view.to_reference(value)
        factor = self._seen(ReplacedTensor("forward", mine, theirs, meant, turned))
        if view is None or not (factor <= 1.0 or self._partners.is_certain(theirs)):
            return None
        self._views[theirs.key] = mine, view
        leader = self._leader(mine)
        if leader.key in self._reference.gradients:
            self._awaited.setdefault(leader.key, theirs)
        return np.asarray(self._moved(view.to_candidate(meant)), dtype=value.dtype)

    def arrived(self, capture: Capture, gradient: Array) -> None:
        """Hold a gradient against the reference's."""
        known = self._views.get(capture.key)
        if known is None:
            return
        mine, view = known
        self._awaited.pop(self._leader(mine).key, None)
        meant, value = self._reference.gradient(mine), unscaled(view.to_reference(gradient), self.scale)
        if meant is None:  # of what the reference's model is given, what frozen layers make of it, or what is detached
            self._unmet[capture.key] = np.array(gradient)
            return
        if mine.key in self._reference.leaders:
            leader = self._leader(mine)
            before = self._gathered.get(leader.key)
            whole = np.array(value) if before is None else before[2] + value
            self._gathered[leader.key] = leader, capture, whole
        else:
            self._seen(ReplacedTensor("backward", mine, capture, meant, value))

    def sent_back(self, capture: Capture) -> Array | None:
        """The reference's gradient in the side's layout; of one tensor that was given twice only once.

        Where the reference's tensor takes none, the side's own goes on: it is wrong if it reaches what takes one there.
        """
        mine, view = self._views[capture.key]
        leader = self._leader(mine)
        meant = None if leader.key in self._sent else self._reference.gradient(mine)
        if mine.key in self._reference.leaders:
            self._sent.add(leader.key)
        if (unmet := self._unmet.pop(capture.key, None)) is not None:
            return unmet
        return None if meant is None else self._moved(unscaled(view.to_candidate(meant), 1.0 / self.scale))

    def _leader(self, mine: Capture) -> Capture:
        return self._reference.leaders.get(mine.key, mine)

    def computed(self, name: str, gradient: Array) -> None:
        """Add up the gradient of a parameter."""
        known, own = self.computed_gradients.get(name), unscaled(gradient, self.scale)
        self.computed_gradients[name] = own if known is None else known + own
        if known is not None:
            self.last_gradients[name] = own

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """Keep what an optimizer is given."""
        for name, value in gradients.items():
            if value is not None and name not in self.given_gradients:  # of several updates the first counts
                self.given_gradients[name] = unscaled(value, 1.0 / self.by_optimizers)
        return {}

    def updated(self, held_names: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:
        """Keep what the side made of them, and go on with what is meant."""
        replaced = {}
        for name, value in values if self.meant_after else ():
            if name in self.meant_after and name not in self.after and (name in held_names or name not in self._held):
                self.after[name] = value
                replaced[name] = self.meant_after[name]
        return replaced

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Tell of gradients that came in parts or not at all, and keep the values."""
        for mine, theirs, whole in self._gathered.values():
            self._seen(ReplacedTensor("backward", mine, theirs, self._reference.gradient(mine), whole))
        for theirs in self._awaited.values():
            mine = self._views[theirs.key][0]
            self._seen(ReplacedTensor("backward", mine, theirs, self._reference.gradient(mine), None))
        self.loss = loss
        for name, value in values:
            if name not in self.after:
                self.after[name] = value


def unscaled(gradient: Array, scale: float) -> Array:
    """A gradient divided by the scale of the loss, in its own dtype."""
    return gradient if scale == 1.0 else np.asarray(gradient / scale, dtype=gradient.dtype)


class StepLayouts:
    """Finds the layout of each tensor; what the model itself takes and returns has the reference's."""

    def __init__(self) -> None:
        self._learned = LearnedLayouts()

    def find(self, mine: Capture, meant: Array, value: Array) -> Layout | None:
        """How `value` lays out what is `meant`, the capture of which is `mine`; None if that is not known."""
        if not mine.module and meant.shape != value.shape:
            return None
        found = self._learned.find(meant, value)
        if not mine.module or found is None or not found.is_same:
            return found
        return _turned(meant, value) or found


def _turned(meant: Array, value: Array) -> PermutedLayout | None:
    """Other axes of one length each, where the values are far apart as they are, and the same as they are turned."""
    if not 1 < value.ndim <= LAYOUT_MOST_AXES or value.size < LAYOUT_FEWEST_ELEMENTS or value.dtype.kind not in "fV":
        return None
    if len({*value.shape}) == value.ndim:  # no other order of axes has this shape
        return None
    places = np.random.default_rng(0).integers(0, value.size, LAYOUT_SAMPLES)
    samples = value.reshape(-1)[places].astype(np.float64)
    if relative_rms_distance(meant.reshape(-1)[places].astype(np.float64), samples) <= OTHER_LAYOUT_DISTANCE:
        return None
    for order in permutations(range(value.ndim)):
        turned = meant.transpose(order)
        if turned.shape == value.shape:
            other = turned[np.unravel_index(places, turned.shape)].astype(np.float64)
            if relative_rms_distance(other, samples) <= SAME_LAYOUT_DISTANCE:
                return PermutedLayout(order, meant.shape, value.shape)
    return None
