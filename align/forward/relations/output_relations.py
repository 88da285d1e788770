"""Which simple relation makes a layer's output the reference's: found on a few elements, verified on all of them.

Each family of relations yields its simplest; what counts as found is decided in one place (`relation.py`). Unrelated
arrays, and outputs that hardly vary, give nothing. Three families stand here. Shares over an axis are known by their
sums, and their logarithms are what went into a softmax, but for one number that each row has in common. Regions that
are wrong say where a fault is, and seldom what it is: a border points to padding, zeros to dropout or a mask. Values
that a narrower dtype holds exactly were rounded to it: seen in its bits, and no size of error can say it as well; where
only the errors have the size of such rounding, and no relation to the values, it is a hint and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice, product
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, numpy_dtype
from align.core.traces import Limit, smallest_factor
from align.forward.relations.moved_values import (
    explain_cut,
    explain_displaced,
    explain_order,
    explain_permuted_axes,
    explain_permuted_split_axes,
    explain_pointwise,
    softmax,
    swap_sides,
)
from align.forward.relations.relation import Question, Relation, agreement, other_axes, slice_tables, with_facts
from align.forward.thresholds import (
    CHANCE_CORRELATION_OF_ERRORS,
    DROPOUT_DEVIATIONS,
    ELEMENTS_PER_NUMBER,
    ENOUGH_BITS,
    FARTHEST_DISPLACEMENT,
    INFORMATIVE_SPREAD,
    LARGEST_NAMED_SCALE,
    LEAST_ROUNDED_ELEMENTS,
    MOST_LISTED_PLACES,
    MOST_OF_SLICES,
    MOST_WRONG_SLICES,
    NAMED_SCALE_TOLERANCE,
    NEGATED_TOLERANCE,
    SHARES_TOLERANCE,
    WIDEST_BORDER,
    WRONG_THROUGHOUT,
)
from align.measure.measure_arrays import measure
from align.measure.thresholds import TYPICAL_UNITS, WORST_UNITS
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array
    from align.forward.relations.relation import Fact

    Fit = Callable[[Array, Array, tuple[int, ...]], "_Correction"]


# Whether the candidate is the reference times a number, plus a number: one for all, or one for each slice of an axis.
#
# A missing bias is a shift of each channel; wrong statistics are a scale, or both.


@dataclass(frozen=True, slots=True)
class _Correction:
    """What makes the candidate's values the reference's, one number for each group of them."""

    scale: Array
    shift: Array

    def of(self, candidate: Array) -> Array:
        corrected: Array = candidate * self.scale + self.shift
        return corrected


def explain_affine(question: Question) -> Iterator[Relation]:
    """Yield the relation with the fewest kinds of fitted numbers, if there is one."""
    groups: list[tuple[int | None, Array, Array]] = [(None, question.sample[None], question.candidate_sample[None])]
    slices = slice_tables(question.reference, question.candidate, ELEMENTS_PER_NUMBER)
    relations = (
        relation
        for axis, reference, candidate in chain(groups, slices)
        for name, fit in FITS.items()
        if _plausible(question, fit, reference, candidate) and (relation := _confirm_affine(question, name, axis))
    )
    return islice(relations, 1)


def _plausible(question: Question, fit: Fit, reference: Array, candidate: Array) -> bool:
    """Whether the fit is good for the sample, and most slices that it changes vary enough to show it."""
    affine = fit(reference, candidate, (1,))
    corrected = affine.of(candidate)
    if np.any(np.abs(corrected - reference) > question.limit.max_abs):
        return False
    changed = np.abs(corrected - candidate).max(1) > question.limit.rmse
    varied = reference.std(1) > INFORMATIVE_SPREAD * question.limit.rmse
    return bool(changed.any() and varied[changed].mean() >= MOST_OF_SLICES and np.all(affine.scale != 0.0))


def _confirm_affine(question: Question, name: str, axis: int | None) -> Relation | None:
    ndim = question.reference.ndim
    over = tuple(range(ndim)) if axis is None else other_axes(axis, ndim)
    candidate = question.candidate.astype(np.float64)
    affine = FITS[name](question.reference, candidate, over)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale, shift = 1.0 / affine.scale.ravel(), -(affine.shift / affine.scale).ravel()
    numbers = 2 if name == "scaled-and-shifted" else 1
    if axis is None:
        negated = name == "scaled" and abs(float(scale[0]) + 1.0) < NEGATED_TOLERANCE
        label = "negated" if negated else name
        relation = question.confirm(label, affine.of(candidate), fitted=0 if negated else numbers)
        return with_facts(relation, _facts(name, float(scale[0]), float(shift[0])))
    changed = np.abs(affine.of(candidate) - candidate).max(axis=over) > question.limit.rmse
    fitted = numbers * int(np.count_nonzero(changed))
    relation = question.confirm(f"slices-{name}", affine.of(candidate), fitted=fitted, choice_bits=float(scale.size))
    return with_facts(
        relation, {"axis": axis, "slices": fitted // numbers, "of": scale.size, **_spread(name, scale, shift)}
    )


def _facts(name: str, scale: float, shift: float) -> dict[str, Fact]:
    """Figures of: the candidate is scale times the reference, plus shift."""
    facts: dict[str, Fact] = {} if name == "shifted" else {"scale": scale}
    if known := "" if name == "shifted" else known_number(scale):
        facts["scale_is"] = known
    return facts if name == "scaled" else {**facts, "shift": shift}


def _spread(name: str, scale: Array, shift: Array) -> dict[str, Fact]:
    shown = {"scale": scale, "shift": shift}
    if name != "scaled-and-shifted":
        shown.pop("shift" if name == "scaled" else "scale")
    facts: dict[str, Fact] = {}
    for key, values in shown.items():
        facts |= {f"smallest_{key}": float(values.min()), f"largest_{key}": float(values.max())}
    return facts


def known_number(value: float) -> str:
    """Name of a number that layers are scaled by: a small one, 255, a square root, or one of them inverted.

    "" for any other, and for 0, NaN and Inf.
    """
    size = abs(value)
    if not 1.0 / LARGEST_NAMED_SCALE < size < LARGEST_NAMED_SCALE:
        return ""
    for inverted in (False, True):
        number = 1.0 / size if inverted else size
        whole, square = round(number), round(number * number)
        if abs(number - whole) < NAMED_SCALE_TOLERANCE * number and (1 < whole <= 16 or whole in (255, 1000)):
            return f"{'-' if value < 0 else ''}{'1/' if inverted else ''}{whole}"
        if abs(number * number - square) < NAMED_SCALE_TOLERANCE * square and 1 < square <= 4096:
            return f"{'-' if value < 0 else ''}{'1/' if inverted else ''}sqrt({square})"
    return ""


def _scale(reference: Array, candidate: Array, over: tuple[int, ...]) -> _Correction:
    square = np.sum(candidate * candidate, axis=over, keepdims=True)
    product = np.sum(reference * candidate, axis=over, keepdims=True)
    return _Correction(np.divide(product, square, out=np.ones_like(square), where=square > 0), np.zeros_like(square))


def _shift(reference: Array, candidate: Array, over: tuple[int, ...]) -> _Correction:
    shift = np.mean(reference - candidate, axis=over, keepdims=True)
    return _Correction(np.ones_like(shift), shift)


def _both(reference: Array, candidate: Array, over: tuple[int, ...]) -> _Correction:
    middle = candidate.mean(axis=over, keepdims=True)
    scale = _scale(reference, candidate - middle, over).scale
    return _Correction(scale, reference.mean(axis=over, keepdims=True, dtype=np.float64) - scale * middle)


FITS: dict[str, Fit] = {"scaled": _scale, "shifted": _shift, "scaled-and-shifted": _both}


# What is done over a whole axis, or left out: the mean taken away, scaled to a norm or to a sum of one, added up.
#
# And an axis one or two steps on, where what falls out at one end is made up for at the other: labels, positions,
# causal shifts. Nothing is fitted.


def _scaled_by(value: Array, size: Array) -> Array:
    return np.divide(value, size, out=np.zeros_like(value), where=size != 0.0)


OVER: dict[str, Callable[[Array, int], Array]] = {
    "axis_form.mean_taken_away": lambda value, axis: value - value.mean(axis, keepdims=True),
    "axis_form.norm_of_one": lambda value, axis: _scaled_by(value, np.linalg.norm(value, axis=axis, keepdims=True)),
    "axis_form.sum_of_one": lambda value, axis: _scaled_by(value, value.sum(axis, keepdims=True)),
    "axis_form.largest_of_one": lambda value, axis: _scaled_by(value, np.abs(value).max(axis, keepdims=True)),
    "axis_form.added_up": np.cumsum,
}


def explain_over_axis(question: Question) -> Iterator[Relation]:
    """Yield the first function over an axis that one side lacks: `activation-missing` or `activation-extra`."""
    ways = product((("activation-missing", question), ("activation-extra", swap_sides(question))), OVER)
    relations = (
        with_facts(relation, {"function": sentence(key), "axis": axis})
        for (name, asked), key in ways
        for axis in range(asked.candidate.ndim)
        if asked.candidate.shape[axis] > 1 and (relation := _confirm_over_axis(asked, name, key, axis))
    )
    yield from islice((relation for relation in relations if relation), 1)


def _confirm_over_axis(question: Question, name: str, key: str, axis: int) -> Relation | None:
    """Ask a first row along the axis, then the whole."""
    row = tuple(slice(None) if one == axis else slice(1) for one in range(question.candidate.ndim))
    few = OVER[key](question.candidate[row].astype(np.float64), axis)
    if np.any(np.abs(few - question.reference[row]) > question.limit.max_abs):
        return None
    return question.confirm(name, OVER[key](question.candidate.astype(np.float64), axis))


def explain_step(question: Question) -> Iterator[Relation]:
    """Yield `displaced` where an axis stands a step or two farther on, and its end is repeated or zero."""
    steps = [step for step in range(-FARTHEST_DISPLACEMENT, FARTHEST_DISPLACEMENT + 1) if step]
    other = swap_sides(question)
    axes = [axis for axis, length in enumerate(question.reference.shape) if length > 2 * FARTHEST_DISPLACEMENT]
    ends = {"axis_form.end_repeated": False, "axis_form.end_zero": True}
    relations = (
        with_facts(relation, {"axis": axis, "by": by, "end": sentence(end)})
        for axis, by, (end, is_zero) in product(axes, steps, ends.items())
        if (relation := _moved(other, axis, by, is_zero=is_zero))
    )
    yield from islice((relation for relation in relations if relation), 1)


def _moved(other: Question, axis: int, by: int, *, is_zero: bool) -> Relation | None:
    """`other` has the candidate as what is to be explained."""
    length = other.candidate.shape[axis]
    places = np.arange(length) - by
    outside = (places < 0) | (places >= length)
    index = np.unravel_index(other.places, other.candidate.shape)
    taken = [*index]
    taken[axis] = np.clip(index[axis] - by, 0, length - 1)
    some = other.candidate[tuple(taken)].astype(np.float64)
    if not other.fits(np.where(outside[index[axis]] & is_zero, 0.0, some)):
        return None
    made = other.candidate.take(np.clip(places, 0, length - 1), axis)
    shape = [-1 if one == axis else 1 for one in range(made.ndim)]
    return other.confirm("displaced", np.where(outside.reshape(shape) & is_zero, 0.0, made))


NARROW = ("bfloat16", "float16")


def explain_output(reference: Array, candidate: Array, limit: Limit) -> tuple[Relation, ...]:
    """Return the relations that hold within the limit of the layer, the likeliest first; () if none is known to.

    Arrays of any shapes and real dtypes. NaN and Inf that both have alike are left out; where only the candidate has
    them, nothing else is asked.

    >>> from align.core.traces import Limit
    >>> x = np.random.default_rng(0).standard_normal((8, 16))
    >>> [found.id for found in explain_output(x, x[:, ::-1], Limit(1e-5, 1e-6, "user"))]
    ['flipped']
    """
    return tuple(sorted(_relations(reference, candidate, limit), key=relation_sort_key))


def likeliest_relation(reference: Array, candidate: Array, limit: Limit) -> Relation | None:
    """Return the first relation that explains everything, else the best one: quicker, where no other is wanted."""
    relations = []
    for relation in _relations(reference, candidate, limit):
        if relation.explains:
            return relation
        relations.append(relation)
    return min(relations, key=relation_sort_key, default=None)


def relation_sort_key(found: Relation) -> tuple[float, int, float]:
    """Sort key: what explains most first, then what fits fewest numbers."""
    return -found.share, found.fitted, found.factor


def make_question(reference: Array, candidate: Array, limit: Limit) -> Question | None:
    """The question why they differ; None if they do not, or by shape or NaN, or hold no real numbers."""
    if reference.shape != candidate.shape or not _comparable(reference, candidate):
        return None
    ours, theirs = _widened(reference), _widened(candidate)
    if explain_non_finite(ours, theirs):
        return None
    question = Question(*_without_non_finite(ours, theirs), limit)
    return question if question.factor > 1.0 else None


def _relations(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    if not _comparable(reference, candidate):
        return
    ours, theirs = _widened(reference), _widened(candidate)
    if ours.shape != theirs.shape:
        yield from _of_other_shape(ours, theirs, limit)
    elif question := make_question(ours, theirs, limit):
        yield from _of_one_shape(question)
    elif odd := explain_non_finite(ours, theirs):
        yield odd


def _comparable(*sides: Array) -> bool:
    return all(one.size and not np.iscomplexobj(one) for one in sides)


def _of_one_shape(question: Question) -> Iterator[Relation]:
    explained = False
    for family in (*WHOLE, *REST):
        if family in REST and explained:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # a wrong guess may leave the range of numbers
            found = [*family(question)]
        explained |= any(one.explains for one in found)
        yield from found


def _of_other_shape(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    question = Question(reference, candidate, limit)
    families = (
        explain_permuted_axes(question),
        explain_permuted_split_axes(question),
        explain_cut(reference, candidate, limit),
    )
    yield from islice(chain(*families), 1)


def _widened(values: Array) -> Array:
    """Floats of 32 bits and more as they are, all else in float64."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _without_non_finite(reference: Array, candidate: Array) -> tuple[Array, Array]:
    finite = np.isfinite(reference) & np.isfinite(candidate)
    if finite.all():
        return reference, candidate
    return np.where(finite, reference, 0), np.where(finite, candidate, 0)


