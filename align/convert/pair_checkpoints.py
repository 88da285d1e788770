"""Checkpoints that are held against each other: opened, under the names that they pair by, and their tensors paired.

A conversion knows only its source and must not lose anything; a diff has both sides and lists what has no counterpart.
So a map is followed the way on which more tensors meet, and a name that one side lacks is no fault of the map. Tensors
pair by a name map with its transforms, or by equal names; never by position, suffix or shape.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.checkpoints.inspect_checkpoint import dequantized, packed_weights, refuse_placeholders
from align.checkpoints.names_in_file import (
    matched_without_wrappers,
    older_part_name,
    shared_prefixes,
    source_framework,
    state_beside_weights,
    without_prefixes_of_all,
    without_wrappers,
    wrapper_words,
)
from align.checkpoints.open_checkpoint import open_checkpoint, open_trusted
from align.convert.plan_conversion import transformed_tensor, zero_tensor
from align.convert.thresholds import FEW_EQUAL_NAMES, REASONS_SHOWN
from align.core.align_sequences import grouped
from align.core.name_map import Dropped, Pairing, held_value, meant_value
from align.core.parameters import StoredTensor
from align.core.piece_transforms import apart_from_whole, sum_step, zero_cuts, zero_parts
from align.core.transforms import Permute, Reshape
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, MapError
from align.words.catalogue import hint_of_command, joined, say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.convert.given_map import DirectedMap, TwoWayMap
    from align.core.name_map import FrameworkName, NameMap, SideName
    from align.core.parameters import Array, Checkpoint, Shape
    from align.core.traces import Measurement
    from align.core.transforms import Transform
    from align.measure.measure_arrays import RunningSums
    from align.names.user_rules import NameRules

    Tensors = Mapping[str, StoredTensor]
    Lone = dict[str, str]


MATCHED = sentence("diff_warning.without_wrappers")


def open_for_diff(path: Path | str, key: str | None, option: str, trust_pickle: bool) -> Checkpoint:
    """Open one side; a hint names the option that chooses the entry of this side."""
    try:
        checkpoint = (open_trusted if trust_pickle else open_checkpoint)(path, key)
        refuse_placeholders(checkpoint)
        return checkpoint
    except CannotRunError as error:
        error.hint = hint_of_command(error.hint, lambda name: option if name == "--key" else name)
        raise


def dequantized_sides(sides: Sequence[Checkpoint], dtype: Literal["bf16", "fp32"]) -> list[Checkpoint]:
    """Both sides with the values of quantized weights; raises CannotRunError where neither has any."""
    quantized = [bool(packed_weights(side)) for side in sides]
    name = {"bf16": "bfloat16", "fp32": "float32"}[dtype]
    wanted = quantized if any(quantized) else [True] * len(sides)
    return [dequantized(side, name) if want else side for side, want in zip(sides, wanted, strict=True)]


def without_prefixes(sides: Sequence[Checkpoint], strip: Sequence[str]) -> list[Checkpoint]:
    """Both sides with their tensors under the names without the prefixes."""
    if not strip:
        return list(sides)
    names = without_prefixes_of_all([side.tensors for side in sides], strip)
    return [
        replace(side, tensors={new: replace(side.tensors[was], name=new) for new, was in own.items()})
        for side, own in zip(sides, names, strict=True)
    ]


def one_file(reference: Path | str, candidate: Path | str, keys: tuple[str | None, str | None]) -> str:
    """What to say where both sides are one file, or one entry of one; "" where they are not."""
    same = keys[0] == keys[1] and Path(reference).exists() and Path(reference).samefile(candidate)
    return sentence("diff_warning.one_file", file=str(reference)) if same else ""


def without_lone_state(sides: Sequence[Checkpoint], two_way: TwoWayMap | None) -> tuple[list[Checkpoint], Lone]:
    """The sides without what is no weight and not in all of them, unless the map has it; and those names, with reasons.

    A file that a training wrote counts steps, for example, and one from before the training does not.
    """
    common = set.intersection(*(set(side.tensors) for side in sides))
    known = {name for pair in two_way.rules.all_names for name in pair[:2]} if two_way else set()
    ends: tuple[SideName, SideName] = ("source", "target")
    lone: Lone = {}
    left = []
    for side in sides:
        of_side = {
            name: why for name, why in state_beside_weights(side).items() if name not in common and name not in known
        }
        if two_way is not None:  # what it leaves out has a reason of its own there
            of_side = {
                name: why for name, why in of_side.items() if not any(two_way.rules.drop_of(end, name) for end in ends)
            }
        lone |= of_side
        left.append(
            replace(side, tensors={name: tensor for name, tensor in side.tensors.items() if name not in of_side})
        )
    return left, lone


def two_way_map(name_map: NameMap | Path | str | None) -> TwoWayMap | None:
    """The map that a user gave, if any; raises what reading it raises."""
    if name_map is None:
        return None
    from align.convert.given_map import read_given_map

    return read_given_map(name_map)


def pair_checkpoints(
    ours: Checkpoint, theirs: Checkpoint, two_way: TwoWayMap | None
) -> tuple[Checkpoint, Checkpoint, Sequence[str], TensorPairs]:
    """Both sides under the names that they pair by, what there is to say of these, and the pairs.

    Without a map, names pair if they are equal; where one side has torch's names and the other MindSpore's, as the map
    of both files pairs them, if that pairs more.
    """
    whole = ours, theirs
    (ours, theirs), lone = without_lone_state(whole, two_way)
    if two_way is not None:
        ours, theirs, said, pairs = _paired_by_map(two_way, ours, theirs)
        return ours, theirs, said, pairs.without(lone)
    inferred = _inferred_pairs(*whole)
    ours, wrapped = _as_named_by(ours, theirs)
    ours, in_parts = _with_parts_as(ours, theirs)
    pairs = pair_tensors(ours.tensors, theirs.tensors).without(lone)
    if inferred is not None and inferred.comparable > pairs.comparable:
        return *whole, tuple(_mapped_words(inferred)), inferred
    return ours, theirs, tuple(filter(None, [wrapped, in_parts, naming_warning(pairs)])), pairs


def _inferred_pairs(ours: Checkpoint, theirs: Checkpoint) -> TensorPairs | None:
    """The pairs by the map that the files alone tell, where they have the names of two frameworks; else None.

    Equal names that it leaves open belong together, where their shapes differ by axes of length 1 at most.
    """
    if _framework(ours) == _framework(theirs) and _framework(ours, {}) == _framework(theirs, {}):
        return None
    from align.names.map_parameters import map_checkpoints

    name_map = map_checkpoints(ours, theirs)
    pairs = pair_tensors(ours.tensors, theirs.tensors, name_map)
    by_reshape = [
        Pairing(name, name, "name", 1.0, Reshape(theirs.tensors[name].shape))
        for name in pairs.missing
        if name in pairs.extra and _without_ones(ours.tensors[name].shape) == _without_ones(theirs.tensors[name].shape)
    ]
    name_map = replace(name_map, pairings=(*name_map.pairings, *by_reshape))
    return replace(pair_tensors(ours.tensors, theirs.tensors, name_map), inferred=name_map)


def _mapped_words(inferred: TensorPairs) -> Iterator[str]:
    """That both files told the names, and which tensors stand the other way round."""
    yield sentence("diff_warning.mapped", count=len(inferred.pairs))
    turned = [pair.reference.name for pair in inferred.pairs if pair.transform and _turns(pair.transform)]
    if turned:
        yield sentence("diff_warning.turned", count=len(turned), names=turned)


def _turns(transform: Transform) -> bool:
    return any(isinstance(step, Permute) for step in transform.steps)


def _framework(side: Checkpoint, metadata: Mapping[str, str] | None = None) -> FrameworkName:
    """Whose names a file has, by its format unless other metadata are given, then by its names: mint's are torch's."""
    return source_framework(side.metadata if metadata is None else metadata, side.tensors)[0]


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _paired_by_map(
    two_way: TwoWayMap, ours: Checkpoint, theirs: Checkpoint
) -> tuple[Checkpoint, Checkpoint, Sequence[str], TensorPairs]:
    try:
        way = _map_between(two_way, ours, theirs)
    except CannotRunError:
        ours, theirs, said = _unwrapped(ours, theirs)
        if not said:
            raise
        way = _map_between(two_way, ours, theirs)
        way = replace(way, warnings=(said, *way.warnings))
    pairs = pair_tensors(ours.tensors, theirs.tensors, way.name_map)
    return ours, theirs, way.warnings, replace(pairs, backwards=way.backwards)


def _map_between(two_way: TwoWayMap, ours: Checkpoint, theirs: Checkpoint) -> DirectedMap:
    """Follow the map from the reference's names to the candidate's, in the direction in which more tensors meet.

    `dropped` holds what is left out on both sides, tensors that a conversion fills among them; `warnings` name the
    reference's tensors for which the map has no counterpart, by reason. Raises MapError for a map that contradicts
    itself or has the names of neither side, CannotRunError for a side that has none of the names to which it leads.
    """
    from align.convert.given_map import follow_backward, follow_forward

    reference, candidate = ours.tensors, theirs.tensors

    def meeting(way: DirectedMap) -> tuple[int, int, int]:
        found = pair_tensors(reference, candidate, way.name_map)
        return found.comparable, len(found.pairs), -len(found.missing) - len(found.extra)

    ways = (follow(two_way, reference) for follow in (follow_forward, follow_backward))
    way = max((_with_drops(way, two_way.rules, reference, candidate) for way in ways), key=meeting)
    if way.problems:
        raise MapError(two_way.rules.label, way.problems)
    if not meeting(way)[1]:
        raise _of_other_names(two_way, ours, theirs)
    return replace(way, warnings=tuple(_warnings(two_way, way)))


def _of_other_names(two_way: TwoWayMap, ours: Checkpoint, theirs: Checkpoint) -> CannotRunError:
    """The side that lacks the names to which those of the other lead is at fault, and not the map."""
    from align.convert.given_map import follow_backward, follow_forward

    for known, other in ((ours, theirs), (theirs, ours)):
        for follow in (follow_forward, follow_backward):
            pairings = follow(two_way, known.tensors).name_map.pairings
            if wanted := [pairing.target for pairing in pairings if pairing.source in known.tensors]:
                facts = {"path": other.path, "other": known.path, "map": two_way.rules.label}
                return CannotRunError.of("diff_error.other_names", wanted=wanted, names=list(other.tensors), **facts)
    return MapError.of_one(two_way.rules.label, "diff_error.names_of_neither", sides=[str(ours.path), str(theirs.path)])


def _with_drops(way: DirectedMap, rules: NameRules, reference: Tensors, candidate: Tensors) -> DirectedMap:
    sides: tuple[SideName, SideName] = ("target", "source") if way.backwards else ("source", "target")
    dropped = (*_dropped(rules, sides[0], reference, "source"), *_dropped(rules, sides[1], candidate, "target"))
    return replace(way, name_map=replace(way.name_map, dropped=dropped))


def _dropped(rules: NameRules, side: SideName, names: Tensors, end: SideName) -> Iterator[Dropped]:
    for name in names:
        if drop := rules.drop_of(side, name):
            yield Dropped(name, end, drop[0])


def _warnings(two_way: TwoWayMap, way: DirectedMap) -> Iterator[str]:
    if way.backwards:
        yield sentence("diff_warning.followed_back", map=two_way.rules.label)
    reasons = grouped((one.reason, one.name) for one in way.name_map.unmatched if one.side == "source")
    for reason, names in list(reasons.items())[:REASONS_SHOWN]:
        yield sentence("diff_warning.map_says_nothing", names=names, reason=reason)


def _as_named_by(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, str]:
    """The reference under the candidate's names, where these differ by what wrappers put there, and what that is."""
    parts = zip(_weights_and_state(ours), _weights_and_state(theirs), strict=True)
    names = {was: new for own, other in parts for was, new in matched_without_wrappers(own, other).items()}
    words = wrapper_words(names)
    return (_renamed(ours, names), sentence("fault_list.one", head=MATCHED, fault=words)) if words else (ours, "")


