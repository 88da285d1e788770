"""What a step of the user's own does otherwise around model and optimizers: order of updates, batch, training mode."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.traces import smallest_factor
from align.core.verdicts import Finding
from align.errors import AlignError
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import relative_rms_distance
from align.models.function_source import defined_at
from align.training.faults.explain_code import LossOfStep
from align.training.step_result import StepCulprit
from align.training.steps.both_steps import carried_over, paired_value
from align.training.steps.record_step import BEFORE, GIVEN
from align.training.steps.take_apart import brought_back, step_once
from align.training.thresholds import LOSS_SHARE, MOST_UNREAD_ENTRIES, ORDER_SHARE, SAME_BATCH_SHARE, UNEXPLAINED_SHARE
from align.training.watch_step import StepUnseen
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.take_apart import StepsApart


OTHER_ORDER, OTHER_ENTRY = "updates-in-other-order", "batch-entry-not-read"
AT_UPDATES = ("update", "trained")  # kinds that are judged with the reference's gradients, whatever came before


def explain_loop(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Name the order of updates, or an entry of the batch that the port does not read, in the place of what follows."""
    if all(one.kind in AT_UPDATES for one in culprits) or not all(side.own_step for side in seen.sides):
        return [*culprits]
    if order := _in_other_order(seen):
        return [order, *(one for one in culprits if one.kind in AT_UPDATES)]
    entry = _with_another_entry(seen)
    if entry is None:
        return [*culprits]
    own = (one for one in culprits if one.kind in ("backward", "gradients") and one.sureness == "confirmed")
    return [entry, *own, *(one for one in culprits if one.kind in AT_UPDATES)]


def _in_other_order(seen: SeenSteps) -> StepCulprit | None:
    """A culprit where the same optimizers update their parameters in another order, and the order matters.

    It does where gradients of the reference's step are others without the updates before them.
    """
    target = {one.source: one.target for one in seen.names.pairings}
    paired = {*target.values()}
    mine = [frozenset(target[name] for name in names if name in target) for names in seen.traces[0].updates_in_order]
    theirs = [names & paired for names in seen.traces[1].updates_in_order]
    if mine == theirs or len(mine) < 2 or len({*mine}) < len(mine) or {*mine} != {*theirs}:
        return None
    ours = seen.live_reference
    if ours is None:
        return None
    sink = _WithoutUpdates(seen.traces[0].values(0, BEFORE))
    ours.trainer.take_steps(ours.training, seen.sides[0].batches[:1], sink)
    meant = seen.traces[0].values(0, GIVEN)
    apart = (relative_rms_distance(meant[name], one) for name, one in sink.given.items() if name in meant)
    return _of_step(seen, OTHER_ORDER, {}) if any(one > ORDER_SHARE for one in apart) else None