def explain_softmax(question: Question) -> Iterator[Relation]:
    """Yield the first of these relations that holds."""
    axes, others = _axes_of_shares(question.reference), _axes_of_shares(question.candidate)
    relations = chain(
        (_scaled(question, axis) for axis in axes & others),
        (_other_axis(question, axis, other) for axis in axes - others for other in others - axes),
        (_missing(question, axis, "activation-missing") for axis in axes - others),
        (_missing(swap_sides(question), axis, "activation-extra") for axis in others - axes),
    )
    yield from islice((one for one in relations if one), 1)


def _axes_of_shares(values: Array) -> set[int]:
    """Axes over which the values, all shares, add up to 1."""
    if float(values.min()) < 0.0 or float(values.max()) > 1.0 + SHARES_TOLERANCE:
        return set()
    sums = {axis: values.sum(axis=axis, dtype=np.float64) for axis in range(values.ndim) if values.shape[axis] > 1}
    return {axis for axis, total in sums.items() if np.all(np.abs(total - 1.0) < SHARES_TOLERANCE)}


def _scaled(question: Question, axis: int) -> Relation | None:
    """Small shares say little of their logarithm: they weigh as much as they are."""
    weights = np.minimum(question.reference, question.candidate).astype(np.float64)
    middles = weights.sum(axis=axis, keepdims=True)
    logarithms = [_logarithms(one) for one in (question.reference, question.candidate)]
    ours, theirs = (one - (one * weights).sum(axis=axis, keepdims=True) / middles for one in logarithms)
    square = float(np.sum(weights * theirs**2))
    scale = float(np.sum(weights * ours * theirs)) / square if square else 0.0
    if scale <= 0.0:
        return None
    found = question.confirm("softmax-scale", softmax(logarithms[1] * scale, axis), fitted=1)
    known = known_number(1.0 / scale)
    return with_facts(found, {"axis": axis, "scale": 1.0 / scale} | ({"scale_is": known} if known else {}))


