"""Updates by code of the user's own, which no optimizer of a framework makes: what a step changes is compared in whole.

Such code cannot be given the reference's gradients. Each step begins from the reference's values, so that what it
changes is the reference's change, but for what rounding of the gradients does to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, dtype_name
from align.core.verdicts import Finding
from align.training.faults.loss_terms import rms
from align.training.step_result import StepCulprit
from align.training.steps.compare_values import carried_over, judge_values, paired_values
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED
from align.training.thresholds import FACTOR_TOLERANCE, OWN_UPDATE_ROUNDINGS, OWN_UPDATE_SHARE, UNEXPLAINED_SHARE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.training.steps.both_steps import SeenSteps


def updated_by_code(seen: SeenSteps) -> frozenset[str]:
    """The candidate's parameters that a side trains without an optimizer of its framework, beside others that it holds.

    There is a gradient of them on both sides, and the side that holds them in no optimizer moves them all the same.
    """
    if not seen.sees_updates or seen.live is None:
        return frozenset()
    mine, theirs = (seen.computed(side, 0) for side in range(2))
    starts = seen.traces[0].values(0, BEFORE), seen.start
    after = [trace.values(0, AFTER) for trace in seen.traces]

    def by_code(side: int, name: str) -> bool:
        held = seen.traces[side].held
        if not held or name in held or name not in starts[side] or name not in after[side]:
            return False
        return not np.array_equal(starts[side][name], after[side][name])

    pairs = [one for one in seen.names.pairings if one.source in mine and one.target in theirs]
    trained = [one for one in pairs if np.any(mine[one.source]) and np.any(theirs[one.target])]
    return frozenset(one.target for one in trained if by_code(0, one.source) or by_code(1, one.target))


def own_update_culprits(seen: SeenSteps, only: Collection[str] | None = None) -> list[StepCulprit]:
    """Parameters that the candidate's own code changes otherwise than the reference's optimizer, of the first step so.

    Of all, or `only` of these.

    A factor of all changes of the first step is one of the learning rate, which is suspected: the step's own numbers
    are not seen.
    """
    for step in range(len(seen.traces[0].losses)):
        found = _changes(seen, step)
        changes = [one for one in found if only is None or one.name in only]
        off = [one for one in changes if _apart(one.meant, one.made) > one.limit]
        if not off:
            continue
        mine = np.concatenate([one.meant.ravel() for one in off])
        theirs = np.concatenate([one.made.ravel() for one in off])
        length = float(mine @ mine)
        factor = float(mine @ theirs) / length if length else 0.0
        scaled = (
            step == 0
            and factor != 0.0
            and _apart(factor * mine, theirs) <= UNEXPLAINED_SHARE
            and abs(factor - 1.0) > FACTOR_TOLERANCE
        )
        cause, facts = ("learning-rate", {"factor": float(f"{factor:.4g}")}) if scaled else ("", {})
        if not theirs.any():
            cause = "did-not-move"
        names, above = tuple(dict.fromkeys(one.name for one in off)), max(one.limit for one in off)
        return [
            StepCulprit(
                "update", "optimizer", "", "", "", "", _apart(mine, theirs) / above, cause, {**facts}, names,
                step=step + 1, sureness="suspected" if cause else "unknown",
            )
        ]  # fmt: skip
    return []


def own_update_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Say of which side the settings of an optimizer were not read."""
    for side in seen.sides:
        if side.own_step and side.trace.held is not None and not side.trace.held:
            yield Finding("own-updates", "note", side.label, sentence("step_finding.own_updates"))
    if names := sorted(updated_by_code(seen)):
        message = sentence("step_finding.own_updates_of", names=names, n=len(names))
        yield Finding("own-updates", "note", seen.sides[1].label, message)


@dataclass(frozen=True, slots=True)
class _Change:
    """What both sides change of a parameter or a piece of it, in float64, and by what share of it they may be apart."""

    name: str
    meant: Array
    made: Array
    limit: float


def _changes(seen: SeenSteps, step: int) -> list[_Change]:
    """Of each parameter that has a gradient on the reference's side; left out is what has none but rounding."""
    pairs = paired_values(seen.names, seen.computed(0, step), seen.computed(1, step))
    judged = judge_values(pairs, seen.noise.together, (step, COMPUTED), alone=False, coarser=seen.precision_of)
    shares = {one.pairing: _share(one.measurement) for one in judged if not one.is_noise}
    starts = {one.pairing: one.value for one in paired_values(seen.names, {}, _before(seen, step))}
    found = []
    for one in paired_values(seen.names, *(trace.values(step, AFTER) for trace in seen.traces)):
        start, share = starts.get(one.pairing), shares.get(one.pairing)
        if share is not None and start is not None and one.meant is not None and one.value is not None:
            meant, made = (value.astype(np.float64) - start for value in (one.meant, one.value))
            rounding = EPSILON[dtype_name(start.dtype)] * rms(start) / max(rms(meant), float(np.finfo(np.float64).tiny))
            limit = max(OWN_UPDATE_SHARE, OWN_UPDATE_ROUNDINGS * share, OWN_UPDATE_ROUNDINGS * rounding)
            found.append(_Change(one.pairing.target, meant, made, limit))
    return found


def _share(measurement: Measurement | None) -> float:
    """By what share of its size the candidate's own gradient is another one."""
    if measurement is None or not measurement.reference_rms:
        return 0.0
    return measurement.rmse / measurement.reference_rms


def _before(seen: SeenSteps, step: int) -> Mapping[str, Array]:
    return carried_over(seen.names, seen.traces[0].values(step - 1, AFTER), seen.start) if step else seen.start


def _apart(mine: Array, theirs: Array) -> float:
    """How far two changes are apart, as a share of the reference's; 0 where neither is anything."""
    length, gap = float(np.linalg.norm(mine)), float(np.linalg.norm(theirs - mine))
    return gap / length if length else float(gap > 0.0)
