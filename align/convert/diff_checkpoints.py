"""Two checkpoints of any formats compared: names, shapes, dtypes, and the values of every pair in one pass.

Stored tensors are read block by block in two threads. Large ones are cut into parts, so that both threads have work
whatever the sizes; each thread has one kernel and buffers of its own, so memory does not grow with the files. Files are
read, not mapped: mapped pages count as memory.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isclose, prod, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.checkpoints.extents import byte_blocks, require_unchanged
from align.checkpoints.names_in_file import training_notes
from align.convert.pair_checkpoints import (
    ALIKE,
    CheckpointDiff,
    UpdateDifference,
    UpdatesDiff,
    dequantized_sides,
    judge_diff,
    judge_pair,
    one_file,
    open_for_diff,
    pair_checkpoints,
    pair_tensors,
    two_way_map,
    without_lone_state,
    without_prefixes,
)
from align.convert.relate_checkpoints import with_relations
from align.convert.thresholds import (
    FACTOR_OF_ONE_ELEMENT,
    FEWEST_FOR_DECAY,
    LEAST_DECAY_UNITS,
    PART_ELEMENTS,
    PROPORTIONAL_COSINE,
    READING_THREADS,
    TURNED_ELEMENT,
    UNRELATED_DEVIATIONS,
    UPDATE_FACTOR_TOLERANCE,
    UPDATE_TOLERANCE,
)
from align.core.parameters import EPSILON, is_complex, numpy_dtype, rounded_as
from align.core.protocols import Progress, silent
from align.core.thresholds import FLOAT32_ROUNDING
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import UsageError
from align.measure.measure_arrays import Kernels, RunningSums
from align.measure.thresholds import SHARED_BLOCK
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.convert.given_map import TwoWayMap
    from align.convert.pair_checkpoints import TensorDifference, TensorPair, TensorPairs, UpdateOutcome
    from align.core.name_map import NameMap
    from align.core.parameters import Array, Checkpoint, StoredTensor

    Files = tuple[Path | str, Path | str]


Pair = tuple["StoredTensor", "StoredTensor"]


def diff_checkpoints(  # noqa: PLR0913 - the options of one command
    reference: Path | str,
    candidate: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    reference_key: str | None = None,
    candidate_key: str | None = None,
    strip: Iterable[str] = (),
    trust_pickle: bool = False,
    dequantize: Literal["bf16", "fp32"] | None = None,
    unchanged: bool = False,
    progress: Progress = silent,
) -> CheckpointDiff:
    """Compare two checkpoints; each tensor is read once, in blocks, whatever its size.

    `name_map` is a map between the names of both, its file or the record of a conversion, and is applied with its
    transforms in the direction that fits; without it, equal names pair, or of two frameworks those that the map of both
    files pairs. The keys name the entries of nested files,
    `strip` prefixes to take off the names of whichever side has them. `dequantize` compares the values of quantized
    weights, made in this dtype. With `unchanged` the result lists what is equal bit for bit. `trust_pickle` lets torch
    run what a file pickles. Raises what opening the files raises, UsageError for prefixes and MapError.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> numpy.savez(folder / "before.npz", w=numpy.ones(3), b=numpy.zeros(2))
    >>> numpy.savez(folder / "after.npz", w=numpy.ones(3) + 0.5, b=numpy.zeros(2))
    >>> diff = diff_checkpoints(folder / "before.npz", folder / "after.npz", unchanged=True)
    >>> diff.verdict.outcome.value, diff.unchanged
    ('not aligned', ('b',))
    >>> [(one.reference, one.measurement.max_abs) for one in diff.tensors if one.outcome != "equal"]
    [('w', 0.5)]
    """
    strip = tuple(strip)
    ours = open_for_diff(reference, reference_key, "--key-a", trust_pickle)
    theirs = open_for_diff(candidate, candidate_key, "--key-b", trust_pickle)
    if dequantize is not None:
        ours, theirs = dequantized_sides((ours, theirs), dequantize)
    ours, theirs = without_prefixes((ours, theirs), strip)
    said = (*_beside(ours), *_beside(theirs))
    same = one_file(reference, candidate, (reference_key, candidate_key))
    ours, theirs, map_warnings, pairs = pair_checkpoints(ours, theirs, two_way_map(name_map))
    for checkpoint in (ours, theirs):
        if checkpoint.check is not None:
            checkpoint.check()
    tensors, map_lines, unrelated = with_relations(_measure_pairs(pairs, progress), pairs)
    for checkpoint in (ours, theirs):
        require_unchanged(checkpoint)
    warnings = (*ours.notes, *theirs.notes, *map_warnings, *said, *filter(None, [unrelated]))
    return CheckpointDiff(
        reference=str(reference),
        candidate=str(candidate),
        reference_format=ours.format,
        candidate_format=theirs.format,
        tensors=tensors,
        missing=_described(ours.tensors, pairs.missing),
        extra=_described(theirs.tensors, pairs.extra),
        dropped=pairs.dropped,
        warnings=warnings,
        verdict=judge_diff(tensors, pairs, same),
        unchanged=tuple(tensor.reference for tensor in tensors if tensor.identical) if unchanged else None,
        strip=strip,
        map_lines=map_lines,
    )


def _measure_pairs(pairs: TensorPairs, progress: Progress) -> tuple[TensorDifference, ...]:
    sums = iter(measure_pairs([both for pair in pairs.pairs if (both := pair.comparable)], progress))
    return tuple(judge_pair(pair, next(sums) if pair.comparable else None) for pair in pairs.pairs)


def _described(tensors: Mapping[str, StoredTensor], names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{tensors[name].dtype} {tensors[name].shape}" for name in names}


def _beside(checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each kind of what is no weight, and each entry of a nested file that was not compared."""
    yield from (
        sentence("fault_list.one", head=checkpoint.path.name, fault=note) for note in training_notes(checkpoint)
    )
    for name, count in checkpoint.other_tensors.items():
        facts = {"file": checkpoint.path.name, "name": name, "kind": checkpoint.other[name]}
        yield sentence("diff_warning.beside", count=count, **facts)


