"""Whether the candidate is the reference times a number, plus a number: one for all, or one for each slice of an axis.

A missing bias is a shift of each channel; wrong statistics are a scale, or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relation_thresholds import (
    ELEMENTS_PER_NUMBER,
    INFORMATIVE_SPREAD,
    LARGEST_NAMED_SCALE,
    MOST_OF_SLICES,
    NAMED_SCALE_TOLERANCE,
    NEGATED_TOLERANCE,
)
from align.forward.relations.relation import with_facts
from align.forward.relations.slices import other_axes, slice_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question, Relation

    Fit = Callable[[Array, Array, tuple[int, ...]], "_Correction"]


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
    found = (
        one
        for axis, reference, candidate in chain(groups, slices)
        for name, fit in FITS.items()
        if _plausible(question, fit, reference, candidate) and (one := _confirmed(question, name, axis))
    )
    return islice(found, 1)


def _plausible(question: Question, fit: Fit, reference: Array, candidate: Array) -> bool:
    """Whether the fit is good for the sample, and most slices that it changes vary enough to show it."""
    found = fit(reference, candidate, (1,))
    corrected = found.of(candidate)
    if np.any(np.abs(corrected - reference) > question.limit.max_abs):
        return False
    changed = np.abs(corrected - candidate).max(1) > question.limit.rmse
    varied = reference.std(1) > INFORMATIVE_SPREAD * question.limit.rmse
    return bool(changed.any() and varied[changed].mean() >= MOST_OF_SLICES and np.all(found.scale != 0.0))


def _confirmed(question: Question, name: str, axis: int | None) -> Relation | None:
    ndim = question.reference.ndim
    over = tuple(range(ndim)) if axis is None else other_axes(axis, ndim)
    candidate = question.candidate.astype(np.float64)
    found = FITS[name](question.reference, candidate, over)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale, shift = 1.0 / found.scale.ravel(), -(found.shift / found.scale).ravel()
    numbers = 2 if name == "scaled-and-shifted" else 1
    if axis is None:
        negated = name == "scaled" and abs(float(scale[0]) + 1.0) < NEGATED_TOLERANCE
        label = "negated" if negated else name
        one = question.confirm(label, found.of(candidate), fitted=0 if negated else numbers)
        return with_facts(one, _facts(name, float(scale[0]), float(shift[0])))
    changed = np.abs(found.of(candidate) - candidate).max(axis=over) > question.limit.rmse
    fitted = numbers * int(np.count_nonzero(changed))
    one = question.confirm(f"slices-{name}", found.of(candidate), fitted=fitted, choice_bits=float(scale.size))
    return with_facts(one, {"axis": axis, "slices": fitted // numbers, "of": scale.size, **_spread(name, scale, shift)})


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
        one = 1.0 / size if inverted else size
        whole, square = round(one), round(one * one)
        if abs(one - whole) < NAMED_SCALE_TOLERANCE * one and (1 < whole <= 16 or whole in (255, 1000)):
            return f"{'-' if value < 0 else ''}{'1/' if inverted else ''}{whole}"
        if abs(one * one - square) < NAMED_SCALE_TOLERANCE * square and 1 < square <= 4096:
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


FITS: dict[str, Fit] = {
    "scaled": _scale,
    "shifted": _shift,
    "scaled-and-shifted": _both,
}
