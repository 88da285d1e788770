"""Whether the candidate's values are the reference's in other places, all of them or most.

Its axes stand in another order, or are read with another shape: every order of the axes is tried, also after one axis
is cut into two (heads out of features), by comparing a few elements first. It is seen through another window: displaced
along two axes, cut along one. Or its slices along an axis stand in another order: they are put in a row by a sum of
some of their elements with random weights; those that are one stand at the same place of both rows, or close to it, so
that all are found in O(n log n). A slice that is right where it stands is never moved: zero channels are all alike.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, permutations, product
from math import lgamma, log, log2, prod
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erf, expit

from align.forward.relations.relation import (
    Question,
    Relation,
    agreement,
    at_places,
    describe_order,
    divisors,
    sample_places,
    slice_tables,
    with_facts,
)
from align.forward.thresholds import (
    BISECTIONS,
    DIGITS_OF_CAP,
    FARTHEST_DISPLACEMENT,
    FIRST_LOOK_AT_AXES,
    FIRST_LOOK_AT_CUT,
    LONGEST_ORDER_OF_NUMBERS,
    MOST_CUT_OFFSETS,
    MOST_OF_SLICES,
    MOST_SOFT_CAP,
    SHORTEST_DISPLACED_AXIS,
)
from align.measure.thresholds import MOST_PERMUTED_AXES, SAMPLED_ELEMENTS
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.parameters import Array, Shape
    from align.core.traces import Limit
    from align.forward.relations.relation import Fact

    Axes = tuple[int, ...]


def explain_permuted_axes(question: Question) -> Iterator[Relation]:
    """Yield the first order of the axes, or reading with another shape, that makes both equal."""
    yield from _first(question, [_without_ones(question.reference.shape)])


def explain_permuted_split_axes(question: Question) -> Iterator[Relation]:
    """The same with one axis cut into two, in each way."""
    kept = _without_ones(question.reference.shape)
    yield from _first(question, [*_cut(kept)] if len(kept) < MOST_PERMUTED_AXES else [])


def _first(question: Question, shapes: list[Shape]) -> Iterator[Relation]:
    if question.reference.size != question.candidate.size:
        return
    ways = [
        (shape, axes)
        for shape in shapes
        if len(shape) <= MOST_PERMUTED_AXES
        for axes in permutations(range(len(shape)))
    ]
    same_shape = question.reference.shape == question.candidate.shape
    few = np.linspace(0, question.reference.size - 1, FIRST_LOOK_AT_AXES).astype(int)
    for shape, axes in ways:
        in_order = axes == tuple(range(len(axes)))
        if (in_order and same_shape) or not _likely(question, shape, axes, few):
            continue
        if found := _confirmed(question, shape, axes, log2(len(ways))):
            yield found
            return


def _without_ones(shape: Shape) -> Shape:
    return tuple(length for length in shape if length > 1)


def _cut(shape: Shape) -> Iterator[Shape]:
    for axis, length in enumerate(shape):
        for outer in divisors(length)[1:-1]:
            yield (*shape[:axis], outer, length // outer, *shape[axis + 1 :])


def _likely(question: Question, shape: Shape, axes: Axes, few: Array) -> bool:
    """Whether a few elements, then the sample, are right."""
    view, flat = question.reference.reshape(shape).transpose(axes), question.candidate.reshape(-1)
    return not any(
        np.any(np.abs(view[np.unravel_index(places, view.shape)] - flat[places]) > question.limit.max_abs)
        for places in (few, question.places)
    )


def _confirmed(question: Question, shape: Shape, axes: Axes, choice_bits: float) -> Relation | None:
    moved = tuple(shape[axis] for axis in axes)
    put_right = question.candidate.reshape(moved).transpose(np.argsort(axes)).reshape(question.reference.shape)
    found = question.confirm(_name(question, shape, axes, moved), put_right, choice_bits=choice_bits)
    return with_facts(found, {"read_as": "x".join(map(str, shape)), "axes": ",".join(map(str, axes))})


def _name(question: Question, shape: Shape, axes: Axes, moved: Shape) -> str:
    if axes == tuple(range(len(axes))):
        return "reshaped"
    whole = shape == _without_ones(question.reference.shape) and moved == _without_ones(question.candidate.shape)
    return "transposed" if whole else "reordered"


def explain_displaced(question: Question) -> Iterator[Relation]:
    """Yield a displacement by a pixel or two along two neighbouring axes at once; along one it is an order."""
    steps = [step for step in range(-FARTHEST_DISPLACEMENT, FARTHEST_DISPLACEMENT + 1) if step]
    for axis in range(question.reference.ndim - 1):
        if min(question.reference.shape[axis : axis + 2]) >= SHORTEST_DISPLACED_AXIS:
            found = (_displaced(question, axis, by) for by in product(steps, steps) if _may_show(question, axis, by))
            yield from (relation for relation in found if relation)


def _may_show(question: Question, axis: int, by: tuple[int, int]) -> bool:
    """Compare some elements, as far from the border as any displacement reaches."""
    shape = [
        length - 2 * FARTHEST_DISPLACEMENT * (axis <= place <= axis + 1)
        for place, length in enumerate(question.reference.shape)
    ]
    places = [*np.unravel_index(sample_places(prod(shape), SAMPLED_ELEMENTS), shape)]
    for near_axis in (axis, axis + 1):
        places[near_axis] = places[near_axis] + FARTHEST_DISPLACEMENT
    reference = question.reference[tuple(places)]
    for near_axis, step in zip((axis, axis + 1), by, strict=True):
        places[near_axis] = places[near_axis] + step
    return bool(np.all(np.abs(question.candidate[tuple(places)] - reference) <= question.limit.max_abs))


def _displaced(question: Question, axis: int, by: tuple[int, int]) -> Relation | None:
    still, moved = (
        (
            *[slice(None)] * axis,
            *(slice(FARTHEST_DISPLACEMENT + one, one - FARTHEST_DISPLACEMENT or None) for one in steps),
        )
        for steps in ((0, 0), by)
    )
    part = Question(question.reference[still], question.candidate[still], question.limit)
    found = part.confirm("displaced", question.candidate[moved])
    share = part.reference.size / question.reference.size
    return with_facts(found, {"axes": f"{axis},{axis + 1}", "by": f"{by[0]},{by[1]}"}, share)


def explain_cut(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    """Yield where the one is the other without some slices at the ends of one axis."""
    odd = [axis for axis, (a, b) in enumerate(zip(reference.shape, candidate.shape, strict=False)) if a != b]
    if reference.ndim != candidate.ndim or len(odd) != 1:
        return
    axis = odd[0]
    lengths = reference.shape[axis], candidate.shape[axis]
    for offset in range(min(abs(lengths[0] - lengths[1]), MOST_CUT_OFFSETS) + 1):
        window = (*[slice(None)] * axis, slice(offset, offset + min(lengths)))
        parts = [one[window] if one.shape[axis] > min(lengths) else one for one in (reference, candidate)]
        some = sample_places(parts[0].size, FIRST_LOOK_AT_CUT)
        near = np.all(np.abs(at_places(parts[0], some) - at_places(parts[1], some)) <= limit.max_abs)
        left = agreement(parts[0], parts[1], limit) if near else None
        if left is not None:
            facts: dict[str, Fact] = {"axis": axis, "reference": lengths[0], "candidate": lengths[1], "offset": offset}
            yield Relation("cut" if lengths[1] < lengths[0] else "extended", left, facts=facts)
            return


STEPS = (0, -1, 1, -2, 2, -3, 3)  # no limit: what is tried, nearest first


def explain_order(question: Question) -> Iterator[Relation]:
    """Yield one relation for each axis along which slices stand in each other's places."""
    for axis, reference, candidate in slice_tables(question.reference, question.candidate):
        if reference.shape[1] == 1 and len(reference) > LONGEST_ORDER_OF_NUMBERS:
            continue  # so many numbers lie closer than the limit: no order of them shows
        order = find_order(reference, candidate, question.limit.max_abs)
        known = order >= 0
        if np.count_nonzero(known) >= MOST_OF_SLICES * order.size and (found := _with_order(question, axis, order)):
            yield found


