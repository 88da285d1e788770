"""One factor on all gradients: a loss scale that is taken off again is no fault, a norm that is held is clipping."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.training.steps.gradient_relations import GradientRelation, nearest_scale
from align.training.thresholds import FACTOR_TOLERANCE, WRITTEN_DIGITS
from align.training.updates.apply_rule import gradient_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.training.step_result import StepCulprit
    from align.training.steps.compare_values import JudgedValue

OF_LOSS = "sum-over-parts", "loss-scale-kept"  # causes that the loss itself shows too


def without_loss_scale(
    culprits: Sequence[StepCulprit],
    given: Sequence[JudgedValue],
    by_optimizers: float,
    same_given: Callable[[], bool],
) -> tuple[list[StepCulprit], list[JudgedValue], float | None]:
    """Take out a factor of the loss by which the step, or the optimizers, divide all gradients; return that factor too.

    `by_optimizers` is what the candidate's optimizers multiply by, over the reference's. `same_given` tells whether the
    optimizers get the same in the step as each side takes it: clipping behind the scale hides the factor elsewhere.
    """
    loss = next((one for one in culprits if one.part == "loss" and one.cause == "gradient-factor"), None)
    factors = [one.relation.facts.get("factor") if one.factor > 1.0 else 1.0 for one in given] or [1.0]
    scale = loss.facts["factor"] if loss is not None else None
    if not isinstance(scale, (int, float)):
        return [*culprits], [*given], None
    undone = all(_undoes(scale * by_optimizers, one) for one in factors)
    if not undone and not (by_optimizers == 1.0 and same_given()):
        return [*culprits], [*given], None
    return [one for one in culprits if one is not loss], [], float(scale)


def clipped_by_norm(given: Sequence[JudgedValue], gradients: Mapping[str, Array]) -> list[JudgedValue]:
    """Name one factor below 1 on all gradients clipping, if their norm is then a number that somebody would write."""
    factors = [one.relation.facts.get("factor") for one in given if one.relation.cause == "gradient-factor"]
    known = [one for one in factors if isinstance(one, (int, float))]
    if not known or len(known) < len(given) or not max(known) < 1.0:
        return [*given]
    norm = float(np.linalg.norm([gradient_norm(one) for one in gradients.values()]))
    written = float(f"{norm:.{WRITTEN_DIGITS}g}")
    if not norm or abs(norm / written - 1.0) > FACTOR_TOLERANCE:
        return [*given]
    relation = GradientRelation("gradients-clipped-by-norm", {"norm": written})
    return [replace(one, relation=relation) for one in given]


def named_scale(
    culprit: StepCulprit, given: Sequence[JudgedValue], runs: tuple[int, int], *, loops: bool
) -> StepCulprit:
    """Name a factor of all gradients that optimizers get, of steps that run the model so often on each side.

    It is their ratio where the mean over parts of a batch is missing, and a number that scales are made of where a loop
    of the user's own left the scale of the loss in. `given` are the gradients of whole steps.
    """
    factor = culprit.facts.get("factor")
    known = [one for one in given if not one.is_noise]
    if culprit.cause != "gradient-factor" or not isinstance(factor, (int, float)) or not known:
        return culprit
    if not all(_undoes(1 / factor, one.relation.facts.get("factor")) for one in known):
        return culprit
    names = tuple(one.pairing.target for one in known)
    worst = max(one.factor for one in known)
    of_all = replace(culprit, kind="gradients", part="step", parameters=names, factor=worst, sureness="confirmed")
    if any(_undoes(1 / factor, one) for one in _missing_means(*runs)):
        side = "candidate" if factor > 1 else "reference"
        parts = max(runs)
        return replace(of_all, cause=OF_LOSS[0], facts={"factor": factor, "parts": parts, "side": side})
    size = max(abs(factor), 1.0 / abs(factor))
    return replace(of_all, cause=OF_LOSS[1]) if loops and nearest_scale(size) else culprit


def _missing_means(mine: int, theirs: int) -> Sequence[float]:
    """The factors of all gradients where a side that runs the model several times takes the sum of the parts."""
    if mine == theirs:
        return (float(theirs), 1.0 / mine) if mine > 1 else ()
    return (*((float(theirs),) if theirs > 1 else ()), *((1.0 / mine,) if mine > 1 else ()))


def _undoes(scale: float, factor: object) -> bool:
    return isinstance(factor, (int, float)) and abs(scale * factor - 1.0) <= FACTOR_TOLERANCE
