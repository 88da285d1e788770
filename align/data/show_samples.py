"""Which sample of one side is which of the other, and the first that differ beside each other.

Rows of tokens are aligned by equal ids, so that one more at the beginning does not part all that follow; where few are
equal, as with another vocabulary, each stands beside the one at its own place.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.align_sequences import align_alike
from align.core.parameters import is_numeric
from align.data.explain_tokens import IGNORED
from align.data.resized_pictures import ShownSample, TokenPair, channel_axis, same_sample
from align.data.thresholds import (
    CLEAR_NEIGHBOUR,
    LEAST_ALIKE_SHARE,
    LEAST_FOUND_SHARE,
    LEAST_OWN_LIKENESS,
    MOST_ALIGNED_TOKENS,
    MOST_CURVE_POINTS,
    MOST_MATCHED_SAMPLES,
    MOST_SHOWN_SAMPLES,
    MOST_SHOWN_TOKENS,
    MOST_SHOWN_VALUES,
    MOST_TABLE_COLUMNS,
    PLACE_SHARE,
    SAME_PRINT_TOLERANCE,
    SHOWN_PICTURE_SIDE,
    TOKENS_AROUND,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.data.read_pipeline import Pipeline, Reading

    Indexes = NDArray[np.int64]


def shown_samples(
    sides: Sequence[Pipeline],
    readings: Sequence[Reading],
    fields: Mapping[str, str],
    pairs: Sequence[tuple[int, int]],
) -> tuple[ShownSample, ...]:
    """The first few pairs of each field, those that differ first; `pairs` are numbers of samples that are kept."""
    shown: list[ShownSample] = []
    has_words: set[int] = set()  # ids of the first field of tokens: in others, such as masks, numbers are no words
    for name, other in fields.items():
        column = [(pair, readings[0].kept[name][pair[0]], readings[1].kept[other][pair[1]]) for pair in pairs]
        column.sort(key=lambda row: same_sample(row[1], row[2]))
        ids = {int(token) for _, *row in column[:MOST_SHOWN_SAMPLES] for part in row if _is_row(part) for token in part}
        has_words = has_words or ids
        known = sides if max(ids, default=0) > 1 and ids - {IGNORED} <= has_words else ()
        shown += [_sample(name, *row, known) for row in column[:MOST_SHOWN_SAMPLES]]
    return tuple(shown)


def _is_row(value: Array) -> bool:
    return value.ndim == 1 and value.dtype.kind in "iu"


def _sample(
    name: str, index: tuple[int, int], reference: Array, candidate: Array, sides: Sequence[Pipeline]
) -> ShownSample:
    pictures = [_picture(part) for part in (reference, candidate)]
    if pictures[0] is not None and pictures[1] is not None:
        span = [(float(np.nanmin(part)), float(np.nanmax(part))) for part in pictures if part is not None]
        parts = [_as_bytes(part, *of) for part, of in zip(pictures, span, strict=True) if part is not None]
        gap = np.abs(pictures[0] - pictures[1]) if pictures[0].shape == pictures[1].shape else None
        apart = _as_bytes(gap, 0.0, float(gap.max()) or 1.0) if gap is not None else None
        size = parts[0].shape[0], parts[0].shape[1]
        texts = [base64.b64encode(part.tobytes()).decode() for part in parts]
        gap_text = "" if apart is None else base64.b64encode(apart.tobytes()).decode()
        return ShownSample(name, index, size, texts[0], texts[1], gap_text, _span(reference), _span(candidate))
    spans = _span(reference), _span(candidate)
    curves = _curve(reference), _curve(candidate)
    tokens = (
        _tokens(reference, candidate, sides)
        if _is_row(reference) and _is_row(candidate) and not same_sample(reference, candidate)
        else ()
    )
    values = _values(reference), _values(candidate), _first_gap(reference, candidate)
    return ShownSample(name, index, (0, 0), *values, *spans, curves=curves, tokens=tokens)


def _tokens(reference: Array, candidate: Array, sides: Sequence[Pipeline]) -> tuple[TokenPair, ...]:
    """Both rows, aligned: the tokens that differ with some equal ones around each."""
    rows = [part[:MOST_ALIGNED_TOKENS].tolist() for part in (reference, candidate)]
    places = _aligned(*rows)
    differ = [None in pair or rows[0][pair[0]] != rows[1][pair[1]] for pair in places]
    near = [any(differ[max(k - TOKENS_AROUND, 0) : k + TOKENS_AROUND + 1]) for k in range(len(places))]
    pairs: list[TokenPair] = []
    skipped = 0
    for pair, is_near in zip(places, near, strict=True):
        if not is_near or len(pairs) == MOST_SHOWN_TOKENS:
            skipped += 1
            continue
        ids = tuple(None if place is None else row[place] for row, place in zip(rows, pair, strict=True))
        orders = sides, sides[::-1]  # a side without a tokenizer has the words of the other one
        texts = [
            next((word for side in order if (word := side.word(token))), "")
            for token, order in zip(ids, orders, strict=True)
        ]
        pairs.append(TokenPair(pair, (ids[0], ids[1]), (texts[0], texts[1]), skipped))
        skipped = 0
    return (*pairs, TokenPair((None, None), (None, None), skipped=skipped)) if skipped else tuple(pairs)


def _aligned(reference: list[int], other: list[int]) -> list[tuple[int | None, int | None]]:
    """The places of both rows beside each other, None where a row has no counterpart."""
    holders: dict[int, int] = {}
    for place, token in enumerate(other):
        holders[token] = holders.get(token, 0) | 1 << place
    equal = align_alike(len(reference), len(other), lambda row: holders.get(reference[row], 0))
    at_place = sum(a == b for a, b in zip(reference, other, strict=False))
    if 2 * len(equal) < min(len(reference), len(other)) or at_place == len(equal):
        equal = []
    places: list[tuple[int | None, int | None]] = []
    begin = (0, 0)
    for end in (*equal, (len(reference), len(other))):
        between = zip_longest(range(begin[0], end[0]), range(begin[1], end[1]))
        places += [*between, end]
        begin = end[0] + 1, end[1] + 1
    return places[:-1]


def _curve(value: Array) -> tuple[float, ...]:
    """A long row of floats, thinned evenly; () for anything else, and where a value is not finite."""
    is_row = value.ndim == 1 and value.size > MOST_SHOWN_VALUES and value.dtype.kind == "f"
    if not is_row or not np.isfinite(value).all():
        return ()
    places = np.linspace(0, value.size - 1, min(value.size, MOST_CURVE_POINTS)).astype(int)
    return tuple(float(reference) for reference in value[places])


def _picture(value: Array) -> Array | None:
    """(side, side, 3) as float64, coarsened to a small square; None for what is no picture."""
    channel = channel_axis(value.shape)
    if not value.size or not is_numeric(value.dtype.name):
        return None
    if value.ndim == 3 and channel is not None:
        moved = np.moveaxis(value.astype(np.float64), channel, -1)
    elif value.ndim == 2 and min(value.shape) > MOST_TABLE_COLUMNS:
        moved = value.astype(np.float64)[..., None]
    else:
        return None
    colours = np.repeat(moved[..., :1], 3, -1) if moved.shape[-1] < 3 else moved[..., :3]
    rows, columns = (
        np.linspace(0, length - 1, min(length, SHOWN_PICTURE_SIDE)).astype(int) for length in colours.shape[:2]
    )
    chosen: Array = np.nan_to_num(colours[rows][:, columns])
    return chosen


def _as_bytes(picture: Array, least: float, most: float) -> Array:
    scaled = (picture - least) / ((most - least) or 1.0) * 255
    made: Array = np.clip(scaled, 0, 255).astype(np.uint8)
    return made


def _values(value: Array) -> str:
    flat = value.reshape(-1)
    words = [str(part) if value.dtype.kind in "iubU" else f"{float(part):.4g}" for part in flat[:MOST_SHOWN_VALUES]]
    return ", ".join(words) + (", ..." if flat.size > MOST_SHOWN_VALUES else "")


def _first_gap(reference: Array, candidate: Array) -> str:
    if reference.shape != candidate.shape or "U" in (reference.dtype.kind, candidate.dtype.kind):
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        return _values(candidate.astype(np.float64) - reference.astype(np.float64))


def _span(value: Array) -> str:
    if not value.size or value.dtype.kind in "US":
        return ""
    wide = value.astype(np.float64)
    return f"{np.nanmin(wide):.4g} .. {np.nanmax(wide):.4g}" if np.isfinite(wide).any() else "NaN"


# Which sample of one side is which of the other: by place, by equal values, or by features that outlast a change.


By = Literal["place", "values", "features"]


@dataclass(frozen=True, slots=True)
class PairedSamples:
    """`pairs` (n, 2) are numbers of samples, reference and candidate, in the order of the reference.

    `by` says what they rest on. `equal` has for each pair of fields, by the reference's name, which pairs are equal.
    """

    pairs: Indexes
    by: By
    equal: dict[str, NDArray[np.bool_]]

    @property
    def in_order(self) -> bool:
        """Whether each sample has the same number on both sides."""
        return bool((self.pairs[:, 0] == self.pairs[:, 1]).all())

    @property
    def keeps_order(self) -> bool:
        """Whether the samples follow each other alike on both sides, whatever is missing between them."""
        return bool((np.diff(self.pairs[:, 1]) > 0).all())


def pair_fields(reference: Sequence[str], candidate: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Fields of both sides as pairs: by name, and those without a namesake by position; whether all are by name.

    Where the shorter side has names alone that the other has too, all are paired by name.
    """
    common = [name for name in min(reference, candidate, key=len) if name in reference and name in candidate]
    rest = [[name for name in names if name not in common] for names in (reference, candidate)]
    if not all(rest):
        return {name: name for name in common}, True
    paired = dict(zip(common, common, strict=True)) | dict(zip(*rest, strict=False))
    return {name: paired[name] for name in reference if name in paired}, False