def measure_pairs(pairs: Sequence[Pair], progress: Progress = silent) -> list[RunningSums]:
    """Return the sums of each pair of equal shapes, reference first; dtypes may differ.

    Raises NotACheckpointError if a file has become shorter since it was opened.
    """
    total = sum(ours.nbytes + theirs.nbytes for ours, theirs in pairs)
    work = _Work(deque(_parts(pairs)), Kernels(total), _Counter(progress, total))
    with ThreadPoolExecutor(READING_THREADS) as pool:
        try:
            done = [future.result() for future in [pool.submit(work.run) for _ in range(READING_THREADS)]]
        finally:
            work.parts.clear()  # after a failure or an interrupt the other thread ends with its part
    results = [RunningSums() for _ in pairs]
    for part, sums in sorted((item for own in done for item in own), key=lambda item: (item[0].pair, item[0].start)):
        results[part.pair].merge(sums)
    return results


@dataclass(frozen=True, slots=True)
class _Part:
    """Some consecutive elements of a pair, from the flat index `start`."""

    pair: int
    start: int
    reference: StoredTensor
    candidate: StoredTensor


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left to do; every thread takes from it."""

    parts: deque[_Part]
    kernels: Kernels
    tell: _Counter

    def run(self) -> list[tuple[_Part, RunningSums]]:
        done = []
        kernel, fused = self.kernels.make(), self.kernels.fused
        while self.parts:
            try:
                part = self.parts.popleft()
            except IndexError:  # the other thread was quicker
                break
            if self.kernels.fused and not fused:
                kernel, fused = self.kernels.make(), True
            sums = RunningSums()
            start = part.start
            for left, right in array_blocks((part.reference, part.candidate)):
                kernel.add(sums, left, right, start)
                start += left.size
            done.append((part, sums))
            self.tell(part.reference.nbytes + part.candidate.nbytes)
        return done


class _Counter:
    """Tells the progress of all threads together."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            self._progress("comparing", self._done, self._total)


def _parts(pairs: Sequence[Pair]) -> Iterator[_Part]:
    for index, (reference, candidate) in enumerate(pairs):
        size = prod(reference.shape)
        step = PART_ELEMENTS if reference.extent and candidate.extent else max(size, 1)
        for start in range(0, size, step):
            count = min(step, size - start)
            yield _Part(index, start, *(_cut(tensor, start, count) for tensor in (reference, candidate)))


