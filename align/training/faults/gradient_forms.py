"""Gradients as optimizers get them: what a loop of the user's own makes of right ones, in the first step and later.

Both sides may clip, each in its own form, or add something. What a side makes of its gradients is a form that gives the
same figures in all steps. It is read off what was computed and what the optimizer got, of one side alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.training.apply_rule import gradient_norm
from align.training.faults.find_step_faults import clipped_by_norm, value_culprits
from align.training.step_result import StepCulprit
from align.training.steps.both_steps import judge_values, paired_values, values_of_both
from align.training.steps.judge_step import NOT_CLEARED, GradientRelation
from align.training.steps.record_step import BEFORE, COMPUTED, GIVEN, take_again, unscaled
from align.training.thresholds import (
    ADDED_ROUNDING_SHARE,
    CLEAR_GAP_ROUNDINGS,
    CLIP_DIGITS,
    FACTOR_TOLERANCE,
    FEWEST_AT_BOUND,
    SAME_GRADIENTS_SHARE,
    TERM_FEWEST_ELEMENTS,
    TERM_TOLERANCE,
    TERM_UNEXPLAINED_SHARE,
    UNEXPLAINED_SHARE,
    UNLIKE_NORMS_SHARE,
    WRITTEN_DIGITS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import Array
    from align.training.steps.both_steps import JudgedValue, SeenSteps

    Gradients = Mapping[str, Array]
    Vectors = tuple[Array, Array]


Kind = Literal["as they are", "all by norm", "each by norm", "by value", "decay"]
CAUSES: dict[Kind, str] = {
    "as they are": "gradients-left-as-they-are",
    "all by norm": "gradients-clipped-by-norm",
    "each by norm": "gradients-clipped-by-own-norm",
    "by value": "gradient-clipped",
    "decay": "decay-in-gradients",
}
NUMBERS: dict[Kind, str] = {"all by norm": "norm", "each by norm": "norm", "by value": "bound", "decay": "decay"}


@dataclass(frozen=True, slots=True)
class GradientForm:
    """What is made of gradients: clipped to `number`, or `number` times the value of the parameter is added."""

    kind: Kind
    number: float = 0.0

    @property
    def description(self) -> str:
        """The form in a few words."""
        return self.kind if self.kind == "as they are" else f"{self.kind} {self.number:.4g}"

    def apply(self, computed: Gradients) -> Iterator[tuple[str, Array]]:
        """Yield what an optimizer is to get, in float64; of clipping only."""
        whole = float(np.linalg.norm([gradient_norm(one) for one in computed.values()]))
        for name, value in computed.items():
            gradient = value.astype(np.float64)
            if self.kind == "by value":
                gradient = np.clip(gradient, -self.number, self.number)
            elif self.kind != "as they are":
                norm = whole if self.kind == "all by norm" else gradient_norm(value)
                gradient *= min(1.0, self.number / norm) if norm else 1.0
            yield name, gradient


# What somebody takes for the norm of all gradients, each in proportion to them.
OTHER_NORMS: dict[str, Callable[[Gradients], float]] = {
    "sum of the tensors' norms": lambda own: sum(map(gradient_norm, own.values())),
    "largest norm of a tensor": lambda own: max(map(gradient_norm, own.values())),
    "largest number": lambda own: max(float(np.abs(one).max(initial=0.0)) for one in own.values()),
    "sum of all numbers' sizes": lambda own: sum(float(np.abs(one).sum(dtype=np.float64)) for one in own.values()),
}
AS_THEY_ARE = GradientForm("as they are")
LAST_PART = GradientRelation("last-part-only")


def explain_given(given: Sequence[JudgedValue], seen: SeenSteps) -> list[JudgedValue]:
    """Give all that is off the relation that what both sides do explains; as they are, if that is not known.

    A form of a side has to make of what it computed what its optimizer got, in each step and for each parameter. Where
    both do the same, what is off comes of something else, as the norm of fewer or of wrong gradients: it is left out.
    """
    off = [gradient for gradient in given if gradient.factor > 1.0 and not gradient.is_noise]
    if off and _are_last_parts(seen, [gradient.pairing.target for gradient in given]):
        return [replace(gradient, relation=LAST_PART) if gradient in off else gradient for gradient in given]
    forms = (_form(seen, 0), _form(seen, 1)) if off else (None, None)
    if forms[0] is not None and forms[1] is None:
        by_other = _by_other_norm(forms[0], off, seen.first.given_gradients)
        return [
            replace(gradient, relation=by_other) if by_other and gradient in off else gradient for gradient in given
        ]
    if forms[0] is None or forms[1] is None:
        return [*given]
    if forms[0] == forms[1]:  # of a norm that is taken over others too; what is left as it is has no such reason
        follows = off if forms[0].kind == "all by norm" else []
        return [gradient for gradient in given if gradient not in follows or gradient.measurement is None]
    relation = _relation(forms[0], forms[1])
    return [replace(gradient, relation=relation) if gradient in off else gradient for gradient in given]


def _by_other_norm(reference: GradientForm, off: Sequence[JudgedValue], given: Gradients) -> GradientRelation | None:
    """Tell that one factor brings another norm of all gradients to the number that the reference clips theirs to."""
    factors = [one.relation.facts.get("factor") for one in off if one.relation.cause == "gradient-factor"]
    known = [one for one in factors if isinstance(one, (int, float))]
    if reference.kind != "all by norm" or len(known) < len(off) or not _is_one(known):
        return None
    for name, norm in OTHER_NORMS.items():
        if abs(norm(given) / reference.number - 1.0) <= FACTOR_TOLERANCE:
            facts: dict[str, float | int | str] = {"norm": name, "reference": reference.description}
            return GradientRelation("gradients-clipped-by-other-norm", facts)
    return None


def _is_one(factors: Sequence[float]) -> bool:
    return bool(factors) and max(factors) - min(factors) <= FACTOR_TOLERANCE * abs(max(factors))


def _are_last_parts(seen: SeenSteps, names: Sequence[str]) -> bool:
    """Tell whether the candidate's optimizer got multiples of the gradients of the last part of a batch alone.

    All tensors of several elements have to show it, and one has to have another gradient in all parts together.
    """
    last, given, whole = seen.first.last_gradients, seen.first.given_gradients, seen.first.computed_gradients
    known = [name for name in names if name in last and name in given and last[name].size > 1 and np.any(last[name])]
    if not known or not all(_is_multiple(last[name], given[name]) for name in known):
        return False
    return not all(_is_multiple(last[name], whole[name]) for name in known)


def _is_multiple(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    flat = [value.reshape(-1).astype(np.float64) for value in (one, other)]
    factor = float(flat[0] @ flat[1]) / float(flat[0] @ flat[0])
    return rms(flat[1] - factor * flat[0]) <= FACTOR_TOLERANCE * rms(flat[1])


def _form(seen: SeenSteps, side: int) -> GradientForm | None:
    """What a side makes of its gradients, of the candidate first of all under the reference's."""
    trace = seen.traces[side]
    steps: list[tuple[Gradients, Gradients]] = [
        (seen.computed(side, step, scaled=False), trace.values(step, GIVEN)) for step in range(len(trace.losses))
    ]
    values: Gradients = seen.start if side else trace.values(0, BEFORE)
    if side:
        own = {name: unscaled(one, seen.scales[0]) for name, one in seen.first.computed_gradients.items()}
        steps.insert(0, (own, seen.first.given_gradients))
    return _clipping_form(steps) or _decay_form(steps[0], values)


