"""Why the values of paired samples differ: changes of place and of value are tried until the samples agree.

Each change that is named was applied to the candidate's samples (or, where it loses something, to the reference's), and
the result agrees with the other side within rounding. Changes of place come first, those of value are fitted behind
each of them; the shortest way that explains all samples wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, combinations, permutations
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.core.parameters import EPSILON, Array, is_float, is_numeric
from align.data.resized_pictures import (
    DataCause,
    agree,
    channel_axis,
    channel_likeness,
    confirmed,
    dtype_name,
    explain_resizing,
    fitted_lines,
    grey_levels,
    likeness,
    name_scaling,
    same_sample,
    spatial_axes,
)
from align.data.thresholds import (
    LEAST_LIKENESS,
    MOST_CHANNELS,
    MOST_EXPLAINED_SAMPLES,
    MOST_GREY_LEVELS,
    SAME_VALUE_ROUNDING,
    SMALLEST_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Facts = dict[str, Any]


MOST_TURNED_AXES = 4  # format: those of a video
LEAST_COLOURS = 3  # format: red, green and blue
LEAST_POINTS = 3  # format: two points lie on a line, whatever they are
GREY_ROOM = 0.05  # format: float32 keeps a grey level of normalised values to a hundredth
LEAST_MEAN_LEVEL = 0.1  # format: rounding to levels leaves a quarter of one in the mean


@dataclass(frozen=True, slots=True)
class Change:
    """A way from the candidate's values to the reference's: the causes that it stands for, and what it does."""

    causes: tuple[DataCause, ...] = ()
    apply: Callable[[Array], Array] = field(default=lambda values: values)


def explain_values(
    reference: Sequence[Array], candidate: Sequence[Array], raw: Sequence[Array | None] | None = None
) -> tuple[DataCause, ...]:
    """Name the causes of one field's differences; () where the values agree.

    A cause that nothing confirms is "values" (other values), or a suspicion with `confirmed` False. `raw` are the same
    samples before any change, if somebody has them; they tell methods of resizing apart.
    """
    if any(not is_numeric(value.dtype.name) for value in (*reference, *candidate)):
        return _explain_words(reference, candidate)
    names = {"reference": reference[0].dtype.name, "candidate": candidate[0].dtype.name}
    dtypes = () if reference[0].dtype == candidate[0].dtype else (confirmed("dtype", **names),)
    pairs = [*zip(reference, candidate, strict=True)]
    if all(same_sample(one, two) for one, two in pairs):
        return dtypes
    places = _unlike_first(pairs)
    chosen = [pairs[place] for place in places]
    stacked = _stacked(chosen)
    if stacked is None:
        return dtypes + (_explain_ragged(chosen) or (_other_values(pairs),))
    for explain in (_explain_at_place, _explain_own_places, _explain_shifts, _explain_channels):
        if causes := explain(*stacked):
            return dtypes + causes
    before = None if raw is None else [raw[place] for place in places]
    return dtypes + (explain_resizing(*stacked, before) or (_other_values(pairs),))


def _explain_words(reference: Sequence[Array], candidate: Sequence[Array]) -> tuple[DataCause, ...]:
    """Other words, or numbers of which one side makes words."""
    pairs = [*zip(reference, candidate, strict=True)]
    unlike = sum(not np.array_equal(one, two) for one, two in pairs)
    if unlike and all(np.array_equal(one.astype(str), two.astype(str)) for one, two in pairs):
        names = [dtype_name(part[0]) for part in (reference, candidate)]
        return (confirmed("dtype", reference=names[0], candidate=names[1]),)
    return (DataCause("other-words", {"count": unlike, "total": len(pairs)}),) if unlike else ()


def _unlike_first(pairs: list[tuple[Array, Array]]) -> list[int]:
    """The places of some of the pairs, those that differ first: a rare change shows in few.

    They are spread over all pairs, so that a cause of the first ones alone does not pass for the cause of all.
    """
    alike = [same_sample(reference, candidate) for reference, candidate in pairs]
    unlike, rest = ([place for place, same in enumerate(alike) if same is wanted] for wanted in (False, True))
    unlike = _spread(unlike, 3 * MOST_EXPLAINED_SAMPLES // 4)
    return unlike + _spread(rest, MOST_EXPLAINED_SAMPLES - len(unlike))


def _spread(places: list[int], most: int) -> list[int]:
    """At most so many, from the first to the last, in equal steps."""
    if len(places) <= most:
        return places
    return [places[int(step)] for step in np.linspace(0, len(places) - 1, most)]


def _stacked(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array] | None:
    if any(len({pair[side].shape for pair in pairs}) > 1 for side in (0, 1)):
        return None
    reference, candidate = (np.stack([pair[side] for pair in pairs]) for side in (0, 1))
    return reference, candidate


def _other_values(pairs: list[tuple[Array, Array]]) -> DataCause:
    unlike = sum(not same_sample(sample, other) for sample, other in pairs)
    shapes = {"reference": str([*pairs[0][0].shape]), "candidate": str([*pairs[0][1].shape])}
    if pairs[0][0].shape != pairs[0][1].shape:
        return DataCause("shape", shapes, confirmed=False)
    gaps = [np.abs(sample.astype(np.float64) - other) for sample, other in pairs if sample.shape == other.shape]
    gap = max(float(np.max(part, initial=0, where=np.isfinite(part))) for part in gaps)
    return DataCause("values", {"count": unlike, "total": len(pairs), "largest": gap}, confirmed=False)


# Changes of place that are the same for all samples: layout, channels, flips.


def _explain_at_place(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    for place in _likely_places(reference, candidate):
        if (causes := _explain_scaling(reference, place.apply(candidate))) is not None and (place.causes or causes):
            return place.causes + causes
    return ()


def _likely_places(reference: Array, candidate: Array) -> list[Change]:
    """Changes of place after which both sides are alike, the shorter and the more alike first."""
    scored: list[tuple[int, float, int, Change]] = []
    for place in _places(reference.shape[1:], candidate.shape[1:]):
        for change, score in _in_channel_orders(place, reference, place.apply(candidate)):
            if score > LEAST_LIKENESS or not change.causes:
                scored.append((len(change.causes), -round(score, 3), len(scored), change))
    return [row[-1] for row in sorted(scored, key=lambda row: row[:3])]


def _places(wanted: tuple[int, ...], given: tuple[int, ...]) -> Iterator[Change]:
    """Orders of the axes, each with its flips."""
    if len(wanted) != len(given):
        squeezed = tuple(length for length in given if length != 1)
        if squeezed == tuple(length for length in wanted if length != 1):
            facts = {"reference": str([*wanted]), "candidate": str([*given])}
            yield Change((confirmed("shape", **facts),), lambda x: x.reshape(len(x), *wanted))
        return
    rank = len(given)
    for axes in permutations(range(rank)) if rank <= MOST_TURNED_AXES else [tuple(range(rank))]:
        if tuple(given[axis] for axis in axes) != wanted:
            continue
        spatial = spatial_axes(wanted) if rank > 1 else []
        for flipped in chain.from_iterable(combinations(spatial, count) for count in range(len(spatial) + 1)):
            yield _place(axes, flipped, wanted)


def _place(axes: tuple[int, ...], flipped: tuple[int, ...], wanted: tuple[int, ...]) -> Change:
    causes: list[DataCause] = []
    if axes != tuple(range(len(axes))):
        causes.append(confirmed("layout", axes=str([*axes]), **_layouts(axes, wanted)))
    if flipped:
        names = ["horizontal" if axis == spatial_axes(wanted)[-1] else "vertical" for axis in flipped]
        causes.append(confirmed("flip", axis=" and ".join(names)))

    def apply(values: Array) -> Array:
        moved = values.transpose(0, *(axis + 1 for axis in axes))
        return np.flip(moved, tuple(axis + 1 for axis in flipped)) if flipped else moved

    return Change(tuple(causes), apply)


def _layouts(axes: tuple[int, ...], wanted: tuple[int, ...]) -> Facts:
    """The layouts of both sides by their usual letters (NCHW without N), "" where the channels' axis is not known."""
    channel = channel_axis(wanted)
    if channel is None:
        return {"reference": "", "candidate": ""}
    letters = [*"THW"[-len(wanted) + 1 :]]
    letters.insert(channel, "C")
    return {"reference": "".join(letters), "candidate": "".join(letters[axes.index(axis)] for axis in range(len(axes)))}