def _cut(tensor: StoredTensor, start: int, count: int) -> StoredTensor:
    if tensor.extent is None:
        return tensor
    size = numpy_dtype(tensor.dtype).itemsize
    extent = replace(tensor.extent, offset=tensor.extent.offset + start * size, nbytes=count * size)
    return replace(tensor, shape=(count,), extent=extent)


# What training did on two sides, compared: updates (values after less values before), not values.
#
# The sums over a pair of updates say whether they are alike, one factor apart, apart by a decay, or different.


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
    twins = {(pair_later.reference.name, pair_later.candidate.name): pair_later for pair_later in later.pairs}
    updates_of_tensors = []
    for number, pair in enumerate(pairs.pairs):
        progress("updates", number, len(pairs.pairs))
        updates_of_tensors.append(_measure_update(pair, twins[pair.reference.name, pair.candidate.name]))
    progress("updates", len(pairs.pairs), len(pairs.pairs))
    tensors = tuple(sorted(_without_influence(updates_of_tensors), key=_by_distance))
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
    for checkpoint, other, when in ((before, after, "after"), (after, before, "before")):
        if lacking := [name for name in checkpoint.tensors if name not in other.tensors]:
            raise UsageError.of(
                "updates_usage.not_one_model",
                before=before.path,
                after=after.path,
                names=lacking,
                count=len(lacking),
                when=when,
            )
    unlike = [name for name, tensor in before.tensors.items() if tensor.shape != after.tensors[name].shape]
    if unlike:
        raise UsageError.of("updates_usage.other_shapes", before=before.path, after=after.path, names=unlike)


def _paired(sides: Sequence[Checkpoint], two_way: TwoWayMap | None) -> tuple[Sequence[str], TensorPairs]:
    ours, theirs, warnings, pairs = pair_checkpoints(sides[0], sides[1], two_way)
    if two_way is None and (unpaired := [*pairs.missing, *pairs.extra]):
        raise UsageError.of(
            "updates_usage.one_side_only", count=len(unpaired), ours=ours.path, theirs=theirs.path, names=unpaired
        )
    return warnings, pairs


