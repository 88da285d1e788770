"""Which tensors of two checkpoints belong together, and what their figures say: nothing is opened or read here.

Tensors pair by a name map with its transforms, or by equal names; never by position, suffix or shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.checkpoints.wrapper_prefixes import shared_prefixes
from align.convert.diff_result import TensorDifference
from align.convert.planning.transformed_tensors import transformed_tensor
from align.convert.thresholds import FEW_EQUAL_NAMES
from align.core.name_map import Pairing
from align.core.piece_transforms import apart_from_whole
from align.core.verdicts import Coverage, Outcome, Verdict
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.convert.diff_result import TensorOutcome
    from align.core.checkpoints import StoredTensor
    from align.core.measurements import Measurement
    from align.core.name_map import NameMap
    from align.core.transforms import Transform
    from align.measure.measure_arrays import RunningSums


@dataclass(frozen=True, slots=True)
class TensorPair:
    """One tensor on both sides; `made` is the reference's as the map makes it, None with the `problem` if it cannot."""

    reference: StoredTensor
    candidate: StoredTensor
    made: StoredTensor | None
    problem: str = ""

    @property
    def comparable(self) -> tuple[StoredTensor, StoredTensor] | None:
        """Both sides, None if the shapes are not equal: nothing is ever broadcast."""
        return (self.made, self.candidate) if self.made and self.made.shape == self.candidate.shape else None


@dataclass(frozen=True, slots=True)
class TensorPairs:
    """Pairs in the reference's order, names without a counterpart, and names that the map leaves out, with reasons."""

    pairs: tuple[TensorPair, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    dropped: dict[str, str]


def pair_tensors(
    reference: Mapping[str, StoredTensor], candidate: Mapping[str, StoredTensor], name_map: NameMap | None = None
) -> TensorPairs:
    """Pair by the map, or by equal names without one."""
    pairings = (Pairing(name, name, "name", 1.0) for name in reference) if name_map is None else name_map.pairings
    targets: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        if pairing.target in candidate:
            targets.setdefault(pairing.source, []).append(pairing)
    pairs = tuple(
        _pair(tensor, candidate[pairing.target], pairing.transform)
        for name, tensor in reference.items()
        for pairing in targets.get(name, ())
    )
    drops = _drops(name_map)
    ours, theirs = {pair.reference.name for pair in pairs}, {pair.candidate.name for pair in pairs}
    left, right = drops["source"].keys() - ours, drops["target"].keys() - theirs
    dropped = {name: drops["source"][name] for name in reference if name in left}
    dropped |= {name: drops["target"][name] for name in candidate if name in right}
    named = ours | left, theirs | right
    return TensorPairs(
        pairs,
        tuple(name for name in reference if name not in named[0]),
        tuple(name for name in candidate if name not in named[1]),
        dropped,
    )


def judge_pair(pair: TensorPair, sums: RunningSums | None) -> TensorDifference:
    """Say what a pair differs by; `sums` is None where the shapes differ."""
    made = pair.made or pair.reference
    measurement = sums.result(pair.candidate.shape) if sums is not None else None
    return TensorDifference(
        reference=pair.reference.name,
        candidate=pair.candidate.name,
        reference_shape=made.shape,
        candidate_shape=pair.candidate.shape,
        reference_dtype=made.dtype,
        candidate_dtype=pair.candidate.dtype,
        outcome=_outcome(measurement, made.dtype == pair.candidate.dtype),
        identical=sums is not None and sums.identical and made.dtype == pair.candidate.dtype,
        measurement=measurement,
        note=pair.problem,
    )


def judge_diff(tensors: Sequence[TensorDifference], pairs: TensorPairs) -> Verdict:
    """Aligned if every tensor has a counterpart of its shape and dtype with equal values."""
    coverage = Coverage("tensors", len(tensors), len(pairs.dropped), len(pairs.missing), len(pairs.extra))
    if not tensors:
        return Verdict(Outcome.NOT_COMPARED, sentence("diff_verdict.nothing_common"), coverage)
    differing = sum(tensor.outcome != "equal" for tensor in tensors)
    identical = sum(tensor.identical for tensor in tensors)
    parts = [sentence("diff_verdict.differ", count=differing, tensors=len(tensors))] if differing else []
    parts += [sentence("diff_verdict.missing", count=len(pairs.missing))] if pairs.missing else []
    parts += [sentence("diff_verdict.extra", count=len(pairs.extra))] if pairs.extra else []
    if parts:
        return Verdict(Outcome.NOT_ALIGNED, sentence("diff_verdict.unlike", parts=parts, identical=identical), coverage)
    return Verdict(Outcome.ALIGNED, _all_equal(len(tensors), identical), coverage)


def _all_equal(count: int, identical: int) -> str:
    if identical < count:
        key = "diff_verdict.one_equal" if count == 1 else "diff_verdict.all_equal"
        return sentence(key, count=count, identical=identical)
    return sentence("diff_verdict.one_identical") if count == 1 else sentence("diff_verdict.all_identical", count=count)


def naming_warning(pairs: TensorPairs) -> str:
    """A hint where hardly any names are equal, though both sides have many: a prefix to take off, or a map."""
    common = len(pairs.pairs)
    fewer = common + min(len(pairs.missing), len(pairs.extra))
    if not fewer or common >= FEW_EQUAL_NAMES * fewer:
        return ""
    counts = {"common": common, "count": fewer}
    for names, others in ((pairs.missing, pairs.extra), (pairs.extra, pairs.missing)):
        for prefix in shared_prefixes(names):
            if len({name.removeprefix(prefix) for name in names} & set(others)) >= FEW_EQUAL_NAMES * fewer:
                return sentence("diff_warning.strip", prefix=prefix, **counts)
    return sentence("diff_warning.few_in_common", **counts)


def _pair(reference: StoredTensor, candidate: StoredTensor, transform: Transform) -> TensorPair:
    change, part = apart_from_whole(transform)
    try:
        if part is not None:
            candidate = transformed_tensor(candidate, candidate.name, part.inverse(None, None))
        return TensorPair(reference, candidate, transformed_tensor(reference, candidate.name, change))
    except ValueError as error:
        return TensorPair(reference, candidate, None, str(error))


def _drops(name_map: NameMap | None) -> dict[str, dict[str, str]]:
    drops: dict[str, dict[str, str]] = {"source": {}, "target": {}}
    for drop in name_map.dropped if name_map else ():
        drops[drop.side][drop.name] = drop.reason
    return drops


def _outcome(measurement: Measurement | None, same_dtype: bool) -> TensorOutcome:
    if measurement is None:
        return "shapes differ"
    if measurement.mismatched:
        return "values differ"
    return "equal" if same_dtype else "dtypes differ"
