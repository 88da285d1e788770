"""What training did on two sides, compared: updates (values after less values before), not values.

The sums over a pair of updates say whether they are alike, one factor apart, apart by a decay, or different.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose, prod, sqrt
from typing import TYPE_CHECKING

from align.convert.diff.pair_checkpoints import (
    one_file,
    open_for_diff,
    pair_checkpoints,
    pair_tensors,
    two_way_map,
    without_lone_state,
    without_prefixes,
)
from align.convert.diff.update_sums import sum_updates
from align.convert.diff_result import ALIKE, UpdateDifference, UpdatesDiff
from align.convert.thresholds import (
    FACTOR_OF_ONE_ELEMENT,
    FEWEST_FOR_DECAY,
    LEAST_DECAY_UNITS,
    PROPORTIONAL_COSINE,
    TURNED_ELEMENT,
    UNRELATED_DEVIATIONS,
    UPDATE_FACTOR_TOLERANCE,
    UPDATE_TOLERANCE,
)
from align.core.dtypes import is_complex
from align.core.progress import silent
from align.core.thresholds import FLOAT32_ROUNDING
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import UsageError
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from align.convert.diff.pair_checkpoints import TensorPair, TensorPairs
    from align.convert.diff.update_sums import UpdateSums
    from align.convert.diff_result import UpdateOutcome
    from align.convert.planning.two_way_map import TwoWayMap
    from align.core.checkpoints import Checkpoint
    from align.core.name_map import NameMap
    from align.core.progress import Progress

    Files = tuple[Path | str, Path | str]


def diff_updates(  # noqa: PLR0913 - the options of one command
    reference: Files,
    candidate: Files,
    *,
    name_map: NameMap | Path | str | None = None,
    keys: tuple[str | None, str | None] = (None, None),
    strip: Iterable[str] = (),
    trust_pickle: bool = False,
    progress: Progress = silent,
) -> UpdatesDiff:
    """Compare what training moved on two sides; each side is two checkpoints, before and after.

    The reference's values go through the map with its transforms before they are subtracted. `keys` name the entries of
    nested files on either side; `name_map`, `strip` and `trust_pickle` are as for `align.diff_checkpoints`. Each tensor
    is read once, in blocks. Raises UsageError for two files of a side with other names or shapes, and, without a map,
    for sides with other names; and what opening files raises.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> start, gradient = numpy.linspace(1, 2, 50), numpy.sin(numpy.arange(50.0))
    >>> files = [folder / f"{name}.npz" for name in ("before", "after", "after_port")]
    >>> for file, rate in zip(files, (0.0, 0.1, 0.2)):
    ...     numpy.savez(file, w=start - rate * gradient)
    >>> diff = diff_updates((files[0], files[1]), (files[0], files[2]))
    >>> diff.tensors[0].outcome, round(diff.factor, 6)
    ('one factor apart', 2.0)
    """
    strip = tuple(strip)
    ours = _opened(reference, keys[0], "--key-a", trust_pickle)
    theirs = _opened(candidate, keys[1], "--key-b", trust_pickle)
    before, after = (without_prefixes(both, strip) for both in zip(ours, theirs, strict=True))
    two_way = two_way_map(name_map)
    left, lone = without_lone_state([*before, *after], two_way)
    before, after = left[:2], left[2:]
    for side in zip(before, after, strict=True):
        _require_same_names(*side)
    warnings, pairs = _paired(before, two_way)
    same = [one_file(*both, keys) for both in zip(reference, candidate, strict=True)]
    warnings = (*warnings, *dict.fromkeys(filter(None, same)))
    if pairs.inferred is None:
        later = _paired(after, two_way)[1]
    else:  # by the names that paired before: values need not tell them any more
        later = pair_tensors(after[0].tensors, after[1].tensors, pairs.inferred)
    twins = {(one.reference.name, one.candidate.name): one for one in later.pairs}
    found = []
    for number, pair in enumerate(pairs.pairs):
        progress("updates", number, len(pairs.pairs))
        found.append(_measured(pair, twins[pair.reference.name, pair.candidate.name]))
    progress("updates", len(pairs.pairs), len(pairs.pairs))
    tensors = tuple(sorted(_without_influence(found), key=_by_distance))
    factor = _common_factor(tensors)
    return UpdatesDiff(
        reference=(str(reference[0]), str(reference[1])),
        candidate=(str(candidate[0]), str(candidate[1])),
        tensors=tensors,
        factor=factor,
        missing=pairs.missing,
        extra=pairs.extra,
        dropped=pairs.dropped | lone,
        warnings=(*warnings, *_other_start(tensors)),
        verdict=_judge_updates(tensors, pairs, factor),
    )


def _opened(files: Files, key: str | None, option: str, trust_pickle: bool) -> list[Checkpoint]:
    opened = [open_for_diff(path, key, option, trust_pickle) for path in files]
    for one in opened:
        if one.check is not None:
            one.check()
    return opened


def _require_same_names(before: Checkpoint, after: Checkpoint) -> None:
    for one, other, when in ((before, after, "after"), (after, before, "before")):
        if lacking := [name for name in one.tensors if name not in other.tensors]:
            raise UsageError.of(
                "updates_usage.not_one_model",
                before=before.path,
                after=after.path,
                names=lacking,
                count=len(lacking),
                when=when,
            )
    unlike = [name for name, one in before.tensors.items() if one.shape != after.tensors[name].shape]
    if unlike:
        raise UsageError.of("updates_usage.other_shapes", before=before.path, after=after.path, names=unlike)


def _paired(sides: Sequence[Checkpoint], two_way: TwoWayMap | None) -> tuple[Sequence[str], TensorPairs]:
    ours, theirs, warnings, pairs = pair_checkpoints(sides[0], sides[1], two_way)
    if two_way is None and (unpaired := [*pairs.missing, *pairs.extra]):
        raise UsageError.of(
            "updates_usage.one_side_only", count=len(unpaired), ours=ours.path, theirs=theirs.path, names=unpaired
        )
    return warnings, pairs


def _measured(before: TensorPair, after: TensorPair) -> UpdateDifference:
    both = before.comparable, after.comparable
    if both[0] is None or both[1] is None:
        made = before.made or before.reference
        return _unlike_shapes(before, before.problem or f"{list(made.shape)} against {list(before.candidate.shape)}")
    tensors = both[0][0], both[1][0], both[0][1], both[1][1]
    if len({is_complex(one.dtype) for one in tensors}) > 1:
        return _unlike_shapes(before, sentence("updates_note.complex"))
    return _judge_update(before, sum_updates(tensors))


def _other_start(tensors: Sequence[UpdateDifference]) -> Iterator[str]:
    """Warn of values that were not the same before the step: their gradients need not be either.

    Values that have gone through a cast there and back are the same.
    """
    if apart := [one.reference for one in tensors if one.start is not None and one.start > FLOAT32_ROUNDING]:
        yield sentence("updates_note.other_start", count=len(apart), names=apart)


@dataclass(frozen=True, slots=True)
class _Relation:
    """What was found, with the norms that it rests on."""

    outcome: UpdateOutcome
    factor: float | None = None
    beside: float | None = None
    decay: float | None = None


def _judge_update(pair: TensorPair, sums: UpdateSums) -> UpdateDifference:
    u, v, d, rounding = (sqrt(max(one, 0.0)) for one in (sums.uu, sums.vv, sums.dd, sums.rounding))
    limit = rounding + (UPDATE_TOLERANCE + TURNED_ELEMENT / sqrt(max(sums.count, 1))) * u
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


def _unlike_shapes(pair: TensorPair, note: str) -> UpdateDifference:
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
    known = _factor_tolerance(beside, sums.count) + rounding / u
    if abs(factor - 1.0) > known and beside <= UPDATE_TOLERANCE + rounding / v:
        return _Relation("one factor apart", factor, beside)
    return _Relation("same" if d <= limit else "updates differ", factor, beside)


def _decay(sums: UpdateSums, d: float) -> float | None:
    """The share of the values by which the updates differ, if the difference is proportional to these and not to u."""
    if not sums.ww or sums.count < FEWEST_FOR_DECAY or abs(sums.dw) < LEAST_DECAY_UNITS * sums.unit * sums.ww:
        return None
    along_values = abs(sums.dw) / (d * sqrt(sums.ww))
    along_update = abs(sums.uv - sums.uu) / (d * sqrt(sums.uu))
    return -sums.dw / sums.ww if along_values >= PROPORTIONAL_COSINE and along_values > along_update else None


def _without_influence(tensors: Sequence[UpdateDifference]) -> list[UpdateDifference]:
    """Mark the vectors whose gradient is rounding alone, as of a bias in front of a normalisation.

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
    return abs(cosine) <= UNRELATED_DEVIATIONS / sqrt(one.shape[0])


