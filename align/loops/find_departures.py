"""Where quantities of two trainings depart for good.

A figure departs where it differs by far more than all that stands before it (`sudden`), where it is zero or missing on
one side alone (`missing`), or where it lies to one side from some step to the end, by more than it varies from step to
step (`lasting`). Two right trainings drift apart by rounding, slowly and everywhere at once, and to no side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.loops.pair_records import read_quantities
from align.loops.thresholds import (
    DEPARTURE_FLOORS,
    DEPARTURE_JUMP,
    HALF_FLOOR_UNITS,
    LASTING_BLOCKS,
    LASTING_EFFECT,
    LASTING_ERRORS,
    LASTING_SHARE_OF_RANGE,
    LATE_FACTOR,
    LATE_NAMES,
    LATE_QUANTILE,
    LEAST_BLOCK_STEPS,
    LEAST_STEPS_MISSING,
    MOST_BLOCKS,
    NAMES_AT_ONCE,
    PERSISTENT_LEAST,
    PERSISTENT_SHARE,
    PERSISTENT_STEPS,
    REPEAT_FACTOR,
    STEPS_AT_ONCE,
    USUAL_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.loops.pair_records import PairedRecords, Quantity, WatchedQuantity

Way = Literal["sudden", "missing", "lasting"]


@dataclass(frozen=True, slots=True)
class Departure:
    """A figure that departs for good at `step`: `name` in the reference, `other` in the candidate, "" for the step.

    `layer` is the reference's module. `values` are those of both sides at that step, NaN for one that is missing;
    `ratio` is the candidate's over the reference's, its median from that step on. `limit` is the relative difference
    above which it departs.
    """

    step: int
    quantity: Quantity
    name: str
    other: str
    layer: str
    way: Way
    values: tuple[float, float]
    ratio: float | None
    limit: float


def find_departures(
    pairs: PairedRecords, quantities: Sequence[WatchedQuantity], noise: Mapping[str, Array]
) -> list[Departure]:
    """All departures, the first one first: by step, then by what follows from what, then by order of execution.

    Gradients that are missing stand the other way round: what gets none passes none on to the layers before it.
    `noise` is how far two repeats of one training are apart, by quantity, in the columns of the quantities.
    """
    ranked: list[tuple[tuple[int, float, int, int], Departure]] = []
    usual, drifting = _usual_differences(quantities), _drifting(pairs)
    for number, quantity in enumerate(quantities):
        floor = max(DEPARTURE_FLOORS[quantity.kind], 0.0 if quantity.exact else HALF_FLOOR_UNITS * pairs.half)
        jumps = np.zeros(len(pairs.steps)) if quantity.exact else DEPARTURE_JUMP * usual[number]
        limits = np.maximum(floor, jumps)
        onsets: dict[int, tuple[int, Way]] = {}
        for columns, rows in quantity.rhythm():
            part = _Part.of(quantity, columns, rows, noise.get(quantity.kind), pairs)
            for way, found in part.ways(limits[rows]):
                for place, onset in zip(columns.tolist(), found.tolist(), strict=True):
                    if onset >= 0 and not (way == "lasting" and _may_drift(quantity, place, drifting)):
                        onsets[place] = min((int(rows[onset]), way), onsets.get(place, (len(limits), way)))
        for place, (onset, way) in onsets.items():
            limit = {"missing": floor, "lasting": LASTING_EFFECT, "sudden": float(limits[onset])}[way]
            rank = (1.5, -quantity.layers.index(quantity.layers[place])) if way == "missing" else (number, place)
            ranked.append(((onset, *rank, place), _departure(quantity, place, (onset, way, limit), pairs)))
    return [departure for _, departure in sorted(ranked, key=lambda row: row[0])]


def _departure(quantity: WatchedQuantity, place: int, found: tuple[int, Way, float], pairs: PairedRecords) -> Departure:
    onset, way, limit = found
    both = [side[:, place] for side in quantity.values]
    first, second = (nan if np.isinf(side[onset]) else float(side[onset]) for side in both)
    with np.errstate(all="ignore"):
        ratios = both[1][onset:] / both[0][onset:]
    ratios = ratios[np.isfinite(ratios)]
    ratio = float(np.median(ratios)) if ratios.size else None
    (name, other), layer, step = quantity.names[place], quantity.layers[place], int(pairs.steps[onset])
    return Departure(step, quantity.kind, name, other, layer, way, (first, second), ratio, limit)


def _drifting(pairs: PairedRecords) -> set[str]:
    """Layers whose parameter gets nothing but rounding, which an optimizer may blow up, and those that run next."""
    own = {pairs.sides[0].parameters.by_name[name].module for name in pairs.rounding}
    order = [layer for layer, _ in pairs.layers]
    after = {order[place + 1] for place, layer in enumerate(order[:-1]) if layer in own}
    return own | after


def _may_drift(quantity: WatchedQuantity, place: int, drifting: set[str]) -> bool:
    return quantity.kind in ("output", "buffer") and quantity.layers[place] in drifting


def _usual_differences(quantities: Sequence[WatchedQuantity]) -> list[Array]:
    """For each quantity, by step, the largest of the usual differences before it: of earlier steps, or in its step."""
    shares = [_usual_share(quantity.apart) * (not quantity.exact) for quantity in quantities]
    by_step = np.max(shares, axis=0)
    earlier = np.concatenate([[0.0], np.maximum.accumulate(by_step)[:-1]])
    before, running = [], np.zeros(len(by_step))
    for share in shares:
        before.append(np.maximum(earlier, running))
        running = np.maximum(running, share)
    return before


def _usual_share(apart: Array) -> Array:
    """By step, the difference below which most of the names lie; 0 where none is known."""
    shares = np.zeros(len(apart))
    for start in range(0, len(apart) if apart.shape[1] else 0, STEPS_AT_ONCE):
        part = apart[start : start + STEPS_AT_ONCE]
        counts = np.isfinite(part).sum(axis=1)
        ranked = np.sort(np.where(np.isfinite(part), part, np.float32(-1.0)), axis=1)
        places = ranked.shape[1] - 1 - np.floor((1 - USUAL_SHARE) * counts).astype(int)
        shares[start : start + STEPS_AT_ONCE] = np.where(counts > 0, ranked[np.arange(len(ranked)), places], 0.0)
    return shares


@dataclass(slots=True)
class _Part:
    """Columns of a quantity in the rows in which they are known, and how far two repeats are apart there.

    `sure` are the differences that random numbers of layers have no part in.
    """

    quantity: WatchedQuantity
    values: tuple[Array, Array]
    apart: Array
    sure: Array
    repeated: Array | None

    @classmethod
    def of(
        cls, quantity: WatchedQuantity, columns: Array, rows: Array, repeated: Array | None, pairs: PairedRecords
    ) -> _Part:
        cells, whole = np.ix_(rows, columns), (len(rows), len(columns)) == quantity.apart.shape
        apart, *values = [one if whole else one[cells] for one in (quantity.apart, *quantity.values)]
        sure = apart
        if pairs.first_draw is not None and not quantity.exact and repeated is None and quantity.kind != "weight":
            sure = np.full_like(apart, np.nan)
            before = columns < (pairs.first_draw if quantity.kind == "output" else 0)
            sure[:1, before] = apart[:1, before]
        return cls(quantity, (values[0], values[1]), apart, sure, None if repeated is None else repeated[cells])

    def ways(self, limits: Array) -> Iterator[tuple[Way, Array]]:
        """For each way to depart, the row at which each column does, -1 for none."""
        yield "sudden", self._at_once(limits) if self.quantity.exact else self._sudden(limits)
        if self.quantity.kind in ("gradient", "update"):
            yield "missing", self._missing()
        if not self.quantity.exact and self.quantity.kind != "weight":
            yield "lasting", self._lasting()

    def _at_once(self, limits: Array) -> Array:
        beyond = self.sure > limits[:, None]
        return np.where(beyond.any(axis=0), beyond.argmax(axis=0), -1)

    def _sudden(self, limits: Array) -> Array:
        """The first row at which each column is beyond its limit and stays near it."""
        apart, onsets = self.sure, np.full(self.sure.shape[1], -1)
        noise = None if self.repeated is None else REPEAT_FACTOR * np.maximum.accumulate(self.repeated, axis=0)
        for row in np.flatnonzero((apart > limits[:, None]).any(axis=1)):
            bound = np.broadcast_to(limits[row], onsets.shape) if noise is None else np.maximum(limits[row], noise[row])
            columns = np.flatnonzero((apart[row] > bound) & (onsets < 0))
            later = apart[row : row + PERSISTENT_STEPS, columns]
            counts = np.isfinite(later).sum(axis=0)
            near = (later > bound[columns] / DEPARTURE_JUMP**0.5).sum(axis=0)
            enough = counts >= (min(PERSISTENT_LEAST, len(apart)) if row else 1)
            onsets[columns[(near >= PERSISTENT_SHARE * counts) & enough]] = row
        return onsets

    def _missing(self) -> Array:
        """The first row from which a column is 0 or nothing on one side to the end, and not on the other."""
        parts = []
        for columns in _column_parts(self.apart):
            values, known = [side[:, columns] for side in self.values], np.isfinite(self.apart[:, columns])
            both = [_missing_on(values[side], values[1 - side], known) for side in (0, 1)]
            parts.append(np.where(both[0] >= 0, both[0], both[1]))
        return np.concatenate([np.zeros(0, int), *parts])

    def _lasting(self) -> Array:
        """The first row from which a column lies to one side to the end, by blocks of rows.

        The mean of a block's logarithms of ratios must lie beyond so many standard errors, and beyond a share of the
        range that the reference itself runs through.
        """
        steps, names = self.apart.shape
        length = block_steps(steps)
        if steps // length < LASTING_BLOCKS or not names:
            return np.full(names, -1)
        parts = [self._blocks(columns, length) for columns in _column_parts(self.apart)]
        middle, bound = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        return _to_one_side(middle, bound, length)

    def _blocks(self, columns: slice, length: int) -> tuple[Array, Array]:
        """By block and column, the mean shift of logarithms, and what it must exceed."""
        first, second = (np.abs(side[:, columns]) for side in self.values)
        both = np.isfinite(self.apart[:, columns]) & (first > 0) & (second > 0) & np.isfinite(first + second)
        logs = [np.log(np.where(both, side, 1.0)) for side in (first, second)]
        blocks = len(both) // length
        inside = both[: blocks * length].reshape(blocks, length, -1)
        shifts = np.where(both, logs[1] - logs[0], 0.0)[: blocks * length].reshape(inside.shape)
        known = inside.sum(axis=1)
        counts = np.maximum(known, 2)
        middle = shifts.sum(axis=1) / counts
        squares = np.where(inside, (shifts - middle[:, None]) ** 2, 0.0).sum(axis=1)
        spread = np.where(known >= LEAST_BLOCK_STEPS - 2, np.sqrt(squares / (counts - 1) / counts), np.inf)
        high, low = np.quantile(np.where(both, logs[0], 0.0), (0.95, 0.05), axis=0)
        bound = np.maximum(np.maximum(LASTING_EFFECT, LASTING_SHARE_OF_RANGE * (high - low)), LASTING_ERRORS * spread)
        if self.repeated is not None:
            bound = np.maximum(bound, REPEAT_FACTOR * self.repeated[:, columns].max(axis=0))
        return middle, bound


def _column_parts(matrix: Array) -> list[slice]:
    return [slice(first, first + NAMES_AT_ONCE) for first in range(0, matrix.shape[1], NAMES_AT_ONCE)]


def _missing_on(side: Array, other: Array, known: Array) -> Array:
    """The first row from which a column is 0 or nothing on this side to the end, and mostly not on the other."""
    nothing = np.isnan(side) | (side == 0)
    alone = nothing & ~(np.isnan(other) | (other == 0)) & np.isfinite(other) & known  # not in both's rounding
    if not alone.any():
        return np.full(alone.shape[1], -1)
    left = np.cumsum(alone[::-1], axis=0, dtype=np.int32)[::-1]  # from each row to the end
    lasting = np.logical_and.accumulate(nothing[::-1], axis=0)[::-1]
    share = left / np.arange(len(alone), 0, -1)[:, None]
    good = lasting & alone & (share >= PERSISTENT_SHARE) & (left >= min(LEAST_STEPS_MISSING, len(alone)))
    return np.where(good.any(axis=0), good.argmax(axis=0), -1)


def block_steps(steps: int) -> int:
    """Steps over which a lasting difference is averaged, of a record of so many."""
    return max(LEAST_BLOCK_STEPS, -(-steps // MOST_BLOCKS))


def _to_one_side(middle: Array, bound: Array, length: int) -> Array:
    """The first row of the first block from which a column lies beyond its bound, on one side, to the end."""
    blocks, names = middle.shape
    # What sets in late must stand out among all: two right trainings may settle apart, each figure by a little.
    usual = np.quantile(np.abs(middle), LATE_QUANTILE, axis=1, keepdims=True) if names >= LATE_NAMES else 0.0
    stands_out = np.abs(middle) > LATE_FACTOR * usual
    stands_out[:LASTING_BLOCKS] = True
    onsets = np.full(names, -1)
    for beyond in (middle > bound, middle < -bound):
        share = np.cumsum(beyond[::-1], axis=0)[::-1] / np.arange(blocks, 0, -1)[:, None]
        good = beyond & stands_out & (share >= PERSISTENT_SHARE) & beyond[-1]
        good[blocks - LASTING_BLOCKS + 1 :] = False
        onsets = np.where(good.any(axis=0) & (onsets < 0), good.argmax(axis=0) * length, onsets)
    return onsets


def noise_of(repeats: PairedRecords, pairs: PairedRecords, quantities: Sequence[WatchedQuantity]) -> dict[str, Array]:
    """How far two repeats are apart, by quantity, in the columns of the pairs; what they do not know is 0 apart."""
    distances: dict[str, Array] = {}
    rows = np.clip(np.searchsorted(repeats.steps, pairs.steps), 0, len(repeats.steps) - 1)
    wanted = {quantity.kind: quantity for quantity in quantities}
    for quantity in read_quantities(repeats):
        places = {name: place for place, (name, _) in enumerate(quantity.names)}
        chosen = (places.get(name, places.get(other, -1)) for name, other in wanted[quantity.kind].names)
        names = np.fromiter(chosen, np.int64)
        padded = np.concatenate([np.nan_to_num(quantity.apart), np.zeros((len(quantity.apart), 1), np.float32)], axis=1)
        if not quantity.exact:
            distances[quantity.kind] = padded[np.ix_(rows, names)]
    return distances