class _WithoutUpdates(StepUnseen):
    """A StepSink that takes each update back, and keeps the gradients that the optimizers get."""

    def __init__(self, before: Mapping[str, Array]) -> None:
        self._before = before
        self.given: dict[str, Array] = {}

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """Keep what an optimizer gets first."""
        for name, one in gradients.items():
            if one is not None:
                self.given.setdefault(name, np.array(one))
        return {}

    def updated(self, held: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Go on with the values of before."""
        return {name: self._before[name] for name in held if name in self._before}


def _with_another_entry(seen: SeenSteps) -> StepCulprit | None:
    """A culprit where the reference makes the port's loss of a batch in which an entry that the port leaves is another.

    That other one is an entry of the same shape that the port reads, or ones, or zeros.
    """
    ours, own, batch = seen.live_reference, seen.live, seen.sides[0].batches[0]
    if ours is None or own is None:
        return None
    try:
        (read, right), (own_read, made) = _read_entries(ours, batch, {}), _read_entries(own, batch, seen.start)
    except AlignError:  # a step may take no other kind of table
        return None
    if not right or made is None or abs(made - right) <= LOSS_SHARE * abs(right):
        return None
    tolerance = max(SAME_BATCH_SHARE * abs(made - right), float(np.spacing(np.float32(abs(made)))))
    for name in [one for one in read if one not in own_read][:MOST_UNREAD_ENTRIES]:
        for instead, value in _in_its_place(name, batch):
            sink = LossOfStep()
            try:
                ours.trainer.take_steps(ours.training, [{**batch, name: value}], sink)
            except AlignError:  # the code may not stand such values
                continue
            if sink.loss is not None and abs(sink.loss - made) <= tolerance:
                found = _of_step(seen, OTHER_ENTRY, {"entry": name, "in its place": instead})
                return found if instead in batch else replace(found, sureness="suspected")
    return None


def _in_its_place(name: str, batch: Batch) -> Iterator[tuple[str, Any]]:
    """What may stand in the place of an array of a batch."""
    value: Any = batch[name]
    if not isinstance(value, np.ndarray):
        return
    for other, array in batch.items():
        if other != name and isinstance(array, np.ndarray) and (array.shape, array.dtype) == (value.shape, value.dtype):
            yield other, array
    yield "ones", np.ones_like(value)
    yield "zeros", np.zeros_like(value)


class _ReadBatch(dict[str, Any]):
    """A batch that notes which of its entries are read."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        super().__init__(batch)
        self.read: set[str] = set()

    def copy(self) -> dict[str, Any]:
        """All may be read."""
        self.read.update(super().keys())
        return dict(super().items())

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Note it, as `[]` does."""
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Note it, as `[]` does."""
        self.read.add(name)
        return super().pop(name, *default)

    def items(self) -> Any:
        """All may be read."""
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        """All may be read."""
        self.read.update(super().keys())
        return super().values()

    def keys(self) -> Any:
        """All may be read, as by `**batch`, which asks for the keys of what has an `__iter__` of its own."""
        self.read.update(super().keys())
        return super().keys()

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()


def _read_entries(side: TrainingSide, batch: Batch, start: Mapping[str, Array]) -> tuple[list[str], float | None]:
    """The entries of a batch that a step of the user's own reads, in the batch's order, and its loss.

    All entries are read where the step is given no table of them.
    """
    step, read = side.training.step, {*batch}

    def watched(given: Any) -> Any:
        if step is None or not isinstance(given, dict):
            return step and step(given)
        shown = _ReadBatch(given)
        loss = step(shown)
        read.intersection_update(shown.read)
        return loss

    sink = LossOfStep(values=start)
    side.trainer.take_steps(replace(side.training, step=watched), [batch], sink)
    return [name for name in batch if name in read], sink.loss


def _of_step(seen: SeenSteps, cause: str, facts: dict[str, float | int | str]) -> StepCulprit:
    line = defined_at(seen.live.training.step) if seen.live else ""
    return StepCulprit("loss", "step", "", "", "", "", 0.0, cause, facts, line=line, sureness="confirmed")


def mode_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Warn of a step of the user's own that runs in inference mode, where the reference's, if it has one, does not.

    It is no fault by itself: steps are compared in training mode, which other code of the user's may set.
    """
    ours, own = seen.live_reference, seen.live
    theirs = _losses_by_mode(own, seen, seen.start) if own is not None and seen.sides[1].own_step else None
    right = seen.traces[0].losses[0]
    if theirs is not None and right is not None and abs(theirs[1] - right) <= abs(theirs[0] - right):
        return  # the mode of the user's code is the reference's
    if theirs is not None and not (ours is not None and seen.sides[0].own_step and _losses_by_mode(ours, seen, {})):
        message = sentence("step_finding.inference_mode", training=theirs[0], inference=theirs[1])
        yield Finding("inference-mode", "warning", seen.sides[1].label, message)


def _losses_by_mode(side: TrainingSide, seen: SeenSteps, values: Mapping[str, Array]) -> tuple[float, float] | None:
    """The losses of a first step in training mode and in that of the user's code; None where the two are the same."""
    if side.training.model.training:
        return None
    losses = []
    for own in (False, True):
        sink = LossOfStep(values=values)
        try:
            side.trainer.take_steps(side.training, seen.sides[0].batches[:1], sink, in_own_mode=own)
        except AlignError:  # in inference mode a model may return something else
            return None
        losses.append(sink.loss)
    first, second = losses
    if first is None or second is None or abs(first - second) <= LOSS_SHARE * abs(first):
        return None
    return first, second


# Updates that no rule explains, where a side moves parameters at a rate of 0: by a decay or a bound of the loop's
# own.
#
# What is moved so is no part of the optimizer's rule. It is tried in two ways: taken off both sides, and done to the
# values that the other side ends at.

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