def _measure_update(before: TensorPair, after: TensorPair) -> UpdateDifference:
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
    relation = _Relation("not finite") if sums.non_finite else _related(sums, (u, v, d), rounding, limit)
    size = sqrt(max(sums.count - sums.non_finite, 1))
    return UpdateDifference(
        reference=pair.reference.name,
        candidate=pair.candidate.name,
        shape=pair.candidate.shape,
        outcome=relation.outcome,
        reference_moved=u / size,
        candidate_moved=v / size,
        relative=d / u if u else None,
        limit=limit / u if u else None,
        rounding=rounding / u if u else None,
        factor=relation.factor,
        beside_factor=relation.beside,
        decay=relation.decay,
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
    layers = {
        update.reference.rpartition(".")[0] for update in tensors if update.outcome in ALIKE and len(update.shape) > 1
    }
    return [
        replace(update, outcome="without influence")
        if _unrelated(update) and update.reference.rpartition(".")[0] in layers
        else update
        for update in tensors
    ]


def _unrelated(update: UpdateDifference) -> bool:
    if update.outcome != "updates differ" or len(update.shape) != 1 or update.factor is None:
        return False
    cosine = update.factor * update.reference_moved / update.candidate_moved
    return abs(cosine) <= UNRELATED_DEVIATIONS / sqrt(update.shape[0])


def _common_factor(tensors: Sequence[UpdateDifference]) -> float | None:
    """The factor by which all updates that differ are apart, None if there is none."""
    unlike = [update for update in tensors if update.outcome not in ALIKE]
    factors = [update.factor for update in unlike if update.outcome == "one factor apart" and update.factor is not None]
    if not factors or len(factors) < len(unlike):
        return None
    middle = sorted(factors)[len(factors) // 2]
    close = all(isclose(factor, middle, rel_tol=2 * UPDATE_FACTOR_TOLERANCE) for factor in factors)
    return middle if close and not any(_contradicts(update, middle) for update in tensors) else None


def _contradicts(update: UpdateDifference, factor: float) -> bool:
    """Tell whether an update that is alike is known well enough not to be apart by the factor as well."""
    if update.outcome != "same" or update.rounding is None:
        return False
    known = update.rounding + _factor_tolerance(update.beside_factor or 0.0, prod(update.shape))
    return abs(factor - (1.0 if update.factor is None else update.factor)) > known


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
    unlike = [update for update in tensors if update.outcome not in ALIKE]
    if not any(update.outcome != "neither moved" for update in tensors):
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
    moved = sum(update.outcome != "neither moved" for update in tensors)
    return Verdict(Outcome.ALIGNED, sentence("updates_verdict.alike", count=moved), coverage)


# Tensors read side by side, and sums over four of them, before and after on both sides, in one pass and in float64.
#
# An update is the difference of two stored numbers, so it is known no better than these are rounded: each of the four
# may be off by half a unit in its last place.

Wide = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(slots=True)
class UpdateSums:
    """Sums of squares and products of what a pair of tensors moved by.

    `u` is the reference's update, `v` the candidate's, `w` the reference's values before, and `d` is v - u. `rounding`
    is what d may be by the units of the values, of which `unit` is the largest epsilon; `start` the candidate's values
    before less the reference's. `non_finite` counts elements of which a value is NaN or infinite; they are in no sum.
    """

    count: int = 0
    non_finite: int = 0
    uu: float = 0.0
    vv: float = 0.0
    uv: float = 0.0
    ww: float = 0.0
    dd: float = 0.0
    dw: float = 0.0
    rounding: float = 0.0
    start: float = 0.0
    unit: float = 0.0

    def add(self, values: Sequence[Wide], units: Sequence[float]) -> None:
        """Add a block: values before and after of the reference, then of the candidate."""
        finite = np.isfinite(values[0])
        for vector in values[1:]:
            finite &= np.isfinite(vector)
        self.count += finite.size
        if not finite.all():
            self.non_finite += int(finite.size - np.count_nonzero(finite))
            values = [vector[finite] for vector in values]
        before, after, other_before, other_after = values
        u, v = after - before, other_after - other_before
        self.uu, self.vv, self.uv = self.uu + float(u @ u), self.vv + float(v @ v), self.uv + float(u @ v)
        d = v - u
        self.dd, self.dw, self.ww = (
            self.dd + float(d @ d),
            self.dw + float(d @ before),
            self.ww + float(before @ before),
        )
        known = np.add.reduce([_last_place(vector, unit) for vector, unit in zip(values, units, strict=True)]) / 2
        apart = other_before - before
        self.rounding, self.start = self.rounding + float(known @ known), self.start + float(apart @ apart)
        self.unit = max(units)


def sum_updates(tensors: Sequence[StoredTensor]) -> UpdateSums:
    """The sums of four tensors of one shape: before and after of the reference, then of the candidate.

    Read block by block. Raises NotACheckpointError if a file has become shorter since it was opened.
    """
    sums = UpdateSums()
    units = [EPSILON.get(rounded_as(one.dtype), 0.0) for one in tensors]
    for values in array_blocks(tensors, real=True):
        sums.add([one.astype(np.float64) for one in values], units)
    return sums


def _last_place(values: Wide, unit: float) -> Wide:
    """A unit in the last place of each value; 0 for 0, and for numbers that are not rounded."""
    return np.ldexp(unit * (values != 0.0), np.frexp(values)[1] - 1) if unit else np.zeros_like(values)


def array_blocks(tensors: Sequence[StoredTensor], *, real: bool = False) -> Iterator[list[Array]]:
    """Yield the elements of tensors of one size side by side, in blocks that are cut where those of any end.

    With `real`, complex numbers are two real ones each.
    """
    streams = [_arrays(tensor, real=real) for tensor in tensors]
    arrays = [np.empty(0) for _ in tensors]
    done, size = 0, prod(tensors[0].shape) * (2 if real and is_complex(tensors[0].dtype) else 1)
    while done < size:
        arrays = [array if array.size else next(stream) for array, stream in zip(arrays, streams, strict=True)]
        step = min(array.size for array in arrays)
        yield [array[:step] for array in arrays]
        arrays, done = [array[step:] for array in arrays], done + step


def _arrays(tensor: StoredTensor, *, real: bool) -> Iterator[Array]:
    dtype = numpy_dtype((real and rounded_as(tensor.dtype)) or tensor.dtype)
    for block in byte_blocks(tensor, SHARED_BLOCK * numpy_dtype(tensor.dtype).itemsize):
        yield np.frombuffer(block, dtype)