@np.errstate(over="ignore", invalid="ignore")
def pair_samples(reference: Reading, candidate: Reading, fields: Mapping[str, str]) -> PairedSamples | None:
    """Pair the samples; None where neither place, nor values, nor features tell which is which."""
    prints = {name: (reference.prints[name], candidate.prints[other]) for name, other in fields.items()}
    common = min(reference.samples, candidate.samples)
    places = _same_places(common)
    joined = {name: (one.joined(), two.joined()) for name, (one, two) in prints.items()}
    equal = {name: _equal(*joined[name], places) for name in fields}
    sizes = {name: [value.size for value in reference.kept[name][:1] + candidate.kept[other][:1]]
             for name, other in fields.items()}  # fmt: skip
    content = max(fields, key=lambda name: min(sizes[name], default=0))  # the field with the most values
    if all(same.all() for same in equal.values()) or equal[content].mean() > PLACE_SHARE:
        return PairedSamples(places, "place", equal)
    pairs, by = _by_values(*joined[content], floats=any(side.has_floats for side in prints[content])), "values"
    at_place = any(_equal_at_place(*joined[name], equal[name]) for name in fields if name != content)
    if pairs is None and (at_place or _alike_at_place(reference.kept[content], candidate.kept[fields[content]])):
        return PairedSamples(places, "place", equal)
    if pairs is None:
        pairs, by = _by_features(joined[content][0][2], joined[content][1][2], common), "features"
    if pairs is None:
        return None
    if (pairs[:, 0] == pairs[:, 1]).mean() > PLACE_SHARE:
        pairs, by = places, "place"
    return PairedSamples(pairs, by, {name: _equal(*joined[name], pairs) for name in fields})  # type: ignore[arg-type]


