"""How the tensors that differ in a diff are related, and the lines of a map that mend them.

Only pairs that differ are looked at, each by itself, so the time grows with their number. What is still open is looked
for among all tensors of its shape by the bytes of a few elements: another layer's is found without holding any two
tensors against each other that do not look equal.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from align.convert.pair_checkpoints import TensorRelation
from align.convert.thresholds import MOST_RELATED_ELEMENTS
from align.core.align_sequences import grouped
from align.core.parameters import EPSILON, is_float
from align.core.piece_transforms import Pad, Reorder, apart_from_whole
from align.core.transforms import IDENTITY, Add, Permute, Reshape, Scale, chained
from align.measure.thresholds import MOST_RELATED_TENSORS
from align.measure.weight_relations import equal_weights, relate_weights, sample_key
from align.names.map_text import rule_text
from align.names.user_rules import fold_ranges
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.convert.pair_checkpoints import TensorDifference, TensorPair, TensorPairs
    from align.core.parameters import StoredTensor
    from align.core.transforms import Transform
    from align.measure.computed_weights import WeightRelation

    Pairs = Sequence[TensorPair]

UNDONE_EXACTLY = (Reshape, Permute, Reorder, Add, Scale, Pad)


def with_relations(
    tensors: Sequence[TensorDifference], pairs: TensorPairs
) -> tuple[tuple[TensorDifference, ...], tuple[str, ...], str]:
    """The tensors with the relations of those that differ, lines of a map that mend them, and what was not looked at.

    `pairs` are those that the tensors were judged by, in their order.
    """
    places, left = _to_relate(tensors, pairs.pairs)
    related: dict[int, tuple[WeightRelation, ...]] = {}
    for place in places:
        made, candidate = _both(pairs.pairs[place])
        if found := relate_weights(made.load(), candidate.load()):
            related[place] = found
    elsewhere = _held_elsewhere(pairs, [place for place in places if place not in related])
    relations = {place: tuple(map(_as_data, several)) for place, several in related.items()}
    for place, holders in elsewhere.items():
        names = [pairs.pairs[holder].reference.name for holder in holders]
        relations[place] = (_another(place, names, elsewhere),)
    single = {place: several[0] for place, several in related.items() if len(several) == 1}
    changes = {place: relation.transform for place, relation in single.items() if relation.transform}
    said = sentence("diff_warning.not_related", count=left) if left else ""
    lines = (*_changed_lines(pairs, changes), *_exchanged_lines(pairs, elsewhere))
    with_them = (replace(tensor, relations=relations.get(place, ())) for place, tensor in enumerate(tensors))
    return tuple(with_them), lines, said


def _to_relate(tensors: Sequence[TensorDifference], pairs: Pairs) -> tuple[list[int], int]:
    """The places of pairs that differ, as many as time allows, and how many are left."""
    places = [
        place
        for place, (tensor, pair) in enumerate(zip(tensors, pairs, strict=True))
        if tensor.outcome in ("values differ", "shapes differ") and pair.made is not None and _is_plain(pair)
    ]
    chosen, elements = [], 0
    for place in places[:MOST_RELATED_TENSORS]:
        elements += prod(pairs[place].candidate.shape)
        if elements > MOST_RELATED_ELEMENTS:
            break
        chosen.append(place)
    return chosen, len(places) - len(chosen)


def _is_plain(pair: TensorPair) -> bool:
    """Whether a map can change what becomes of it: a sum, or rows that are to be zeros, it cannot."""
    return pair.transform is not None and is_float(pair.candidate.dtype)


def _both(pair: TensorPair) -> tuple[StoredTensor, StoredTensor]:
    return pair.made or pair.reference, pair.candidate


def _as_data(relation: WeightRelation) -> TensorRelation:
    table = None if relation.transform is None else relation.transform.as_table()
    return TensorRelation(relation.id, relation.says, table, relation.units)


def _another(place: int, names: list[str], elsewhere: Mapping[int, list[int]]) -> TensorRelation:
    if len(names) > 1:
        says = sentence("weight_relation.several", count=len(names), names=names)
        return TensorRelation("several-tensors", says, None, 0.0)
    back = elsewhere.get(elsewhere[place][0]) == [place]
    key = "exchanged" if back else "another"
    return TensorRelation("another-tensor", sentence(f"weight_relation.{key}", names=names), None, 0.0)


# Another layer's tensor: the same values under another name.


def _held_elsewhere(pairs: TensorPairs, open_places: Sequence[int]) -> dict[int, list[int]]:
    """Each of the open places whose candidate holds what the reference of other pairs is, and the places of those."""
    wanted: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for place in open_places:
        meant, candidate = _both(pairs.pairs[place])
        if meant.shape == candidate.shape:
            wanted[candidate.shape].add(candidate.dtype)
    index: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs.pairs):
        meant = _both(pair)[0]
        dtypes = wanted.get(meant.shape, ()) if pair.transform is not None and is_float(meant.dtype) else ()
        for dtype in sorted({_coarser(meant.dtype, other) for other in dtypes}):
            index[meant.shape, dtype, sample_key(meant.load(), dtype)].append(place)
    found = {place: _equal_places(pairs.pairs, place, index) for place in open_places}
    return {place: ones for place, ones in found.items() if ones}


def _equal_places(pairs: Pairs, place: int, index: Mapping[tuple[object, ...], list[int]]) -> list[int]:
    candidate = pairs[place].candidate
    value = candidate.load()
    near: list[tuple[int, str]] = []
    for dtype in EPSILON:
        key = sample_key(value, dtype) if EPSILON[dtype] >= EPSILON[candidate.dtype] else None
        near += [(other, dtype) for other in index.get((candidate.shape, dtype, key), ()) if key and other != place]
    return [other for other, dtype in near if equal_weights(_both(pairs[other])[0].load(), value, dtype)]


def _coarser(one: str, other: str) -> str:
    return max(one, other, key=EPSILON.__getitem__)


# Lines of a map: what a source becomes, with the change that makes the candidate's values.


def _changed_lines(pairs: TensorPairs, changes: Mapping[int, Transform]) -> Iterator[str]:
    """A line for each source of which something changes, with all that is made of it."""
    own = grouped((pair.reference.name, place) for place, pair in enumerate(pairs.pairs))
    concerned = dict.fromkeys(pairs.pairs[place].reference.name for place in changes)
    rows = (_row(pairs, [(place, changes.get(place, IDENTITY)) for place in own[name]]) for name in concerned)
    yield from _folded(row for row in rows if row is not None)


def _exchanged_lines(pairs: TensorPairs, elsewhere: Mapping[int, list[int]]) -> Iterator[str]:
    """A line for each source that stands in the place of another; none where the map would then lack one."""
    moved = _round_trips({place: ones[0] for place, ones in elsewhere.items() if len(ones) == 1})
    whole = {
        place: replace(pairs.pairs[other], candidate=pairs.pairs[place].candidate) for place, other in moved.items()
    }
    as_moved = replace(pairs, pairs=tuple(whole.values()))
    rows = (_row(as_moved, [(place, IDENTITY)]) for place in range(len(whole)))
    yield from _folded(row for row in rows if row is not None)


def _round_trips(moved: Mapping[int, int]) -> dict[int, int]:
    """Those that lead from one to the next and back to the first: tensors that only changed places."""
    left, closed = dict(moved), dict[int, int]()
    while left:
        path, place = [], next(iter(left))
        while place in left:
            path.append(place)
            place = left.pop(place)
        if place in path:
            closed |= {one: moved[one] for one in path[path.index(place) :]}
    return closed


Row = tuple[str, tuple[tuple[str, "Transform"], ...]]


def _row(pairs: TensorPairs, made: Sequence[tuple[int, Transform]]) -> Row | None:
    """A source of the map with its targets and their transforms; None where there is no such line."""
    targets = []
    for place, change in made:
        pair = pairs.pairs[place]
        if pair.transform is None:
            return None
        before, part = apart_from_whole(pair.transform)
        targets.append((pair, chained(before, change, part or IDENTITY)))
    source = targets[0][0].reference.name
    if not pairs.backwards:
        return source, tuple((pair.candidate.name, whole) for pair, whole in targets)
    (pair, whole), undone = targets[0], all(isinstance(step, UNDONE_EXACTLY) for step in targets[0][1].steps)
    if len(targets) > 1 or not undone:
        return None
    return pair.candidate.name, ((source, whole.inverse(pair.reference.shape, pair.reference.dtype)),)


def _folded(rows: Iterable[Row]) -> Iterator[str]:
    listed = list(rows)
    names = [((source, *(name for name, _ in made)), tuple(change for _, change in made)) for source, made in listed]
    for (source, *targets), places in fold_ranges(names):
        changes = (change for _, change in listed[places[0]][1])
        yield rule_text(source, list(zip(targets, changes, strict=True)))