def _clipping_form(steps: Sequence[tuple[Gradients, Gradients]]) -> GradientForm | None:
    """Return what makes of each step's computed gradients those that were given; None if that is not known.

    Gradients are by the names of parameters. Those that are not computed, or not given, are left out.
    """
    paired = [_paired(*step) for step in steps]
    if not paired or not paired[0][0]:
        return None
    for form in (AS_THEY_ARE, *_clipping(*paired[0])):
        if all(_gives(form, *step) for step in paired) and (
            _is_written(form.number) or _has_several_sizes(form, paired)
        ):
            return form
    return None


def _decay_form(step: tuple[Gradients, Gradients], values: Gradients) -> GradientForm | None:
    """Return by what share of their values the gradients of a step were moved; None if that is not all."""
    computed, given = _paired(*step)
    gaps = {
        name: GradientGap(
            given[name].astype(np.float64) - computed[name], values[name], ADDED_ROUNDING_SHARE * rms(given[name])
        )
        for name in computed
        if name in values
    }
    term = value_term(gaps)
    if term is None or term.kind != "l2":
        return None
    others = (gap for name, gap in gaps.items() if name not in term.names)
    same = all(rms(gap.gap) <= UNEXPLAINED_SHARE * rms(term.coefficient * gap.value) + gap.rounding for gap in others)
    return GradientForm("decay", term.coefficient) if same else None


def _paired(computed: Gradients, given: Gradients) -> tuple[dict[str, Array], dict[str, Array]]:
    names = [name for name in computed if name in given and computed[name].shape == given[name].shape]
    return {name: computed[name] for name in names}, {name: given[name] for name in names}