def _other_axis(question: Question, axis: int, other: int) -> Relation | None:
    candidate = _logarithms(question.candidate)
    lost = (_logarithms(question.reference) - candidate).mean(axis=other, keepdims=True)
    found = question.confirm("softmax-axis", softmax(candidate + lost, axis), fitted=lost.size)
    return with_facts(found, {"reference": axis, "candidate": other})


def _logarithms(shares: Array) -> Array:
    logarithms: Array = np.log(np.maximum(shares.astype(np.float64), np.finfo(np.float64).tiny))
    return logarithms


def _missing(question: Question, axis: int, name: str) -> Relation | None:
    found = question.confirm(name, softmax(question.candidate.astype(np.float64), axis))
    return with_facts(found, {"function": "softmax", "axis": axis})


def explain_non_finite(reference: Array, candidate: Array) -> Relation | None:
    """NaN or Inf of the candidate where the reference has numbers: the large ones only, or any."""
    ours, theirs = np.isfinite(reference), np.isfinite(candidate)
    odd = ours & ~theirs
    count, nan = int(np.count_nonzero(odd)), int(np.count_nonzero(np.isnan(candidate) & ours))
    if not count:
        return None
    facts: dict[str, Fact] = {"elements": count, "of": odd.size, "nan": nan}
    smallest, kept = float(np.abs(reference[odd]).min()), float(np.abs(reference[ours & theirs]).max(initial=0.0))
    if smallest <= kept or nan == count:
        return Relation("not-finite", inf, 1.0 - count / odd.size, facts=facts)
    return Relation("overflowed", inf, 1.0 - count / odd.size, facts={**facts, "smallest": smallest, "kept": kept})


