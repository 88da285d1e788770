"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row. A small difference of the first loss is as a rule the cause of what differs later:
unless the first losses agree to rounding, the forward pass comes before the settings of the training.
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
    """What the rules look at: the pairs, the indices of points outside their limit, the keys of failed criteria.

    `first_compared` and `first_agrees` tell of the losses of step 1; `shift_option` is the option that would make the
    curves agree by counting one a step later, "" if there is none.
    """

    pairs: PairedCurves
    outside: Integers
    failed: frozenset[str]
    of_loss: bool
    first_compared: bool
    first_agrees: bool
    shift_option: str = ""


class Trouble(NamedTuple):
    """One class: its name, its rule, and the command to run next.

    `forward_first`: what differs here can come from the forward pass, which is looked at first unless step 1 agrees.
    """

    name: str
    applies: Callable[[CurveEvidence], bool]
    next_command: str
    forward_first: bool = False


def classify(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    with np.errstate(invalid="ignore", over="ignore"):
        trouble = next(trouble for trouble in TROUBLES if trouble.applies(evidence))
    return trouble.name, _next_command(trouble, evidence)


def _next_command(trouble: Trouble, evidence: CurveEvidence) -> str:
    command = trouble.next_command.replace("{shift_option}", evidence.shift_option)
    if not (trouble.forward_first and evidence.of_loss) or evidence.first_agrees:
        return command
    reason = "differ by more than rounding" if evidence.first_compared else "could not be compared"
    return f"align forward REFERENCE CANDIDATE, as the losses of step 1 {reason}; then {command}"


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
        "counted one step apart",
        lambda evidence: bool(evidence.shift_option) and not evidence.failed.isdisjoint({"first", "mean"}),
        "align loss REFERENCE CANDIDATE {shift_option}, if that log counts from 0 and has lost its first line",
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
        forward_first=True,
    ),
    Trouble(
        "slow drift",
        _drifts,
        "align loss REFERENCE CANDIDATE --metric lr; then precision, weight decay and the settings of the optimizer",
        forward_first=True,
    ),
    Trouble(
        "differs later",
        lambda evidence: "mean" in evidence.failed,
        "align loss REFERENCE CANDIDATE --metric lr; then the batches from the first divergent step on",
        forward_first=True,
    ),
    Trouble(
        "points missing",
        lambda evidence: "holes" in evidence.failed,
        "align loss REFERENCE, and align loss CANDIDATE: each lists the gaps of its log",
    ),
    Trouble(
        "broken off",
        lambda evidence: "length" in evidence.failed,
        "align loss REFERENCE CANDIDATE --last-step {last_common}, if the logs are meant to differ in length",
    ),
    Trouble("differs", _always, ""),
)
