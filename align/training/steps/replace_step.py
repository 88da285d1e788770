"""A step in which each layer is given the reference's tensors, and the reference's gradients come back to it.

So what each layer computes, forth and back, is seen by itself, and what the code between layers does too: nothing that
is wrong at one place reaches another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from align.core.dtypes import dtype_name
from align.core.traces import Capture
from align.measure.tensor_layouts import LearnedLayouts, PermutedLayout
from align.measure.tensor_statistics import relative_rms_distance
from align.models.spilled_arrays import SpilledArrays
from align.traces.module_calls import call_key, inputs_of_calls, pair_inputs
from align.training.thresholds import (
    LAYOUT_FEWEST_ELEMENTS,
    LAYOUT_MOST_AXES,
    LAYOUT_SAMPLES,
    OTHER_LAYOUT_DISTANCE,
    SAME_LAYOUT_DISTANCE,
)
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.measure.tensor_layouts import Layout
    from align.traces.module_calls import CallPair
    from align.training.steps.record_step import StepTrace

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


class Partners(Protocol):
    """Which tensors of the reference stand for those of a side."""

    def inputs(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Capture]:
        """Those of a call's inputs, by their names on the side."""
        ...

    def output(self, own: Capture) -> Capture | None:
        """That of an output."""
        ...

    def is_certain(self, own: Capture) -> bool:
        """Tell whether both surely stand at the same place."""
        ...


class Themselves:
    """The partners of the reference's own tensors: the same ones of its ordinary run."""

    def __init__(self, reference: StepTrace) -> None:
        self._inputs = {(one.module, one.call, one.output): one for one in reference.forward.inputs}
        self._outputs = {one.key: one for one in reference.forward.captures}

    def inputs(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Capture]:
        """Those of the same names."""
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
        self._given = {call_key(one): given.get((one.reference.module, one.reference.call), []) for one in pairs}
        self._returned = {
            b.key: a
            for one in pairs
            if len(one.reference.outputs) == len(one.candidate.outputs)
            for a, b in zip(one.reference.outputs, one.candidate.outputs, strict=True)
        }
        self._certain = {call_key(one) for one in pairs if one.certain}

    def inputs(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Capture]:
        """Those that the counterpart was given."""
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
        partners: Partners,
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

    def _replacement(self, mine: Capture, own: Capture, value: Array) -> Array | None:
        meant = self._reference.forward.value(mine)
        view = self._layouts.find(mine, meant, value)
        turned = None if view is None else view.to_reference(value)
        factor = self._seen(ReplacedTensor("forward", mine, own, meant, turned))
        if view is None or not (factor <= 1.0 or self._partners.is_certain(own)):
            return None
        self._views[own.key] = mine, view
        leader = self._leader(mine)
        if leader.key in self._reference.gradients:
            self._awaited.setdefault(leader.key, own)
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

    def updated(self, held: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:
        """Keep what the side made of them, and go on with what is meant."""
        found = {}
        for name, value in values if self.meant_after else ():
            if name in self.meant_after and name not in self.after and (name in held or name not in self._held):
                self.after[name] = value
                found[name] = self.meant_after[name]
        return found

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Tell of gradients that came in parts or not at all, and keep the values."""
        for mine, own, whole in self._gathered.values():
            self._seen(ReplacedTensor("backward", mine, own, self._reference.gradient(mine), whole))
        for own in self._awaited.values():
            mine = self._views[own.key][0]
            self._seen(ReplacedTensor("backward", mine, own, self._reference.gradient(mine), None))
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
    own = value.reshape(-1)[places].astype(np.float64)
    if relative_rms_distance(meant.reshape(-1)[places].astype(np.float64), own) <= OTHER_LAYOUT_DISTANCE:
        return None
    for order in permutations(range(value.ndim)):
        turned = meant.transpose(order)
        if turned.shape == value.shape:
            other = turned[np.unravel_index(places, turned.shape)].astype(np.float64)
            if relative_rms_distance(other, own) <= SAME_LAYOUT_DISTANCE:
                return PermutedLayout(order, meant.shape, value.shape)
    return None