def _equal_at_place(rows: Joined, others: Joined, equal: NDArray[np.bool_]) -> bool:
    """Whether a field agrees at its place, and would not if it stood one place further on."""
    count = len(equal)
    if count < 4:
        return False
    beside = np.stack([np.arange(count), np.roll(np.arange(count), 1)], 1)
    return bool(equal.mean() > _equal(rows, others, beside).mean() + LEAST_OWN_LIKENESS)


@np.errstate(over="ignore", invalid="ignore")
def at_same_place(before: Reading, again: Reading) -> tuple[bool, bool]:
    """Whether two readings of one side begin with equal samples, and with the same samples at the same places."""
    same, at_place = True, False
    count = min(before.samples, again.samples)
    places = _same_places(count)
    for name, prints in again.prints.items():
        first, second = before.prints[name].joined(), prints.joined()
        equal = _equal(first, second, places)
        same &= bool(equal.all())
        at_place |= _equal_at_place(first, second, equal) or _alike_at_place(
            before.kept[name][:count], again.kept[name]
        )
        width = min(first[2].shape[1], second[2].shape[1])
        at_place |= nearly_same_place(first[2][:count, :width], second[2][:count, :width])
    return same, at_place


@np.errstate(over="ignore", invalid="ignore")
def is_repeated(whole: Reading, period: int, steady: Collection[str]) -> bool:
    """Whether a side's samples are the first `period` of them again and again; the last time may be cut short.

    Each time has the order of the first one in the fields that are `steady`, or else all samples in any order.
    """
    numbers = np.arange(whole.samples)
    pairs = np.stack([numbers, numbers % period], 1)
    joined = [whole.prints[name].joined() for name in steady]
    if joined and all(_equal(rows, rows, pairs).all() for rows in joined):
        return True
    if len(joined) < len(whole.prints):
        return False
    first, fields = whole.part(0, period), {name: name for name in whole.prints}
    for start in range(period, whole.samples, period):
        rest = whole.part(start, start + period)
        paired = pair_samples(first, rest, fields)
        if paired is None or len(paired.pairs) < rest.samples or not all(same.all() for same in paired.equal.values()):
            return False
    return True


