"""Why the loss gives another gradient for the same outputs: a setting that is tried, one factor, or its own formula.

Of a cross entropy of the user's own that is its labels, a softmax before it, how it smooths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import softmax

from align.core.protocols import LayerRebuilder
from align.errors import CannotRunError, UserCodeError
from align.lint.lint_sides import compare_loss_settings
from align.models.live_calls import leaves
from align.rules.pitfalls import pitfalls
from align.training.faults.find_step_faults import LayerFaults
from align.training.steps.judge_step import StepJudge
from align.training.thresholds import (
    CLASS_SHIFTS,
    CROSS_ENTROPY_FEWEST_ROWS,
    CROSS_ENTROPY_SHARE,
    FACTOR_TOLERANCE,
    LABEL_SHIFTS,
    LEAST_SMOOTHING,
    RELATION_ELEMENTS,
    SAMPLES_TOLERANCE,
    SOFTMAX_TOLERANCE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch, Model
    from align.lint.compare_settings import SettingFinding
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import ReplacedTensor
    from align.training.steps.recorded_steps import RecordedSteps

    Facts = dict[str, float | int | str]


TWICE, MISSING, OTHERWISE = "softmax-twice", "softmax-missing", "outputs-taken-otherwise"
AT_THE_END = "softmax-at-the-end"
NO_FAULT = "no-fault"
OUTPUTS = {"no-gradient": "output-left-out", "gradient-not-stopped": "output-used"}


def explain_cross_entropy(culprit: StepCulprit, seen: SeenSteps, module: str = "") -> StepCulprit:
    """Name what the loss does otherwise with the outputs and labels, if both sides' gradients show a cross entropy.

    They are those that come back to what a module returned, "" for the model itself. The cause is NO_FAULT if the one
    takes the logarithms of shares for what they are, and the other for logits: the softmax of these is the same.
    """
    for (outputs, mine, theirs), samples in _gradients(seen, module):
        forms = _forms(outputs, mine, theirs, [one[samples] for one in _labels(seen.sides[0].batches[0])])
        if forms is not None:
            causes, facts = _differences(*forms)
            if OTHERWISE in causes and _are_the_same(outputs, forms):
                causes.remove(OTHERWISE)
                if not causes:
                    return replace(culprit, cause=NO_FAULT)
            if causes:
                facts = {**culprit.facts, **facts}
                return replace(culprit, cause=" + ".join(causes), facts=facts, sureness="confirmed")
    return culprit


def _are_the_same(outputs: Array, forms: tuple[LossForm, LossForm]) -> bool:
    """Tell whether the softmax of the outputs is what they are the logarithms of."""
    return {one.taken_for for one in forms} == {"logits", "log-probabilities"} and are_logarithms(outputs)


def explain_loss_inside(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name what the loss of a model does otherwise that returns it itself, from the layer before it."""
    if seen.live is None or seen.live.training.loss is not None or not culprit.near:
        return culprit
    found = explain_cross_entropy(culprit, seen, culprit.near)
    return culprit if found.cause in ("", NO_FAULT) else replace(found, kind="loss", part="loss", near="")