def explain_wrong_regions(question: Question) -> Iterator[Relation]:
    """Yield the narrowest description of where the candidate is wrong, if it is right elsewhere."""
    far = np.abs(question.reference - question.candidate) > question.limit.max_abs
    yield from islice(chain(_zeros(question), _border(question, far), _slices(question, far)), 1)


def _zeros(question: Question) -> Iterator[Relation]:
    """All that is wrong is zero, and so not by ones and twos; what is left may be larger by what dropout makes up."""
    zero = (question.candidate == 0.0) & (np.abs(question.reference) > question.limit.rmse)
    kept, share = ~zero, float(np.count_nonzero(zero)) / zero.size
    if share * zero.size < ENOUGH_BITS:
        return
    if share == 1.0:
        yield Relation("zeros", question.factor, 0.0, facts={"zeros": share})
        return
    reference, candidate = question.reference[kept].astype(np.float64), question.candidate[kept].astype(np.float64)
    left = smallest_factor(measure(reference, candidate), question.limit)
    if left <= 1.0:
        yield Relation("zeros", left, 1.0 - share, facts={"zeros": share})
        return
    scale = float(candidate @ reference / max(float(candidate @ candidate), np.finfo(float).tiny))
    left = smallest_factor(measure(reference, candidate * scale), question.limit)
    if left <= 1.0 and abs(1.0 - scale - share) < DROPOUT_DEVIATIONS * sqrt(share * (1.0 - share) / zero.size):
        yield Relation("dropout", left, 1.0 - share, 1, {"p": 1.0 - scale, "zeros": share})


