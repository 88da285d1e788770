"""What is wrong on the way forth without a cause, asked again as a forward pass: what isolation and its trials find."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import NameMap
from align.errors import AlignError
from align.forward.compare_forward import compare_forward
from align.models.source_lines import layer_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array
    from align.forward.forward_result import Culprit
    from align.models.open_side import Side
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace


SHOWS_AT = "shows_at"  # the layer of the forward pass at which it shows


def explain_forward(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give culprits of the forward pass without a cause what a comparison of both models alone says of that place.

    Where that names one place, and the step one too, both are the same, as long as the one lies around the other. Of a
    model whose parts a step calls by themselves, as of two nets, or one with its average, that part is compared. Of
    sides of which one was captured, and of models that cannot be run by themselves, culprits stay as they are.
    """
    if seen.live is None or seen.live_reference is None:
        return [*culprits]
    roots = {one: outermost(one, seen.traces[1]) for one in map(_place, filter(_is_open, culprits))}
    found = {root: _compared_alone(root, seen) for root in {*roots.values()} if root is not None}
    return [
        _explained(one, found[root]) if _is_open(one) and (root := roots[_place(one)]) is not None else one
        for one in culprits
    ]


def _place(one: StepCulprit) -> str:
    return one.near or one.candidate


def outermost(place: str, trace: StepTrace) -> str | None:
    """The outermost module around a place that the step calls itself; None for none."""
    called = {one.module for one in trace.forward.inputs}
    around = sorted((path for path in called if not path or place == path or place.startswith(f"{path}.")), key=len)
    return next(iter(around), None)


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


def _compared_alone(root: str, seen: SeenSteps) -> Sequence[Culprit]:
    """What is at fault where both run a part of the model on what the step gave it, with the reference's values."""
    roots = next(((one.reference.module, root) for one in seen.calls.pairs if one.candidate.module == root), None)
    if roots is None or seen.live is None or seen.live_reference is None:
        return ()
    reader, model = seen.live.side.reader, seen.live.side.model
    before = {name: value.copy() for name, value in reader.read_values(model).items()}
    inputs, own_inputs = (given_to(*one) for one in zip(roots, seen.traces, strict=True))
    try:
        reader.load_values(model, before | {name: value for name, value in seen.start.items() if name in before})
        sides = part_of(seen.live_reference, roots[0]), part_of(seen.live, root)
        names = _names_of(seen.names, sides, roots)
        found = compare_forward(
            *sides, inputs=inputs, candidate_inputs=own_inputs, name_map=names, power=False, thorough=seen.thorough
        )
    except AlignError:  # a model that a step alone can run
        return ()
    finally:
        reader.load_values(model, before)
    return [
        replace(
            one,
            reference=_within(roots[0], one.reference),
            candidate=_within(root, one.candidate),
            facts={name: _within(root, str(own)) if name == SHOWS_AT else own for name, own in one.facts.items()},
        )
        for one in found.culprits
    ]


def part_of(opened: TrainingSide, path: str) -> Side:
    """A module of a side's model, as a side of its own."""
    return replace(opened.side, model=layer_at(opened.side.model, path)) if path else opened.side


def _within(root: str, path: str) -> str:
    return ".".join(one for one in (root, path) if one)


def _names_of(names: NameMap, sides: Sequence[Side], roots: tuple[str, str]) -> NameMap:
    """The map of two parts of the models: a part's parameters keep their names, or lose the part's own."""
    if roots == ("", ""):
        return names
    mine, theirs = (
        {_within(root, name) if name.partition(".")[0] != root.partition(".")[0] else name: name
         for name in side.reader.read_values(side.model)}
        for side, root in zip(sides, roots, strict=True)
    )  # fmt: skip
    kept = [one for one in names.pairings if one.source in mine and one.target in theirs]
    own = tuple(replace(one, source=mine[one.source], target=theirs[one.target]) for one in kept)
    left = {"source": mine, "target": theirs}
    dropped = tuple(replace(one, name=left[one.side][one.name]) for one in names.dropped if one.name in left[one.side])
    return NameMap(names.source, names.target, own, dropped, frameworks=names.frameworks)


def given_to(root: str, trace: StepTrace) -> dict[str, Array]:
    """What a module was given first, by the names of what it takes."""
    of_root = [one for one in trace.forward.inputs if one.module == root]
    first = min((one.call for one in of_root), default=0)
    return {one.output: trace.forward.value(one) for one in of_root if one.call == first}


def _explained(one: StepCulprit, found: Sequence[Culprit]) -> StepCulprit:
    """What was found at the place, in the same code, alone inside of it, or alone at all around it, if it says more."""
    exact = [other for other in found if {other.candidate, other.facts.get(SHOWS_AT)} & {one.near, one.candidate}]
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
