"""Calls of two dumps whose names are not known to be those of modules with parameters: by name, order and values.

Equal names pair. What is left between them pairs in order where shapes agree, surely only if values show it, or both
sides call functions of the same names in the same order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences, equality_scores
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.traces.module_calls import Call, CallPair, CallPairs, UnpairedLayer
from align.traces.thresholds import CLEARLY_NEARER, NEAR_DISTANCE, OTHER_SHAPE_SCORE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    from numpy.typing import NDArray

    from align.core.traces import Trace

Traces = tuple["Trace", "Trace"]
_NUMBERED = re.compile(r"[0-9]+[_.-](?=.)")


def pair_named_calls(traces: Traces) -> CallPairs:
    """Pair the calls of reference and candidate."""
    left, right = ([*_calls(trace)] for trace in traces)
    same = _of_equal_names(left, right)
    pairs = [CallPair(left[i], right[j], certain=sure) for (i, j), sure in same.items()]
    pairs += _in_order((left, right), list(same), traces)
    pairs.sort(key=lambda pair: pair.reference.order)
    alone = [*_alone("reference", left, [pair.reference for pair in pairs])]
    alone += _alone("candidate", right, [pair.candidate for pair in pairs])
    return CallPairs(tuple(pairs), tuple(alone))


def _calls(trace: Trace) -> Iterator[Call]:
    groups: dict[tuple[str, int], list[int]] = {}
    for place, one in enumerate(trace.captures):
        groups.setdefault((one.module, one.call), []).append(place)
    for (module, number), own in groups.items():
        outputs = tuple(trace.captures[place] for place in own)
        yield Call(module, number, outputs[0].order, outputs[0].class_name, "", outputs)


def _name(call: Call) -> tuple[str, int]:
    """The name without the number that tools put in front of it, and which call it is."""
    return _NUMBERED.sub("", call.module, count=1), call.call


def _of_equal_names(left: Sequence[Call], right: Sequence[Call]) -> dict[tuple[int, int], bool]:
    """The places of calls of equal names, in order where both sides have as many of a name, and whether they are sure.

    Of several calls of one name those are whose numbers in front are equal too.
    """
    places: tuple[dict[tuple[str, int], list[int]], ...] = ({}, {})
    for side, own in zip((left, right), places, strict=True):
        for place, call in enumerate(side):
            own.setdefault(_name(call), []).append(place)
    return {
        (i, j): len(mine) == 1 or left[i].module == right[j].module
        for name, mine in places[0].items()
        for i, j in zip(mine, places[1].get(name, []), strict=False)
        if len(mine) == len(places[1][name])
    }


def _in_order(
    sides: tuple[list[Call], list[Call]], same: Sequence[tuple[int, int]], traces: Traces
) -> Iterator[CallPair]:
    """The calls between those that are paired, in order."""
    rows, columns = sides
    kept = _increasing(same)
    taken = {i for i, _ in same}, {j for _, j in same}
    for (top, start), (bottom, end) in zip([(-1, -1), *kept], [*kept, (len(rows), len(columns))], strict=True):
        mine = [rows[i] for i in range(top + 1, bottom) if i not in taken[0]]
        theirs = [columns[j] for j in range(start + 1, end) if j not in taken[1]]
        if mine and theirs:
            yield from _between(mine, theirs, traces)


def _between(mine: list[Call], theirs: list[Call], traces: Traces) -> Iterator[CallPair]:
    shapes = equality_scores([call.shapes for call in mine], [call.shapes for call in theirs])
    kinds = equality_scores([call.class_name.lower() for call in mine], [call.class_name.lower() for call in theirs])
    near = _nearness(mine, theirs, shapes, traces)
    pairs = align_sequences(shapes * (1.0 + OTHER_SHAPE_SCORE * kinds + 2.0 * near))
    shown = sum(near[i, j] for i, j in pairs) * 2 >= len(pairs) > 1  # so the order is right for the others too
    for i, j in pairs:
        named = kinds[i, j] and mine[i].class_name and _alike(mine, theirs)
        yield CallPair(mine[i], theirs[j], certain=bool(near[i, j] or named or (shown and _alike(mine, theirs))))


def _alike(mine: list[Call], theirs: list[Call]) -> bool:
    """Tell whether both sides call the same kinds with the same shapes, in the same order."""
    return [(one.class_name.lower(), one.shapes) for one in mine] == [
        (one.class_name.lower(), one.shapes) for one in theirs
    ]


def _nearness(mine: list[Call], theirs: list[Call], shapes: NDArray[np.float64], traces: Traces) -> NDArray[np.float64]:
    """1 where the values of a pair are near each other and clearly nearer than those of any rival, else 0."""
    samples = [[_sample(call, trace) for call in side] for side, trace in zip((mine, theirs), traces, strict=True)]
    distances = np.full(shapes.shape, np.inf)
    for i, j in np.argwhere(shapes > 0.0):
        one, other = samples[0][i], samples[1][j]
        if one is not None and other is not None and one.size:
            distances[i, j] = relative_rms_distance(one, other)
    near = np.zeros(shapes.shape)
    for i, j in np.argwhere(distances < NEAR_DISTANCE):
        rivals = np.concatenate([np.delete(distances[i], j), np.delete(distances[:, j], i)])
        near[i, j] = float(distances[i, j] * CLEARLY_NEARER < rivals.min(initial=np.inf))
    return near


def _sample(call: Call, trace: Trace) -> NDArray[np.float64] | None:
    one = call.outputs[0]
    return sample_values(trace.value(one)) if len(call.outputs) == 1 and trace.holds(one) else None


def _increasing(same: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs that stand in the same order on both sides, from the first one on."""
    kept: list[tuple[int, int]] = []
    for i, j in sorted(same):
        if not kept or j > kept[-1][1]:
            kept.append((i, j))
    return kept


def _alone(
    side: Literal["reference", "candidate"], calls: Sequence[Call], paired: Sequence[Call]
) -> Iterator[UnpairedLayer]:
    done = {id(call) for call in paired}
    for call in calls:
        if id(call) not in done:
            yield UnpairedLayer(side, call.module, call.class_name, call.call, sentence("unpaired_reason.no_name"))
