"""Which call of the reference's modules is which of the candidate's.

Modules that own parameters pair by the name map, modules without (ReLU, pooling) by their place between paired ones,
their kind and their output's shape, modules around them by the parameters inside; none by its name.
Calls of modules without parameters (ReLU, pooling) are paired by their place between calls that are paired already.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences, equality_scores
from align.models.probe import is_probe
from align.traces.module_calls import CallPair, CallPairs, UnpairedLayer
from align.traces.thresholds import OTHER_KIND_SCORE, OTHER_SHAPE_SCORE, PAIRED_LAYER_SCORE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Literal

    from numpy.typing import NDArray

    from align.traces.module_calls import Call, CalledModules

# A dense layer is a convolution of width 1: of one weight both make the same, with their axes in another order.
_ONE_PRODUCT = frozenset({"linear", "conv"})
# Layers that pass their input on stand for no other layer.
_PASSIVE = frozenset({"identity", "dropout", "channel_dropout", "flatten", "unflatten"})


def pair_calls(left: CalledModules, right: CalledModules) -> CallPairs:
    """Pair the calls of reference (`left`) and candidate; the model itself ("") pairs with the model itself only."""
    pairs = [*_root_pair(left, right), *_probe_pairs(left, right), *_owner_pairs(left, right)]
    pairs = [*_with_cells_around(left, right, pairs)]
    pairs += pair_by_place(left, right, pairs)
    pairs += _container_pairs(left, right, pairs)
    pairs.sort(key=lambda pair: pair.reference.order)
    unpaired = [*_alone("reference", left, right, [pair.reference for pair in pairs])]
    unpaired += _alone("candidate", right, left, [pair.candidate for pair in pairs])
    return CallPairs(tuple(pairs), tuple(unpaired))


def _root_pair(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """One call a batch; of runs that do not have as many, the last one."""
    mine, theirs = ([call for call in side.calls if not call.module and not call.depth] for side in (left, right))
    if len(mine) == len(theirs):
        yield from map(CallPair, mine, theirs)
    elif mine and theirs:
        yield CallPair(mine[-1], theirs[-1])


def _probe_pairs(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """Probes pair by the name that the user gave them, and by nothing else."""
    theirs = {(call.module, call.call): call for call in right.calls if is_probe(call.module)}
    for call in left.calls:
        if other := theirs.get((call.module, call.call)):
            yield CallPair(call, other)


def _owner_pairs(left: CalledModules, right: CalledModules) -> Iterator[CallPair]:
    """Calls of modules that own the same parameter pairs and hold the same ones inside, by call number.

    Owning is not enough: one model keeps its position embedding in the embedding layer, another one in the encoder.
    Where the layer rules know both classes as different kinds, the pair is not certain.
    """
    owners = {
        (right.owns(call), right.holds(call), call.call): call
        for call in right.calls
        if call.module and right.owns(call)
    }
    for call in left.calls:
        other = owners.get((left.owns(call), left.holds(call), call.call))
        if call.module and other is not None:
            alike = call.kind == other.kind or not call.kind or not other.kind
            turned = {call.kind, other.kind} == _ONE_PRODUCT and _sizes(call) == _sizes(other)
            if alike or turned or call.shapes == other.shapes:
                yield CallPair(call, other, alike or turned)


def _with_cells_around(left: CalledModules, right: CalledModules, pairs: Sequence[CallPair]) -> Iterator[CallPair]:
    """In the place of a layer that makes another number of elements, the module around it that does the same work.

    A bag of embeddings is a table and code that sums up its rows. Whether the module does more than that nobody knows.
    """
    for pair in pairs:
        if _sizes(pair.reference) == _sizes(pair.candidate) or not right.owns(pair.candidate):
            yield pair
        elif around := _around(right, pair.candidate, pair.reference):
            yield CallPair(pair.reference, around, certain=False)
        elif around := _around(left, pair.reference, pair.candidate):
            yield CallPair(around, pair.candidate, certain=False)
        else:
            yield pair


def _around(side: CalledModules, inner: Call, like: Call) -> Call | None:
    """The innermost module around a call that holds nothing else and returns the shapes of another call."""
    found = [
        call
        for call in side.calls
        if inner.module.startswith(f"{call.module}.")
        and call.module
        and call.call == inner.call
        and side.holds(call) == side.holds(inner)
        and call.shapes == like.shapes
    ]
    return max(found, key=lambda call: len(call.module), default=None)


def _sizes(call: Call) -> list[int]:
    """How many elements each output has."""
    return [prod(shape) for shape in call.shapes]


def _container_pairs(left: CalledModules, right: CalledModules, paired: Sequence[CallPair]) -> list[CallPair]:
    """Calls of modules that hold the same parameter pairs, outermost first, where the output shapes agree.

    Those of the same lengths in another order are one tensor in another layout.
    """
    done = {id(call) for pair in paired for call in (pair.reference, pair.candidate)}
    groups: dict[tuple[frozenset[int], int], tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    for side, modules in enumerate((left, right)):
        for call in reversed(modules.calls):
            if call.module and modules.holds(call) and id(call) not in done:
                groups[modules.holds(call), call.call][side].append(call)
    pairs = []
    for mine, theirs in groups.values():
        scores = equality_scores([call.shapes for call in mine], [call.shapes for call in theirs])
        turned = equality_scores([*map(_lengths, mine)], [*map(_lengths, theirs)])
        scores = np.maximum(scores, OTHER_SHAPE_SCORE * turned)
        pairs += [CallPair(mine[i], theirs[j], certain=False) for i, j in align_sequences(scores)]
    return pairs


def _lengths(call: Call) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(length for length in shape if length > 1)) for shape in call.shapes)


def _alone(
    side: Literal["reference", "candidate"], own: CalledModules, other: CalledModules, paired: Sequence[Call]
) -> Iterator[UnpairedLayer]:
    done = {id(call) for call in paired}
    for call in own.calls:
        if id(call) not in done:
            nothing = not call.module and all(one.module for one in other.calls)
            reason = sentence("unpaired_reason.no_tensor") if nothing else _reason(call, own, other)
            yield UnpairedLayer(side, call.module, call.class_name, call.call, reason)


def _reason(call: Call, own: CalledModules, other: CalledModules) -> str:
    """Say why a call has no counterpart: for a layer with parameters, what became of the module that holds them."""
    inside = own.holds(call)
    if is_probe(call.module):
        return sentence("unpaired_reason.no_probe")
    if call.module in own.open or not inside:
        return sentence("unpaired_reason.names_open" if call.module in own.open else "unpaired_reason.no_place")
    counterparts = [path for path, pairs in other.inside.items() if pairs == inside]
    if not counterparts:
        return sentence("unpaired_reason.not_inside")
    calls = [one for one in other.calls if one.module in counterparts]
    if not calls:
        name = counterparts[-1] or sentence("model_part.model_itself")
        return sentence("unpaired_reason.not_called", counterpart=name)
    if all(one.call != call.call for one in calls):
        return sentence("unpaired_reason.called_less_often", counterpart=counterparts[-1])
    return sentence("unpaired_reason.ends_elsewhere")


def pair_by_place(left: CalledModules, right: CalledModules, anchors: Sequence[CallPair]) -> list[CallPair]:
    """Pair leaf calls without parameters in order: best by kind and output shapes, else by one of the two.

    A pair is certain if both sides have as many calls of its kind and shapes between the same anchors; or, for unlike
    kinds that the layer rules know, as many calls of any kind that do something, and neither is a part of a composed
    activation.
    """
    places = {id(pair.reference): n for n, pair in enumerate(anchors)}
    places |= {id(pair.candidate): n for n, pair in enumerate(anchors)}
    rows, columns = (
        [call for call in side.leaves if id(call) in places or _is_free(call, side)] for side in (left, right)
    )
    found = align_sequences(_scores(rows, columns, places))
    fixed = [(i, j) for i, j in found if id(rows[i]) in places]
    anchored = [i for i, _ in fixed], [j for _, j in fixed]
    alike = _counts(rows, anchored[0], _key), _counts(columns, anchored[1], _key)
    active = _counts(rows, anchored[0], _acts), _counts(columns, anchored[1], _acts)
    pairs = []
    for i, j in found:
        if id(rows[i]) not in places:
            same = _key(rows[i]) == _key(columns[j])
            known = bool(rows[i].kind and columns[j].kind and left.within(rows[i]) and right.within(columns[j]))
            counts = alike if same else active
            pairs.append(CallPair(rows[i], columns[j], (same or known) and counts[0][i] == counts[1][j]))
    return pairs


def _is_free(call: Call, side: CalledModules) -> bool:
    return not (side.owns(call) or call.module in side.open or is_probe(call.module))


def _scores(rows: list[Call], columns: list[Call], places: dict[int, int]) -> NDArray[np.float64]:
    anchored = equality_scores(
        [("anchor", places.get(id(call), ("row", n))) for n, call in enumerate(rows)],
        [("anchor", places.get(id(call), ("column", n))) for n, call in enumerate(columns)],
    )
    shapes = equality_scores([call.shapes for call in rows], [call.shapes for call in columns])
    kinds = equality_scores([_kind(call) for call in rows], [_kind(call) for call in columns])
    active = _both([_kind(call) not in _PASSIVE for call in rows], [_kind(call) not in _PASSIVE for call in columns])
    free = _both([id(call) not in places for call in rows], [id(call) not in places for call in columns])
    likeness = np.maximum(np.maximum(shapes * kinds, OTHER_SHAPE_SCORE * kinds), OTHER_KIND_SCORE * shapes * active)
    scores: NDArray[np.float64] = PAIRED_LAYER_SCORE * anchored + free * likeness
    return scores


def _both(mine: list[bool], theirs: list[bool]) -> NDArray[np.bool_]:
    both: NDArray[np.bool_] = np.array(mine, dtype=bool)[:, None] & np.array(theirs, dtype=bool)[None, :]
    return both


def _counts(calls: list[Call], anchors: list[int], key: Callable[[Call], object]) -> list[int]:
    """For each call, how many of its key there are between the same two anchors."""
    segment = np.searchsorted(anchors, np.arange(len(calls))) if anchors else np.zeros(len(calls), np.int64)
    keys = [(int(place), key(call)) for place, call in zip(segment, calls, strict=True)]
    counted = Counter(keys)
    return [counted[key] for key in keys]


def _acts(call: Call) -> bool:
    return _kind(call) not in _PASSIVE


def _key(call: Call) -> tuple[str, tuple[tuple[int, ...], ...]]:
    return _kind(call), call.shapes


def _kind(call: Call) -> str:
    return call.kind or call.class_name.lower()