def find_order(reference: Array, candidate: Array, allowed: float) -> Array:
    """For each slice of the candidate, the place of the reference's slice that it is, each used once; -1: none.

    Both are tables (slice, element); two slices are one if no element differs by more than `allowed`.
    """
    right = np.abs(reference - candidate).max(1) <= allowed
    order = np.where(right, np.arange(len(reference)), -1)
    view = np.random.default_rng(0).standard_normal(reference.shape[1])
    places = np.flatnonzero(~right)
    ours, theirs = (places[np.argsort(table[places] @ view, kind="stable")] for table in (reference, candidate))
    near = np.searchsorted(reference[ours] @ view, candidate[theirs] @ view)
    free = ~right
    for ranks in (np.arange(places.size), *(near + step for step in STEPS)):  # equal slices meet by their rank
        open_ = np.flatnonzero(order[theirs] < 0)
        mine, other = theirs[open_], ours[np.clip(ranks[open_], 0, places.size - 1)]
        same = np.flatnonzero(free[other])
        same = same[np.abs(reference[other[same]] - candidate[mine[same]]).max(1, initial=0.0) <= allowed]
        _, once = np.unique(other[same], return_index=True)
        order[mine[same[once]]] = other[same[once]]
        free[other[same[once]]] = False
    return order