def _in_channel_orders(place: Change, reference: Array, moved: Array) -> Iterator[tuple[Change, float]]:
    """The change with each order of the channels behind it, and how alike the samples then are."""
    yield place, likeness(reference, moved)
    channel = channel_axis(moved.shape[1:])
    if channel is None or moved.shape[channel + 1] < LEAST_COLOURS:
        return
    likenesses = channel_likeness(reference, moved, channel)
    moving = likenesses.any(1)
    for order in [*permutations(range(len(likenesses)))][1:] if moving.any() else ():
        yield _reordered(place, order, channel), float(likenesses[np.arange(len(likenesses)), order][moving].mean())


def _reordered(place: Change, order: tuple[int, ...], channel: int) -> Change:
    """The change with the channels in another order: `order` has the candidate's place of each of the reference's."""
    letters = {
        "reference": "RGBA"[: len(order)],
        "candidate": "".join("RGBA"[order.index(k)] for k in range(len(order))),
    }
    causes = (*place.causes, confirmed("channel-order", **letters))
    return Change(causes, lambda values: np.take(place.apply(values), order, channel + 1))


# Changes of value: scale and offset of all, of each channel or column, a function, rounding, clipping, fillings.


def _explain_scaling(reference: Array, candidate: Array) -> tuple[DataCause, ...] | None:
    """The causes that turn `two` into `one`; None if no change of value does, () if they agree."""
    if agree(reference, candidate):
        return ()
    for fit in (_scaled, _scaled_but_filling, _rounded, _clipped, _missing, _computed, _grey_levels):
        if causes := fit(reference, candidate):
            return causes
    return None


