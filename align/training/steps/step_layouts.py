"""Layouts of a port's tensors in a step: of one shape too, as batch first and last of as many samples as positions."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from align.measure.sampled_values import relative_rms_distance
from align.measure.tensor_layouts import LearnedLayouts, PermutedLayout
from align.training.thresholds import (
    LAYOUT_FEWEST_ELEMENTS,
    LAYOUT_MOST_AXES,
    LAYOUT_SAMPLES,
    OTHER_LAYOUT_DISTANCE,
    SAME_LAYOUT_DISTANCE,
)

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.traces import Capture
    from align.measure.tensor_layouts import Layout


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
