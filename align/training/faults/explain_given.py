"""Why a loop gives the optimizer other gradients: both sides clip, each in its own form, or add something."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.training.faults.gradient_forms import AS_THEY_ARE, GradientForm, decay_form, form_of
from align.training.steps.gradient_relations import GradientRelation
from align.training.steps.record_step import BEFORE, COMPUTED, GIVEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.training.faults.gradient_forms import Gradients, Kind
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue

CAUSES: dict[Kind, str] = {
    "as they are": "gradients-left-as-they-are",
    "all by norm": "gradients-clipped-by-norm",
    "each by norm": "gradients-clipped-by-own-norm",
    "by value": "gradient-clipped",
    "decay": "decay-in-gradients",
}
NUMBERS: dict[Kind, str] = {"all by norm": "norm", "each by norm": "norm", "by value": "bound", "decay": "decay"}


def explain_given(given: Sequence[JudgedValue], seen: SeenSteps) -> list[JudgedValue]:
    """Give all that is off the relation that what both sides do explains; as they are, if that is not known.

    A form of a side has to make of what it computed what its optimizer got, in each step and for each parameter.
    """
    off = [one for one in given if one.factor > 1.0 and not one.is_noise]
    forms = (_form(seen, 0), _form(seen, 1)) if off else (None, None)
    if forms[0] is None or forms[1] is None or forms[0] == forms[1]:
        return [*given]
    relation = _relation(forms[0], forms[1])
    return [replace(one, relation=relation) if one in off else one for one in given]


def _form(seen: SeenSteps, side: int) -> GradientForm | None:
    """What a side makes of its gradients, of the candidate first of all under the reference's."""
    trace = seen.traces[side]
    steps: list[tuple[Gradients, Gradients]] = [
        (trace.values(step, COMPUTED), trace.values(step, GIVEN)) for step in range(len(trace.losses))
    ]
    values: Gradients = seen.start if side else trace.values(0, BEFORE)
    if side:
        steps.insert(0, (seen.first.computed_gradients, seen.first.given_gradients))
    return form_of(steps) or decay_form(steps[0], values)


def _relation(mine: GradientForm, theirs: GradientForm) -> GradientRelation:
    facts: dict[str, float | int | str] = {}
    if theirs != AS_THEY_ARE:
        facts[NUMBERS[theirs.kind]] = theirs.number
    if mine != AS_THEY_ARE:
        facts["reference"] = mine.told
    return GradientRelation(CAUSES[theirs.kind], facts)
