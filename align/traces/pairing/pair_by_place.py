"""Calls of modules without parameters (ReLU, pooling) paired by their place between calls that are paired already."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences, equality_scores
from align.models.probe import is_probe
from align.traces.module_calls import CallPair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from align.traces.module_calls import Call, CalledModules

# One layer with parameters outweighs any run of layers without.
_ANCHOR = 100.0
# The same layer with another setting has another shape, one taken for another (average for max pooling) another kind.
_OTHER_SHAPE, _OTHER_KIND = 0.5, 0.25
# Layers that pass their input on stand for no other layer.
_PASSIVE = frozenset({"identity", "dropout", "channel_dropout", "flatten", "unflatten"})


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
    likeness = np.maximum(np.maximum(shapes * kinds, _OTHER_SHAPE * kinds), _OTHER_KIND * shapes * active)
    scores: NDArray[np.float64] = _ANCHOR * anchored + free * likeness
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
