"""Cross entropy in the forms that ports give it, recognised by the gradient that it sends back to the outputs.

That gradient is known in closed form: it shows by which labels, of which position, it was taken, whether the outputs
went through a softmax before, and how labels were smoothed. A form counts if it gives the gradient of all samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import softmax

from align.training.thresholds import (
    CLASS_SHIFTS,
    CROSS_ENTROPY_FEWEST_ROWS,
    CROSS_ENTROPY_SHARE,
    LABEL_SHIFTS,
    LEAST_SMOOTHING,
    RELATION_ELEMENTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array

TakenFor = Literal["logits", "log-probabilities", "probabilities", "logits after a softmax"]
TAKEN_FOR: tuple[TakenFor, ...] = ("logits", "log-probabilities", "probabilities", "logits after a softmax")


@dataclass(frozen=True, slots=True)
class LossForm:
    """What a cross entropy does with outputs and labels, and the `factor` of the gradient of each sample.

    A label is taken from `positions` further on in the sequence, and `classes` are added to it. `samples` counts those
    that have a gradient.
    """

    taken_for: TakenFor
    positions: int
    classes: int
    smoothing: float
    factor: float
    samples: int


def cross_entropy_form(outputs: Array, gradient: Array, labels: Array) -> LossForm | None:
    """Return the plainest form that gives the gradient of the outputs, None if none does.

    `outputs` have a row of classes for each label, along their last axis or along axis 1.
    """
    rows = _rows(outputs, gradient, labels)
    if rows is None:
        return None
    logits, given, places = rows
    for positions, classes, taken_for in _by_plainness():
        moved = _moved(places, positions)[..., : logits.shape[-2]] if logits.ndim > 2 else _moved(places, positions)
        chosen = _chosen(given, moved, logits.shape[-1])
        if chosen is None:
            continue
        own = (moved[chosen] + classes) % logits.shape[-1]
        found = _fitted(taken_for, logits[chosen], given[chosen], own)
        if found is not None:
            count = int(given.any(axis=-1).sum())
            return LossForm(taken_for, positions, classes, found[1], found[0], count)
    return None


def _by_plainness() -> Iterator[tuple[int, int, TakenFor]]:
    every = product(LABEL_SHIFTS, CLASS_SHIFTS, TAKEN_FOR)
    return iter(
        sorted(every, key=lambda one: (bool(one[0]) + bool(one[1]) + (one[2] != "logits"), abs(one[0]) + abs(one[1])))
    )


def _rows(outputs: Array, gradient: Array, labels: Array) -> tuple[Array, Array, Array] | None:
    """Outputs and gradient with the classes last, and the labels in the shape of what is before."""
    if outputs.ndim < 2 or outputs.shape != gradient.shape or labels.dtype.kind not in "iu":
        return None
    shape = outputs.shape
    if labels.shape == shape[:-1] or labels.shape == (int(np.prod(shape[:-1])),):
        return outputs, gradient, labels.reshape(shape[:-1])
    if labels.ndim == outputs.ndim - 1 > 1 and labels.shape[:-1] == shape[:-2] and labels.shape[-1] > shape[-2]:
        return outputs, gradient, labels  # of a whole sequence, all but the last of which went in
    if labels.shape == (shape[0], *shape[2:]):
        return np.moveaxis(outputs, 1, -1), np.moveaxis(gradient, 1, -1), labels
    return None


def _moved(labels: Array, positions: int) -> Array:
    """The labels of so many positions further on along the last axis; one below the least where there is none."""
    wide = labels.astype(np.int64)
    if not positions:
        return wide
    found = np.roll(wide, -positions, axis=-1)
    lost = slice(-positions, None) if positions > 0 else slice(None, -positions)
    found[..., lost] = np.iinfo(np.int64).min
    return found


def _chosen(given: Array, labels: Array, classes: int) -> Array | None:
    """Which rows are looked at: those with a gradient, whose label is known; None if one of them has no class."""
    known = labels > np.iinfo(np.int64).min
    filled = given.any(axis=-1) & known
    if filled.sum() < CROSS_ENTROPY_FEWEST_ROWS or np.any((labels[filled] < 0) | (labels[filled] >= classes)):
        return None
    places = np.flatnonzero(filled)
    most = max(CROSS_ENTROPY_FEWEST_ROWS, RELATION_ELEMENTS // classes)
    if len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
    chosen = np.zeros(filled.size, bool)
    chosen[places] = True
    return chosen.reshape(filled.shape)


def _fitted(taken_for: TakenFor, outputs: Array, given: Array, labels: Array) -> tuple[float, float] | None:
    """The factor and the smoothing with which a form gives the gradient of rows; None if it does not."""
    wide, right = outputs.astype(np.float64), given.astype(np.float64)
    columns = [one.reshape(-1) for one in _directions(taken_for, wide, labels)]
    flat = right.reshape(-1)
    if not all(np.isfinite(one).all() for one in (*columns, flat)):
        return None
    solved, *_ = np.linalg.lstsq(np.stack(columns, axis=1), flat, rcond=None)
    factor, part = (float(one) for one in solved)
    smoothing = part / factor if factor else 0.0
    if not LEAST_SMOOTHING < smoothing < 1.0:
        smoothing = 0.0
        factor = float(columns[0] @ flat) / (float(columns[0] @ columns[0]) or 1.0)
    rest = flat - factor * (columns[0] + smoothing * columns[1])
    if not factor or np.sqrt(rest @ rest) > CROSS_ENTROPY_SHARE * np.sqrt(flat @ flat):
        return None
    return factor, float(f"{smoothing:.3g}")


def _directions(taken_for: TakenFor, outputs: Array, labels: Array) -> tuple[Array, Array]:
    """The gradient of each row's loss, and what a smoothing of 1 adds to it."""
    wanted = np.zeros_like(outputs)
    wanted[np.arange(len(labels)), labels] = 1.0
    spread = wanted - 1.0 / outputs.shape[-1]
    if taken_for == "logits":
        return softmax(outputs, axis=-1) - wanted, spread
    if taken_for == "log-probabilities":
        return -wanted, spread
    if taken_for == "probabilities":
        with np.errstate(divide="ignore", invalid="ignore"):
            return -wanted / outputs, spread / outputs
    shares = softmax(outputs, axis=-1)
    return _through_softmax(shares, softmax(shares, axis=-1) - wanted), _through_softmax(shares, spread)


def are_logarithms(outputs: Array) -> bool:
    """Tell whether outputs are the logarithms of shares of classes, along the last axis or axis 1."""
    sums = (np.exp(outputs.astype(np.float64)).sum(axis=axis) for axis in {1, outputs.ndim - 1})
    return any(np.abs(one - 1.0).max(initial=0.0) <= CROSS_ENTROPY_SHARE for one in sums)


def _through_softmax(shares: Array, gradient: Array) -> Array:
    return np.asarray(shares * (gradient - (shares * gradient).sum(axis=-1, keepdims=True)))
