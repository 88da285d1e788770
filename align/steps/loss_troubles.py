"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.curves import Integers, PairedCurves

KEPT_SIGN = 0.9
GROWTH = 2.0
ENOUGH_FOR_DRIFT = 8
EARLY = 5
ONSET = 100.0
FLOAT32_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class CurveEvidence:
    """What the rules look at: the pairs, the indices of points outside their limit, the keys of failed criteria."""

    pairs: PairedCurves
    outside: Integers
    failed: frozenset[str]
    of_loss: bool


class Trouble(NamedTuple):
    """One class: its name, its rule, and the command to run next."""

    name: str
    applies: Callable[[CurveEvidence], bool]
    next_command: str


def classify(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    with np.errstate(invalid="ignore", over="ignore"):
        return next((t.name, t.next_command) for t in TROUBLES if t.applies(evidence))


def _parts_at_once(evidence: CurveEvidence) -> bool:
    """The first update is wrong: steps 1 and 2 are `ONSET` times apart in their difference, an early point is outside.

    One batch may hardly feel a wrong update, so the second step itself can still be within its limit.
    """
    pairs, outside = evidence.pairs, evidence.outside
    if not evidence.of_loss or pairs.steps[:2].tolist() != [1, 2] or not len(outside) or outside[0] == 0:
        return False
    first, second = np.abs(pairs.candidate[:2] - pairs.reference[:2])
    rounding = FLOAT32_ROUNDING * abs(pairs.reference[0])
    return bool(pairs.steps[outside[0]] <= EARLY and second >= ONSET * max(first, rounding))


def _always(_: CurveEvidence) -> bool:
    return True


def _drifts(evidence: CurveEvidence) -> bool:
    """The difference keeps its sign in the second half and is there larger than in the first by `GROWTH`."""
    difference = evidence.pairs.candidate - evidence.pairs.reference
    difference = difference[np.isfinite(difference)]
    if "mean" not in evidence.failed or len(difference) < ENOUGH_FOR_DRIFT:
        return False
    first, second = np.array_split(difference, 2)
    kept = max(np.mean(second > 0), np.mean(second < 0))
    return bool(kept >= KEPT_SIGN and np.mean(np.abs(second)) >= GROWTH * np.mean(np.abs(first)))


TROUBLES = (
    Trouble(
        "NaN",
        lambda evidence: "non-finite" in evidence.failed,
        "align forward REFERENCE CANDIDATE, with the weights and the batch of the last finite step",
    ),
    Trouble(
        "first loss differs",
        lambda evidence: evidence.of_loss and "first" in evidence.failed,
        "align forward REFERENCE CANDIDATE",
    ),
    Trouble(
        "differs from the second step",
        _parts_at_once,
        "compare gradients and optimizer: align loss REFERENCE CANDIDATE --metric grad_norm, then --metric lr; "
        "check epsilon, weight decay and bias correction",
    ),
    Trouble(
        "slow drift",
        _drifts,
        "align loss REFERENCE CANDIDATE --metric lr; then precision, weight decay and the settings of the optimizer",
    ),
    Trouble(
        "differs later",
        lambda evidence: "mean" in evidence.failed,
        "align loss REFERENCE CANDIDATE --metric lr; then the batches from the first divergent step on",
    ),
    Trouble(
        "broken off",
        lambda evidence: "length" in evidence.failed,
        "align loss REFERENCE CANDIDATE --last-step {last_common}, if the logs are meant to differ in length",
    ),
    Trouble("differs", _always, ""),
)
