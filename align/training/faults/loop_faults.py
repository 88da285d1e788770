"""What a step of the user's own does otherwise around model and optimizers: order of updates, batch, training mode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.verdicts import Finding
from align.errors import AlignError
from align.measure.tensor_statistics import relative_rms_distance
from align.models.function_source import defined_at
from align.training.faults.explain_loss_code import LossOfStep
from align.training.step_result import StepCulprit
from align.training.steps.record_step import BEFORE, GIVEN
from align.training.thresholds import LOSS_SHARE, MOST_UNREAD_ENTRIES, ORDER_SHARE, SAME_BATCH_SHARE
from align.training.watch_step import StepUnseen
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.steps.both_steps import SeenSteps

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
