"""The layers of two traces paired: the name map that is given or made, the order of the runs where it is open.

A layer of the port may do at once what are two layers in the reference, as a dense layer with its activation. Such a
pair has the same parameters, but the port's layer ends where the reference's next one does. The port shows it, if
it returns what a cell inside did that is that next layer; else the values do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences, equality_scores
from align.core.name_map import NameMap
from align.core.verdicts import Finding
from align.errors import NothingInCommonError
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.models.live_calls import is_probe
from align.names.map_file import read_map
from align.names.map_parameters import CallOrder, in_execution_order, match_by_order, match_sides
from align.names.user_rules import NameRules, check_shapes
from align.traces.module_calls import (
    CalledModules,
    CallPair,
    CallPairs,
    UnpairedLayer,
    comparable_captures,
    left_out_parts,
    parts_of,
)
from align.traces.thresholds import (
    CLEARLY_NEARER,
    NEAR_DISTANCE,
    OTHER_KIND_SCORE,
    OTHER_SHAPE_SCORE,
    PAIRED_LAYER_SCORE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Literal

    from numpy.typing import NDArray

    from align.core.parameters import ParameterSet
    from align.core.traces import Capture, Trace
    from align.traces.module_calls import Call


Traces = tuple["Trace", "Trace"]
Parameters = tuple["ParameterSet", "ParameterSet"]


def choose_map(given: NameMap | Path | str | None, sides: Parameters) -> NameMap:
    """Return the map that is given, read from its file if need be, or match the names of the two sides."""
    if isinstance(given, NameMap):
        return given
    source, target = sides
    if given is None:
        return match_sides(source, target, NameRules())
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map


def map_in_order(traces: Traces, sides: Parameters, name_map: NameMap) -> NameMap:
    """Match what a map leaves open, with the order of the two runs as evidence."""
    orders = [CallOrder({one.module: one.order for one in reversed(trace.captures)}) for trace in traces]
    source, target = (in_execution_order(side, order) for side, order in zip(sides, orders, strict=True))
    return match_by_order(name_map, source, target, NameRules())


def pair_traces(traces: Traces, sides: Parameters, name_map: NameMap) -> CallPairs:
    """Pair the calls of two runs, by their values too if all were kept; raises NothingInCommonError if none pairs."""
    captures = traces[0].captures, traces[1].captures
    mine, theirs = comparable_captures(captures, [parts_of(trace) for trace in traces])
    left = CalledModules(mine, sides[0], name_map, "source")
    right = CalledModules(theirs, sides[1], name_map, "target")
    calls = pair_merged_layers(pair_calls(left, right), sides, (left, right))
    if not calls.pairs:
        raise NothingInCommonError(sides[0].label, sides[1].label, "called layer")
    whole = all(trace.holds(one) for trace in traces for one in trace.captures)
    return pair_fused_layers(calls, *traces) if whole else calls


def left_out(traces: Traces, labels: Sequence[str]) -> Iterator[Finding]:
    """Warn of what the models returned and was not compared."""
    captures = traces[0].captures, traces[1].captures
    yield from left_out_parts(captures, [parts_of(trace) for trace in traces], labels)


def open_names(name_map: NameMap) -> Iterator[Finding]:
    """Warn of parameters whose values were not compared, because nothing says which they are on the other side."""
    sides = {
        side: [one.name for one in name_map.unmatched if one.side == side]
        + [name for group in name_map.ambiguous for name in getattr(group, f"{side}s")]
        for side in ("source", "target")
    }
    for side, label in (("source", name_map.source), ("target", name_map.target)):
        if names := sides[side]:
            message = sentence("trace_finding.names_open", count=len(names), names=names)
            yield Finding("names-open", "warning", label, message)


def pair_fused_layers(pairs: CallPairs, reference: Trace, candidate: Trace) -> CallPairs:
    """Let a pair end with the reference's next call where the port's layer surely does.

    That call has no counterpart, or one inside the port's layer, which keeps it.
    """
    counterparts = {(pair.reference.module, pair.reference.call): pair.candidate for pair in pairs.pairs}
    alone = {(one.module, one.call) for one in pairs.unpaired if one.side == "reference"}
    after = {one.order: one for one in reference.captures if not one.output}
    ends: dict[tuple[str, int], Capture] = {}
    for pair in pairs.pairs:
        end = after.get(pair.reference.order + 1) if _has_one_output(pair) else None
        if end is None:
            continue
        within = counterparts.get((end.module, end.call))
        if within is not None and not within.module.startswith(f"{pair.candidate.module}."):
            continue
        shown = within is not None and _returns(pair.candidate, within, candidate)
        known = within is not None or (end.module, end.call) in alone
        if shown or (known and _ends_there(pair, end, reference, candidate)):
            ends[pair.reference.module, pair.reference.call] = end
    return _apart_from_activations(_with_ends(pairs, ends), reference, candidate)


def _apart_from_activations(pairs: CallPairs, reference: Trace, candidate: Trace) -> CallPairs:
    """Take a layer apart from the activation that it calls at its end, where its counterpart does not.

    The reference's layer then ends with what it gives its activation; where the port's layer does so, nothing of the
    reference is known to end there, and the pair is not certain.
    """
    free = {(layer.module, layer.call) for layer in pairs.unpaired if layer.side == "candidate"}
    by_order = [{capture.order: capture for capture in trace.captures} for trace in (reference, candidate)]
    new_pairs = []
    for pair in pairs.pairs:
        sure = pair.certain and _has_one_output(pair)
        mine = _last_inside(pair.reference, reference, by_order[0]) if sure else None
        theirs = _last_inside(pair.candidate, candidate, by_order[1]) if sure else None
        if mine and not theirs:
            given = [
                capture for capture in reference.inputs if (capture.module, capture.call) == (mine.module, mine.call)
            ]
            if len(given) == 1 and given[0].shape == mine.shape:
                pair = replace(pair, reference=replace(pair.reference, outputs=(given[0],)))  # noqa: PLW2901
        elif theirs and not mine and (theirs.module, theirs.call) in free:
            pair = replace(pair, certain=False)  # noqa: PLW2901
        new_pairs.append(pair)
    return CallPairs(tuple(new_pairs), pairs.unpaired)


def _last_inside(call: Call, trace: Trace, by_order: Mapping[int, Capture]) -> Capture | None:
    last = call.outputs[0]
    inner = by_order.get(last.order - 1)
    inside = inner is not None and inner.module.startswith(f"{call.module}.")
    return inner if inner is not None and inside and _is_same(inner, last, trace) else None


def _is_same(inner: Capture, last: Capture, trace: Trace) -> bool:
    one, two = sample_values(trace.value(inner)), sample_values(trace.value(last))
    return prod(inner.shape) == prod(last.shape) and np.array_equal(one, two, equal_nan=True)


def _with_ends(pairs: CallPairs, ends: Mapping[tuple[str, int], Capture]) -> CallPairs:
    taken = {(end.module, end.call) for end in ends.values()}
    new_pairs = []
    for pair in pairs.pairs:
        end = ends.get((pair.reference.module, pair.reference.call))
        new_pairs.append(pair if end is None else replace(pair, reference=replace(pair.reference, outputs=(end,))))
    left = [one for one in pairs.unpaired if one.side == "candidate" or (one.module, one.call) not in taken]
    return CallPairs(tuple(new_pairs), tuple(left))


def _has_one_output(pair: CallPair) -> bool:
    return bool(pair.reference.module) and len(pair.reference.outputs) == len(pair.candidate.outputs) == 1


def _returns(call: Call, within: Call, trace: Trace) -> bool:
    last, inner = call.outputs[0], within.outputs[0]
    return inner.order + 1 == last.order and _is_same(inner, last, trace)


def _ends_there(pair: CallPair, end: Capture, reference: Trace, candidate: Trace) -> bool:
    mine, theirs = pair.reference.outputs[0], pair.candidate.outputs[0]
    if end.shape != mine.shape or mine.shape[-1:] != theirs.shape[-1:]:
        return False
    given = sample_values(candidate.value(theirs))
    if not given.size:
        return False
    there = relative_rms_distance(sample_values(reference.value(end)), given)
    return there < NEAR_DISTANCE and there * CLEARLY_NEARER < relative_rms_distance(
        sample_values(reference.value(mine)), given
    )


# Which call of the reference's modules is which of the candidate's.
#
# Modules that own parameters pair by the name map, modules without (ReLU, pooling) by their place between paired
# ones, their kind and their output's shape, modules around them by the parameters inside; none by its name. Calls of
# modules without parameters (ReLU, pooling) are paired by their place between calls that are paired already.

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
    """Pair the module around a layer that makes another number of elements, if it does the same work.

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
    enclosing = [
        call
        for call in side.calls
        if inner.module.startswith(f"{call.module}.")
        and call.module
        and call.call == inner.call
        and side.holds(call) == side.holds(inner)
        and call.shapes == like.shapes
    ]
    return max(enclosing, key=lambda call: len(call.module), default=None)


