"""Masks of dropout that are the same in every run: drawn from the place of a call in the run, its shape and share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.training import DropoutCall
from align.training.thresholds import OWN_SEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.training import DropoutLayer

# Of these alone a tensor may lack the samples; Dropout2d takes three axes as N, C, L.
UNBATCHED = (1, 3)  # format: axes behind the channels, of Dropout1d and Dropout3d
Run = tuple[DropoutCall, ...]


def draw_mask(place: int, shape: Shape, share: float, spatial: int = 0) -> Array:
    """A mask of 0 and 1/(1-share) by which a tensor of this shape can be multiplied, in float64.

    `place` counts the calls of a run from 0. With `spatial` axes behind the channels it has length 1 in these.
    """
    lead = len(shape) if not spatial else 1 if spatial in UNBATCHED and len(shape) == spatial + 1 else 2
    drawn = (*shape[:lead], *(1 for _ in shape[lead:]))
    kept = np.random.default_rng((OWN_SEED, place, *shape)).random(drawn, dtype=np.float32) >= share
    return kept / (1.0 - share) if share < 1.0 else np.zeros(drawn)


@dataclass
class ListedCalls:
    """A DropoutSink whose masks are 1, and that lists the calls of each run of the model.

    `outside` are the paths of layers that were called while the model itself was not: by a step that calls parts of
    it, or on the way back, where what was not kept is computed anew.
    """

    runs: list[Run] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    _calls: list[DropoutCall] | None = None

    @property
    def kinds(self) -> list[Run]:
        """The runs that differ, in their order: the parts of a batch run alike."""
        return [*dict.fromkeys(self.runs)] or [()]

    @property
    def called(self) -> set[str]:
        """The paths of all layers that were called."""
        return {one.path for run in self.runs for one in run} | set(self.outside)

    def begin(self) -> None:
        """Start a run."""
        self._calls = []

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array:
        """List the call; what is multiplied is computed anew on the way back where a true mask would be."""
        if self._calls is None:
            self.outside.append(layer.path)
        else:
            kind, share = type(layer.module).__name__, layer.share if active else 0.0
            self._calls.append(DropoutCall(len(self._calls), layer.path, kind, shape, share, layer.spatial))
        return np.ones([1] * len(shape))

    def end(self) -> None:
        """Keep the run."""
        self.runs.append(tuple(self._calls or ()))
        self._calls = None


@dataclass
class PlannedMasks:
    """A DropoutSink that gives each call the mask of the reference's call that stands for it, else one of its own.

    The calls of the reference are known by the place and the path of the side's.
    """

    planned: Mapping[tuple[int, str], DropoutCall] = field(default_factory=dict)
    _place: int = 0

    def begin(self) -> None:
        """Count anew."""
        self._place = 0

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array | None:
        """Draw it."""
        place, meant = self._place, self.planned.get((self._place, layer.path))
        self._place += 1
        if meant is not None:
            return draw_mask(meant.place, shape, meant.share, meant.spatial) if meant.share else None
        return draw_mask(place, shape, layer.share, layer.spatial) if active and layer.share else None

    def end(self) -> None:
        """Nothing: what is called later counts on."""