def _common_factor(tensors: Sequence[UpdateDifference]) -> float | None:
    """The factor by which all updates that differ are apart, None if there is none."""
    unlike = [one for one in tensors if one.outcome not in ALIKE]
    factors = [one.factor for one in unlike if one.outcome == "one factor apart" and one.factor is not None]
    if not factors or len(factors) < len(unlike):
        return None
    middle = sorted(factors)[len(factors) // 2]
    close = all(isclose(one, middle, rel_tol=2 * UPDATE_FACTOR_TOLERANCE) for one in factors)
    return middle if close and not any(_contradicts(one, middle) for one in tensors) else None


def _contradicts(one: UpdateDifference, factor: float) -> bool:
    """Tell whether an update that is alike is known well enough not to be apart by the factor as well."""
    if one.outcome != "same" or one.rounding is None:
        return False
    known = one.rounding + _factor_tolerance(one.beside_factor or 0.0, prod(one.shape))
    return abs(factor - (1.0 if one.factor is None else one.factor)) > known


def _factor_tolerance(beside: float, size: int) -> float:
    """By how much the factor of an update of `size` elements may be off, with what it leaves `beside` it."""
    return UPDATE_FACTOR_TOLERANCE + FACTOR_OF_ONE_ELEMENT / size + UNRELATED_DEVIATIONS * beside / sqrt(size)


def _by_distance(one: UpdateDifference) -> tuple[bool, float]:
    """Sorts those that are furthest off first: those without a number, then by relative difference."""
    alike = one.outcome in ALIKE
    return alike, -(float("inf") if one.relative is None and not alike else one.relative or 0.0)


def _judge_updates(tensors: Sequence[UpdateDifference], pairs: TensorPairs, factor: float | None) -> Verdict:
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
