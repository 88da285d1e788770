"""Terms of a loss that the model's outputs do not show: of the parameters themselves, or of other gradients.

They are in the gradients of parameters, and no layer's way back is wrong. A multiple of the values shows in the
figures; any other one in the plain step, which takes the loss of the outputs alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.training.step_result import StepCulprit
from align.training.steps.compare_values import values_of_both
from align.training.steps.record_step import BEFORE, COMPUTED, take_again
from align.training.thresholds import (
    CLEAR_GAP_ROUNDINGS,
    SAME_GRADIENTS_SHARE,
    TERM_FEWEST_ELEMENTS,
    TERM_TOLERANCE,
    TERM_UNEXPLAINED_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue

    Vectors = tuple[Array, Array]
    from collections.abc import Iterator

    from align.core.dtypes import Array

OF_VALUES = {"l2": "loss-term-l2", "l1": "loss-term-l1"}
OTHER = "loss-term-beside-outputs"
TermKind = Literal["l2", "l1"]


def value_terms(seen: SeenSteps, alone: Sequence[JudgedValue]) -> tuple[list[StepCulprit], list[JudgedValue]]:
    """Return culprits for multiples of the parameters' values or signs, and the gradients that these do not explain.

    A `coefficient` is that of the sum of squares, or of absolute values, beyond the reference's; `decay` is what an
    optimizer's decay would be.
    """
    off = {one.pairing.target: one for one in alone if one.factor > 1.0 and one.limit is not None and not one.is_noise}
    if not off:
        return [], [*alone]
    pairs = values_of_both(seen.names, seen.traces[0].values(0, COMPUTED), seen.first.computed_gradients)
    gaps = {}
    for pairing, meant, own in pairs:
        judged, value = off.get(pairing.target), seen.start.get(pairing.target)
        if judged is not None and judged.limit is not None and value is not None and value.shape == own.shape:
            gaps[pairing.target] = GradientGap(own.astype(np.float64) - meant, value, judged.limit.rmse)
    found = []
    while (term := value_term(gaps)) is not None:
        half = 2.0 if term.kind == "l2" else 1.0
        facts: dict[str, float | int | str] = {"coefficient": float(f"{term.coefficient / half:.4g}")}
        facts |= {"decay": term.coefficient} if term.kind == "l2" else {}
        found.append(_culprit(OF_VALUES[term.kind], facts, term.names, max(off[name].factor for name in term.names)))
        gaps = {name: one for name, one in gaps.items() if name not in term.names}
    explained = {name for one in found for name in one.parameters}
    return found, [one for one in alone if one.pairing.target not in explained]


def other_term(seen: SeenSteps, far: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Return one culprit for gradients that are `far` off though each layer is right, or `far` itself.

    It is another term of the loss if the plain steps agree, of the model and the loss that each side gives.
    """
    if not far or seen.live is None or any(one.part != "code" or one.candidate or one.cause for one in far):
        return [*far]
    with TemporaryDirectory(prefix="align-") as folder:
        whole = seen.computed(0, 0, scaled=False), seen.computed(1, 0, scaled=False)
        plain = _plain(seen, 0, Path(folder) / "0"), _plain(seen, 1, Path(folder) / "1")
        if plain[0] is None or plain[1] is None:
            return [*far]
        facts = _compared_terms(_joined(seen, *whole), _joined(seen, plain[0], plain[1]))
    if facts is None:
        return [*far]
    names = tuple(name for one in far for name in one.parameters)
    return [_culprit(OTHER, facts, names, max(one.factor for one in far))]


def _compared_terms(whole: Vectors | None, plain: Vectors | None) -> dict[str, float | int | str] | None:
    """Figures of both terms, whose gradients are what a step has beyond the plain one; None if plain steps differ."""
    if whole is None or plain is None or len(whole[0]) != len(plain[0]):
        return None
    size = float(np.linalg.norm(plain[0]))
    if not np.linalg.norm(plain[1] - plain[0]) <= SAME_GRADIENTS_SHARE * size:
        return None
    mine, theirs = whole[0] - plain[0], whole[1] - plain[1]
    lengths = float(np.linalg.norm(mine)), float(np.linalg.norm(theirs))
    if min(lengths) <= SAME_GRADIENTS_SHARE * size:
        return {"only in": "candidate" if lengths[0] < lengths[1] else "reference"}
    times = float(mine @ theirs) / lengths[0] ** 2
    if np.linalg.norm(theirs - times * mine) > TERM_UNEXPLAINED_SHARE * lengths[1]:
        return {}
    return {"times the reference's": float(f"{times:.3g}")}