def _clipping(computed: Gradients, given: Gradients) -> Iterator[GradientForm]:
    """The bounds that the first step suggests."""
    norms = {name: gradient_norm(gradient) for name, gradient in given.items()}
    cut = [norms[name] for name in given if norms[name] < gradient_norm(computed[name]) * (1 - UNEXPLAINED_SHARE)]
    if not cut:
        return
    yield GradientForm("all by norm", _rounded(float(np.linalg.norm([*norms.values()]))))
    yield GradientForm("each by norm", _rounded(max(cut)))
    bound = max(float(np.abs(gradient).max(initial=0.0)) for gradient in given.values())
    beyond = sum(int((np.abs(gradient) > bound * (1 + UNEXPLAINED_SHARE)).sum()) for gradient in computed.values())
    if beyond >= FEWEST_AT_BOUND or (beyond and _is_written(bound)):
        yield GradientForm("by value", _rounded(bound))


def _has_several_sizes(form: GradientForm, steps: Sequence[tuple[Gradients, Gradients]]) -> bool:
    """Tell whether gradients of several sizes have come to one norm: of one size it may be a mere factor."""
    if form.kind == "by value":
        return True
    sizes = [
        np.linalg.norm([gradient_norm(gradient) for gradient in computed.values()])
        if form.kind == "all by norm"
        else [size for gradient in computed.values() if (size := gradient_norm(gradient)) > form.number]
        for computed, _ in steps
    ]
    known = np.concatenate([np.atleast_1d(norms) for norms in sizes])
    return bool(known.size and np.ptp(known) > UNLIKE_NORMS_SHARE * known.max())


def _is_written(number: float) -> bool:
    return not number or abs(number / float(f"{number:.{WRITTEN_DIGITS}g}") - 1.0) <= FACTOR_TOLERANCE


def _rounded(number: float) -> float:
    """A number that somebody may have written."""
    return float(f"{number:.{CLIP_DIGITS}g}")


def _gives(form: GradientForm, computed: Gradients, given: Gradients) -> bool:
    """Tell whether a form gives what was given, each by its own size."""
    expected = dict(form.apply(computed))
    return all(rms(given[name] - one) <= FACTOR_TOLERANCE * max(rms(one), 1e-30) for name, one in expected.items())


def _relation(mine: GradientForm, theirs: GradientForm) -> GradientRelation:
    facts: dict[str, float | int | str] = {}
    if theirs != AS_THEY_ARE:
        facts[NUMBERS[theirs.kind]] = theirs.number
    if mine != AS_THEY_ARE:
        facts["reference"] = mine.description
    return GradientRelation(CAUSES[theirs.kind], facts)