def _with_parts_as(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, str]:
    """The reference with the parts of weights under the candidate's names, where one side has those of older torch."""
    lone = {older_part_name(name): name for name in theirs.tensors if name not in ours.tensors}
    open_names = [name for name in ours.tensors if name not in theirs.tensors]
    of_theirs = {lone[older_part_name(name)]: name for name in open_names if older_part_name(name) in lone}
    names = {own: other for other, own in of_theirs.items()}
    said = sentence("diff_warning.older_parts", count=len(names)) if names else ""
    return _renamed(ours, {name: names.get(name, name) for name in ours.tensors}), said


def _unwrapped(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, Checkpoint, str]:
    both = [
        {name: name for name in state} | without_wrappers(weights, inner=True)
        for weights, state in map(_weights_and_state, (ours, theirs))
    ]
    words = joined(", ", [*filter(None, map(wrapper_words, both))])
    said = sentence("fault_list.one", head=MATCHED, fault=words) if words else ""
    return _renamed(ours, both[0]), _renamed(theirs, both[1]), said


def _weights_and_state(side: Checkpoint) -> tuple[list[str], list[str]]:
    """The names of its weights and of what stands beside them, where a count hides no wrapper."""
    state = state_beside_weights(side)
    return [name for name in side.tensors if name not in state], list(state)