def _sizes(call: Call) -> list[int]:
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
    side: Literal["reference", "candidate"], called: CalledModules, other: CalledModules, paired: Sequence[Call]
) -> Iterator[UnpairedLayer]:
    done = {id(call) for call in paired}
    for call in called.calls:
        if id(call) not in done:
            nothing = not call.module and all(one.module for one in other.calls)
            reason = sentence("unpaired_reason.no_tensor") if nothing else _reason(call, called, other)
            yield UnpairedLayer(side, call.module, call.class_name, call.call, reason)


def _reason(call: Call, called: CalledModules, other: CalledModules) -> str:
    """Say why a call has no counterpart: for a layer with parameters, what became of the module that holds them."""
    inside = called.holds(call)
    if is_probe(call.module):
        return sentence("unpaired_reason.no_probe")
    if call.module in called.open or not inside:
        return sentence("unpaired_reason.names_open" if call.module in called.open else "unpaired_reason.no_place")
    counterparts = [path for path, pairs in other.inside.items() if pairs == inside]
    if not counterparts:
        return sentence("unpaired_reason.not_inside")
    calls = [other_call for other_call in other.calls if other_call.module in counterparts]
    if not calls:
        name = counterparts[-1] or sentence("model_part.model_itself")
        return sentence("unpaired_reason.not_called", counterpart=name)
    if all(other_call.call != call.call for other_call in calls):
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
    aligned = align_sequences(_scores(rows, columns, places))
    fixed = [(i, j) for i, j in aligned if id(rows[i]) in places]
    anchored = [i for i, _ in fixed], [j for _, j in fixed]
    by_kind = _counts(rows, anchored[0], _key), _counts(columns, anchored[1], _key)
    active = _counts(rows, anchored[0], _acts), _counts(columns, anchored[1], _acts)
    pairs = []
    for i, j in aligned:
        if id(rows[i]) not in places:
            same = _key(rows[i]) == _key(columns[j])
            known = bool(rows[i].kind and columns[j].kind and left.within(rows[i]) and right.within(columns[j]))
            counts = by_kind if same else active
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


