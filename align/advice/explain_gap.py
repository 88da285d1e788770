"""Why a step takes longer than the reference's: part by part, until the parts add up.

Both sides are split as finely as the coarser one allows: a log tells waiting for data from all else, a profile tells
kinds of operators, forward and backward.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.advice.evidence import PartKind, SpeedEvidence, StepPart

# The forms of files by how finely they split a step, the finest first.
FINEST = (
    "trace", "kernels", "torch table", "processor operators", "operator statistic", "nsys table", "step trace",
    "watched training",
)  # fmt: skip
UNSPLIT = ("whole",)


@dataclass(frozen=True, slots=True)
class GapPart:
    """One part of a step on both sides, in seconds; `share` is its part of the gap, `example` the dearest operator."""

    kind: PartKind
    operator: str
    reference: float
    candidate: float
    share: float
    example: str


@dataclass(frozen=True, slots=True)
class SpeedGap:
    """How much longer a step takes, and why: `explained` is the share of it that parts with a name add up to.

    `reference` and `candidate` are the sums of the parts, in seconds; the dearest part comes first.
    """

    reference: float
    candidate: float
    parts: tuple[GapPart, ...]
    explained: float


def finest(found: Sequence[SpeedEvidence]) -> SpeedEvidence | None:
    """Of the files of a side, the one that splits a step most finely; None where none tells its parts."""
    split = [one for one in found if one.parts]
    return min(split, key=lambda one: _rank(one.format), default=None)


def _rank(form: str) -> int:
    return FINEST.index(form) if form in FINEST else len(FINEST)


def explain_gap(reference: Sequence[SpeedEvidence], candidate: Sequence[SpeedEvidence]) -> SpeedGap | None:
    """Hold the parts of both sides against each other; None where a side tells none, or not of which steps."""
    pairs = [
        (left, right)
        for left in reference
        for right in candidate
        if left.parts and right.parts and (left.steps is None) == (right.steps is None)
    ]
    if not pairs:
        return None
    left, right = min(pairs, key=lambda pair: max(_rank(pair[0].format), _rank(pair[1].format)))
    return _gap_of(left.parts, right.parts)


def _gap_of(reference: Sequence[StepPart], candidate: Sequence[StepPart]) -> SpeedGap:
    kinds = [{part.kind for part in side} for side in (reference, candidate)]
    coarse = any("whole" in side for side in kinds)
    both = set.intersection(*kinds) if coarse else set()
    left, right = (_summed(side, coarse, both) for side in (reference, candidate))
    sums = sum(seconds for seconds, _ in left.values()), sum(seconds for seconds, _ in right.values())
    gap = sums[1] - sums[0]
    parts = []
    for key in {**left, **right}:
        before, after = left.get(key, (0.0, "")), right.get(key, (0.0, ""))
        share = (after[0] - before[0]) / gap if gap else 0.0
        parts.append(GapPart(*key, before[0], after[0], share, after[1] or before[1]))
    parts.sort(key=lambda part: -part.share)
    unexplained = sum(part.candidate - part.reference for part in parts if part.kind in UNSPLIT)
    explained = max(1.0 - abs(unexplained / gap), 0.0) if gap else 1.0
    return SpeedGap(sums[0], sums[1], tuple(parts), explained)


def _summed(
    parts: Sequence[StepPart], coarse: bool, both: set[PartKind]
) -> dict[tuple[PartKind, str], tuple[float, str]]:
    """Seconds and example of each part; of a coarse comparison what both sides tell apart, and all else as a whole."""
    seconds: dict[tuple[PartKind, str], float] = defaultdict(float)
    examples: dict[tuple[PartKind, str], StepPart] = {}
    for part in parts:
        kind: PartKind = part.kind if not coarse or part.kind in both else "whole"
        key = kind, "" if coarse else part.operator
        seconds[key] += part.seconds
        if key not in examples or part.seconds > examples[key].seconds:
            examples[key] = part
    return {key: (total, examples[key].example) for key, total in seconds.items()}
