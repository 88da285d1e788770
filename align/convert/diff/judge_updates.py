"""What the sums of a pair of updates say: alike, one factor apart, apart by a decay, or different."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose, prod, sqrt
from typing import TYPE_CHECKING

from align.convert.updates_result import ALIKE, UpdateDifference
from align.core.verdicts import Coverage, Outcome, Verdict
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.convert.diff.pair_tensors import TensorPair, TensorPairs
    from align.convert.diff.update_sums import UpdateSums
    from align.convert.updates_result import UpdateOutcome

# Relative to the reference's update, in the L2 norm: gradients of two frameworks differ by rounding that a network has
# gathered. Over clean pairs of convolutional nets with BatchNorm and 1 to 10 steps that is up to 1e-3 with SGD. Adam
# makes whole steps of gradients that are rounding alone: up to 0.05, and in a vector, of which one element may turn, up
# to 0.6 / sqrt(elements).
TOLERANCE = 0.1
ONE_ELEMENT = 0.6
# What is one figure for all elements is known far better; of few elements, less.
FACTOR_TOLERANCE = 4e-3
FEW_ELEMENTS = 0.02
# From this cosine on the difference of the updates is proportional to the values; by chance, too few elements are. A
# share of the values below some epsilons is rounding: BatchNorm's running variance times 0.9.
PROPORTIONAL = 0.9
FEWEST = 16
LEAST_DECAY = 4.0
# Standard deviations of a cosine of unrelated updates, which is 1 / sqrt(elements).
UNRELATED = 4.0
# Values before the step are the same up to this, relative: they may have gone through a cast there and back.
SAME_START = 1e-6


@dataclass(frozen=True, slots=True)
class _Relation:
    """What was found, with the norms that it rests on."""

    outcome: UpdateOutcome
    factor: float | None = None
    beside: float | None = None
    decay: float | None = None


def judge_update(pair: TensorPair, sums: UpdateSums) -> UpdateDifference:
    """Say what the updates of a pair differ by."""
    u, v, d, rounding = (sqrt(max(one, 0.0)) for one in (sums.uu, sums.vv, sums.dd, sums.rounding))
    limit = rounding + (TOLERANCE + ONE_ELEMENT / sqrt(max(sums.count, 1))) * u
    found = _Relation("not finite") if sums.non_finite else _related(sums, (u, v, d), rounding, limit)
    size = sqrt(max(sums.count - sums.non_finite, 1))
    return UpdateDifference(
        reference=pair.reference.name,
        candidate=pair.candidate.name,
        shape=pair.candidate.shape,
        outcome=found.outcome,
        reference_moved=u / size,
        candidate_moved=v / size,
        relative=d / u if u else None,
        limit=limit / u if u else None,
        rounding=rounding / u if u else None,
        factor=found.factor,
        beside_factor=found.beside,
        decay=found.decay,
        start=sqrt(sums.start / sums.ww) if sums.ww else None,
        note=sentence("updates_note.not_finite", count=sums.non_finite) if sums.non_finite else "",
    )


def unlike_shapes(pair: TensorPair, note: str) -> UpdateDifference:
    """A pair that cannot be compared."""
    names = pair.reference.name, pair.candidate.name, pair.candidate.shape
    return UpdateDifference(*names, "shapes differ", 0.0, 0.0, None, None, None, None, None, None, None, note)


def _related(sums: UpdateSums, norms: tuple[float, float, float], rounding: float, limit: float) -> _Relation:
    u, v, d = norms
    if not u and not v:
        return _Relation("neither moved")
    if d <= rounding:
        return _Relation("same")
    if not u or not v:
        return _Relation("candidate only" if v else "reference only")
    factor = sums.uv / sums.uu
    beside = sqrt(max(sums.vv - sums.uv**2 / sums.uu, 0.0)) / v
    decay = _decay(sums, d)
    if decay is not None:
        return _Relation("decay differs", factor, beside, decay)
    sure = FACTOR_TOLERANCE + FEW_ELEMENTS / sums.count + UNRELATED * beside / sqrt(sums.count) + rounding / u
    if abs(factor - 1.0) > sure and beside <= TOLERANCE + rounding / v:
        return _Relation("one factor apart", factor, beside)
    return _Relation("same" if d <= limit else "updates differ", factor, beside)


def _decay(sums: UpdateSums, d: float) -> float | None:
    """The share of the values by which the updates differ, if the difference is proportional to these and not to u."""
    if not sums.ww or sums.count < FEWEST or abs(sums.dw) < LEAST_DECAY * sums.unit * sums.ww:
        return None
    along_values = abs(sums.dw) / (d * sqrt(sums.ww))
    along_update = abs(sums.uv - sums.uu) / (d * sqrt(sums.uu))
    return -sums.dw / sums.ww if along_values >= PROPORTIONAL and along_values > along_update else None


def without_influence(tensors: Sequence[UpdateDifference]) -> list[UpdateDifference]:
    """Tell apart vectors whose gradient is rounding alone, as of a bias in front of a normalisation.

    Adam moves such a bias as far as any other, in directions of its own on each side, while the matrix of its layer is
    updated alike.
    """
    alike = {one.reference.rpartition(".")[0] for one in tensors if one.outcome in ALIKE and len(one.shape) > 1}
    return [
        replace(one, outcome="without influence")
        if _unrelated(one) and one.reference.rpartition(".")[0] in alike
        else one
        for one in tensors
    ]


def _unrelated(one: UpdateDifference) -> bool:
    if one.outcome != "updates differ" or len(one.shape) != 1 or one.factor is None:
        return False
    cosine = one.factor * one.reference_moved / one.candidate_moved
    return abs(cosine) <= UNRELATED / sqrt(one.shape[0])


def common_factor(tensors: Sequence[UpdateDifference]) -> float | None:
    """The factor by which all updates that differ are apart, None if there is none."""
    unlike = [one for one in tensors if one.outcome not in ALIKE]
    factors = [one.factor for one in unlike if one.outcome == "one factor apart" and one.factor is not None]
    if not factors or len(factors) < len(unlike):
        return None
    middle = sorted(factors)[len(factors) // 2]
    close = all(isclose(one, middle, rel_tol=2 * FACTOR_TOLERANCE) for one in factors)
    return middle if close and not any(_contradicts(one, middle) for one in tensors) else None


def _contradicts(one: UpdateDifference, factor: float) -> bool:
    """Tell whether an update that is alike is known well enough not to be apart by the factor as well."""
    if one.outcome != "same" or one.rounding is None:
        return False
    size = prod(one.shape)
    known = one.rounding + FACTOR_TOLERANCE + FEW_ELEMENTS / size + UNRELATED * (one.beside_factor or 0.0) / sqrt(size)
    return abs(factor - (1.0 if one.factor is None else one.factor)) > known


def by_distance(one: UpdateDifference) -> tuple[bool, float]:
    """Sorts those that are furthest off first: those that cannot be told in a number, then by relative difference."""
    alike = one.outcome in ALIKE
    return alike, -(float("inf") if one.relative is None and not alike else one.relative or 0.0)


def judge_updates(tensors: Sequence[UpdateDifference], pairs: TensorPairs, factor: float | None) -> Verdict:
    """Aligned if all updates are alike and nothing is left without a counterpart; over nothing that moved, neither."""
    coverage = Coverage("tensors", len(tensors), len(pairs.dropped), len(pairs.missing), len(pairs.extra))
    unlike = [one for one in tensors if one.outcome not in ALIKE]
    if not any(one.outcome != "neither moved" for one in tensors):
        return Verdict(Outcome.NOT_COMPARED, sentence("updates_verdict.nothing_moved"), coverage)
    reasons: list[str] = []
    counts = {"unlike": len(unlike), "count": len(tensors)}
    if factor is not None:
        reasons.append(sentence("updates_verdict.by_one_factor", factor=factor, **counts))
    elif unlike:
        first = {"reference": unlike[0].reference, "candidate": unlike[0].candidate, "outcome": unlike[0].outcome}
        reasons.append(sentence("updates_verdict.first", **counts, **first))
    if pairs.missing:
        reasons.append(sentence("updates_verdict.missing", count=len(pairs.missing)))
    if pairs.extra:
        reasons.append(sentence("updates_verdict.extra", count=len(pairs.extra)))
    if reasons:
        return Verdict(Outcome.NOT_ALIGNED, joined("; ", reasons), coverage)
    moved = sum(one.outcome != "neither moved" for one in tensors)
    return Verdict(Outcome.ALIGNED, sentence("updates_verdict.alike", count=moved), coverage)
