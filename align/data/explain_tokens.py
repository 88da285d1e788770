"""Why tokens, labels, masks, positions and boxes differ: values are followed one by one, boxes from form to form.

As for other values, a cause is named once it was applied to one side and the other came out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, Array, is_float, is_numeric
from align.core.training import LabelClasses
from align.core.verdicts import Finding
from align.data.resized_pictures import DataCause, confirmed
from align.data.thresholds import MOST_MAPPED_VALUES, PICTURE_SIZE_TOLERANCE, SAME_VALUE_ROUNDING
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.data.read_pipeline import Reading

    Boxes = list[Array]

IGNORED = -100  # format: the label that the losses of both frameworks leave out by default
FILLED_ROWS = 0.25  # format: rows of many are filled up, not a few
SEEN_TWICE = 2  # format: what is seen once is no rule


def explain_labels(reference: Sequence[Array], candidate: Sequence[Array]) -> tuple[DataCause, ...]:
    """Name why the labels (whole numbers without an axis, or one-hot rows) of paired samples differ; () if unknown."""
    labels, others = (_stack(part) for part in (reference, candidate))
    if labels is None or others is None:
        return ()
    causes: list[DataCause] = []
    for side, wide, narrow in (("candidate", others, labels), ("reference", labels, others)):
        if wide.ndim != narrow.ndim + 1 or wide.shape[-1] < 2:
            continue
        chosen = wide.argmax(-1)
        smooth = _smoothing(wide, chosen)
        if smooth is not None:
            causes.append(confirmed("one-hot", side=side, classes=int(wide.shape[-1])))
            if smooth:
                causes.append(confirmed("label-smoothing", side=side, smoothing=smooth))
            labels, others = (labels, chosen) if side == "candidate" else (chosen, others)
            break
    if labels.shape != others.shape:
        return ()
    rest = _mapped(labels, others, label=True)
    return () if rest is None else (*causes, *rest)


def find_outside_labels(
    side: str, reading: Reading, names: Sequence[str], classes: int | Sequence[LabelClasses]
) -> Iterator[Finding]:
    """Labels that are no class: of a number a sample in all that was read, of labels with axes in what is kept.

    `classes` is their number for each of the fields `names` with a number a sample, or what losses take.
    """
    numbers = {
        name: prints.joined()[0][:, 1] for name, prints in reading.prints.items() if _are_whole(reading, name, 0)
    }
    limits = classes
    if isinstance(limits, int):
        limits = [LabelClasses(name, 0, limits, IGNORED) for name in names if name in numbers]
    for limit in limits:
        name = limit.field
        if name not in reading.kept and limit.axes == 0 and len(numbers) == 1:
            name = next(iter(numbers))  # a loader that gives tuples names nothing
        if not _are_whole(reading, name, limit.axes):
            continue
        labels = numbers[name] if name in numbers else np.concatenate([row.reshape(-1) for row in reading.kept[name]])
        labels = labels if limit.ignored is None else labels[labels != limit.ignored]
        if outside := int(((labels < 0) | (labels >= limit.count)).sum()):
            facts = {"side": side, "count": outside, "least": int(labels.min()), "largest": int(labels.max())}
            key = "labels_outside"
            if limit.training:
                facts |= {"training": limit.training, "ignored": "" if limit.ignored is None else str(limit.ignored)}
                key = "labels_outside_of_loss" if limit.is_direct else "labels_perhaps_outside"
            message = sentence(f"data_finding.{key}", **facts, classes=limit.count)
            yield Finding("labels-outside", "error" if limit.is_direct else "warning", name, message)


def _are_whole(reading: Reading, name: str, axes: int) -> bool:
    """Whether a field holds whole numbers with so many axes in each sample."""
    return all(value.ndim == axes and value.dtype.kind in "iu" for value in reading.kept.get(name, [np.zeros(())]))


def _stack(values: Sequence[Array]) -> Array | None:
    return np.stack([*values]) if len({value.shape for value in values}) == 1 else None


def _smoothing(rows: Array, chosen: Array) -> float | None:
    """0 for one-hot rows, e for (1 - e) one-hot + e / classes, None for anything else."""
    classes = rows.shape[-1]
    hot = np.take_along_axis(rows, chosen[..., None], -1)[..., 0].astype(np.float64)
    cold = (rows.sum(-1, dtype=np.float64) - hot) / (classes - 1)
    share = float(cold.reshape(-1)[0]) * classes
    made = np.where(np.arange(classes) == chosen[..., None], 1 - share + share / classes, share / classes)
    if not 0 <= share < 0.5 or not np.allclose(made, rows, atol=1e-5) or not np.allclose(hot, hot.reshape(-1)[0]):
        return None
    return round(share, 6)


def _mapped(reference: Array, candidate: Array, *, label: bool) -> tuple[DataCause, ...] | None:
    """One side's values as a function of the other's: an offset, an exchange of two values, any map one to one."""
    if np.array_equal(reference, candidate):
        return ()
    a, b = (part.astype(np.float64).reshape(-1) for part in (reference, candidate))
    offset = float(a[0] - b[0])
    if np.array_equal(a, b + offset):
        return (confirmed("label-offset" if label else "id-offset", offset=-offset),)
    pairs, counts = np.unique(np.stack([b, a], 1), axis=0, return_counts=True)
    forward, back = (len(np.unique(pairs[:, side])) == len(pairs) for side in (0, 1))
    moved = pairs[pairs[:, 0] != pairs[:, 1]]
    if counts[pairs[:, 0] != pairs[:, 1]].mean() < SEEN_TWICE:
        return None  # a value that stands elsewhere once is no rule
    if len(pairs) > MOST_MAPPED_VALUES or not (forward or back) or len(pairs) > len(a) // 2:
        return None
    words = ", ".join(f"{_short(wanted)} -> {_short(given)}" for given, wanted in moved[:6])
    facts: dict[str, Any] = {"map": words, "count": len(moved)}
    if forward and back:
        turned = sorted(pairs[:, 0]) == sorted(pairs[:, 1])
        of_mask = "inverted-mask" if turned else "mask-values"
        is_mask = len(pairs) == 2 and not (label and reference.ndim == 1)  # a number a sample is no mask
        name = of_mask if is_mask else "label-map" if label else "id-map"
    elif not label and 1 in (len(np.unique(a)), len(np.unique(b))):
        return None  # one value for all rows is no vocabulary
    else:
        name = "merged-labels" if label else "merged-tokens"
        facts = {"side": "candidate" if back else "reference", **facts}
    return (confirmed(name, **facts),)


def _short(value: float) -> str:
    return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Padding:
    """What fills rows of tokens up: the id, the side, and the rows without it."""

    id: int | None
    side: str
    rows: tuple[Array, ...]


def explain_tokens(
    reference: Sequence[Array], candidate: Sequence[Array], padding: tuple[Padding, Padding] | None = None
) -> tuple[DataCause, ...]:
    """Name why rows of whole numbers (tokens, labels by token, masks, positions) of paired samples differ.

    () if no cause explains them all. `padding` is that of the tokens beside, for fields that are padded with them.
    """
    if any(value.ndim != 1 or is_float(value.dtype.name) for value in (*reference, *candidate)):
        return ()
    rows, others = _stack(reference), _stack(candidate)
    same_shape = rows is not None and others is not None and rows.shape == others.shape
    is_mask = all(np.isin(value, (0, 1)).all() for value in (*reference, *candidate))
    if same_shape and rows is not None and others is not None:
        if causes := _positions(rows, others):
            return causes
        if is_mask and np.array_equal(rows, 1 - others.astype(np.int64)):
            return (confirmed("inverted-mask", map="0 -> 1, 1 -> 0", count=2),)
    for sides in _paddings(reference, candidate, padding):
        if causes := _explain_rows(*sides, (reference, candidate), is_mask=is_mask):
            return causes
    if same_shape and rows is not None and others is not None and not is_mask:
        return _ignored(rows, others) or _shifted(rows, others)
    return ()


def _ignored(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """The rows agree but for one value of each side, at the same places."""
    unlike = reference != candidate
    values = [np.unique(part[unlike]) for part in (reference, candidate)]
    if unlike.any(1).mean() < FILLED_ROWS or any(len(part) != 1 for part in values):
        return ()
    if not (np.array_equal(reference == values[0], unlike) or np.array_equal(candidate == values[1], unlike)):
        return ()  # where either value stays what it is, it is no filling
    ids = [int(value[0]) for value in values]
    if all(set(np.unique(part)) <= {0, 1} for part in (reference, candidate)):
        return ()  # masks that differ here and there are no ids
    return (confirmed("ignored-id" if IGNORED in ids else "filling-id", reference=ids[0], candidate=ids[1]),)


def _shifted(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """The rows agree when one side is moved by a few places."""
    for shift in (1, 2):
        for side, left, right in (("candidate", reference, candidate), ("reference", candidate, reference)):
            if reference.shape[1] > shift + 1 and np.array_equal(left[:, shift:], right[:, :-shift]):
                return (confirmed("token-shift", side=side, places=shift),)
    return ()


def _positions(reference: Array, candidate: Array) -> tuple[DataCause, ...]:
    """Rows that count up, from another beginning on each side, or past the padding of one of them."""
    steps = [np.diff(part.astype(np.int64), axis=1) for part in (reference, candidate)]
    if not all(part.any() and np.isin(part, (0, 1)).all() for part in steps):
        return ()
    if not all((turns >= 0).all() or (turns <= 0).all() for turns in (np.diff(row) for part in steps for row in part)):
        return ()  # positions stand still in the padding alone, at either end
    if np.isin(reference, (0, 1)).all() and np.isin(candidate, (0, 1)).all():
        return ()
    apart = reference.astype(np.int64) - candidate.astype(np.int64)
    last = apart[:, -1]
    if not (apart == last[:, None]).all() and not (steps[0].all() or steps[1].all()):
        return ()
    facts = {"reference": str(reference[0, :4].tolist()), "candidate": str(candidate[0, :4].tolist())}
    return (confirmed("position-start", **facts),)


def _paddings(
    reference: Sequence[Array], candidate: Sequence[Array], known: tuple[Padding, Padding] | None
) -> list[tuple[Padding, Padding]]:
    """The rows of both sides without what fills them up: as it seems, and with nothing taken for padding."""
    plain = tuple(Padding(None, "", tuple(rows)) for rows in (reference, candidate))
    paddings = tuple(find_padding(rows) for rows in (reference, candidate))
    pairs = [(paddings[0], paddings[1]), (plain[0], paddings[1]), (paddings[0], plain[1]), (plain[0], plain[1])]
    if known is not None:
        cut = tuple(Padding(side.id, side.side, tuple(_cut_like(row, len(real), side.side)
                                                       for row, real in zip(rows, side.rows, strict=True)))
                    for rows, side in zip((reference, candidate), known, strict=True))  # fmt: skip
        pairs.insert(0, (cut[0], cut[1]))
    return pairs


def _cut_like(row: Array, length: int, side: str) -> Array:
    return row[len(row) - length :] if side == "left" else row[:length]


def find_padding(rows: Sequence[Array]) -> Padding:
    """The id that most rows end, or begin, with a run of, and the rows without it."""
    best = Padding(None, "", tuple(rows))
    most = 0
    for side, place in (("right", -1), ("left", 0)):
        ends = [int(row[place]) for row in rows if len(row)]
        if not ends:
            continue
        value = max(set(ends), key=ends.count)
        cut = tuple(_strip(row, value, side) for row in rows)
        runs = [len(row) - len(rest) for row, rest in zip(rows, cut, strict=True)]
        # A run of two is padding; a lone last token that all rows share is an end of text.
        if max(runs) > 1 and len(set(runs)) > 1 and sum(runs) > most:
            best, most = Padding(value, side, cut), sum(runs)
    return best


def _strip(row: Array, value: int, side: str) -> Array:
    other = np.flatnonzero(row != value)
    if not len(other):
        return row[:0]
    return row[: other[-1] + 1] if side == "right" else row[other[0] :]


def _explain_rows(
    reference: Padding, candidate: Padding, whole: tuple[Sequence[Array], Sequence[Array]], *, is_mask: bool
) -> tuple[DataCause, ...]:
    """What was cut, added or given other ids, and how the rows are filled up; a mask has no ids of its own."""
    causes: list[DataCause] = []
    rows = [[*reference.rows], [*candidate.rows]]
    for explain in (_special, _truncated, _special):
        if is_mask or all(map(np.array_equal, *rows)):
            break
        causes += explain(rows)
    if not all(map(np.array_equal, *rows)):
        mapped = _mapped(*(np.concatenate(part) for part in rows), label=False) if all(
            len(a) == len(b) for a, b in zip(*rows, strict=True)
        ) else None  # fmt: skip
        if mapped is None:
            return ()
        causes += mapped
    lengths = [max(map(len, part), default=0) for part in whole]
    return (*causes, *_padding_causes(reference, candidate, lengths if not causes else None))


def _padding_causes(reference: Padding, candidate: Padding, lengths: list[int] | None) -> list[DataCause]:
    causes: list[DataCause] = []
    if reference.side != candidate.side and reference.side and candidate.side:
        causes.append(confirmed("padding-side", reference=reference.side, candidate=candidate.side))
    if reference.id != candidate.id and reference.id is not None and candidate.id is not None:
        name = "ignored-id" if IGNORED in (reference.id, candidate.id) else "padding-id"
        causes.append(confirmed(name, reference=reference.id, candidate=candidate.id))
    if lengths is not None and lengths[0] != lengths[1]:
        causes.append(confirmed("padded-length", reference=lengths[0], candidate=lengths[1]))
    return causes


def _special(rows: list[list[Array]]) -> list[DataCause]:
    """Tokens that all rows of one side have at their beginning or end, and the other side has not."""
    for side, more, less in (("candidate", 1, 0), ("reference", 0, 1)):
        for head in range(3):
            for tail in range(3):
                if not head + tail:
                    continue
                cut = [row[head : len(row) - tail] for row in rows[more]]
                added = {(tuple(row[:head]), tuple(row[len(row) - tail :])) for row in rows[more]}
                if len(added) == 1 and _nearly_all_equal(cut, rows[less]):
                    first, last = next(iter(added))
                    rows[more][:] = cut
                    facts = {"side": side, "first": _ids(first), "last": _ids(last)}
                    return [confirmed("special-tokens", **facts)]
    return []


def _nearly_all_equal(cut: list[Array], others: list[Array]) -> bool:
    """All rows agree, or one is the beginning (or the end) of the other, which truncation explains."""
    return all(
        len(a) and len(b) and (np.array_equal(a[: len(b)], b[: len(a)]) or np.array_equal(a[-len(b) :], b[-len(a) :]))
        for a, b in zip(cut, others, strict=True)
    ) and any(map(np.array_equal, cut, others))  # fmt: skip


def _ids(values: tuple[Any, ...]) -> str:
    return ", ".join(str(int(value)) for value in values)


def _truncated(rows: list[list[Array]]) -> list[DataCause]:
    """Rows of one side are the beginnings (or the ends) of those of the other, where these are longer."""
    ways: tuple[tuple[str, Callable[[Array, int], Array]], ...] = (
        ("right", lambda row, length: row[:length]),
        ("left", lambda row, length: row[len(row) - length :]),
    )
    for side, short, long in (("candidate", 1, 0), ("reference", 0, 1)):
        limit = max(map(len, rows[short]), default=0)
        for end, cut in ways:
            shortened = [cut(row, min(limit, len(row))) for row in rows[long]]
            if (
                limit
                and any(len(row) > limit for row in rows[long])
                and all(map(np.array_equal, shortened, rows[short]))
            ):
                longest = max(map(len, rows[long]))
                rows[long][:] = shortened
                facts = {"side": side, "length": limit, "end": end, "longest": longest}
                return [confirmed("truncation", **facts)]
    return _cut_otherwise(rows)


def _cut_otherwise(rows: list[list[Array]]) -> list[DataCause]:
    """Both sides cut at one length, one at each end: the end of one row is the beginning of the other."""
    limit = max(map(len, rows[0]), default=0)
    signs, overlaps = set(), set()
    for row, other in zip(*rows, strict=True):
        if np.array_equal(row, other):
            continue
        if not len(row) == len(other) == limit:
            return []
        ahead, behind = _overlap(row, other), _overlap(other, row)
        signs.add(1 if ahead else -1 if behind else 0)
        overlaps.add(ahead or behind)
    if len(signs) != 1 or 0 in signs or len(overlaps) < 2:  # all rows moved alike are shifted, not cut
        return []
    rows[1][:] = rows[0]
    return [confirmed("truncated-end", side="candidate" if 1 in signs else "reference", length=limit)]


def _overlap(row: Array, other: Array) -> int:
    """How many tokens at the end of `row` are the beginning of `other`; 0 if fewer than two are."""
    return next((size for size in range(len(row) - 1, 1, -1) if np.array_equal(row[-size:], other[:size])), 0)


def follows_padding(reference: Sequence[Array], candidate: Sequence[Array], padding: tuple[Padding, Padding]) -> bool:
    """Whether a mask marks, on each side, what is no padding among the side's own tokens, by the same value."""
    marks = []
    for rows, side in zip((reference, candidate), padding, strict=True):
        for row, real in zip(rows, side.rows, strict=True):
            inside = _cut_like(row, len(real), side.side)
            outside = row[: len(row) - len(real)] if side.side == "left" else row[len(real) :]
            marks.append((set(inside.tolist()), set(outside.tolist())))
    inner, outer = (set().union(*(mark[place] for mark in marks)) for place in (0, 1))
    return len(inner) == 1 and len(outer) <= 1 and inner != outer