def _with_order(question: Question, axis: int, order: Array) -> Relation | None:
    """Hold the candidate's known slices against the reference's that they are said to be."""
    known = np.flatnonzero(order >= 0)
    moved = int(np.count_nonzero(order[known] != known))
    if not moved:
        return None
    whole = known.size == order.size
    reference = question.reference if whole else np.take(question.reference, order[known], axis)
    as_it_stands = question.candidate if whole else np.take(question.candidate, order[known], axis)
    put_right = np.take(question.candidate, np.argsort(order) if whole else known, axis)
    name, facts = describe_order(order)
    relation = Question(reference, as_it_stands, question.limit).confirm(
        name,
        put_right,
        choice_bits=lgamma(moved + 1) / log(2) if name == "permuted" else log2(order.size) * 2,
        wrong=moved * question.reference.size // order.size,
    )
    return with_facts(relation, {"axis": axis, "moved": moved, "of": order.size, **facts}, known.size / order.size)


# Whether one side is a well-known function of the other: an activation missing, or one too many, or clipped values.
#
# The functions are those that layers apply element by element, and softmax, as NumPy computes them in float64.
# Functions that these values do not distinguish (ReLU and ReLU6 below 6) are all named.

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # no limit: the constants of SELU


def softmax(values: Array, axis: int) -> Array:
    """Shares along an axis."""
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def leaky_relu(slope: float) -> Callable[[Array], Array]:
    """Return a rectifier whose negative side has a slope."""
    return lambda x: np.where(x >= 0.0, x, slope * x)


def _softplus(x: Array) -> Array:
    positive: Array = np.logaddexp(0.0, x)
    return positive


def _gelu_tanh(x: Array) -> Array:
    gelu: Array = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return gelu


def _elu(x: Array) -> Array:
    return np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0)))


_WORDED = "function_form."
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky-relu 0.01": leaky_relu(0.01),
    "leaky-relu 0.1": leaky_relu(0.1),
    "leaky-relu 0.2": leaky_relu(0.2),
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x / np.sqrt(2.0))),
    "gelu-tanh": _gelu_tanh,
    "gelu-sigmoid": lambda x: x * expit(1.702 * x),
    "silu": lambda x: x * expit(x),
    "sigmoid": expit,
    "tanh": np.tanh,
    "hard-sigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard-sigmoid 0.2": lambda x: np.clip(0.2 * x + 0.5, 0.0, 1.0),
    "hard-swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard-tanh": lambda x: np.clip(x, -1.0, 1.0),
    "elu": _elu,
    "selu": lambda x: SELU_SCALE * np.where(x > 0.0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
    "softplus": _softplus,
    "log-sigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "exp": lambda x: np.exp(np.minimum(x, 700.0)),
    "log": lambda x: np.log(np.maximum(x, np.finfo(float).tiny)),
    "square": np.square,
    "sqrt": lambda x: np.sqrt(np.maximum(x, 0.0)),
    "abs": np.abs,
    "function_form.round": np.rint,
    "function_form.floor": np.floor,
}