def _border(question: Question, far: Array) -> Iterator[Relation]:
    """Right inside and wrong within some elements of the ends of the spatial axes, channels first or last."""
    for axes in (range(2, far.ndim), range(1, far.ndim - 1)):
        for width in range(1, WIDEST_BORDER + 1):
            if not axes or min(far.shape[axis] for axis in axes) < 4 * width:
                break
            inside = tuple(slice(width, -width) if axis in axes else slice(None) for axis in range(far.ndim))
            left = _agreement(question, inside) if not far[inside].any() else None
            if left is not None:
                ends = joined(", ", [*_wrong_ends(far, axes, width)])
                share = 1.0 - float(np.count_nonzero(far)) / far.size
                yield Relation("border", left, share, facts={"width": width, "ends": ends})


def _wrong_ends(far: Array, axes: range, width: int) -> Iterator[str]:
    """Which ends of which axes are wrong, away from the corners."""
    for axis in axes:
        inside = [slice(width, -width) if one in axes and one != axis else slice(None) for one in range(far.ndim)]
        ends = {"slice_form.first_of_axis": slice(0, width), "slice_form.last_of_axis": slice(-width, None)}
        for key, end in ends.items():
            inside[axis] = end
            if np.any(far[tuple(inside)]):
                yield sentence(key, axis=axis)


