"""Between which steps a trouble begins, as far as two logs tell.

A point that two logs share may be the mean of many steps, or the only one printed of many. The log that prints single
steps then often tells which of them it was; where none does, the answer is a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.curve_shapes import find_excursions
from align.curves.loss_log import RAW
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Curve
    from align.curves.troubles.curve_evidence import CurveEvidence


class TroubleStart(NamedTuple):
    """The last step that is known to be well (0: none is), and the last one at which the trouble can have begun."""

    before: int
    last: int

    @property
    def batches(self) -> str:
        """What to call the batches in question."""
        if self.last - self.before == 1:
            return sentence("loss_next.batch", step=self.last)
        return sentence("loss_next.batches", first=self.before + 1, last=self.last)


def find_trouble_start(evidence: CurveEvidence, step: int) -> TroubleStart:
    """Find where the trouble that shows at `step` begins: since the common step before it, closer if a log tells."""
    pairs = evidence.pairs
    at = int(np.searchsorted(pairs.steps, step))
    found = TroubleStart(int(pairs.steps[at - 1]) if at else 0, step)
    common = at < len(pairs.steps) and pairs.steps[at] == step
    values = (pairs.reference[at], pairs.candidate[at]) if common else (0.0, 0.0)
    for curve, own, other in zip(evidence.curves, values, values[::-1], strict=False):
        if found.last - found.before > 1 and curve.window == RAW:
            found = _closer(found, curve, _troubled(curve, above=bool(own > other)))
    return found


def _closer(found: TroubleStart, curve: Curve, troubled: Booleans) -> TroubleStart:
    """Take the first troubled point of a log in the range, and the point that the log has before it."""
    places = np.flatnonzero(troubled & (curve.steps > found.before) & (curve.steps <= found.last))
    if not len(places):
        return found
    first = int(places[0])
    return TroubleStart(max(found.before, int(curve.steps[first - 1]) if first else 0), int(curve.steps[first]))


def _troubled(curve: Curve, *, above: bool) -> Booleans:
    """Tell which points are not finite, or (of the side above the other) begin to go up."""
    troubled: Booleans = ~np.isfinite(curve.values)
    if above:
        troubled[[excursion.start for excursion in find_excursions(curve.values)]] = True
    return troubled
