"""Values for a run that shows where each tensor stands: distinct throughout, and such that a signal stays alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float, numpy_dtype
from align.names.thresholds import MOST_DISTINCT_ELEMENTS, TRIAL_SPREAD
from align.names.trial_parts.distinct_values import distinct_values
from align.rules.layer_rules import STATISTICS

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.names.trial_parts.trial_sides import TrialSide


def lively_values(side: TrialSide, generator: np.random.Generator) -> dict[str, Array]:
    """Distinct values for all floating parameters and statistics, that keep a signal alive."""
    known = [layer for layer in side.layers if layer.kind]
    names = {p.name for layer in known for p in layer.roles.values()}
    drawn = distinct_values(known, names, generator)
    for parameter in side.parameters.parameters:
        name = side.tensor(parameter.name)
        if name in drawn or not is_float(parameter.dtype) or (parameter.buffer and not _is_statistic(side, name)):
            continue
        own = np.asarray(side.own[parameter.name], np.float64)
        drawn[name] = _moved(own, generator).astype(numpy_dtype(parameter.dtype))
    return {name: _distinct(drawn[name]) if name in drawn else value for name, value in side.own.items()}


def _distinct(value: Array) -> Array:
    """No element twice, so that each is found again by its value: the next numbers above it take its place."""
    if value.dtype != np.float32 or value.size > MOST_DISTINCT_ELEMENTS:
        return value
    flat = value.reshape(-1)
    order = np.argsort(flat, kind="stable")
    bits = flat[order].view(np.int32).astype(np.int64)
    ranks = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # in the order of the numbers
    steps = np.arange(len(ranks))
    ranks = np.maximum.accumulate(ranks - steps) + steps
    made = np.where(ranks < 0, -ranks | -0x80000000, ranks).astype(np.int32).view(np.float32)
    found = np.empty_like(flat)
    found[order] = made
    return found.reshape(value.shape)


def _is_statistic(side: TrialSide, name: str) -> bool:
    layer = side.layer_of.get(name)
    return layer is not None and any(p.name == name and role in STATISTICS for role, p in layer.roles.items())


def _moved(own: Array, generator: np.random.Generator) -> Array:
    """Own values a little moved; of a tensor that is constant throughout: spread around it."""
    noise = generator.standard_normal(own.shape)
    spread, size = float(own.std()), float(abs(own).max(initial=0.0))
    if own.ndim and spread > 1e-3 * size:
        moved: Array = own * (1 + 0.05 * noise) + 0.01 * spread * generator.standard_normal(own.shape)
    elif own.ndim > 1 and sum(n > 1 for n in own.shape) > 1 and not size:
        moved = noise * np.sqrt(2.0 / own.shape[-1])
    else:
        moved = own + TRIAL_SPREAD * noise * (size or 1.0)
    return moved