def first_unlike_tokens(reference: Sequence[Array], candidate: Sequence[Array]) -> dict[str, Any]:
    """The first sample whose tokens differ, where, and what stands there: what is said where no cause is known."""
    for number, (row, other) in enumerate(zip(reference, candidate, strict=True)):
        length = min(len(row), len(other))
        unlike = np.flatnonzero(row[:length] != other[:length])
        if len(unlike) or len(row) != len(other):
            place = int(unlike[0]) if len(unlike) else length
            around = slice(max(place - 1, 0), place + 3)
            return {"sample": number, "place": place, "reference": str(row[around].tolist()),
                    "candidate": str(other[around].tolist())}  # fmt: skip
    return {}


# Boxes of unlike forms: two corners, a corner or the centre with lengths; rows first; shares of the picture.
#
# Boxes of both sides are brought to two corners (left, top, right, bottom) from each form that they may have. A pair
# of forms is named where all corners agree then, as they are or up to the size of a picture. An exchange of columns
# or a factor alone shows in other rows of four numbers too: it is named where the field is called so, or the factors
# are the sizes of the pictures beside.


FORMS: dict[str, Callable[[Array], Array]] = {
    "xyxy": lambda box: box,
    "xywh": lambda box: np.concatenate([box[:, :2], box[:, :2] + box[:, 2:]], 1),
    "cxcywh": lambda box: np.concatenate([box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2], 1),
}
ROWS_FIRST = {"xyxy": "yxyx", "xywh": "yxhw", "cxcywh": "cycxhw"}


