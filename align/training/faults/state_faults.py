"""What a step makes otherwise of running statistics, of tied tensors and of layers run again, and what its loop does.

Each call of a layer mixes in the statistics of what it is given, which the reference's inputs show. Where a step calls
it several times, the momentum of a side is the one number with which all calls, one by one, lead to its values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.name_map import as_gradient
from align.core.parameters import is_float
from align.core.verdicts import Finding
from align.errors import AlignError
from align.measure.tensor_statistics import relative_rms_distance
from align.models.function_source import defined_at
from align.models.loop_watcher import layers_recomputed
from align.training.faults.find_step_faults import value_culprits, values_by_themselves
from align.training.open_training import StepUnseen
from align.training.step_result import StepCulprit
from align.training.steps.both_steps import PairedValue, judge_values, owners_of, paired_values
from align.training.steps.judge_step import UNKNOWN, GradientRelation
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED, GIVEN, LossesOfSteps, UpdateTrace, take_again
from align.training.thresholds import (
    LOSS_SHARE,
    MOMENTUM_GRID,
    MOMENTUM_ROUNDS,
    MOMENTUM_TOLERANCE,
    MOST_UNREAD_ENTRIES,
    ORDER_SHARE,
    SAME_BATCH_SHARE,
    STATISTIC_ROUNDING_SHARE,
    STEP_ROUNDING_SHARE,
    SWAPPED_MOMENTUM_RATIO,
    UNEXPLAINED_SHARE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.step_result import Sureness
    from align.training.steps.both_steps import JudgedValue, SeenSteps


CHANNELS = 1  # format: the axis of what a normalisation is given; else the last one


def statistic_culprits(seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {buffer.name for buffer in seen.parameters[0].parameters if buffer.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.first.after.items() if value.dtype.kind == "f"}
    pairs = [
        pair for pair in paired_values(seen.names, after, held) if pair.meant is not None and pair.value is not None
    ]
    faulty = []
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True, coarser=seen.precision_of)
    for pair, statistic in zip(pairs, judged, strict=True):
        before = seen.start.get(pair.pairing.target)
        if statistic.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            if np.abs(pair.value - pair.meant).max() <= STATISTIC_ROUNDING_SHARE * _size_of_inputs(
                seen, pair.pairing.source
            ):
                continue  # a mean of nearly nothing, of large values that cancel
            relation = relate_statistics(before, pair.meant, pair.value)
            if not relation.cause:
                inputs = _inputs_of(seen, pair.pairing.source)
                relation = relate_repeated(before, pair.meant, pair.value, inputs)
            faulty.append(replace(statistic, relation=relation))
    if not seen.live:
        faulty = values_by_themselves(faulty, seen.judge.seen, owners)
    return value_culprits(faulty, "buffer", "layer", owners)


def _size_of_inputs(seen: SeenSteps, buffer: str) -> float:
    """The root mean square of what the layer of a statistic was given, or its square if that is more."""
    values = _inputs_of(seen, buffer)
    square = max((float(np.mean(one.astype(np.float64) ** 2)) for one in values), default=0.0)
    return max(sqrt(square), square)


def _inputs_of(seen: SeenSteps, buffer: str) -> list[Array]:
    module = owners_of(seen.parameters[0]).get(buffer, "")
    trace = seen.traces[0].forward
    return [trace.value(one) for one in trace.inputs if one.module == module and is_float(one.dtype)]


def relate_statistics(before: Array, meant: Array, value: Array) -> GradientRelation:
    """Say how the values after a step follow from those meant, with what both began from.

    A running statistic is (1 - m) x before + m x that of the batch. With other m it moves by another multiple; with a
    variance over n in the place of n - 1, the batch's share is another one.
    """
    old, right, candidate = (array.astype(np.float64).reshape(-1) for array in (before, meant, value))
    if not old.shape == right.shape == candidate.shape:
        return UNKNOWN
    moved, own_moved = right - old, candidate - old
    if not own_moved.any():
        return GradientRelation("statistics-kept") if moved.any() else UNKNOWN
    if not moved.any():
        return GradientRelation("statistics-not-kept")
    factor = float(moved @ own_moved) / float(moved @ moved)
    if np.abs(own_moved - factor * moved).max() <= UNEXPLAINED_SHARE * np.abs(own_moved).max():
        swapped = (
            abs(factor - SWAPPED_MOMENTUM_RATIO) < UNEXPLAINED_SHARE * SWAPPED_MOMENTUM_RATIO
            or abs(factor - 1 / SWAPPED_MOMENTUM_RATIO) < UNEXPLAINED_SHARE
        )
        cause = "statistics-momentum-swapped" if swapped else "statistics-momentum"
        return GradientRelation(cause, {"factor": float(f"{factor:.4g}")})
    columns = np.stack([old, right], axis=1)
    (share, ratio), *_ = np.linalg.lstsq(columns, candidate, rcond=None)
    if np.abs(columns @ [share, ratio] - candidate).max() <= UNEXPLAINED_SHARE * np.abs(own_moved).max():
        return GradientRelation("statistics-of-another-kind", {"ratio": float(f"{ratio:.6g}")})
    return UNKNOWN


def relate_repeated(before: Array, meant: Array, value: Array, inputs: Sequence[Array]) -> GradientRelation:
    """Say by which momenta both sides come from `before` to their values, given what the layer was called with.

    A momentum is the share of each batch, as in torch. Nothing is said of a layer that is called once.
    """
    if len(inputs) < 2 or before.ndim != 1 or not before.shape == meant.shape == value.shape:
        return UNKNOWN
    start, *ends = (one.astype(np.float64) for one in (before, meant, value))
    for statistics in _statistics(inputs, len(before)):
        momenta = [_momentum(start, one, statistics) for one in ends]
        if momenta[0] is not None and momenta[1] is not None:
            return _relation(momenta[0], momenta[1])
    return UNKNOWN


def _relation(mine: float, theirs: float) -> GradientRelation:
    if abs(mine - theirs) <= MOMENTUM_TOLERANCE * mine:
        return UNKNOWN
    cause = "statistics-momentum-swapped" if abs(mine + theirs - 1.0) <= MOMENTUM_TOLERANCE else "statistics-momentum"
    return GradientRelation(cause, {"share of the batch": f"{mine:.3g} vs {theirs:.3g}"})


def _statistics(inputs: Sequence[Array], channels: int) -> Iterator[list[Array]]:
    """Means of all batches, then their variances over n - 1 and over n."""
    rows = [_by_channel(batch, channels) for batch in inputs]
    known = [row for row in rows if row is not None and row.shape[1] > 1]
    if len(known) < len(rows):
        return
    yield [row.mean(axis=1) for row in known]
    for less in (1, 0):
        yield [row.var(axis=1, ddof=less) for row in known]


def _by_channel(values: Array, channels: int) -> Array | None:
    """One row for each channel, in float64."""
    axes = [axis for axis in (CHANNELS, values.ndim - 1) if axis < values.ndim and values.shape[axis] == channels]
    if not axes:
        return None
    return np.moveaxis(values, axes[0], 0).reshape(channels, -1).astype(np.float64)


def _momentum(before: Array, after: Array, statistics: Sequence[Array]) -> float | None:
    """The momentum that leads from one to the other, None if there is none."""
    moved = np.abs(after - before).max()

    def missed(momentum: float) -> float:
        reached = before
        for one in statistics:
            reached = (1.0 - momentum) * reached + momentum * one
        return float(np.abs(reached - after).max())

    places = np.linspace(0.0, 1.0, MOMENTUM_GRID + 1)
    near = float(places[int(np.argmin([missed(float(one)) for one in places]))])
    low, high = max(0.0, near - 1.0 / MOMENTUM_GRID), min(1.0, near + 1.0 / MOMENTUM_GRID)
    for _ in range(MOMENTUM_ROUNDS):
        third = (high - low) / 3
        low, high = (low, high - third) if missed(low + third) < missed(high - third) else (low + third, high)
    found = (low + high) / 2
    return found if missed(found) <= UNEXPLAINED_SHARE * moved else None


# Parameters that are one tensor on one side and two on the other: their gradients lack, or hold, each other's part.

REFERENCE_ONLY, CANDIDATE_ONLY = "tied-in-the-reference-only", "tied-in-the-candidate-only"


@dataclass(frozen=True, slots=True)
class UnequalTie:
    """Two names that are one tensor on one side only.

    `first` pairs the tensor by the name that the tied side keeps, `other` by the second one; None where the map leaves
    that out, as a place of a tied tensor has no name of its own there. `names` are both names on the tied side,
    `seconds` those of the second one on both sides.
    """

    cause: str
    first: Pairing
    other: Pairing | None
    names: tuple[str, str]
    seconds: tuple[str, str]

    @property
    def candidates(self) -> tuple[str, ...]:
        """Parameters of the candidate."""
        return (self.first.target, self.seconds[1]) if self.cause == REFERENCE_ONLY else (self.first.target,)


def tie_culprits(
    seen: SeenSteps, alone: Sequence[JudgedValue]
) -> tuple[list[StepCulprit], list[JudgedValue], frozenset[str]]:
    """Return a culprit for each unequal tie that shows, the gradients that none explains, and layers that one explains.

    It is confirmed if the gradients of the two, each layer alone, add up to that of the tied tensor.
    """
    off = {gradient.pairing.target for gradient in alone if gradient.factor > 1.0 and not gradient.is_noise}
    culprits: list[StepCulprit] = []
    explained: set[str] = set()
    layers: set[str] = set()
    for tie in unequal_ties(seen):
        confirmed = _adds_up(seen, tie)
        if confirmed or off & {*tie.candidates}:
            culprits.append(_culprit(seen, tie, alone, "confirmed" if confirmed else "suspected"))
        if confirmed:
            explained |= {*tie.candidates}
            layers |= _changed_layers(seen, tie)
    return culprits, [gradient for gradient in alone if gradient.pairing.target not in explained], frozenset(layers)


def unequal_ties(seen: SeenSteps) -> Iterator[UnequalTie]:
    """Yield what is tied on one side and not on the other, by the name map and by paired layers."""
    ties = _ties(seen.parameters[0]), _ties(seen.parameters[1])
    pairings = {one.source: one for one in seen.names.pairings}, {one.target: one for one in seen.names.pairings}
    for side, cause in enumerate((REFERENCE_ONLY, CANDIDATE_ONLY)):
        unpaired = _unpaired_by_layer(seen, 1 - side)
        for name, leader in ties[side].items():
            first, other = pairings[side].get(leader), pairings[side].get(name)
            end = _end(other, 1 - side) if other else unpaired.get(name.rpartition(".")[0])
            if first is None or end is None:
                continue
            if ties[1 - side].get(end, end) != ties[1 - side].get(_end(first, 1 - side), _end(first, 1 - side)):
                seconds = (name, end) if side == 0 else (end, name)
                yield UnequalTie(cause, first, other, (leader, name), seconds)


def _ties(side: ParameterSet) -> dict[str, str]:
    """Further names of tensors, or their places in the model, each with the first name."""
    return {one.name: one.tied_to for one in side.parameters if one.tied_to} | dict(side.shared)


def _end(pairing: Pairing, side: int) -> str:
    return (pairing.source, pairing.target)[side]


def _unpaired_by_layer(seen: SeenSteps, side: int) -> dict[str, str]:
    """The one parameter of a layer of this side that has no partner, by the path of the layer on the other side."""
    lost = {unmatched.name for unmatched in seen.names.unmatched if unmatched.side == ("source", "target")[side]}
    owned: dict[str, list[str]] = {}
    for parameter in seen.parameters[side].parameters:
        if parameter.name in lost:
            owned.setdefault(parameter.module, []).append(parameter.name)
    paths = {path: path for path in owned}
    for pair in seen.calls.pairs:
        own, partner = (pair.reference, pair.candidate) if side == 0 else (pair.candidate, pair.reference)
        paths[own.module] = partner.module
    return {paths[path]: names[0] for path, names in owned.items() if len(names) == 1}


def _adds_up(seen: SeenSteps, tie: UnequalTie) -> bool:
    """Tell whether the parts of both names make up the gradient of the tensor that is tied; in its layout there."""
    reference, candidate = seen.traces[0].values(0, COMPUTED), seen.first.computed_gradients
    first = reference.get(tie.first.source)
    candidate_first = _brought_back(tie.first, candidate, first)
    if tie.cause == REFERENCE_ONLY:
        second = candidate.get(tie.seconds[1]) if tie.other is None else _brought_back(tie.other, candidate, first)
        whole, parts = first, (candidate_first, second)
    else:
        whole, parts = candidate_first, (first, reference.get(tie.seconds[0]))
    if whole is None or parts[0] is None or parts[1] is None or not whole.shape == parts[0].shape == parts[1].shape:
        return False
    pair = PairedValue(tie.first, whole, parts[0] + parts[1])
    judged = [
        value
        for noise in (None, seen.noise.alone)
        for value in judge_values(iter([pair]), noise, (0, COMPUTED), alone=True)
    ]
    return bool(parts[1].any()) and any(value.factor <= 1.0 for value in judged)


def _brought_back(pairing: Pairing, values: Mapping[str, Array], like: Array | None) -> Array | None:
    own = values.get(pairing.target)
    if own is None or like is None:
        return None
    return as_gradient(pairing).transform.inverse(like.shape, like.dtype.name).apply(own)


def _culprit(seen: SeenSteps, tie: UnequalTie, alone: Sequence[JudgedValue], sureness: Sureness) -> StepCulprit:
    """Name the tie at the layer that holds the second name."""
    modules = _modules(seen, tie)
    classes = [
        next((one.classes[0] for one in side.modules if one.path == path and one.classes), "").rpartition(".")[2]
        for side, path in zip(seen.parameters, modules, strict=True)
    ]
    worst = max((one.factor for one in alone if one.pairing.target in tie.candidates), default=0.0)
    facts: dict[str, float | int | str] = {"tied": " = ".join(tie.names)}
    return StepCulprit(
        "backward", "layer", *modules, classes[0], classes[1], worst, tie.cause, facts, tie.candidates,
        sureness=sureness,
    )  # fmt: skip


def _modules(seen: SeenSteps, tie: UnequalTie) -> tuple[str, str]:
    """The modules of the second name on both sides; a place begins with the path of its module."""
    owners = [{one.name: one.module for one in side.parameters} for side in seen.parameters]
    found = [owner.get(name, name.rpartition(".")[0]) for owner, name in zip(owners, tie.seconds, strict=True)]
    return found[0], found[1]


def _changed_layers(seen: SeenSteps, tie: UnequalTie) -> set[str]:
    """The layer that computes with another tensor, and the module around it where its pair is not certain."""
    if tie.cause == REFERENCE_ONLY and tie.other is not None:
        return set()
    path = _modules(seen, tie)[1]
    certain = {one.candidate.module for one in seen.calls.pairs if one.certain}
    return {path} if path in certain else {path, path.rpartition(".")[0]}


# What activation checkpointing does beside saving memory: layers run twice in a step, or lose their way back.
#
# In all other steps layers run once. One more of each side, as it is by itself, shows what running again changes.

_NOTHING: Mapping[str, Array] = {}


@dataclass(frozen=True, slots=True)
class _Recomputing:
    """Values and gradients after a step in which layers may run again, and the names that this changed."""

    values: Mapping[str, Array]
    gradients: Mapping[str, Array]
    updated_twice: frozenset[str]
    cut: frozenset[str]


def find_recompute_faults(seen: SeenSteps) -> list[StepCulprit]:
    """Name statistics that one side alone updates twice, and parameters that lose their gradient on one side alone.

    Both sides must be live, and one of them checkpoint something; else there is nothing to be named.
    """
    if not (seen.live and seen.live_reference and any(side.recomputes for side in seen.sides)):
        return []
    live, starts = (seen.live_reference, seen.live), (_NOTHING, seen.start)
    with TemporaryDirectory(prefix="align-") as folder:
        sides = [
            _recomputed(side, seen.sides[0].batches, trace, Path(folder) / str(number), start)
            for number, (side, trace, start) in enumerate(zip(live, seen.traces, starts, strict=True))
        ]
        owners = owners_of(seen.parameters[1])
        statistics = value_culprits(_updated_twice(seen, sides), "buffer", "layer", owners)
        return statistics + value_culprits(_cut(seen, sides), "backward", "code", owners)


def _recomputed(
    side: TrainingSide, batches: Sequence[Batch], once: UpdateTrace, folder: Path, start: Mapping[str, Array]
) -> _Recomputing:
    """Take the first step again, as the side takes it by itself."""
    with layers_recomputed():
        trace = take_again(side, batches[:1], folder, start)
    values, gradients = trace.values(0, AFTER), trace.values(0, COMPUTED)
    buffers = {
        parameter.name
        for parameter in side.side.reader.read_parameters(side.side.model, side.label).parameters
        if parameter.buffer
    }
    before, expected = once.values(0, AFTER), once.values(0, COMPUTED)
    twice = (name for name in buffers & values.keys() & before.keys() if _differ(before[name], values[name]))
    cut = (name for name, gradient in expected.items() if gradient.any() and not np.any(gradients.get(name, 0)))
    return _Recomputing(values, gradients, frozenset(twice), frozenset(cut))


def _differ(one: Array, other: Array) -> bool:
    if one.dtype.kind != "f" or one.shape != other.shape or not np.isfinite(one).all():
        return False
    wide = one.astype(np.float64)
    return bool(np.abs(other - wide).max(initial=0.0) > STEP_ROUNDING_SHARE * np.abs(wide).max(initial=0.0))


def _updated_twice(seen: SeenSteps, sides: Sequence[_Recomputing]) -> list[JudgedValue]:
    changed = [one.updated_twice for one in sides]
    pairs = _of_one_side(seen, [one.values for one in sides], changed)
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True)
    return [_named(one, "statistics-updated-twice", changed) for one in judged]


def _cut(seen: SeenSteps, sides: Sequence[_Recomputing]) -> list[JudgedValue]:
    changed = [one.cut for one in sides]
    pairs = _of_one_side(seen, [one.gradients for one in sides], changed)
    judged = judge_values(iter(pairs), seen.noise.together, (0, COMPUTED), alone=False)
    return [_named(one, "checkpoint-cuts-gradient", changed) for one in judged]


def _of_one_side(
    seen: SeenSteps, values: Sequence[Mapping[str, Array]], changed: Sequence[frozenset[str]]
) -> list[PairedValue]:
    pairs = paired_values(seen.gradient_names, values[0], values[1])
    return [one for one in pairs if (one.pairing.source in changed[0]) != (one.pairing.target in changed[1])]


def _named(judged: JudgedValue, cause: str, changed: Sequence[frozenset[str]]) -> JudgedValue:
    side = "reference" if judged.pairing.source in changed[0] else "candidate"
    return replace(judged, relation=GradientRelation(cause, {"side": side}))


# What a step of the user's own does otherwise around model and optimizers: order of updates, batch, training mode.


OTHER_ORDER, OTHER_ENTRY = "updates-in-other-order", "batch-entry-not-read"
AT_UPDATES = ("update", "trained")  # kinds that are judged with the reference's gradients, whatever came before


def explain_loop(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Name the order of updates, or an entry of the batch that the port does not read, in the place of what follows."""
    if all(culprit.kind in AT_UPDATES for culprit in culprits) or not all(side.own_step for side in seen.sides):
        return [*culprits]
    if order := _in_other_order(seen):
        return [order, *(culprit for culprit in culprits if culprit.kind in AT_UPDATES)]
    entry = _with_another_entry(seen)
    if entry is None:
        return [*culprits]
    own = (
        culprit for culprit in culprits if culprit.kind in ("backward", "gradients") and culprit.sureness == "confirmed"
    )
    return [entry, *own, *(culprit for culprit in culprits if culprit.kind in AT_UPDATES)]