def explain_outputs(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name a softmax at the end of the model on one side only, where its outputs differ by just that."""
    for tensor in _seen_of(seen, ""):
        meant, value = tensor.meant, tensor.value
        if tensor.way == "forward" and meant is not None and value is not None and meant.ndim > 1:
            for side, pair in (("candidate", (meant, value)), ("reference", (value, meant))):
                if _is_softmax(*pair):
                    return replace(culprit, cause=AT_THE_END, facts={"softmax": side}, sureness="confirmed")
    return culprit


def _is_softmax(values: Array, shares: Array) -> bool:
    """Tell whether shares are the softmax of values along the last axis, or axis 1."""
    for axis in {1, values.ndim - 1}:
        found = softmax(np.moveaxis(values.astype(np.float64), axis, -1), axis=-1)
        if np.abs(found - np.moveaxis(shares, axis, -1)).max(initial=0.0) <= SOFTMAX_TOLERANCE:
            return True
    return False


def _gradients(seen: SeenSteps, module: str) -> Iterator[tuple[tuple[Array, Array, Array], slice]]:
    """What a module returned, with the gradients that come back on both sides, and the samples that these are.

    They are of all its calls, one after another, and then of the first of several: each may have its own mean.
    """
    known: dict[str, list[tuple[Array, Array, Array]]] = {}
    for tensor in _seen_of(seen, module):
        if (
            tensor.way == "backward"
            and tensor.own.role == "output"
            and tensor.meant is not None
            and tensor.value is not None
        ):
            outputs = seen.traces[0].forward.value(tensor.capture)
            known.setdefault(tensor.own.output, []).append((outputs, tensor.meant, tensor.value))
    for calls in known.values():
        if calls[0][0].ndim and len({call[0].shape[1:] for call in calls}) == 1:
            outputs, mine, theirs = (np.concatenate(own) for own in zip(*calls, strict=True))
            yield (outputs, mine, theirs), slice(None)
            if len(calls) > 1:
                yield calls[0], slice(len(calls[0][0]))


def _seen_of(seen: SeenSteps, module: str) -> list[ReplacedTensor]:
    """What a candidate that is here shows of a module, given the reference's tensors once more."""
    if seen.live is None:
        return []
    judge = StepJudge(seen.noise, seen.precision)
    tensors: list[ReplacedTensor] = []

    def note(tensor: ReplacedTensor) -> float:
        if tensor.own.module == module and tensor.own.role == "output":
            copied = None if tensor.value is None else np.array(tensor.value)
            tensors.append(replace(tensor, value=copied))
        return judge(tensor)

    sink = seen.replaced_step(note)
    seen.live.trainer.take_steps(seen.live.training, seen.sides[0].batches[:1], sink)
    return tensors


def _labels(batch: Batch) -> list[Array]:
    """Arrays of a batch that may be labels."""
    return [one for _, one in leaves(batch) if isinstance(one, np.ndarray) and one.ndim and one.dtype.kind in "iu"]


def _forms(outputs: Array, mine: Array, theirs: Array, arrays: Sequence[Array]) -> tuple[LossForm, LossForm] | None:
    """The forms of both sides with the first labels that give both; None if there are none."""
    for labels in arrays:
        first = cross_entropy_form(outputs, mine, labels)
        second = None if first is None else cross_entropy_form(outputs, theirs, labels)
        if first is not None and second is not None:
            return first, second
    return None


def _differences(mine: LossForm, theirs: LossForm) -> tuple[list[str], Facts]:
    causes: list[str] = []
    facts: Facts = {}
    if mine.taken_for != theirs.taken_for:
        causes.append(_softmax_cause(mine, theirs))
        facts["outputs are taken for"] = f"{mine.taken_for} vs {theirs.taken_for}"
    if mine.positions != theirs.positions:
        causes.append("labels-shifted")
        facts["positions"] = f"{mine.positions:+d} vs {theirs.positions:+d}"
    if mine.classes != theirs.classes:
        causes.append("labels-of-other-classes")
        facts["classes"] = f"{mine.classes:+d} vs {theirs.classes:+d}"
    if abs(mine.smoothing - theirs.smoothing) > FACTOR_TOLERANCE:
        causes.append("cross-entropy-smoothing")
        facts["label_smoothing"] = f"{mine.smoothing:g} vs {theirs.smoothing:g}"
    return causes + _factor(mine, theirs, facts), facts


def _softmax_cause(mine: LossForm, theirs: LossForm) -> str:
    again = {("logits", "logits after a softmax"), ("probabilities", "logits")}
    pair = mine.taken_for, theirs.taken_for
    if pair in again:
        return TWICE
    return MISSING if pair[::-1] in again else OTHERWISE


def _factor(mine: LossForm, theirs: LossForm, facts: Facts) -> list[str]:
    """One factor too, unless both take the sum, or the mean of as many samples as each has."""
    ratio = theirs.factor / mine.factor
    means = ratio * theirs.samples / mine.samples
    if min(abs(ratio - 1.0), abs(means - 1.0)) <= FACTOR_TOLERANCE:
        return []
    facts["factor"] = float(f"{ratio:.4g}")
    sums = abs(ratio / mine.samples - 1.0), abs(ratio * theirs.samples - 1.0)
    return ["mean-against-sum"] if min(sums) <= FACTOR_TOLERANCE else ["gradient-factor"]


def explain_loss(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name the settings that differ, "confirmed" if the candidate's loss agrees once it is built with the reference's.

    That is tried with a live candidate: its loss takes the step on the reference's tensors.
    """
    if culprit.cause in OUTPUTS and _has_other_outputs(seen):
        return replace(culprit, cause=OUTPUTS[culprit.cause])
    findings = _settings(seen.sides)
    if findings:
        confirmed = seen.live is not None and _agrees(seen, seen.live, findings)
        if not confirmed and (named := explain_cross_entropy(culprit, seen)) is not culprit:
            return named
        settings = {
            finding.setting: f"{finding.reference_setting} vs {finding.candidate_setting}" for finding in findings
        }
        return replace(
            culprit,
            cause=" + ".join(finding.rule for finding in findings),
            facts={**culprit.facts, **settings},
            change="; ".join(finding.change for finding in findings),
            sureness="confirmed" if confirmed else "suspected",
        )
    factor = culprit.facts.get("factor")
    factor = float(factor) if isinstance(factor, (int, float)) else None
    counts = _counts(seen.sides[0].batches[0])
    for number, samples in enumerate(counts):
        if factor is not None and _is_one_of(factor, samples):
            facts: Facts = {**culprit.facts, "samples": samples}
            return replace(
                culprit, cause="mean-against-sum", facts=facts, sureness="suspected" if number else "confirmed"
            )
    for mine, theirs in permutations(counts, 2):
        if factor is not None and abs(factor * theirs / mine - 1.0) < SAMPLES_TOLERANCE:
            facts = {**culprit.facts, "values": f"{mine} vs {theirs}"}
            return replace(culprit, cause="mean-over-others", facts=facts, sureness="suspected")
    return culprit if culprit.cause else explain_cross_entropy(culprit, seen)


def _has_other_outputs(seen: SeenSteps) -> bool:
    """Tell whether some output of the model gets its right gradient, while another one does not."""
    begins = (one for one in seen.judge.seen if one.way == "backward" and not one.own.module)
    return any(one.factor <= 1.0 for one in begins)


def _counts(batch: Batch) -> list[int]:
    """What a mean may be taken over: the samples, all labels of a sequence, or those that are not ignored."""
    arrays = [value for _, value in leaves(batch) if isinstance(value, np.ndarray) and value.ndim]
    labels = [value for value in arrays if value.dtype.kind in "iu"]
    masks = [value for value in arrays if np.isin(value, (0, 1)).all()]
    counts = [max((len(value) for value in arrays), default=0)]
    parts = [part for value in labels for part in (value, value[:, 1:] if value.ndim > 1 else value)]
    counts += [count for one in parts for count in (one.size, int((one >= 0).sum()), int((one > 0).sum()))]
    counts += [int((one != 0).sum()) for value in masks for one in (value, value[:, 1:] if value.ndim > 1 else value)]
    counts += [value[:, 1:].size for value in (*labels, *masks) if value.ndim > 1]  # next tokens
    return [*dict.fromkeys(count for count in counts if count > 1)]


def _is_one_of(factor: float, samples: int) -> bool:
    return abs(factor / samples - 1.0) < SAMPLES_TOLERANCE or abs(factor * samples - 1.0) < SAMPLES_TOLERANCE


def _settings(sides: tuple[RecordedSteps, RecordedSteps]) -> list[SettingFinding]:
    losses = sides[0].loss, sides[1].loss
    if losses[0] is None or losses[1] is None:
        return []
    return [
        one for one in compare_loss_settings((losses[0], losses[1]), pitfalls()).findings if one.severity == "error"
    ]


def _agrees(seen: SeenSteps, candidate: TrainingSide, findings: list[SettingFinding]) -> bool:
    loss = _rebuilt(candidate, findings)
    if loss is None:
        return False
    judge = StepJudge(seen.noise, seen.precision)
    sink = seen.replaced_step(judge)
    try:
        candidate.trainer.take_steps(replace(candidate.training, loss=loss), seen.sides[0].batches[:1], sink)
    except UserCodeError:
        return False
    faults = LayerFaults(seen.calls.pairs, {})
    faults.take(judge.seen)
    return all(one.part != "loss" for one in faults.culprits())


def _rebuilt(side: TrainingSide, findings: list[SettingFinding]) -> Model | None:
    """The candidate's loss with the reference's settings; None if it cannot be built so."""
    reader = side.side.reader
    changes = {name: value for one in findings for name, value in one.arguments.items()}
    if not isinstance(reader, LayerRebuilder) or not changes:
        return None
    try:
        return reader.rebuilt(side.training.loss, "", changes)
    except (CannotRunError, UserCodeError):
        return None


# Cross entropy in the forms that ports give it, recognised by the gradient that it sends back to the outputs.
#
# That gradient is known in closed form: it shows by which labels, of which position, it was taken, whether the
# outputs went through a softmax before, and how labels were smoothed. A form counts if it gives the gradient of all
# samples.

TakenFor = Literal["logits", "log-probabilities", "probabilities", "logits after a softmax"]
TAKEN_FOR: tuple[TakenFor, ...] = ("logits", "log-probabilities", "probabilities", "logits after a softmax")


@dataclass(frozen=True, slots=True)
class LossForm:
    """What a cross entropy does with outputs and labels, and the `factor` of the gradient of each sample.

    A label is taken from `positions` further on in the sequence, and `classes` are added to it. `samples` counts those
    that have a gradient.
    """

    taken_for: TakenFor
    positions: int
    classes: int
    smoothing: float
    factor: float
    samples: int


def cross_entropy_form(outputs: Array, gradient: Array, labels: Array) -> LossForm | None:
    """Return the plainest form that gives the gradient of the outputs, None if none does.

    `outputs` have a row of classes for each label, along their last axis or along axis 1.
    """
    rows = _rows(outputs, gradient, labels)
    if rows is None:
        return None
    logits, given, places = rows
    for positions, classes, taken_for in _by_plainness():
        moved = _moved(places, positions)[..., : logits.shape[-2]] if logits.ndim > 2 else _moved(places, positions)
        chosen = _chosen(given, moved, logits.shape[-1])
        if chosen is None:
            continue
        own = (moved[chosen] + classes) % logits.shape[-1]
        found = _fitted(taken_for, logits[chosen], given[chosen], own)
        if found is not None:
            count = int(given.any(axis=-1).sum())
            return LossForm(taken_for, positions, classes, found[1], found[0], count)
    return None


def _by_plainness() -> Iterator[tuple[int, int, TakenFor]]:
    every = product(LABEL_SHIFTS, CLASS_SHIFTS, TAKEN_FOR)
    return iter(
        sorted(every, key=lambda one: (bool(one[0]) + bool(one[1]) + (one[2] != "logits"), abs(one[0]) + abs(one[1])))
    )


def _rows(outputs: Array, gradient: Array, labels: Array) -> tuple[Array, Array, Array] | None:
    """Outputs and gradient with the classes last, and the labels in the shape of what is before."""
    if outputs.ndim < 2 or outputs.shape != gradient.shape or labels.dtype.kind not in "iu":
        return None
    shape = outputs.shape
    if labels.shape == shape[:-1] or labels.shape == (int(np.prod(shape[:-1])),):
        return outputs, gradient, labels.reshape(shape[:-1])
    if labels.ndim == outputs.ndim - 1 > 1 and labels.shape[:-1] == shape[:-2] and labels.shape[-1] > shape[-2]:
        return outputs, gradient, labels  # of a whole sequence, all but the last of which went in
    if labels.shape == (shape[0], *shape[2:]):
        return np.moveaxis(outputs, 1, -1), np.moveaxis(gradient, 1, -1), labels
    return None


def _moved(labels: Array, positions: int) -> Array:
    """The labels of so many positions further on along the last axis; one below the least where there is none."""
    wide = labels.astype(np.int64)
    if not positions:
        return wide
    found = np.roll(wide, -positions, axis=-1)
    lost = slice(-positions, None) if positions > 0 else slice(None, -positions)
    found[..., lost] = np.iinfo(np.int64).min
    return found


def _chosen(given: Array, labels: Array, classes: int) -> Array | None:
    """Which rows are looked at: those with a gradient, whose label is known; None if one of them has no class."""
    known = labels > np.iinfo(np.int64).min
    filled = given.any(axis=-1) & known
    if filled.sum() < CROSS_ENTROPY_FEWEST_ROWS or np.any((labels[filled] < 0) | (labels[filled] >= classes)):
        return None
    places = np.flatnonzero(filled)
    most = max(CROSS_ENTROPY_FEWEST_ROWS, RELATION_ELEMENTS // classes)
    if len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
    chosen = np.zeros(filled.size, bool)
    chosen[places] = True
    return chosen.reshape(filled.shape)


def _fitted(taken_for: TakenFor, outputs: Array, given: Array, labels: Array) -> tuple[float, float] | None:
    """The factor and the smoothing with which a form gives the gradient of rows; None if it does not."""
    wide, right = outputs.astype(np.float64), given.astype(np.float64)
    columns = [direction.reshape(-1) for direction in _directions(taken_for, wide, labels)]
    flat = right.reshape(-1)
    if not all(np.isfinite(values).all() for values in (*columns, flat)):
        return None
    solved, *_ = np.linalg.lstsq(np.stack(columns, axis=1), flat, rcond=None)
    factor, part = (float(value) for value in solved)
    smoothing = part / factor if factor else 0.0
    if not LEAST_SMOOTHING < smoothing < 1.0:
        smoothing = 0.0
        factor = float(columns[0] @ flat) / (float(columns[0] @ columns[0]) or 1.0)
    rest = flat - factor * (columns[0] + smoothing * columns[1])
    if not factor or np.sqrt(rest @ rest) > CROSS_ENTROPY_SHARE * np.sqrt(flat @ flat):
        return None
    return factor, float(f"{smoothing:.3g}")


def _directions(taken_for: TakenFor, outputs: Array, labels: Array) -> tuple[Array, Array]:
    """The gradient of each row's loss, and what a smoothing of 1 adds to it."""
    wanted = np.zeros_like(outputs)
    wanted[np.arange(len(labels)), labels] = 1.0
    spread = wanted - 1.0 / outputs.shape[-1]
    if taken_for == "logits":
        return softmax(outputs, axis=-1) - wanted, spread
    if taken_for == "log-probabilities":
        return -wanted, spread
    if taken_for == "probabilities":
        with np.errstate(divide="ignore", invalid="ignore"):
            return -wanted / outputs, spread / outputs
    shares = softmax(outputs, axis=-1)
    return _through_softmax(shares, softmax(shares, axis=-1) - wanted), _through_softmax(shares, spread)


def are_logarithms(outputs: Array) -> bool:
    """Tell whether outputs are the logarithms of shares of classes, along the last axis or axis 1."""
    sums = (np.exp(outputs.astype(np.float64)).sum(axis=axis) for axis in {1, outputs.ndim - 1})
    return any(np.abs(one - 1.0).max(initial=0.0) <= CROSS_ENTROPY_SHARE for one in sums)


def _through_softmax(shares: Array, gradient: Array) -> Array:
    return np.asarray(shares * (gradient - (shares * gradient).sum(axis=-1, keepdims=True)))