def explain_boxes(
    reference: Sequence[Array], candidate: Sequence[Array], sizes: Sequence[tuple[int, int]], *, is_named: bool
) -> tuple[DataCause, ...]:
    """Name the forms of boxes (4,) or (n, 4); () for anything else, and where no pair of forms explains all of them.

    `sizes` are (width, height) of the pictures beside, () if there are none. `is_named` says that the field is called
    after boxes.
    """
    if any(value.shape[-1:] != (4,) or value.ndim > 2 or not is_numeric(value.dtype.name)
           for value in (*reference, *candidate)):  # fmt: skip
        return ()
    filled = [place for place, value in enumerate(reference) if value.size]
    if not filled or [value.shape for value in reference] != [value.shape for value in candidate]:
        return ()
    sides = [[side[place].reshape(-1, 4).astype(np.float64) for place in filled] for side in (reference, candidate)]
    epsilon = max((EPSILON[side[0].dtype.name] for side in (reference, candidate) if is_float(side[0].dtype.name)),
                  default=EPSILON["float64"])  # fmt: skip
    wanted_sizes = np.array([sizes[place] for place in filled], float) if sizes else None
    if not all(np.isfinite(box).all() for side in sides for box in side):
        return ()
    ways = product(FORMS, FORMS, (False, True))
    for wanted, given, rows_first in sorted(ways, key=lambda way: (way[0] != way[1]) + way[2]):
        corners = [FORMS[wanted](box) for box in sides[0]]
        moved = [FORMS[given](box[:, [1, 0, 3, 2]] if rows_first else box) for box in sides[1]]
        if any((box[:, 2:] < box[:, :2]).any() for box in (*corners, *moved)):
            continue
        scales = _fitted_scales(corners, moved, SAME_VALUE_ROUNDING * epsilon)
        if scales is None or not (wanted != given or is_named or _are_sizes(scales, wanted_sizes)):
            continue
        form = {"reference": wanted, "candidate": ROWS_FIRST[given] if rows_first else given}
        causes = [confirmed("box-form", **form)] if rows_first or wanted != given else []
        if (scales != 1).any():
            side, shown = ("candidate", scales[0]) if scales[0, 0] > 1 else ("reference", 1 / scales[0])
            facts = {"side": side, "width": float(shown[0]), "height": float(shown[1])}
            causes.append(confirmed("box-scale", **facts))
        return tuple(causes)
    return ()