def _in_other_order(seen: SeenSteps) -> StepCulprit | None:
    """A culprit where the same optimizers update their parameters in another order, and the order matters.

    It does where gradients of the reference's step are others without the updates before them.
    """
    target = {pairing.source: pairing.target for pairing in seen.names.pairings}
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
    apart = (relative_rms_distance(meant[name], value) for name, value in sink.given.items() if name in meant)
    return _of_step(seen, OTHER_ORDER, {}) if any(distance > ORDER_SHARE for distance in apart) else None


class _WithoutUpdates(StepUnseen):
    """A StepSink that takes each update back, and keeps the gradients that the optimizers get."""

    def __init__(self, before: Mapping[str, Array]) -> None:
        self._before = before
        self.given: dict[str, Array] = {}

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        for name, one in gradients.items():
            if one is not None:
                self.given.setdefault(name, np.array(one))
        return {}

    def updated(self, held: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:  # noqa: ARG002
        return {name: self._before[name] for name in held if name in self._before}


def _with_another_entry(seen: SeenSteps) -> StepCulprit | None:
    """A culprit where the reference makes the port's loss of a batch in which an entry that the port leaves is another.

    That other one is an entry of the same shape that the port reads, or ones, or zeros.
    """
    ours, candidate, batch = seen.live_reference, seen.live, seen.sides[0].batches[0]
    if ours is None or candidate is None:
        return None
    try:
        (read, right), (own_read, candidate_loss) = (
            _read_entries(ours, batch, {}),
            _read_entries(candidate, batch, seen.start),
        )
    except AlignError:  # a step may take no other kind of table
        return None
    if not right or candidate_loss is None or abs(candidate_loss - right) <= LOSS_SHARE * abs(right):
        return None
    tolerance = max(SAME_BATCH_SHARE * abs(candidate_loss - right), float(np.spacing(np.float32(abs(candidate_loss)))))
    for name in [entry for entry in read if entry not in own_read][:MOST_UNREAD_ENTRIES]:
        for instead, value in _in_its_place(name, batch):
            sink = LossesOfSteps()
            try:
                ours.trainer.take_steps(ours.training, [{**batch, name: value}], sink)
            except AlignError:  # the code may not stand such values
                continue
            if sink.losses[0] is not None and abs(sink.losses[0] - candidate_loss) <= tolerance:
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
        self.read.update(super().keys())
        return dict(super().items())

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self.read.add(name)
        return super().pop(name, *default)

    def items(self) -> Any:
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
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

    sink = LossesOfSteps(start)
    side.trainer.take_steps(replace(side.training, step=watched), [batch], sink)
    return [name for name in batch if name in read], sink.losses[0]


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
        sink = LossesOfSteps(values)
        try:
            side.trainer.take_steps(side.training, seen.sides[0].batches[:1], sink, in_own_mode=own)
        except AlignError:  # in inference mode a model may return something else
            return None
        losses.append(sink.losses[0])
    first, second = losses
    if first is None or second is None or abs(first - second) <= LOSS_SHARE * abs(first):
        return None
    return first, second