ROUNDING = ("function_form.round", "function_form.floor")


def name_functions(names: Iterable[str]) -> str:
    """Say that it is one of these functions; names of `FUNCTIONS` with a text have the key of it.

    >>> name_functions(["relu", "function_form.floor"])
    'relu or rounding down'
    """
    return joined(" or ", [sentence(name) if name.startswith(_WORDED) else name for name in names])


def explain_pointwise(question: Question) -> Iterator[Relation]:
    """Yield the function of the candidate that the reference is (`activation-missing`), and the reverse (`-extra`)."""
    other = swap_sides(question)
    relations = chain(
        _function(question, "activation-missing"),
        _function(other, "activation-extra"),
        _clipped(other, "clipped"),
        _clipped(question, "clipping-missing"),
        _soft_capped(question, "soft-cap-missing"),
        _soft_capped(other, "soft-cap-extra"),
    )
    yield from islice(relations, 1)


def swap_sides(question: Question) -> Question:
    """The same question of the candidate, whose values may be larger than those that the limit was made for."""
    ours, theirs = np.abs(question.sample).max(initial=0.0), np.abs(question.candidate_sample).max(initial=0.0)
    larger = max(1.0, float(theirs / ours)) if ours > 0.0 else 1.0
    limit = question.limit
    limit = replace(limit, max_abs=limit.max_abs * larger, rmse=limit.rmse * larger)
    return Question(question.candidate, question.reference, limit)


def _function(question: Question, name: str) -> Iterator[Relation]:
    likely = [key for key, function in FUNCTIONS.items() if question.fits(function(question.candidate_sample))]
    if np.unique(question.candidate_sample).size <= np.unique(question.sample).size:
        likely = [key for key in likely if key not in ROUNDING]  # what joins no two values is not seen to round
    if not likely:
        return
    values = question.candidate.astype(np.float64)
    found = {key: question.confirm(name, FUNCTIONS[key](values)) for key in likely}
    named = {key: one for key, one in found.items() if one}
    if named:
        best = min(named.values(), key=lambda one: one.factor)
        yield replace(best, facts={"function": name_functions(named)})


def _clipped(question: Question, name: str) -> Iterator[Relation]:
    """The bounds are the largest and the smallest value; one that nothing reaches beyond is none.

    Something has to lie between them and stay: two values become any two others.
    """
    low, high = float(question.reference.min()), float(question.reference.max())
    between = (question.candidate_sample > low) & (question.candidate_sample < high)
    if not between.any() or not question.fits(np.clip(question.candidate_sample, low, high)):
        return
    beyond = question.limit.max_abs
    reached = {"low": low - question.candidate.min() > beyond, "high": question.candidate.max() - high > beyond}
    found = question.confirm(name, np.clip(question.candidate, low, high), fitted=sum(reached.values()))
    if found := with_facts(found, {key: bound for key, bound in (("low", low), ("high", high)) if reached[key]}):
        yield found


def _soft_capped(question: Question, name: str) -> Iterator[Relation]:
    """`cap * tanh(x / cap)`: the cap that the largest value shows, a plain number, which must fit all others.

    Between two soft caps there is nearly a third one: a number that nobody would write.
    """
    given, capped = question.candidate_sample, question.sample
    place = int(np.abs(given).argmax())
    largest, reached = abs(float(given[place])), abs(float(capped[place]))
    if not 0.0 < reached < largest or not np.isfinite(largest):
        return
    low, high = reached, largest * MOST_SOFT_CAP
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if middle * np.tanh(largest / middle) < reached else (low, middle)
    for cap in dict.fromkeys((float(f"{high:.{DIGITS_OF_CAP}g}"), float(round(high)) or high)):
        if question.fits(cap * np.tanh(given / cap)):
            values = question.candidate.astype(np.float64)
            found = with_facts(question.confirm(name, cap * np.tanh(values / cap), fitted=1), {"cap": cap})
            if found:
                yield found
                return