def _plain(seen: SeenSteps, side: int, folder: Path) -> Mapping[str, Array] | None:
    """Gradients of the first step without the user's own loop; None where a side has no loss of its own, or is away."""
    trace = seen.traces[side]
    if not seen.sides[side].own_step:
        return trace.values(0, COMPUTED)
    live = (seen.live_reference, seen.live)[side]
    if live is None or live.training.loss is None:
        return None
    start = seen.start if side else trace.values(0, BEFORE)
    plain = replace(live, training=replace(live.training, step=None))
    found = take_again(plain, seen.sides[0].batches[:1], folder, start).values(0, COMPUTED)
    return {name: np.array(one) for name, one in found.items()}


def _joined(seen: SeenSteps, mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> Vectors | None:
    """All gradients that both have, as one vector each."""
    pairs = [one[1:] for one in values_of_both(seen.names, mine, theirs)]
    flat = [[one.reshape(-1).astype(np.float64) for one in own] for own in zip(*pairs, strict=True)]
    return (np.concatenate(flat[0]), np.concatenate(flat[1])) if pairs else None


def _culprit(cause: str, facts: dict[str, float | int | str], names: tuple[str, ...], factor: float) -> StepCulprit:
    return StepCulprit("loss", "loss", "", "", "", "", factor, cause, facts, names, sureness="confirmed")


@dataclass(frozen=True, slots=True)
class GradientGap:
    """What a gradient differs by from the right one, the value of its parameter, and the rounding (RMS) of the gap."""

    gap: Array
    value: Array
    rounding: float


@dataclass(frozen=True, slots=True)
class ValueTerm:
    """The gaps of `names` are `coefficient` times the values of the parameters, or times their signs."""

    kind: TermKind
    coefficient: float
    names: tuple[str, ...]


def value_term(gaps: Mapping[str, GradientGap]) -> ValueTerm | None:
    """Return the term that explains most elements; None if none does, and of fewer elements than TERM_FEWEST_ELEMENTS.

    Where all values are of one size there is none either: a constant is no multiple of the value.
    """
    clear = {name: one for name, one in gaps.items() if rms(one.gap) > CLEAR_GAP_ROUNDINGS * one.rounding}
    found = [*_terms("l2", clear), *_terms("l1", clear)]

    def size(term: ValueTerm) -> int:
        return sum(clear[name].gap.size for name in term.names)

    best = max(found, key=size, default=None)
    if best is None or size(best) < TERM_FEWEST_ELEMENTS:
        return None
    return best if any(np.ptp(np.abs(clear[name].value)) > 0.0 for name in best.names) else None


def _terms(kind: TermKind, gaps: Mapping[str, GradientGap]) -> Iterator[ValueTerm]:
    """For each coefficient that a gap gives by itself, the parameters that have it."""
    own = {name: found for name, one in gaps.items() if (found := _coefficient(kind, one)) is not None}
    for number in own.values():
        alike = tuple(name for name, other in own.items() if abs(other - number) <= TERM_TOLERANCE * abs(number))
        yield ValueTerm(kind, _together(kind, [gaps[one] for one in alike]), alike)


def _direction(kind: TermKind, one: GradientGap) -> Array:
    wide = one.value.reshape(-1).astype(np.float64)
    return wide if kind == "l2" else np.sign(wide)


def _coefficient(kind: TermKind, one: GradientGap) -> float | None:
    """The one number that makes a gap of a direction; None if there is none."""
    gap, direction = one.gap.reshape(-1), _direction(kind, one)
    weight = float(direction @ direction)
    if not weight or not np.isfinite(gap).all():
        return None
    found = float(gap @ direction) / weight
    return found if found and rms(gap - found * direction) <= max(TERM_TOLERANCE * rms(gap), one.rounding) else None


def _together(kind: TermKind, gaps: Sequence[GradientGap]) -> float:
    """One coefficient for all, as round as their figures are sure."""
    directions = [_direction(kind, one) for one in gaps]
    weight = sum(float(one @ one) for one in directions)
    found = sum(float(gap.gap.reshape(-1) @ one) for gap, one in zip(gaps, directions, strict=True)) / weight
    return float(f"{found:.3g}")


def rms(values: Array) -> float:
    """The root mean square in float64; 0 of an empty array."""
    wide = values.astype(np.float64)
    return float(np.sqrt(np.mean(wide * wide))) if wide.size else 0.0
