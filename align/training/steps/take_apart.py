"""Why the candidate ends its first step elsewhere, one thing at a time: gradients, optimizer, what needs no rate.

The reference's live optimizer is given the candidate's gradients, and each side takes the step at a rate of 0. What the
candidate's optimizer makes of the reference's gradients was recorded.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from align.core.piece_transforms import apart_from_cut, apart_from_whole
from align.errors import CannotRunError, UserCodeError
from align.models.spilled_arrays import MadeArrays, SpilledArrays
from align.training.step_result import StepApart
from align.training.steps.compare_values import paired_value
from align.training.steps.record_step import AFTER, BEFORE, GIVEN
from align.training.updates.apply_rule import moved_norm
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.training.open_training import TrainingSide
    from align.training.steps.both_steps import SeenSteps


@dataclass(frozen=True)
class StepsApart:
    """Values after the first step of both sides, by each side's names: None for a step that could not be taken.

    `before` are both sides' values before it, and `after` after it, the candidate under the reference's gradients.
    `own` is the candidate's under its own gradients, `given` the reference's under these. `at_rate_zero` are both.
    """

    names: NameMap
    before: tuple[Mapping[str, Array], Mapping[str, Array]]
    after: tuple[Mapping[str, Array], Mapping[str, Array]]
    own: Mapping[str, Array] | None
    given: Mapping[str, Array] | None
    at_rate_zero: tuple[Mapping[str, Array] | None, Mapping[str, Array] | None]


class _OneStep(StepUnseen):
    """A StepSink that begins from values, may change gradients, and keeps what is there at the end."""

    def __init__(self, start: Mapping[str, Array], gradients: Mapping[str, Array]) -> None:
        self._start, self._gradients = start, gradients
        self.after = SpilledArrays()

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        return self._start

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        known = self._gradients
        return MadeArrays({name: partial(known.__getitem__, name) for name in gradients if name in known})

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        for name, value in values:
            self.after[name] = value


def take_apart(seen: SeenSteps) -> StepsApart | None:
    """Take the first step in other ways; None unless both sides are live and update each parameter once."""
    live, traces = (seen.live_reference, seen.live), seen.traces
    if live[0] is None or live[1] is None or any(trace.repeated for trace in traces):
        return None
    before = traces[0].values(0, BEFORE), seen.start
    gradients = brought_back(seen.names, traces[1].values(0, GIVEN), traces[0].values(0, GIVEN))
    return StepsApart(
        seen.names,
        before,
        (traces[0].values(0, AFTER), traces[1].values(0, AFTER)),
        step_once(live[1], seen, before[1]),
        step_once(live[0], seen, before[0], gradients),
        (step_once(live[0], seen, before[0], rate_zero=True), step_once(live[1], seen, before[1], rate_zero=True)),
    )


def step_once(
    side: TrainingSide,
    seen: SeenSteps,
    start: Mapping[str, Array],
    gradients: Mapping[str, Array] | None = None,
    *,
    rate_zero: bool = False,
) -> Mapping[str, Array] | None:
    """Values after the first step of a side from `start`; None where the side cannot take it."""
    sink = _OneStep(start, gradients or {})
    with suppress(UserCodeError, CannotRunError):
        side.trainer.take_steps(side.training, seen.sides[0].batches[:1], sink, rate_zero=rate_zero)
        return sink.after
    return None


def brought_back(name_map: NameMap, target: Mapping[str, Array], source: Mapping[str, Array]) -> SpilledArrays:
    """The target's values in the source's names and layouts; of what is not whole the rest stays the source's."""
    found = SpilledArrays()
    for one in name_map.pairings:
        if one.target in target and one.source in source:
            value = _brought_back(
                one, target[one.target], found[one.source] if one.source in found else source[one.source]
            )
            if value is not None:
                found[one.source] = value
    return found


def _brought_back(pairing: Pairing, value: Array, held: Array) -> Array | None:
    """One value, in its place where it is a piece of what is held; None where the way there cannot be undone."""
    change, part = apart_from_whole(pairing.transform)
    cut, rest = apart_from_cut(change)
    own = value if part is None else value[part.region]
    with suppress(ValueError):
        if not cut.steps:
            return change.inverse(held.shape, held.dtype.name).apply(own).astype(held.dtype)
        piece = cut.apply(held)
        whole = held.copy()
        cut.apply(whole)[...] = rest.inverse(piece.shape, piece.dtype.name).apply(own)
        return whole
    return None


def compare_apart(apart: StepsApart, trained: set[str]) -> Iterator[StepApart]:
    """Sizes of what each thing makes otherwise, for each paired parameter that is `trained`."""
    for one in apart.names.pairings:
        if one.target in trained and one.source in apart.after[0]:
            yield _sizes(apart, one)


def _sizes(apart: StepsApart, pairing: Pairing) -> StepApart:
    before, after = apart.before[0][pairing.source], apart.after[0][pairing.source]
    still = [
        None if values is None or name not in values else moved_norm(start[name], values[name])
        for name, start, values in zip((pairing.source, pairing.target), apart.before, apart.at_rate_zero, strict=True)
    ]
    return StepApart(
        pairing.source,
        pairing.target,
        moved_norm(before, after),
        _gap(pairing, after, apart.own),
        None if apart.given is None else moved_norm(after, apart.given[pairing.source]),
        _gap(pairing, after, apart.after[1]),
        (still[0], still[1]),
    )


def _gap(pairing: Pairing, mine: Array, theirs: Mapping[str, Array] | None) -> float | None:
    pair = None if theirs is None else paired_value(pairing, mine, theirs.get(pairing.target))
    if pair is None or pair.meant is None or pair.value is None:
        return None
    return moved_norm(pair.meant, pair.value)
