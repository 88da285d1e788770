"""Which elements of the reference's tensors padded positions decide: those that move with what stands there.

An input called an attention mask says by its zeros which positions are padding. Whether they are is seen in a run: with
other tokens there, what moves is padding, and if more than that moves, the model uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, rounded_as
from align.errors import UserCodeError
from align.forward.thresholds import LEAST_PADDING_UNITS
from align.models.inputs import batches_of
from align.traces.module_calls import batch_ends, batch_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture, Trace
    from align.models.open_side import Side

# Names whose zeros stand for padding, whatever comes before them; other masks may mean it the other way round.
NAMES = ("attention_mask", "input_mask")


def find_padding(side: Side, inputs: Inputs, trace: Trace) -> Padding:
    """Run the reference, which has left `trace`, with other tokens at its padded positions, if there are any."""
    batches = batches_of(inputs)
    others = [_other_tokens(batch) for batch in batches]
    if not any(others):
        return NO_PADDING
    given = [other or batch for other, batch in zip(others, batches, strict=True)]
    sink = _MovedSink(trace, [_share(batch) for batch in batches])
    try:
        side.runner.run(side.model, given[0] if len(given) == 1 else given, sink)
    except UserCodeError:
        return NO_PADDING
    return Padding(sink.moved)


class _MovedSink:
    """An InputSink that keeps which elements are not what they were, of tensors of which no more than a share are."""

    def __init__(self, ordinary: Trace, shares: list[float]) -> None:
        self._ordinary, self._shares, self._ends = ordinary, shares, batch_ends(ordinary)
        self._captures = {one.key: one for one in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.moved: dict[str, NDArray[np.uint8]] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Compare what a call is given."""
        for name, value in inputs.items():
            self._note(self._inputs.get((module, call, name)), value)

    def add(self, capture: Capture, value: Array) -> None:
        """Compare what a call returned."""
        self._note(self._captures.get(capture.key), value)

    def _note(self, same: Capture | None, value: Array) -> None:
        if same is None or same.shape != value.shape or not rounded_as(same.dtype):
            return
        moved = _moved(self._ordinary.value(same), value, EPSILON[rounded_as(same.dtype)])
        share = self._shares[batch_number(self._ends, same.order) - 1]
        if 0 < np.count_nonzero(moved) <= share * moved.size:
            self.moved[same.key] = np.packbits(moved)


def _moved(ordinary: Array, value: Array, unit: float) -> NDArray[np.bool_]:
    finite = np.isfinite(ordinary)
    mine, theirs = (np.where(finite, one, 0).astype(np.float64) for one in (ordinary, value))
    least = LEAST_PADDING_UNITS * unit * float(np.abs(mine).max(initial=0.0))
    found: NDArray[np.bool_] = ~(np.abs(theirs - mine) <= least)
    return found


def _other_tokens(batch: Batch) -> dict[str, Array]:
    """The batch with other values at padded positions of the inputs that have these positions; {} if none can."""
    changed: dict[str, Array] = {}
    for padded in _padded(batch):
        for name, value in batch.items():
            if value.shape[:2] == padded.shape and "mask" not in name.lower():
                changed |= _changed(name, value, padded)
    return {**batch, **changed} if changed else {}


def _changed(name: str, value: Array, padded: NDArray[np.bool_]) -> dict[str, Array]:
    other = value.copy()
    if value.dtype.kind in "iu":
        low, span = value.min(), int(value.max()) - int(value.min()) + 1
        other[padded] = low + (value[padded] - low + span // 2) % span
        return {name: other} if span > 1 else {}
    if not rounded_as(value.dtype.name):
        return {}
    other[padded] = (np.abs(value.astype(np.float64)).max() - value[padded].astype(np.float64)).astype(value.dtype)
    return {name: other}


def _padded(batch: Batch) -> Iterator[NDArray[np.bool_]]:
    """Positions that all masks of one shape call padding, by the shapes."""
    masks: dict[tuple[int, ...], list[Array]] = {}
    for name, value in batch.items():
        if name.lower().endswith(NAMES) and _is_mask(value):
            masks.setdefault(value.shape, []).append(value)
    for own in masks.values():
        padded: NDArray[np.bool_] = np.logical_and.reduce([one == 0 for one in own])
        yield padded


def _is_mask(value: Array) -> bool:
    """Ones and zeros of two axes, samples and positions, both of them."""
    return value.ndim == 2 and value.dtype.kind in "biuf" and set(np.unique(value).tolist()) == {0, 1}


def _share(batch: Batch) -> float:
    return max((float(padded.mean()) for padded in _padded(batch)), default=0.0)


@dataclass(frozen=True, slots=True)
class Padding:
    """Elements of the reference's tensors that padded positions decide, as packed bits by the captures' keys."""

    packed: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)

    def at(self, capture: Capture) -> NDArray[np.bool_] | None:
        """These elements of one tensor, in its shape; None if it has none."""
        bits = self.packed.get(capture.key)
        if bits is None:
            return None
        return np.unpackbits(bits, count=prod(capture.shape)).view(np.bool_).reshape(capture.shape)


NO_PADDING = Padding()
