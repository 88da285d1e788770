"""Updates by code of the user's own, which no optimizer of a framework makes: what a step changes is compared in whole.

Such code cannot be given the reference's gradients. Each step begins from the reference's values, so that what it
changes is the reference's change, but for what rounding of the gradients does to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Finding
from align.training.step_result import StepCulprit
from align.training.steps.compare_values import carried_over, judge_values, paired_values
from align.training.steps.record_step import AFTER, COMPUTED
from align.training.thresholds import FACTOR_TOLERANCE, UNEXPLAINED_SHARE, WIDE_STEP_SHARE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array
    from align.training.steps.both_steps import SeenSteps

    Changes = dict[str, tuple[Array, Array]]


def own_update_culprits(seen: SeenSteps) -> list[StepCulprit]:
    """Parameters that the candidate's own code changes otherwise than the reference's optimizer, of the first step so.

    A factor of all changes is one of the learning rate, which is suspected: the step's own numbers are not seen.
    """
    for step in range(len(seen.traces[0].losses)):
        changes = _changes(seen, step)
        off = [name for name, (mine, theirs) in changes.items() if _apart(mine, theirs) > WIDE_STEP_SHARE]
        if not off:
            continue
        mine, theirs = (np.concatenate([changes[name][side].ravel() for name in off]) for side in (0, 1))
        length = float(mine @ mine)
        factor = float(mine @ theirs) / length if length else 0.0
        scaled = (
            factor != 0.0
            and _apart(factor * mine, theirs) <= UNEXPLAINED_SHARE
            and abs(factor - 1.0) > FACTOR_TOLERANCE
        )
        cause, facts = ("learning-rate", {"factor": float(f"{factor:.4g}")}) if scaled else ("", {})
        if not theirs.any():
            cause = "did-not-move"
        return [
            StepCulprit(
                "update", "optimizer", "", "", "", "", _apart(mine, theirs) / WIDE_STEP_SHARE,
                cause, {**facts}, tuple(off), step=step + 1, sureness="suspected" if cause else "unknown",
            )
        ]  # fmt: skip
    return []


def own_update_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Say of which side the settings of an optimizer were not read."""
    for side in seen.sides:
        if side.own_step and side.trace.held is not None and not side.trace.held:
            yield Finding("own-updates", "note", side.label, sentence("step_finding.own_updates"))


def _changes(seen: SeenSteps, step: int) -> Changes:
    """What both sides' steps change of each parameter that has a gradient on the reference's side, in float64.

    Left out is what has none but rounding.
    """
    given = seen.computed(0, step)
    pairs = paired_values(seen.names, given, seen.computed(1, step))
    judged = judge_values(pairs, seen.noise.together, (step, COMPUTED), alone=False, coarser=seen.precision_of)
    noise = {one.pairing.target for one in judged if one.is_noise}
    after = [trace.values(step, AFTER) for trace in seen.traces]
    before = _before(seen, step)
    return {
        one.pairing.target: (_wide(one.meant) - _wide(start), _wide(one.value) - _wide(start))
        for one in paired_values(seen.names, *after)
        if one.pairing.source in given and one.pairing.target not in noise
        if (start := before.get(one.pairing.target)) is not None and one.meant is not None and one.value is not None
    }


def _before(seen: SeenSteps, step: int) -> Mapping[str, Array]:
    return carried_over(seen.names, seen.traces[0].values(step - 1, AFTER), seen.start) if step else seen.start


def _wide(value: Array) -> Array:
    return value.astype(np.float64)


def _apart(mine: Array, theirs: Array) -> float:
    """How far two changes are apart, as a share of the reference's; 0 where neither is anything."""
    length, gap = float(np.linalg.norm(mine)), float(np.linalg.norm(theirs - mine))
    return gap / length if length else float(gap > 0.0)
