"""What is wrong on the way forth without a cause, asked again as a forward pass: what isolation and its trials find."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import AlignError
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array
    from align.forward.forward_result import Culprit
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace


SHOWS_AT = "shows_at"  # the layer of the forward pass at which it shows


def explain_forward(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give culprits of the forward pass without a cause what a comparison of both models alone says of that place.

    Where that names one place, and the step one too, both are the same, as long as the one lies around the other. Of
    sides of which one was captured, and of models that cannot be run by themselves, culprits stay as they are.
    """
    if seen.live is None or seen.live_reference is None or not any(_is_open(one) for one in culprits):
        return [*culprits]
    found = _compared_alone(seen.live_reference, seen.live, seen)
    return [_explained(one, found) if _is_open(one) else one for one in culprits]


def without_what_follows(culprits: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Leave out unrelated gradients around, and inside of, code that is wrong on the way forth.

    Such code goes back another way too, and what it is made of is not paired inside of it.
    """
    wrong = [one for one in culprits if one.kind == "forward" and (one.part == "code" or one.inside)]
    return [one for one in culprits if not any(_follows(one, other) for other in wrong)]


def _follows(one: StepCulprit, other: StepCulprit) -> bool:
    unrelated = one.kind == "backward" and one.cause in ("", "gradient-factor")
    return unrelated and _is_around(*(culprit.candidate or culprit.near for culprit in (one, other)))


def _is_open(one: StepCulprit) -> bool:
    return one.kind == "forward" and not one.cause and one.inside is None


def _compared_alone(reference: TrainingSide, candidate: TrainingSide, seen: SeenSteps) -> Sequence[Culprit]:
    """What is at fault where both models run on what the step gave them, with the reference's values."""
    reader, model = candidate.side.reader, candidate.side.model
    before = {name: value.copy() for name, value in reader.read_values(model).items()}
    inputs, own_inputs = (_given(trace) for trace in seen.traces)
    try:
        reader.load_values(model, {name: value for name, value in seen.start.items() if name in before})
        return compare_forward(
            reference.side, candidate.side, inputs=inputs, candidate_inputs=own_inputs, name_map=seen.names, power=False
        ).culprits
    except AlignError:  # a model that a step alone can run
        return ()
    finally:
        reader.load_values(model, before)


def _given(trace: StepTrace) -> dict[str, Array]:
    """What the model was given first, by the names of what it takes."""
    first = min((one.call for one in trace.forward.inputs if not one.module), default=0)
    of_model = [one for one in trace.forward.inputs if not one.module and one.call == first]
    return {one.output: trace.forward.value(one) for one in of_model}


def _explained(one: StepCulprit, found: Sequence[Culprit]) -> StepCulprit:
    """What was found at the place, in the same code, alone inside of it, or alone at all around it, if it says more."""
    exact = [other for other in found if other.candidate in (one.near, one.candidate)]
    code = [other for other in found if one.part == "code" and _module_of_code(other) == one.candidate]
    inside = [other for other in found if one.candidate and other.candidate.startswith(f"{one.candidate}.")]
    around = [other for other in found if _is_around(one.near or one.candidate, other.candidate)]
    alone = next((own for own in (code, inside, around if len(found) == 1 else []) if len(own) == 1), [])
    for other in exact[:1] or alone:
        if other.cause or other.inside:
            return _as_found(one, other)
    return one


def _module_of_code(other: Culprit) -> str | None:
    """The module in whose code it is; None for a layer."""
    if other.part == "layer":
        return None
    return other.candidate.rpartition(".")[0] if other.part == "inputs" else other.candidate


def _as_found(one: StepCulprit, other: Culprit) -> StepCulprit:
    known = replace(
        one,
        cause=other.cause,
        facts={name: value for name, value in other.facts.items() if name != SHOWS_AT},
        sureness=other.sureness,
        change=other.change,
        line=other.line or one.line,
        inside=other.inside,
    )
    if other.part != "layer":
        return known
    return replace(
        known,
        part="layer",
        reference=other.reference,
        candidate=other.candidate,
        reference_class=other.reference_class,
        candidate_class=other.candidate_class,
        near="",
    )


def _is_around(one: str, other: str) -> bool:
    """Tell whether one path lies inside of the other, or is it."""
    short, long = sorted((one, other), key=len)
    return not short or long == short or long.startswith(f"{short}.")