def _scaled(reference: Array, candidate: Array, chosen: Array | None = None) -> tuple[DataCause, ...]:
    """One scale and offset for all values, else one for each channel or column; `chosen` are those that count."""
    mask = np.ones(reference.shape, bool) if chosen is None else chosen
    channel = channel_axis(reference.shape[1:])
    axes: list[int | None] = [None]
    if channel is not None:
        axes.append(channel + 1)
    elif reference.ndim == 2 and len(reference) >= 4:
        axes.append(1)
    if len(np.unique(candidate[mask])) < LEAST_POINTS:
        axes = axes[1:]
    for axis in axes:
        scales, offsets = fitted_lines(reference, candidate, mask, axis)
        shape = [-1 if place == axis else 1 for place in range(reference.ndim)]
        fitted = candidate.astype(np.float64) * scales.reshape(shape) + offsets.reshape(shape)
        if (
            np.isfinite(scales).all()
            and (scales != 0).any()
            and _same_where(reference, fitted, mask, candidate, scales)
        ):
            per = "all" if axis is None else "column" if channel is None else "channel"
            return (name_scaling(scales, offsets, candidate, per=per),)
    return ()


def _same_where(reference: Array, fitted: Array, mask: Array, candidate: Array, scales: Array) -> bool:
    """Whether the values agree within rounding of either side, as it looks on the reference's scale."""
    given = [part for part in (reference, candidate) if is_float(part.dtype.name)]
    epsilon = max((EPSILON[part.dtype.name] for part in given), default=EPSILON["float64"])
    y = reference.astype(np.float64)
    finite = np.isfinite(y) & np.isfinite(fitted) & mask
    reach = max(np.abs(y[finite]).max(initial=0), np.abs(scales).max() * _largest(candidate, finite))
    near = np.abs(y - fitted)[finite] <= SAME_VALUE_ROUNDING * epsilon * reach
    return bool(finite.any() and near.all() and (np.isfinite(y) == np.isfinite(fitted))[mask].all())


def _largest(values: Array, mask: Array) -> float:
    return float(np.abs(values.astype(np.float64)[mask]).max(initial=0))