def _fitted_scales(corners: Boxes, moved: Boxes, rounding: float) -> Array | None:
    """By what the width and the height of each sample's boxes (samples, 2) are multiplied; None if nothing fits.

    Either 1, or the sizes of pictures of which one side's boxes are shares: one size for all, or whole numbers.
    """
    scales = np.ones((len(corners), 2))
    if _agree(corners, moved, scales, rounding):
        return scales
    for place, (wanted, given) in enumerate(zip(corners, moved, strict=True)):
        pairs = wanted.reshape(-1, 2), given.reshape(-1, 2)
        scales[place] = (pairs[0] * pairs[1]).sum(0) / np.maximum((pairs[1] ** 2).sum(0), np.finfo(float).tiny)
    if not (scales > 0).all() or not _agree(corners, moved, scales, rounding):
        return None
    shares, lengths = (moved, scales) if scales[0, 0] > 1 else (corners, 1 / scales)
    is_share = all(-PICTURE_SIZE_TOLERANCE <= box.min() <= box.max() <= 1 + PICTURE_SIZE_TOLERANCE for box in shares)
    wholes = np.maximum(np.round(lengths), 1)
    are_sizes = any(np.allclose(lengths, size, rtol=PICTURE_SIZE_TOLERANCE, atol=0) for size in (lengths[0], wholes))
    return scales if is_share and are_sizes and (lengths > 1).all() else None


def _agree(corners: Boxes, moved: Boxes, scales: Array, rounding: float) -> bool:
    return all((np.abs(wanted - given * np.tile(scale, 2)) <= rounding * np.abs(wanted).max()).all()
               for wanted, given, scale in zip(corners, moved, scales, strict=True))  # fmt: skip


def _are_sizes(scales: Array, sizes: Array | None) -> bool:
    """Whether the scales, or their inverses, are the sizes of the pictures."""
    if sizes is None:
        return False
    return any(np.allclose(part, sizes, rtol=PICTURE_SIZE_TOLERANCE, atol=0) for part in (scales, 1 / scales))