Joined = tuple[Any, Any, Any]


def _equal(rows: Joined, others: Joined, pairs: Indexes) -> NDArray[np.bool_]:
    """Which pairs have equal figures up to rounding, and equal checksums where both have one."""
    a, b = rows[0][pairs[:, 0]].astype(np.float64), others[0][pairs[:, 1]].astype(np.float64)
    room = SAME_PRINT_TOLERANCE * np.maximum(a[:, 0], b[:, 0])
    near = ((np.abs(a - b) <= room[:, None]) | (a == b)).all(1)
    exact = rows[1][pairs[:, 0]], others[1][pairs[:, 1]]
    same: NDArray[np.bool_] = near & ((exact[0] == exact[1]) | (exact[0] == 0) | (exact[1] == 0))
    return same


def _by_values(reference: Joined, candidate: Joined, *, floats: bool) -> Indexes | None:
    """Each sample's equal on the other side, each taken once; None if too few have one."""
    if floats:
        scale = max(float(np.nanmax(reference[0][:, 0], initial=0)), 1e-30)
        # Grids twice, the second shifted by half a step: two figures that rounding parts by a border meet in one.
        keys = [[np.floor(part[0] / (scale * 8 * SAME_PRINT_TOLERANCE) + shift) for part in (reference, candidate)]
                for shift in (0.0, 0.5)]  # fmt: skip
    else:
        keys = [[part[1][:, None] for part in (reference, candidate)]]
    pairs = _joined_once(*keys[0])
    for further in keys[1:]:
        rest = [np.setdiff1d(np.arange(len(key)), pairs[:, side]) for side, key in enumerate(further)]
        more = _joined_once(further[0][rest[0]], further[1][rest[1]])
        pairs = np.concatenate([pairs, np.stack([rest[0][more[:, 0]], rest[1][more[:, 1]]], 1)])
    if len(pairs) < max(1, LEAST_FOUND_SHARE * min(len(reference[0]), len(candidate[0]))):
        return None
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def _joined_once(rows: Any, others: Any) -> Indexes:
    """Rows that are equal, the first with the first and so on, as (n, 2)."""
    _, codes = np.unique(np.concatenate([rows, others]), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    ranked = [_with_rank(part) for part in (codes[: len(rows)], codes[len(rows) :])]
    _, first, second = np.intersect1d(ranked[0], ranked[1], assume_unique=True, return_indices=True)
    pairs: Indexes = np.stack([first, second], 1).astype(np.int64)
    return pairs


def _with_rank(codes: NDArray[Any]) -> NDArray[Any]:
    """Each code with how often it stood before, as one number: equal samples are told apart by their turn."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.r_[0, np.flatnonzero(np.diff(ordered)) + 1]
    rank = np.arange(len(codes)) - np.repeat(begins, np.diff(np.r_[begins, len(codes)]))
    keyed = np.empty(len(codes), np.int64)
    keyed[order] = ordered.astype(np.int64) << 32 | rank
    return keyed


def _by_features(reference: NDArray[Any], candidate: NDArray[Any], common: int) -> Indexes | None:
    """Nearest neighbours that are each other's nearest, and clearly nearer than the next."""
    from scipy.spatial import cKDTree

    width = max(reference.shape[1], candidate.shape[1])
    parts = [np.pad(part[:MOST_MATCHED_SAMPLES], ((0, 0), (0, width - part.shape[1]))).astype(np.float64)
             for part in (reference, candidate)]  # fmt: skip
    parts = [(part - part.mean(0)) / np.where(part.std(0) > 0, part.std(0), 1) for part in parts]
    if not all(np.isfinite(part).all() and len(part) for part in parts):
        return None
    if common and nearly_same_place(parts[0][:common], parts[1][:common]):
        return _same_places(common)
    if min(map(len, parts)) < 2:
        return None
    near: list[tuple[Any, Any]] = [cKDTree(parts[1 - side]).query(parts[side], k=[1, 2]) for side in (0, 1)]
    (distance, nearest), (_, back) = near
    clear = distance[:, 0] < CLEAR_NEIGHBOUR * distance[:, 1]
    mutual = back[nearest[:, 0], 0] == np.arange(len(nearest))
    chosen = np.flatnonzero(clear & mutual)
    if len(chosen) < max(2, LEAST_ALIKE_SHARE * min(map(len, parts))):
        return None
    pairs: Indexes = np.stack([chosen, nearest[chosen, 0]], 1)
    return pairs


def _same_places(count: int) -> Indexes:
    pairs: Indexes = np.stack([np.arange(count)] * 2, 1)
    return pairs


def nearly_same_place(rows: NDArray[Any], others: NDArray[Any]) -> bool:
    """Whether rows of features are clearly nearer to those at their own place than to those beside it."""
    if len(rows) < 2:
        return True
    spread = np.where((deviation := rows.std(0)) > 0, deviation, 1)
    at_place = np.linalg.norm((rows - others) / spread, axis=1)
    beside = np.linalg.norm((rows - np.roll(others, 1, 0)) / spread, axis=1)
    return bool(np.median(at_place) < CLEAR_NEIGHBOUR * np.median(beside))


def _alike_at_place(reference: Sequence[Array], candidate: Sequence[Array]) -> bool:
    """Whether samples of one shape correlate with those at their own place, and not with those beside them."""
    rows = zip(reference, candidate, strict=False)
    pairs = [(_flat(a), _flat(b)) for a, b in rows if a.shape == b.shape and a.size > 2
             and is_numeric(a.dtype.name) and is_numeric(b.dtype.name)]  # fmt: skip
    if len(pairs) < 2:
        return False
    beside = [(a, b) for (a, _), (_, b) in zip(pairs, pairs[-1:] + pairs[:-1], strict=True) if a.size == b.size]
    at_place, other = (float(np.median([_correlation(a, b) for a, b in row] or [0.0])) for row in (pairs, beside))
    return at_place > LEAST_OWN_LIKENESS + max(other, 0.0)


def _flat(value: Array) -> NDArray[Any]:
    return value.astype(np.float64).reshape(-1)


def _about_mean(values: NDArray[Any]) -> NDArray[Any]:
    """Values less their mean, 0 where there is none."""
    finite = np.isfinite(values)
    centred: NDArray[Any] = np.where(finite, values - np.mean(values, where=finite) if finite.any() else 0, 0)
    return centred


def _correlation(values: NDArray[Any], others: NDArray[Any]) -> float:
    a, b = (_about_mean(part) for part in (values, others))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0