def _scaled_but_filling(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """The same places hold one filling value on each side (padding); the rest agrees, or differs by scale."""
    channel = channel_axis(reference.shape[1:])
    if reference.ndim != 3 + (channel is not None):
        return ()
    fillings = [_rim_values(part, channel) for part in (reference, candidate)]
    masks = [part == filling for part, filling in zip((reference, candidate), fillings, strict=True)]
    axis = None if channel is None else channel + 1
    rest = ~(masks[0] & masks[1])
    if axis is not None:
        rest = ~(masks[0] & masks[1]).all(axis, keepdims=True) & np.ones(reference.shape, bool)
    if rest.all() or not rest.any() or agree(reference[~rest], candidate[~rest]):
        return ()
    causes = () if agree(reference[rest], candidate[rest]) else _scaled(reference, candidate, rest)
    if not causes and not agree(reference[rest], candidate[rest]):
        return ()
    facts = {"reference": _few(fillings[0]), "candidate": _few(fillings[1])}
    return (*causes, confirmed("padding-value", **facts))


def _rim_values(values: Array, channel: int | None) -> Array:
    """The value at the last corner of most samples, of each channel."""
    moved = values if channel is None else np.moveaxis(values, channel + 1, -1)
    corners = np.concatenate([moved[:, 0, 0], moved[:, 0, -1], moved[:, -1, 0], moved[:, -1, -1]])
    corner_values, counts = np.unique(corners.reshape(len(corners), -1), axis=0, return_counts=True)
    rim = corner_values[counts.argmax()]
    wide: Array = rim.reshape(
        [-1 if channel is not None and place == channel + 1 else 1 for place in range(values.ndim)]
    )
    return wide


def _few(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values.reshape(-1)[:MOST_CHANNELS].astype(np.float64))


def _rounded(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """One side is the other, rounded to a coarser dtype or to whole numbers, and kept in its own."""
    for side, wide, coarse in (("candidate", reference, candidate), ("reference", candidate, reference)):
        for name, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
            with np.errstate(over="ignore"):
                if agree(wide.astype(kind).astype(np.float64), coarse.astype(np.float64), 1):
                    return (confirmed("rounding", side=side, dtype=name),)
        if not np.ptp(coarse.astype(np.float64)):
            continue  # one value alone is rounded from anything
        for how, function in (("round", np.round), ("floor", np.floor), ("trunc", np.trunc)):
            if agree(function(wide.astype(np.float64)), coarse.astype(np.float64), 1):
                return (confirmed("rounding", side=side, dtype=how),)
    return ()


def _clipped(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """One side is the other, cut at its own least and largest value."""
    for side, wide, cut in (("candidate", reference, candidate), ("reference", candidate, reference)):
        values = cut.astype(np.float64)
        if not np.isfinite(values).all():
            continue
        least, most = float(values.min()), float(values.max())
        if least < most and agree(np.clip(wide.astype(np.float64), least, most).astype(wide.dtype), cut):
            return (confirmed("clip", side=side, least=least, most=most),)
    return ()


def _missing(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """One side has numbers where the other has none; everything else agrees."""
    for side, full, holes in (("candidate", candidate, reference), ("reference", reference, candidate)):
        empty = np.isnan(holes.astype(np.float64))
        if not empty.any() or np.isnan(full.astype(np.float64)).any():
            continue
        filling = full[empty]
        if agree(holes[~empty], full[~empty]):
            facts = {"side": side, "count": int(empty.sum()), "value": _few(np.unique(filling))}
            return (confirmed("missing-values", **facts),)
    return ()


PLAIN = 1e-5  # format: a scale so near to 1, an offset so near to 0 goes unsaid
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "log(1 + x)": np.log1p,
    "log(x)": np.log,
    "log10(x)": np.log10,
    "sqrt(x)": np.sqrt,
    "x ^ 2": np.square,
    "x ^ 2.2": lambda x: x**2.2,
    "x ^ (1 / 2.2)": lambda x: x ** (1 / 2.2),
    "tanh(x)": np.tanh,
    "sigmoid(x)": lambda x: 1 / (1 + np.exp(-x)),
    "abs(x)": np.abs,
    "exp(x)": np.exp,
}


def _computed(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """One side is a function of the other, value by value, then scaled."""
    if (
        not any(is_float(part.dtype.name) for part in (reference, candidate))
        or len(np.unique(candidate)) <= LEAST_POINTS
    ):
        return ()
    for name, function in _FUNCTIONS.items():
        for side, values, result in (("candidate", reference, candidate), ("reference", candidate, reference)):
            with np.errstate(all="ignore"):
                wide = function(values.astype(np.float64))
            if not np.isfinite(wide).all() or not np.ptp(wide):
                continue
            scales, offsets = fitted_lines(result, wide, np.ones(reference.shape, bool), None)
            fitted = wide * scales[0] + offsets[0]
            if _same_where(result, fitted, np.ones(reference.shape, bool), wide, scales) and scales[0] != 0:
                reach = np.abs(wide * scales[0]).max()
                plain = abs(scales[0] - 1) < PLAIN and abs(offsets[0]) < PLAIN * reach
                line = "" if plain else f"x {scales[0]:.4g} + {offsets[0]:.4g}"
                return (confirmed("function", side=side, function=name, line=line),)
    return ()


def _grey_levels(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """Pictures that differ by a few grey levels, here and there: two decoders, or two ways to round."""
    if reference.ndim < 3:
        return ()
    level = grey_levels(reference)
    if not level.all():
        return ()
    steps = np.abs(reference.astype(np.float64) - candidate.astype(np.float64)) / level
    halves = steps * 2  # what few pictures show may be every second level
    is_whole = bool((np.abs(halves - np.round(halves)) <= 2 * GREY_ROOM).all()) and steps.max() > 0.5 - GREY_ROOM
    if not steps.max() <= MOST_GREY_LEVELS * 1.01 or not (is_whole or steps.mean() > LEAST_MEAN_LEVEL):
        return ()
    facts = {"levels": float(steps.max()), "share": float((steps > 0.5 - GREY_ROOM).mean())}
    return (DataCause("grey-levels", facts, confirmed=is_whole),)


# Changes that each sample has for itself (flipped or not): a random augmentation, which one side has.


def _explain_own_places(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    places = [
        place for place in _places(reference.shape[1:], candidate.shape[1:]) if {c.id for c in place.causes} <= {"flip"}
    ]
    if len(places) < 2 or len(reference) < 4:
        return ()
    singles = [slice(k, k + 1) for k in range(len(reference))]
    scores = np.array([[likeness(reference[k], place.apply(candidate[k])) for k in singles] for place in places])
    chosen = scores.argmax(0)
    if len(set(chosen)) == 1 or (scores.max(0) > LEAST_LIKENESS).mean() < SMALLEST_SHARE:
        return ()
    moved = np.concatenate([places[place].apply(candidate[k : k + 1]) for k, place in enumerate(chosen)])
    scaling = _explain_scaling(reference, moved)
    if scaling is None:
        return ()
    axes = sorted({places[place].causes[0].facts["axis"] for place in chosen if places[place].causes})
    facts = {
        "axis": " and ".join(axes),
        "count": int(sum(bool(places[p].causes) for p in chosen)),
        "total": len(reference),
    }
    return (confirmed("random-flip", **facts), *scaling)


# Windows of the same picture: another offset, another size, padding around it.


def _explain_shifts(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    if reference.ndim not in (3, 4) or reference.ndim != candidate.ndim:
        return ()
    for place in _moves(reference, candidate):
        moved = place.apply(candidate)
        if causes := _explain_windows(reference, moved):
            return place.causes + causes
    return ()


def _moves(reference: Array, candidate: Array) -> Iterator[Change]:
    """The picture as it is, in another layout, with its channels turned, flipped."""
    wanted, given = channel_axis(reference.shape[1:]), channel_axis(candidate.shape[1:])
    axes = tuple(range(candidate.ndim - 1))
    if None not in (wanted, given) and wanted != given:
        axes = (2, 0, 1) if wanted == 0 else (1, 2, 0)
    shape = tuple(candidate.shape[axis + 1] for axis in axes)
    channel = channel_axis(shape)
    for flipped in ((), (spatial_axes(shape)[-1],)):
        place = _place(axes, flipped, shape)
        yield place
        if channel is not None and shape[channel] >= LEAST_COLOURS:
            yield _reordered(place, (2, 1, 0, *range(3, shape[channel])), channel)


def _explain_windows(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    channel = channel_axis(reference.shape[1:])
    grey = [part.astype(np.float64) if channel is None else part.astype(np.float64).mean(channel + 1)
            for part in (reference, candidate)]  # fmt: skip
    if grey[0].ndim != 3 or (channel is not None and reference.shape[channel + 1] != candidate.shape[channel + 1]):
        return ()
    shifts = [found_shift(a, b) for a, b in zip(*grey, strict=True)]
    if all(shift == (0, 0) for shift in shifts) and reference.shape == candidate.shape:
        return ()
    windows = [_overlap(reference[k], candidate[k], shift) for k, shift in enumerate(shifts)]
    if min(a.size for a, _ in windows) < reference[0].size // 8:
        return ()
    distinct = sorted(set(shifts))
    if len(distinct) == 1:
        a, b = (np.stack([window[side] for window in windows]) for side in (0, 1))
        scaling = _explain_scaling(a, b)
        return () if scaling is None else (_window_cause(reference, candidate, distinct[0]), *scaling)
    unlike = [
        place
        for place in range(len(reference))
        if reference.shape != candidate.shape or not agree(reference[place], candidate[place])
    ]
    agreeing_share = np.mean([agree(*windows[place]) for place in unlike])
    if agreeing_share < SMALLEST_SHARE:
        return ()
    facts = {"count": len(distinct), "total": len(reference), "share": float(agreeing_share)}
    return (confirmed("random-crop", **facts),)


def found_shift(picture: Array, other: Array) -> tuple[int, int]:
    """By how much `two` (h, w) is to be moved down and right to lie on `one`: the peak of their correlation.

    Each overlap is normalised by its own number of pixels and energies, so that small overlaps do not win.
    """
    size = [a + b for a, b in zip(picture.shape, other.shape, strict=True)]

    def sums(left: Array, right: Array) -> Array:
        product = np.fft.rfft2(left, size) * np.conj(np.fft.rfft2(right, size))
        sums_of_shifts: Array = np.fft.irfft2(product, size)
        return sums_of_shifts

    a, b = picture - picture.mean(), other - other.mean()
    ones = [np.ones(picture.shape), np.ones(other.shape)]
    count = np.maximum(sums(*ones), 0.5)
    means = sums(a, ones[1]) / count, sums(ones[0], b) / count
    cross = sums(a, b) / count - means[0] * means[1]
    energy = [sums(a * a, ones[1]) / count - means[0] ** 2, sums(ones[0], b * b) / count - means[1] ** 2]
    floor = [max(float(np.mean(part)), 0) * 1e-3 for part in (a * a, b * b)]
    score = cross / np.sqrt(np.maximum(energy[0], floor[0] + 1e-30) * np.maximum(energy[1], floor[1] + 1e-30))
    score[count < min(picture.size, other.size) / 4] = -1
    down, right = np.unravel_index(int(score.argmax()), score.shape)
    return (int(down - size[0] if down > picture.shape[0] - 1 else down),
            int(right - size[1] if right > picture.shape[1] - 1 else right))  # fmt: skip


def _overlap(sample: Array, other: Array, shift: tuple[int, int]) -> tuple[Array, Array]:
    """The parts of both samples that lie on each other when `two` is moved by `shift`."""
    spatial = spatial_axes(sample.shape)
    cuts: list[list[slice]] = [[slice(None)] * sample.ndim, [slice(None)] * sample.ndim]
    for axis, move in zip(spatial, shift, strict=True):
        begin, end = max(0, move), min(sample.shape[axis], other.shape[axis] + move)
        cuts[0][axis], cuts[1][axis] = slice(begin, end), slice(begin - move, end - move)
    return sample[tuple(cuts[0])], other[tuple(cuts[1])]


def _window_cause(reference: Array, candidate: Array, shift: tuple[int, int]) -> DataCause:
    """A crop at another place or of another size; padding where the larger side has one value around the smaller."""
    spatial = [axis + 1 for axis in spatial_axes(reference.shape[1:])]
    sizes = [tuple(part.shape[axis] for axis in spatial) for part in (reference, candidate)]
    facts: Facts = {"down": shift[0], "right": shift[1]}
    facts |= {"reference": "x".join(map(str, sizes[0])), "candidate": "x".join(map(str, sizes[1]))}
    for side, larger, sign in (("reference", reference, 1), ("candidate", candidate, -1)):
        small = sizes[1] if side == "reference" else sizes[0]
        moved = (sign * shift[0], sign * shift[1])
        lengths = [larger.shape[axis] for axis in spatial]
        reached = [move + own for move, own in zip(moved, small, strict=True)]
        if min(moved) < 0 or any(end > length for end, length in zip(reached, lengths, strict=True)):
            continue
        rim = np.ones(larger.shape, bool)
        cut: list[slice] = [slice(None)] * larger.ndim
        for axis, move, length in zip(spatial, moved, small, strict=True):
            cut[axis] = slice(move, move + length)
        rim[tuple(cut)] = False
        if rim.any() and not np.ptp(larger[rim].astype(np.float64)):
            return confirmed("padding-size", side=side, value=float(larger[rim][0]), **facts)
    return confirmed("crop", **facts)


def _explain_ragged(pairs: list[tuple[Array, Array]]) -> tuple[DataCause, ...]:
    """Samples of unlike shapes: each pair of one shape is explained, and all must have the same causes."""
    groups: dict[tuple[Any, Any], list[tuple[Array, Array]]] = {}
    for reference, candidate in pairs:
        groups.setdefault((reference.shape, candidate.shape), []).append((reference, candidate))
    named: list[tuple[DataCause, ...]] = []
    for group in groups.values():
        stacked = _stacked(group)
        if stacked is None or (stacked[0].shape == stacked[1].shape and agree(*stacked)):
            continue
        named.append(_explain_at_place(*stacked) or _explain_shifts(*stacked))
    if not named or not all(named) or len({tuple(cause.id for cause in causes) for causes in named}) > 1:
        return ()
    return named[0]


# Grey against colour, and columns in another order.

_GREY_WEIGHTS = {
    "ITU-R 601": (0.299, 0.587, 0.114),
    "ITU-R 709": (0.2126, 0.7152, 0.0722),
    "mean": (1 / 3, 1 / 3, 1 / 3),
}


def _explain_channels(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    if reference.ndim == candidate.ndim == 2 and reference.shape == candidate.shape:
        return _explain_columns(reference, candidate)
    for side, colour, grey in (("candidate", reference, candidate), ("reference", candidate, reference)):
        axes = [channel_axis(part.shape[1:]) for part in (colour, grey)]
        if axes[0] is None or colour.shape[axes[0] + 1] < 3:
            continue
        flat = grey.astype(np.float64) if axes[1] is None else np.moveaxis(grey.astype(np.float64), axes[1] + 1, -1)
        if axes[1] is not None and np.ptp(flat, axis=-1).max() > 0:
            continue
        flat = flat if axes[1] is None else flat[..., 0]
        colours = np.moveaxis(colour.astype(np.float64), axes[0] + 1, -1)[..., :3]
        if flat.shape != colours.shape[:-1]:
            continue
        for name, weights in _GREY_WEIGHTS.items():
            mixed = colours @ np.asarray(weights)
            level = max(float(grey_levels(grey).min()), EPSILON["float32"] * SAME_VALUE_ROUNDING * np.abs(mixed).max())
            if np.abs(mixed - flat).max() <= level * 1.01:
                return (confirmed("grayscale", side=side, weights=name),)
    return ()


def _explain_columns(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    from scipy.optimize import linear_sum_assignment

    a, b = (part.astype(np.float64) for part in (reference, candidate))
    if len(a) < 4 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ()
    a, b = (part - part.mean(0) for part in (a, b))
    norms = np.linalg.norm(a, axis=0)[:, None] * np.linalg.norm(b, axis=0)[None]
    likenesses = np.abs(a.T @ b) / np.where(norms > 0, norms, 1)
    # Equal values count for more than equal lines: a scaled twin is not the column itself.
    equal = np.abs(reference.astype(np.float64).T[:, None] - candidate.astype(np.float64).T[None]).max(2) == 0
    order = linear_sum_assignment(-(likenesses + equal))[1]
    if (order == np.arange(len(order))).all():
        return ()
    causes = _explain_scaling(reference, candidate[:, order])
    if causes is None:
        return ()
    moved = [int(place) for place in np.flatnonzero(order != np.arange(len(order)))]
    return (confirmed("column-order", columns=str(moved[:8]), count=len(moved)), *causes)
