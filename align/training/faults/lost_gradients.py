"""Gradients that get lost between layers: each layer alone is right, and the whole step is far off."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from align.training.faults.find_step_faults import LayerFaults, value_culprits
from align.training.steps.record_step import COMPUTED
from align.training.thresholds import LOST_GRADIENT_FACTOR, LOST_GRADIENTS_NOISE_FACTOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue


def lost_between(seen: SeenSteps, together: Sequence[JudgedValue], owners: Mapping[str, str]) -> list[StepCulprit]:
    """What is wrong where each layer alone is right and the whole step is far off, or lacks gradients.

    Then calls count too whose places are not certain, if what they returned agrees: as of modules that hold others, and
    pass on what these return.
    """
    far = [one for one in together if not one.is_noise and one.factor > LOST_GRADIENT_FACTOR]
    if not far or seen.live is None or _apart(together) <= LOST_GRADIENTS_NOISE_FACTOR * _rounding(seen):
        return []
    off = {(one.own.module, one.own.call) for one in seen.judge.seen if one.way == "forward" and one.factor > 1.0}
    calls = {(one.own.module, one.own.call) for one in seen.judge.seen} - off
    faults = LayerFaults(seen.calls.pairs, owners, calls)
    faults.take(seen.judge.seen)
    return faults.culprits() or value_culprits(far, "backward", "code", {})


def _apart(gradients: Sequence[JudgedValue]) -> float:
    """How far gradients are from the reference's, all as one vector, as a share of its length."""
    known = [one for one in gradients if one.measurement is not None]
    lost = sum((one.norms[0] or 0.0) ** 2 for one in gradients if one.measurement is None)
    apart = sum(one.measurement.rmse**2 * one.measurement.count for one in known if one.measurement)
    whole = sum((one.norms[0] or 0.0) ** 2 for one in gradients)
    return sqrt((apart + lost) / whole) if whole else 0.0


def _rounding(seen: SeenSteps) -> float:
    """How far rounding alone brings them."""
    known = [one for key, one in seen.noise.together.items() if key.endswith(COMPUTED)]
    whole = sum(one.reference_rms**2 * one.count for one in known)
    return sqrt(sum(one.rmse**2 * one.count for one in known) / whole) if whole else 0.0
