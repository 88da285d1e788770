"""What activation checkpointing does beside saving memory: layers run twice in a step, or lose their way back.

In all other steps layers run once. One more of each side, as it is by itself, shows what running again changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from align.models.recompute_layers import layers_recomputed
from align.training.faults.find_step_faults import value_culprits
from align.training.steps.compare_values import judge_values, owners_of, paired_values
from align.training.steps.gradient_relations import GradientRelation
from align.training.steps.record_step import AFTER, COMPUTED, UpdateTrace, take_again
from align.training.thresholds import STEP_ROUNDING_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue, PairedValue

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
        one.name for one in side.side.reader.read_parameters(side.side.model, side.label).parameters if one.buffer
    }
    before, expected = once.values(0, AFTER), once.values(0, COMPUTED)
    twice = (name for name in buffers & values.keys() & before.keys() if _differ(before[name], values[name]))
    cut = (name for name, one in expected.items() if one.any() and not np.any(gradients.get(name, 0)))
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
    pairs = paired_values(seen.names, values[0], values[1])
    return [one for one in pairs if (one.pairing.source in changed[0]) != (one.pairing.target in changed[1])]


def _named(judged: JudgedValue, cause: str, changed: Sequence[frozenset[str]]) -> JudgedValue:
    side = "reference" if judged.pairing.source in changed[0] else "candidate"
    return replace(judged, relation=GradientRelation(cause, {"side": side}))
