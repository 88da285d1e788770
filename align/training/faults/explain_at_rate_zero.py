"""Updates that no rule explains, where a side moves parameters at a rate of 0: by a decay or a bound of the loop's own.

What is moved so is no part of the optimizer's rule. It is tried in two ways: taken off both sides, and done to the
values that the other side ends at.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import smallest_factor
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.training.steps.compare_values import carried_over, paired_value
from align.training.steps.take_apart import brought_back, step_once
from align.training.thresholds import UNEXPLAINED_SHARE
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.take_apart import StepsApart

MOVED = "moved-at-rate-zero"


def explain_at_rate_zero(culprits: Sequence[StepCulprit], seen: SeenSteps, apart: StepsApart) -> list[StepCulprit]:
    """Return the culprits; updates that a step at a rate of 0 explains become one.

    They do if no single change of the rule explains one of them: of a parameter with a single number any change does.
    """
    moves = _MovesAtRateZero(seen, apart)
    updates = [one for one in culprits if one.kind == "update" and one.factor > 1.0]
    unlike = {name for one in updates for name in one.parameters if moves.unlike(name)}
    if not any(unlike & {*one.parameters} for one in updates if not one.cause or "+" in one.cause):
        return [*culprits]
    explained = {name for one in updates for name in one.parameters if moves.explain(name)}
    unknown = {name for one in updates if not one.cause for name in one.parameters}
    moved = [name for one in updates for name in one.parameters if name in explained | (unlike & unknown)]
    if not moved:
        return [*culprits]
    confirmed = explained.issuperset(moved)
    first = next(one for one in updates if {*moved} & {*one.parameters})
    left = [replace(one, parameters=tuple(name for name in one.parameters if name not in moved)) for one in culprits]
    named = replace(
        first,
        cause=MOVED,
        facts=moves.facts(moved),
        parameters=tuple(moved),
        factor=max(one.factor for one in updates),
        sureness="confirmed" if confirmed else "suspected",
    )
    kept = [now for one, now in zip(culprits, left, strict=True) if now.parameters or not one.parameters]
    place = culprits.index(first)
    return [*kept[:place], named, *kept[place:]]


class _MovesAtRateZero:
    """What both sides move at a rate of 0, parameter by parameter, by the candidate's names."""

    def __init__(self, seen: SeenSteps, apart: StepsApart) -> None:
        self._seen, self._apart = seen, apart
        self._pairings = {one.target: one for one in apart.names.pairings if one.source in apart.after[0]}

    def unlike(self, name: str) -> bool:
        """Tell whether the sides end elsewhere at a rate of 0."""
        return any(not _same(*pair) for pair in self._pairs(name, self._apart.at_rate_zero))

    def explain(self, name: str) -> bool:
        """Tell whether both sides agree without what they move so, or one does so to what the other ends at."""
        if not all([*self._pairs(name, values)] for values in (self._apart.before, self._apart.at_rate_zero)):
            return False
        return self._without_moves(name) or self._once_more(name)

    def facts(self, names: Sequence[str]) -> dict[str, float | int | str]:
        """What moves on each side: as one factor of the values, or as a share of their size."""
        found = [_movement_text([self._pair(name, side) for name in names]) for side in range(len(self._apart.before))]
        return {"at a rate of 0": joined(" vs ", found)}

    def _pair(self, name: str, side: int) -> tuple[Array, Array]:
        """A side's values before and after its step at a rate of 0."""
        own = name if side else self._pairings[name].source
        after = self._apart.at_rate_zero[side] or {}
        return self._apart.before[side][own], after[own]

    def _pairs(self, name: str, values: Sequence[Mapping[str, Array] | None]) -> Iterator[tuple[Array, Array]]:
        """Both sides' values in the candidate's layout."""
        pairing, (mine, theirs) = self._pairings.get(name), values
        pair = (
            None
            if pairing is None or mine is None or theirs is None
            else paired_value(pairing, mine.get(pairing.source), theirs.get(name))
        )
        if pair is not None and pair.meant is not None and pair.value is not None:
            yield pair.meant, pair.value

    def _without_moves(self, name: str) -> bool:
        (start,) = self._pairs(name, self._apart.before)
        (still,) = self._pairs(name, self._apart.at_rate_zero)
        (ends,) = self._pairs(name, self._apart.after)
        mine, theirs = (
            end.astype(np.float64) - (zero.astype(np.float64) - begun)
            for end, zero, begun in zip(ends, still, start, strict=True)
        )
        return _same(mine.astype(ends[0].dtype), theirs.astype(ends[1].dtype))

    def _once_more(self, name: str) -> bool:
        """Step the side that moves at a rate of 0 from where the other side ends."""
        own = self._pairings[name].source, name
        moves = [not _same(*self._pair(name, side)) for side in range(len(own))]
        if all(moves):
            return False
        side = int(moves[1])
        done = (self._done_by_reference, self._done_by_candidate)[side]
        return own[side] in done and _same(done[own[side]], self._apart.after[side][own[side]])

    @cached_property
    def _done_by_reference(self) -> Mapping[str, Array]:
        """The reference's step at a rate of 0 from the candidate's values after its own step."""
        apart = self._apart
        start = brought_back(apart.names, apart.after[1], apart.before[0])
        return self._stepped(self._seen.live_reference, {**apart.before[0], **start})

    @cached_property
    def _done_by_candidate(self) -> Mapping[str, Array]:
        apart = self._apart
        start = carried_over(apart.names, apart.after[0], apart.before[1])
        return self._stepped(self._seen.live, {**apart.before[1], **start})

    def _stepped(self, side: TrainingSide | None, start: Mapping[str, Array]) -> Mapping[str, Array]:
        found = None if side is None else step_once(side, self._seen, start, rate_zero=True)
        return found or {}


def _same(one: Array, other: Array) -> bool:
    """Tell whether rounding explains what two tensors differ by."""
    figures = measure(one, other)
    return smallest_factor(figures, rounding_limit(figures, one.dtype.name)) <= 1.0


def _movement_text(pairs: Sequence[tuple[Array, Array]]) -> str:
    """What a step at a rate of 0 made of values: nothing, times one factor, or moved by a share of their size."""
    before, after = (np.concatenate([one[end].astype(np.float64).reshape(-1) for one in pairs]) for end in (0, 1))
    size, moved = float(np.linalg.norm(before)), float(np.linalg.norm(after - before))
    if not moved or not size:
        return sentence("update_fact.moved", size=moved)
    factor = float(before @ after) / size**2
    if np.linalg.norm(after - factor * before) <= UNEXPLAINED_SHARE * moved:
        return sentence("update_fact.times", factor=factor)
    return sentence("update_fact.moved_share", share=moved / size)