def _renamed(side: Checkpoint, names: Mapping[str, str]) -> Checkpoint:
    return replace(side, tensors={names[name]: replace(one, name=names[name]) for name, one in side.tensors.items()})


@dataclass(frozen=True, slots=True)
class TensorPair:
    """One tensor on both sides; `made` is the reference's as the map makes it, None with the `problem` if it cannot.

    `transform` is what the map does to it, None where this is no line of its own: a sum, or rows that are zeros.
    """

    reference: StoredTensor
    candidate: StoredTensor
    made: StoredTensor | None
    problem: str = ""
    transform: Transform | None = None

    @property
    def comparable(self) -> tuple[StoredTensor, StoredTensor] | None:
        """Both sides, None if the shapes are not equal: nothing is ever broadcast."""
        return (self.made, self.candidate) if self.made and self.made.shape == self.candidate.shape else None


@dataclass(frozen=True, slots=True)
class TensorPairs:
    """Pairs in the reference's order, names without a counterpart, and names that are left out, with reasons.

    `inferred` is the map by which they pair where both files told it, and no user gave one. `backwards` tells whether
    the sources of the map that a user gave are the candidate's.
    """

    pairs: tuple[TensorPair, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    dropped: Lone
    inferred: NameMap | None = None
    backwards: bool = False

    @property
    def comparable(self) -> int:
        """How many pairs have equal shapes."""
        return sum(pair.comparable is not None for pair in self.pairs)

    def without(self, lone: Lone) -> TensorPairs:
        """The same, where `lone` names were left out before."""
        return replace(self, dropped=self.dropped | lone)


def pair_tensors(
    reference: Mapping[str, StoredTensor], candidate: Mapping[str, StoredTensor], name_map: NameMap | None = None
) -> TensorPairs:
    """Pair by the map, or by equal names without one."""
    pairings = (Pairing(name, name, "name", 1.0) for name in reference) if name_map is None else name_map.pairings
    targets = grouped((pairing.source, pairing) for pairing in pairings if pairing.target in candidate)
    pairs = tuple(
        pair
        for name, tensor in reference.items()
        for pairing in targets.get(name, ())
        for pair in (
            _pair(tensor, candidate[pairing.target], pairing.transform)
            if sum_step(pairing.transform) is None
            else _pair_of_sum(pairing, reference, candidate),
            *_pairs_of_zeros(tensor, candidate[pairing.target], pairing.transform),
        )
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
    reference = pair.made or pair.reference
    measurement = sums.result(pair.candidate.shape) if sums is not None else None
    return TensorDifference(
        reference=pair.reference.name,
        candidate=pair.candidate.name,
        reference_shape=reference.shape,
        candidate_shape=pair.candidate.shape,
        reference_dtype=reference.dtype,
        candidate_dtype=pair.candidate.dtype,
        outcome=_outcome(measurement, reference.dtype == pair.candidate.dtype),
        identical=sums is not None and sums.identical and reference.dtype == pair.candidate.dtype,
        measurement=measurement,
        note=pair.problem,
    )


def judge_diff(tensors: Sequence[TensorDifference], pairs: TensorPairs, same: str = "") -> Verdict:
    """Aligned if every tensor has a counterpart of its shape and dtype with equal values.

    `same` is what to say of a file that is both sides. Names of two frameworks that no map pairs are not compared.
    """
    coverage = Coverage("tensors", len(tensors), len(pairs.dropped), len(pairs.missing), len(pairs.extra))
    if not tensors:
        return Verdict(Outcome.NOT_COMPARED, sentence("diff_verdict.nothing_common"), coverage)
    differing = sum(tensor.outcome != "equal" for tensor in tensors)
    identical = sum(tensor.identical for tensor in tensors)
    parts = [sentence("diff_verdict.differ", count=differing, tensors=len(tensors))] if differing else []
    parts += [sentence("diff_verdict.missing", count=len(pairs.missing))] if pairs.missing else []
    parts += [sentence("diff_verdict.extra", count=len(pairs.extra))] if pairs.extra else []
    if pairs.inferred is not None and not differing and pairs.missing and pairs.extra:
        reason = sentence("diff_verdict.names_open", missing=[*pairs.missing], extra=[*pairs.extra], count=len(tensors))
        return Verdict(Outcome.NOT_COMPARED, reason, coverage)
    if parts:
        return Verdict(Outcome.NOT_ALIGNED, sentence("diff_verdict.unlike", parts=parts, identical=identical), coverage)
    equal = _all_equal(len(tensors), identical)
    return Verdict(Outcome.ALIGNED, joined("; ", [equal, same] if same else [equal]), coverage)


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
        made = transformed_tensor(reference, candidate.name, change)
        return TensorPair(reference, candidate, made, transform=transform)
    except ValueError as error:
        return TensorPair(reference, candidate, None, str(error))


def _pairs_of_zeros(reference: StoredTensor, candidate: StoredTensor, transform: Transform) -> Iterator[TensorPair]:
    """The rows of either that the other has no place for, beside zeros; none where the shapes do not fit."""
    with suppress(ValueError):
        for place in zero_parts(transform):
            rows = transformed_tensor(candidate, candidate.name, place.inverse(None, None))
            yield TensorPair(reference, rows, zero_tensor(rows.name, rows.shape, rows.dtype))
        for cut in zero_cuts(transform):
            rows = transformed_tensor(reference, candidate.name, cut)
            yield TensorPair(reference, zero_tensor(rows.name, rows.shape, rows.dtype), rows)


def _pair_of_sum(
    pairing: Pairing, reference: Mapping[str, StoredTensor], candidate: Mapping[str, StoredTensor]
) -> TensorPair:
    """A tensor that is a term of a sum: what is compared is the sum, made of all tensors that it needs."""
    tensor, other = reference[pairing.source], candidate[pairing.target]
    ones = pairing, *pairing.terms
    absent = [one.source for one in ones if one.source not in reference]
    absent += [one.target for one in ones if one.target not in candidate]
    if absent:
        return TensorPair(tensor, other, None, say("cut_fault.absent", names=absent))
    change, place = apart_from_whole(pairing.transform)
    try:
        shape = change.output_shape(tensor.shape)
    except ValueError as error:
        return TensorPair(tensor, other, None, str(error))

    def meant() -> Array:
        return meant_value(pairing, {one.source: reference[one.source].load() for one in ones})

    def held() -> Array:
        return held_value(pairing, {one.target: candidate[one.target].load() for one in ones})

    is_part = place is not None and place.shape == other.shape
    both = StoredTensor(other.name, shape if is_part else other.shape, other.dtype, held)
    return TensorPair(tensor, both, StoredTensor(other.name, shape, change.output_dtype(tensor.dtype), meant))


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


# Two checkpoints compared tensor by tensor, and what training did to the tensors of two sides.

TensorOutcome = Literal["equal", "values differ", "dtypes differ", "shapes differ"]
UpdateOutcome = Literal[
    "same", "one factor apart", "decay differs", "updates differ", "reference only", "candidate only", "neither moved",
    "without influence", "not finite", "shapes differ",
]  # fmt: skip
ALIKE = frozenset({"same", "neither moved", "without influence"})


@dataclass(frozen=True, slots=True)
class TensorRelation:
    """How a tensor of the candidate is made of the reference's: a word for it, a sentence, and the transform of a map.

    `transform` is None where no map makes it. All elements confirm it, equal or within so many `units` in the last
    place of the coarser dtype.
    """

    id: str
    says: str
    transform: dict[str, object] | None
    units: float


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """One tensor of two checkpoints: what it differs by. Shape and dtype of the reference are those after the map.

    `outcome` names the gravest difference; `identical` says whether all bits are equal, which -0.0 against 0.0 are not,
    though equal. `measurement` is None where the shapes differ; `note` says why no shape could be had. `relations` say
    how the values of both hang together; these values do not tell which of several it is.
    """

    reference: str
    candidate: str
    reference_shape: Shape
    candidate_shape: Shape
    reference_dtype: str
    candidate_dtype: str
    outcome: TensorOutcome
    identical: bool
    measurement: Measurement | None
    note: str = ""
    relations: tuple[TensorRelation, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointDiff(ShownResult):
    """Two checkpoints compared tensor by tensor, in the reference's order.

    `missing` and `extra` map names without a counterpart in the candidate and in the reference to dtype and shape.
    `dropped` were left out by the map, with its reasons. `unchanged` lists what is equal bit for bit, None where that
    was not asked for. `strip` are prefixes that were taken off the names. `map_lines` are lines of a map that
    make equal what the relations of tensors explain.
    """

    result_kind = "diff"
    reference: str
    candidate: str
    reference_format: str
    candidate_format: str
    tensors: tuple[TensorDifference, ...]
    missing: dict[str, str]
    extra: dict[str, str]
    dropped: dict[str, str]
    warnings: tuple[str, ...]
    verdict: Verdict
    unchanged: tuple[str, ...] | None = None
    strip: tuple[str, ...] = ()
    map_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateDifference:
    """The update of one pair: what each side's values moved by, the reference's after the map.

    `reference_moved` and `candidate_moved` are root mean squares of the updates. `relative` is the norm of the
    difference of the updates by the norm of the reference's, `limit` what it may be; None where there is no such norm.
    `rounding` is the part of the limit that the units of the stored values make. `factor` is the candidate's update by
    the reference's in the least squares sense, `beside_factor` what that leaves, relative to the candidate's update.
    `decay` is the share of its values that the candidate takes off beyond the reference: the difference of the updates
    is proportional to the values; None if it is not. `start` is the relative difference of the values before the step.
    """

    reference: str
    candidate: str
    shape: Shape
    outcome: UpdateOutcome
    reference_moved: float
    candidate_moved: float
    relative: float | None
    limit: float | None
    rounding: float | None
    factor: float | None
    beside_factor: float | None
    decay: float | None
    start: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class UpdatesDiff(ShownResult):
    """The updates of two sides, those that are furthest off first.

    `reference` and `candidate` are the files before and after. `factor` is the one by which all updates that differ
    are apart, None if there is none. `missing` and `extra` are names without a counterpart in the candidate and in the
    reference, `dropped` what the map leaves out, with its reasons.
    """

    result_kind = "updates"
    reference: tuple[str, str]
    candidate: tuple[str, str]
    tensors: tuple[UpdateDifference, ...]
    factor: float | None
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    dropped: dict[str, str]
    warnings: tuple[str, ...]
    verdict: Verdict