def _slices(question: Question, far: Array) -> Iterator[Relation]:
    """Right but for some slices of the axis of which the smallest share is wrong, and those wrong throughout."""
    wrong = {axis: far.any(axis=other_axes(axis, far.ndim)) for axis in range(far.ndim) if far.shape[axis] > 1}
    if not wrong:
        return
    axis = min(wrong, key=lambda one: (float(wrong[one].mean()), -far.shape[one]))
    places, length = np.flatnonzero(wrong[axis]), far.shape[axis]
    throughout = np.count_nonzero(far) >= WRONG_THROUGHOUT * far.size * places.size / length
    if places.size > MOST_WRONG_SLICES * length or not throughout:
        return
    left = _agreement(question, (*[slice(None)] * axis, np.flatnonzero(~wrong[axis])))
    if left is not None:
        facts: dict[str, Fact] = {"axis": axis, "slices": places.size, "of": length, "places": _ranges(places)}
        yield Relation("slices", left, 1.0 - places.size / length, facts=facts)


def _agreement(question: Question, inside: tuple[Any, ...]) -> float | None:
    return agreement(question.reference[inside], question.candidate[inside], question.limit)


def _ranges(places: Array) -> str:
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = [f"{run[0]}-{run[-1]}" if run.size > 1 else f"{run[0]}" for run in runs[:MOST_LISTED_PLACES]]
    return ", ".join(shown) + (", ..." if len(runs) > MOST_LISTED_PLACES else "")


def explain_rounding(question: Question) -> Iterator[Relation]:
    """Yield the dtype that the bits show: `rounded` (the output only) or `lower-precision` (what is before it too)."""
    dtype = next((one for one in NARROW if is_exact_in(question.candidate, one)), None)
    if dtype is None or is_exact_in(question.reference, dtype) or question.wrong * question.bits < ENOUGH_BITS:
        return
    measured, unit = measure(question.reference, question.candidate), EPSILON[dtype]
    for name, typical, worst in (("rounded", 1.0, 1.0), ("lower-precision", TYPICAL_UNITS, WORST_UNITS)):
        limit = Limit(worst * unit * measured.reference_max, typical * unit * measured.reference_rms, "dtype")
        if (left := smallest_factor(measured, limit)) <= 1.0:
            yield Relation(name, left, facts={"dtype": dtype})
            return


def explain_error_size(question: Question) -> Iterator[Relation]:
    """Yield `rounding-sized`: errors of the size of a few roundings, with no mean and no relation to the values."""
    reference, error = question.sample, question.candidate_sample - question.sample
    size, typical = (sqrt(float(np.mean(values**2))) for values in (error, reference))
    dtype = next(
        (narrow for narrow in NARROW[::-1] if EPSILON[narrow] / 8 <= size / (typical or 1.0) <= EPSILON[narrow]), None
    )
    if dtype is None or reference.size < LEAST_ROUNDED_ELEMENTS or question.bits == 0.0:
        return
    with np.errstate(invalid="ignore"):
        related = [np.corrcoef(error, values)[0, 1] for values in (reference, np.abs(reference), reference**2)]
    apart = [float(error.mean()) / float(error.std()), *related]
    if max(map(abs, apart)) * sqrt(reference.size) < CHANCE_CORRELATION_OF_ERRORS:
        facts: dict[str, Fact] = {"dtype": dtype, "relative_error": size / typical}
        yield Relation("rounding-sized", question.factor, 0.0, facts=facts)


def is_exact_in(values: Array, dtype: str) -> bool:
    """Whether a narrower dtype holds these values exactly, a thousand of them first."""
    with np.errstate(over="ignore", under="ignore"):
        return all(
            np.array_equal(part.astype(numpy_dtype(dtype)).astype(values.dtype), part)
            for part in (values.reshape(-1)[:1000], values.reshape(-1))
        )


# Each explains everything or says nothing; those below are asked where none of these does.
WHOLE = (
    explain_rounding,
    explain_affine,
    explain_permuted_axes,
    explain_order,
    explain_step,
    explain_softmax,
    explain_pointwise,
    explain_over_axis,
)
REST = (explain_permuted_split_axes, explain_displaced, explain_error_size, explain_wrong_regions)