# Layers that an exported graph has in one: a convolution into which the norm behind it was multiplied.
#
# The graph's convolution ends where the other side's norm does. The module of the norm says where its work is done,
# so that no value has to.


def pair_merged_layers(
    pairs: CallPairs, sides: tuple[ParameterSet, ParameterSet], called: tuple[CalledModules, CalledModules]
) -> CallPairs:
    """Let pairs end, on the side that has two layers, where the second of them does."""
    ends = [_ends(sides[index], called[index], called[1 - index]) for index in (0, 1)]
    if not any(ends):
        return pairs
    new_pairs, taken = [], set()
    for pair in pairs.pairs:
        for index, (own, other) in enumerate((("reference", "candidate"), ("candidate", "reference"))):
            mine: Call = getattr(pair, own)
            end = ends[index].get((mine.module, mine.call))
            if end is not None:
                taken.add((other, end.module, end.call))
                longer = {other: replace(getattr(pair, other), outputs=end.outputs)}
                pair = replace(pair, **longer)  # noqa: PLW2901
        new_pairs.append(pair)
    left = [one for one in pairs.unpaired if (one.side, one.module, one.call) not in taken]
    return CallPairs(tuple(new_pairs), tuple(left))


def _ends(side: ParameterSet, called: CalledModules, other: CalledModules) -> Mapping[tuple[str, int], Call]:
    """The calls of the other side with which calls of this one end, by module and number."""
    calls = {(call.module, call.call): call for call in other.calls}
    ends: dict[tuple[str, int], Call] = {}
    for module in side.modules:
        pairs = called.owned.get(module.path) if module.merged_into else None
        theirs = next((path for path, owned in other.owned.items() if pairs and owned == pairs), None)
        ends |= {
            (module.merged_into, number): end
            for (path, number), end in calls.items()
            if theirs is not None and path == theirs
        }
    return ends