def given_by_loops(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What a step of the user's own makes of right gradients before an optimizer gets them.

    What is off by more than the noise of the gradient, and by more than arithmetic in its dtype explains, is wrong.
    """
    if not any(side.own_step for side in seen.sides) or not seen.sees_updates:
        return []
    right = {gradient.pairing.target for gradient in computed if gradient.factor <= 1.0 and not gradient.is_noise}
    given = seen.traces[0].values(0, GIVEN), seen.first.given_gradients
    pairs = [pair for pair in paired_values(seen.gradient_names, *given) if pair.pairing.target in right]
    by_dtype = judge_values(iter(pairs), None, (0, GIVEN), alone=True, coarser=seen.precision_of)
    by_noise = judge_values(iter(pairs), seen.noise.alone, (0, COMPUTED), alone=True, coarser=seen.precision_of)
    return [
        min(both, key=lambda judged: judged.factor)
        for both in zip(by_dtype, by_noise, strict=True)
        if not both[0].is_noise
    ]


def given_in_whole(seen: SeenSteps) -> list[JudgedValue]:
    """What the optimizers of both sides get in the first step, as each takes it."""
    return given_in_step(seen, 0)


def given_in_step(seen: SeenSteps, step: int) -> list[JudgedValue]:
    """What they get in a step; of a loss that is scaled the rounding is that of gradients without the scale."""
    pairs = paired_values(seen.gradient_names, *(trace.values(step, GIVEN) for trace in seen.traces))
    what = COMPUTED if seen.scales[0] == 1.0 else GIVEN
    return [*judge_values(pairs, seen.noise.together, (step, what), alone=False, coarser=seen.precision_of)]


def same_given(seen: SeenSteps) -> bool:
    """Tell whether they get the same."""
    judged = given_in_whole(seen)
    return bool(judged) and all(one.factor <= 1.0 for one in judged if not one.is_noise)


def scaled_back(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What the step makes of its own scaled gradients: clipping by a norm that counts the scale shows only there."""
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    related = [one for one in given_in_whole(seen) if one.pairing.target in right and one.relation.cause]
    return clipped_by_norm(related, seen.traces[1].values(0, GIVEN))


def later_gradients(seen: SeenSteps, owners: Mapping[str, str], *, named: bool) -> Iterator[StepCulprit]:
    """What optimizers get in a later step and not in the first: what a step leaves behind for the next.

    A factor by which the first step is off is in all steps, and is taken out. Of sides apart, whose states are no
    longer the same, and of those where something else is `named`, only gradients with those of the step before in them
    count.
    """
    if not seen.sees_updates:
        return
    factors = {gradient.pairing: _factor_of(gradient) for gradient in given_in_whole(seen)}
    earlier: dict[Pairing, list[Array]] = {}

    def whole(_: str) -> tuple[str, str]:
        return seen.precision.whole

    for step in range(1, len(seen.traces[0].losses)):
        for pair in paired_values(seen.gradient_names, seen.traces[0].values(step - 1, GIVEN), {}):
            if pair.meant is not None and (factor := factors.get(pair.pairing)) is not None:
                earlier.setdefault(pair.pairing, []).append(unscaled(pair.meant, 1.0 / factor))
        pairs = paired_values(seen.gradient_names, *(trace.values(step, GIVEN) for trace in seen.traces))
        taken = (
            replace(pair, meant=None if pair.meant is None else unscaled(pair.meant, 1.0 / factor))
            for pair in pairs
            if (factor := factors.get(pair.pairing)) is not None
        )
        judged = [
            *judge_values(taken, seen.noise.together, (step, COMPUTED), alone=False, earlier=earlier, coarser=whole)
        ]
        known = seen.live and not named
        related = [
            gradient
            for gradient in judged
            if gradient.relation.cause and (known or gradient.relation.cause == NOT_CLEARED)
        ]
        if found := value_culprits(related, "gradients", "step", owners, step + 1):
            yield from (named_not_cleared(culprit, seen) for culprit in found)
            return
        off = tuple(gradient.pairing.target for gradient in judged if gradient.factor > 1.0 and not gradient.is_noise)
        if off and _has_sums(seen, step):
            facts: dict[str, float | int | str] = {"steps": step + 1}
            worst = max(gradient.factor for gradient in judged if gradient.pairing.target in off)
            yield StepCulprit(
                "gradients", "step", "", "", "", "", worst, NOT_CLEARED, facts, off, step=step + 1, sureness="confirmed"
            )
            return


def named_not_cleared(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name gradients that are kept from step to step, where no single one shows it: a loop may clip their sum.

    Such a loop may also keep them from one run of the steps to the next, so that only the first run begins without.
    """
    steps = range(1, len(seen.traces[0].losses))
    known = culprit.cause == NOT_CLEARED or culprit.sureness == "confirmed" or not same_given(seen)
    step = None if known else next((one for one in steps if _has_sums(seen, one)), None)
    if step is None:
        return culprit
    return replace(culprit, cause=NOT_CLEARED, facts={"steps": step + 1}, step=step + 1, sureness="confirmed")


def _has_sums(seen: SeenSteps, step: int) -> bool:
    """Tell whether the gradients of a step are one multiple of those of all steps so far together, as once clipped."""
    theirs = seen.traces[1].values(step, GIVEN)
    steps = [
        {
            pairing: (meant, candidate)
            for pairing, meant, candidate in values_of_both(
                seen.gradient_names, seen.computed(0, number, scaled=False), theirs
            )
        }
        for number in range(step + 1)
    ]
    shared = [pairing for pairing in steps[step] if all(pairing in gradients for gradients in steps)]
    if not shared:
        return False
    value = _vector(steps[step][pairing][1] for pairing in shared)
    sums = [_vector(gradients[pairing][0] for pairing in shared) for gradients in steps]
    together, alone = np.sum(sums, axis=0), sums[step]
    given = values_of_both(seen.gradient_names, seen.traces[0].values(step, GIVEN), theirs)
    kept = {pairing: meant for pairing, meant, _ in given}
    known = all(pairing in kept for pairing in shared)
    if known and _left_by(_vector(kept[pairing] for pairing in shared), together) <= UNEXPLAINED_SHARE:
        return False  # the reference keeps them too
    return _left_by(value, together) <= UNEXPLAINED_SHARE < UNLIKE_NORMS_SHARE < _left_by(value, alone)


def _vector(values: Iterable[Array]) -> Array:
    return np.concatenate([one.astype(np.float64).ravel() for one in values])


def _left_by(value: Array, other: Array) -> float:
    """What the best multiple of another vector leaves of one, as a share of its length."""
    size, along = float(np.linalg.norm(value)), float(other @ other)
    return float(np.linalg.norm(value - (value @ other / along) * other)) / size if size and along else 1.0


def _factor_of(first: JudgedValue) -> float | None:
    """The factor of the first step's gradient: 1 where it is right, None where it is off by no factor."""
    factor = 1.0 if first.factor <= 1.0 else first.relation.facts.get("factor")
    return float(factor) if isinstance(factor, (int, float)) and factor else None


# Terms of a loss that the model's outputs do not show: of the parameters themselves, or of other gradients.
#
# They are in the gradients of parameters, and no layer's way back is wrong. A multiple of the values shows in the
# figures; any other one in the plain step, which takes the loss of the outputs alone.

OF_VALUES = {"l2": "loss-term-l2", "l1": "loss-term-l1"}
OTHER = "loss-term-beside-outputs"
TermKind = Literal["l2", "l1"]


def value_terms(seen: SeenSteps, alone: Sequence[JudgedValue]) -> tuple[list[StepCulprit], list[JudgedValue]]:
    """Return culprits for multiples of the parameters' values or signs, and the gradients that these do not explain.

    A `coefficient` is that of the sum of squares, or of absolute values, beyond the reference's; `decay` is what an
    optimizer's decay would be.
    """
    off = {
        gradient.pairing.target: gradient
        for gradient in alone
        if gradient.factor > 1.0 and gradient.limit is not None and not gradient.is_noise
    }
    if not off:
        return [], [*alone]
    pairs = values_of_both(seen.gradient_names, seen.traces[0].values(0, COMPUTED), seen.first.computed_gradients)
    gaps = {}
    for pairing, meant, own in pairs:
        judged, value = off.get(pairing.target), seen.start.get(pairing.target)
        if judged is not None and judged.limit is not None and value is not None and value.shape == own.shape:
            gaps[pairing.target] = GradientGap(own.astype(np.float64) - meant, value, judged.limit.rmse)
    culprits = []
    while (term := value_term(gaps)) is not None:
        half = 2.0 if term.kind == "l2" else 1.0
        facts: dict[str, float | int | str] = {"coefficient": float(f"{term.coefficient / half:.4g}")}
        facts |= {"decay": term.coefficient} if term.kind == "l2" else {}
        culprits.append(_culprit(OF_VALUES[term.kind], facts, term.names, max(off[name].factor for name in term.names)))
        gaps = {name: gap for name, gap in gaps.items() if name not in term.names}
    explained = {name for culprit in culprits for name in culprit.parameters}
    return culprits, [gradient for gradient in alone if gradient.pairing.target not in explained]


def other_term(seen: SeenSteps, far: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Return one culprit for gradients that are `far` off though each layer is right, or `far` itself.

    It is another term of the loss if the plain steps agree, of the model and the loss that each side gives.
    """
    if (
        not far
        or seen.live is None
        or any(culprit.part != "code" or culprit.candidate or culprit.cause for culprit in far)
    ):
        return [*far]
    with TemporaryDirectory(prefix="align-") as folder:
        whole = seen.computed(0, 0, scaled=False), seen.computed(1, 0, scaled=False)
        plain = _plain(seen, 0, Path(folder) / "0"), _plain(seen, 1, Path(folder) / "1")
        if plain[0] is None or plain[1] is None:
            return [*far]
        facts = _compared_terms(_joined(seen, *whole), _joined(seen, plain[0], plain[1]))
    if facts is None:
        return [*far]
    names = tuple(name for culprit in far for name in culprit.parameters)
    return [_culprit(OTHER, facts, names, max(culprit.factor for culprit in far))]


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
    pairs = [one[1:] for one in values_of_both(seen.gradient_names, mine, theirs)]
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
    clear = {name: gap for name, gap in gaps.items() if rms(gap.gap) > CLEAR_GAP_ROUNDINGS * gap.rounding}
    terms = [*_terms("l2", clear), *_terms("l1", clear)]

    def size(term: ValueTerm) -> int:
        return sum(clear[name].gap.size for name in term.names)

    best = max(terms, key=size, default=None)
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


def _coefficient(kind: TermKind, gradient_gap: GradientGap) -> float | None:
    """The one number that makes a gap of a direction; None if there is none."""
    gap, direction = gradient_gap.gap.reshape(-1), _direction(kind, gradient_gap)
    weight = float(direction @ direction)
    if not weight or not np.isfinite(gap).all():
        return None
    found = float(gap @ direction) / weight
    return (
        found
        if found and rms(gap - found * direction) <= max(TERM_TOLERANCE * rms(gap), gradient_gap.rounding)
        else None
    )


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
