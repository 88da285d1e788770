"""The gradient of each sample of a batch by itself, on both sides: the samples that differ are named.

A sample is a batch of its own, from the reference's values: then what samples do to each other is left out, and
BatchNorm is held at its running statistics. How much each counts in the batch is seen in the gradient of the whole: it
is a sum of theirs, and the factors of that sum are compared too.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.name_map import SIDES
from align.core.protocols import ModelRunner, silent
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, UsageError, UserCodeError
from align.models.inputs import MadeArrays, SpilledArrays
from align.models.live_calls import leaves, with_leaves
from align.traces.open_trace import noise_of
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.training.open_training import StepUnseen, batch_findings, freeze, open_trainings, read_training_batch
from align.training.steps.both_steps import carried_over, judge_values, optimizer_scale, paired_values
from align.training.steps.judge_step import WIDE, RandomRounding, StepPrecision, scale_taken_off
from align.training.steps.record_step import COMPUTED, GIVEN, StepWriter, unscaled, value_capture
from align.training.steps.recorded_steps import FreeRun, groups_of, refuse_random_steps, take_freely, trained_parameters
from align.training.steps.see_both_sides import gradients_with_owners
from align.training.thresholds import (
    ELEMENTS_OF_GRADIENTS,
    LEAST_SAMPLE_INDEPENDENCE,
    LEAST_SAMPLE_SHARE,
    LOSS_NOISE_FACTOR,
    LOSS_ROUNDING_SHARE,
    LOSS_SHARE,
    MIXED_SAMPLES_SHARE,
    SAMPLE_WEIGHT_TOLERANCE,
    SAMPLES_IN_VERDICT,
    WIDE_STEP_SHARE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.parameters import Array
    from align.core.protocols import Batch, Progress
    from align.core.training import Training
    from align.core.verdicts import Severity
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import JudgedValue
    from align.training.steps.record_step import StepTrace

    Measured = tuple[Mapping[str, Array], float | None]  # gradients by name, and the loss


@dataclass(frozen=True, slots=True)
class ComparedSample:
    """One sample: its number in the batch, counted from 0, the losses of both sides, and its gradients.

    `factor` is the largest multiple of a limit, infinite where a gradient is missing, and `reference` and `candidate`
    name the parameter where it is, "" where the loss or the share is off and no gradient. Of `compared` gradients,
    `differing` are off. A share is the factor of the sample's gradient in that of the batch, None where it is unknown.
    """

    sample: int
    outcome: StepOutcome
    reference_loss: float | None
    candidate_loss: float | None
    loss_limit: float | None
    factor: float
    reference: str
    candidate: str
    differing: int
    compared: int
    reference_share: float | None = None
    candidate_share: float | None = None


@dataclass(frozen=True, slots=True)
class SampleComparison(ShownResult):
    """All samples of a batch, one by one; `reference` and `candidate` are the labels of the sides.

    `factor` is by how much most samples count more in the candidate's gradient of the batch, None where it is unknown.
    """

    result_kind = "samples"
    reference: str
    candidate: str
    samples: tuple[ComparedSample, ...]
    factor: float | None
    findings: tuple[Finding, ...]
    verdict: Verdict


def compare_samples(
    reference: str | Training,
    candidate: str | Training,
    *,
    batch: InputsSource,
    name_map: NameMap | Path | str | None = None,
    parameters: Sequence[str] = (),
    progress: Progress = silent,
) -> SampleComparison:
    """Take each sample's gradient on both sides, and name the samples that differ.

    Sides are as for `align.compare_training_step`, but no folders. `parameters` are patterns such as `head.*`, of
    names on either side; all are compared without them. Both sides compute on the reference's values, with BatchNorm at
    its running statistics and without dropout, and are left as they were. Raises CannotRunError for a batch without an
    axis of samples, and for a model that cannot take one sample alone; UsageError for patterns that fit no parameter.

    >>> import numpy
    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> side = Training(ArrayModel(()))
    >>> compare_samples(side, side, batch={"x": numpy.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    if folders := [side for side in (reference, candidate) if isinstance(side, (str, Path)) and Path(side).is_dir()]:
        raise UsageError.of("samples_error.folder", folder=folders[0])
    opened, whole = open_trainings(reference, candidate), read_training_batch(batch)
    findings = [finding for side in opened for finding in batch_findings(side, whole)]
    samples = split_samples(opened[0], whole)
    with ExitStack() as stack:
        wide = _widened(opened[0])
        frozen = [stack.enter_context(freeze(side.training.model)) for side in opened]
        if wide is not None:
            stack.enter_context(freeze(wide.model))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="align-")))
        sides = _SampleSides.of(opened, samples[0], name_map, folder, wide, parameters)
        table = _Table(sides if sides.is_same_wide(samples[0]) else replace(sides, wide=None))
        for number, sample in enumerate(samples):
            progress("sample", number, len(samples))
            table.add(sample)
        weights = table.weights(whole)
        progress("sample", len(samples), len(samples))
    frozen_counts = {
        "batchnorm": max(len(frozen_layers.batchnorm) for frozen_layers in frozen),
        "dropout": max(len(frozen_layers.dropout) for frozen_layers in frozen),
    }
    return _result(
        sides,
        table,
        weights,
        (*findings, *sides.findings),
        {key: count for key, count in frozen_counts.items() if count},
    )


def split_samples(side: TrainingSide, batch: Batch) -> list[Batch]:
    """A batch of one sample each: of arrays that are as long as the model's first input is, one entry.

    Raises CannotRunError where that has no axis, or where no array that goes to the loss is as long.
    """
    parts = side.trainer.split_batch(side.training, batch)
    inputs, targets = (_arrays(one) for one in (parts.inputs, parts.targets))
    count = len(inputs[0]) if inputs else 0
    if not count or (targets and all(len(one) != count for one in targets)):
        shapes = [f"{name} {one.shape}" for name, one in leaves(dict(batch)) if isinstance(one, np.ndarray)]
        raise CannotRunError.of("samples_error.no_axis", shapes=shapes)

    def one_of(number: int, _name: str, leaf: Any) -> Any:
        is_long = isinstance(leaf, np.ndarray) and leaf.ndim and len(leaf) == count
        return leaf[number : number + 1] if is_long else leaf

    return [with_leaves(dict(batch), partial(one_of, number)) for number in range(count)]


def _arrays(values: Mapping[str, Any]) -> list[Array]:
    return [one for _, one in leaves(dict(values)) if isinstance(one, np.ndarray) and one.ndim]


def _widened(side: TrainingSide) -> Training | None:
    """The reference's model and loss in float64; None where there is none, and for a step without a loss."""
    training, reader = side.training, side.side.reader
    if (training.step is not None and training.loss is None) or not isinstance(reader, ModelRunner):
        return None
    model = reader.widened(training.model)
    loss = reader.widened(training.loss) if reader.owns(training.loss) else training.loss
    return None if model is None else replace(training, model=model, loss=loss, optimizer=None, step=None)


# Both sides, paired, each ready to compute the gradients of a batch from the reference's values.


class _GradientsOfBatch(StepUnseen):
    """A StepSink that keeps the gradients of some parameters, from values to begin with."""

    def __init__(self, start: Mapping[str, Array], wanted: Collection[str]) -> None:
        self._start, self._wanted = start, wanted
        self.gradients, self.loss = SpilledArrays(), None  # type: SpilledArrays, float | None

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the given values."""
        return self._start

    def computed(self, name: str, gradient: Array) -> None:
        """Add up what the way back gives."""
        if name in self._wanted:
            known = self.gradients.get(name)
            self.gradients[name] = gradient if known is None else known + gradient

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Keep the loss."""
        self.loss = loss


@dataclass(frozen=True)
class _SampleSides:
    """Both sides with their names paired; `scales` are those of the losses of steps that take them off again."""

    opened: tuple[TrainingSide, TrainingSide]
    trainings: tuple[Training, Training]
    names: NameMap
    wanted: tuple[Collection[str], Collection[str]]
    start: Mapping[str, Array]
    precision: StepPrecision
    scales: tuple[float, float]
    wide: Training | None
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls,
        opened: tuple[TrainingSide, TrainingSide],
        sample: Batch,
        given: NameMap | Path | str | None,
        folder: Path,
        wide: Training | None,
        patterns: Sequence[str],
    ) -> _SampleSides:
        """Record one sample on both sides, and pair what it shows."""
        recorder = _FirstSample(opened, sample, folder)
        parameters = recorder.parameters
        names = choose_map(given, parameters)
        traces = recorder.traces(names)
        if given is None and not names.complete:
            names = map_in_order((traces[0].forward, traces[1].forward), parameters, names)
            traces = recorder.traces(names)
        calls = pair_traces((traces[0].forward, traces[1].forward), parameters, names)
        precision = StepPrecision(traces, calls.pairs, gradients_with_owners(names, parameters, traces))
        taken_off = (scale_taken_off(trace.values(0, COMPUTED), trace.values(0, GIVEN), 1) for trace in traces)
        return cls(
            opened,
            recorder.trainings,
            names,
            _chosen(
                names,
                patterns,
                [{parameter.name for parameter in side.parameters if not parameter.buffer} for side in parameters],
            ),
            recorder.start(names),
            precision,
            (next(taken_off), next(taken_off)),
            wide,
            tuple(precision.findings([side.label for side in opened])),
        )

    def measured(self, side: int, batch: Batch) -> Measured:
        """The gradients of a side's parameters, and its loss."""
        sink = _GradientsOfBatch(self.start if side else {}, self.wanted[side])
        self.opened[side].trainer.take_steps(self.trainings[side], [batch], sink)
        scale = self.scales[side]
        return {name: unscaled(one, scale) for name, one in sink.gradients.items()}, sink.loss

    def rounded(self, batch: Batch) -> tuple[Measured, str]:
        """The reference's in float64, or from values that are rounded at random; and the dtype, "" for its own."""
        side, moved = self.opened[0], RandomRounding()
        own = {} if self.wide else side.side.reader.read_values(self.trainings[0].model)
        sink = _GradientsOfBatch(MadeArrays({k: partial(moved, v) for k, v in own.items()}), self.wanted[0])
        side.trainer.take_steps(self.wide or self.trainings[0], [batch], sink)
        scale = 1.0 if self.wide else self.scales[0]
        gradients = {name: unscaled(one, scale) for name, one in sink.gradients.items()}
        return (gradients, sink.loss), WIDE if self.wide else ""

    def is_same_wide(self, batch: Batch) -> bool:
        """Tell whether float64 shows rounding and nothing else: a step of the user's own may do more than its loss."""
        mine, wide = self.measured(0, batch)[0], self.rounded(batch)[0][0]
        apart, whole = (_length(mine, wide), _length(mine, {}))
        return not apart > WIDE_STEP_SHARE * whole


def _length(ones: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """The L2 norm of all gradients less the others."""
    squares = (np.sum((one.astype(np.float64) - others.get(name, 0.0)) ** 2) for name, one in ones.items())
    return sqrt(sum(map(float, squares)))


@dataclass(frozen=True)
class _FirstSample:
    """The first sample's step of both sides, in folders."""

    opened: tuple[TrainingSide, TrainingSide]
    sample: Batch
    folder: Path

    @property
    def trainings(self) -> tuple[Training, Training]:
        """Without optimizers, where the step is not the user's own: no update is looked at."""
        first, second = (
            one.training if one.training.step is not None else replace(one.training, optimizer=None)
            for one in self.opened
        )
        return first, second

    @property
    def parameters(self) -> Any:
        """The parameters of both sides."""
        return trained_parameters(self.opened[0]), trained_parameters(self.opened[1])

    def start(self, names: NameMap) -> Mapping[str, Array]:
        """The reference's values in the candidate's parameters and buffers."""
        own = (SpilledArrays(side.side.reader.read_values(side.side.model)) for side in self.opened)
        return carried_over(names, next(own), next(own))

    def traces(self, names: NameMap) -> tuple[StepTrace, StepTrace]:
        """Take the step on both sides; raises CannotRunError where one sample alone cannot be, or draws numbers."""
        groups = [groups_of(side, 1) for side in self.opened]
        first = self._recorded(0, {}, 1.0)
        return first, self._recorded(1, self.start(names), optimizer_scale(groups[0], groups[1]))

    def _recorded(self, number: int, start: Mapping[str, Array], by_optimizers: float) -> StepTrace:
        side = replace(self.opened[number], training=self.trainings[number])
        folder = Path(tempfile.mkdtemp(prefix=SIDES[number], dir=self.folder))
        try:
            with StepWriter(folder / "once", side.side.reader.environment(), begun=lambda _: start) as writer:
                writer.by_optimizers = by_optimizers
                side.trainer.take_steps(side.training, [self.sample], writer)
        except UserCodeError as error:
            raise CannotRunError.of("samples_error.not_alone", label=side.label, fault=error.message) from error
        free = FreeRun(start, lambda _step, _values: 0.0)
        take_freely(side, [self.sample], free)
        refuse_random_steps(side, [self.sample], writer.trace(), free, folder / "again", start)
        return writer.trace()


def _chosen(
    names: NameMap, patterns: Sequence[str], own: Sequence[Collection[str]]
) -> tuple[Collection[str], Collection[str]]:
    """The names on both sides of the parameters that fit a pattern on either; raises UsageError if none does."""
    pairs = [(one.source, one.target) for one in names.pairings if one.source in own[0] and one.target in own[1]]
    fit = [pair for pair in pairs if not patterns or any(fnmatchcase(name, one) for name in pair for one in patterns)]
    if not fit:
        raise UsageError.of("samples_error.no_parameter", patterns=[*patterns], names=[name for _, name in pairs])
    return {name for name, _ in fit}, {name for _, name in fit}


# The gradients of all samples, judged one by one, and what of each is kept.


@dataclass(frozen=True, slots=True)
class _SampleGradient:
    """A gradient of one sample: how far it is off, and its size; `surely` where no figures are needed to say so."""

    names: tuple[str, str]
    factor: float
    distance: float
    size: float
    is_noise: bool
    is_zero: bool
    surely: bool


@dataclass
class _Table:
    """Both sides' samples; of each gradient a few elements are kept."""

    sides: _SampleSides
    gradients: list[list[_SampleGradient]] = field(default_factory=list)
    losses: list[tuple[float | None, float | None]] = field(default_factory=list)
    loss_noise: list[float] = field(default_factory=list)
    elements: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))

    def add(self, sample: Batch) -> None:
        """Take one more sample."""
        mine, theirs = self.sides.measured(0, sample), self.sides.measured(1, sample)
        rounded, dtype = self.sides.rounded(sample)
        noise: dict[str, Any] = {}
        for name, gradient in rounded[0].items():
            if name in mine[0]:
                noise |= noise_of(value_capture(name, 0, COMPUTED, mine[0][name]), mine[0][name], gradient, dtype)
        whole = self.sides.precision.whole
        pairs = paired_values(self.sides.names, mine[0], theirs[0])
        found = judge_values(pairs, noise, (0, COMPUTED), alone=False, coarser=lambda _: whole)
        self.gradients.append([_told(value) for value in found])
        self.losses.append((mine[1], theirs[1]))
        apart = abs(mine[1] - rounded[1]) if mine[1] is not None and rounded[1] is not None else 0.0
        self.loss_noise.append(apart if isfinite(apart) else 0.0)
        for kept, (own, _) in zip(self.elements, (mine, theirs), strict=True):
            kept.append(_some_elements(own))

    def loss_limit(self) -> float | None:
        """One for all samples: what a loss is off by hangs on what it is made of, and not on how small it is."""
        known = [abs(one) for one, _ in self.losses if one is not None and isfinite(one)]
        if not known:
            return None
        share = max(LOSS_ROUNDING_SHARE if self.sides.wide else LOSS_SHARE, self.sides.precision.loss_share)
        return max(share * max(known), LOSS_NOISE_FACTOR * max(self.loss_noise))

    def signals(self) -> dict[tuple[str, str], float]:
        """The usual size of each gradient that is more than rounding, over all samples."""
        squares: dict[tuple[str, str], float] = {}
        for one in (one for row in self.gradients for one in row):
            if not one.is_noise and isfinite(one.size):
                squares[one.names] = squares.get(one.names, 0.0) + one.size**2
        return {names: sqrt(square / len(self.gradients)) for names, square in squares.items()}

    def weights(self, whole: Batch) -> _Weights:
        """How much each sample counts in the gradient of the batch, on both sides."""
        if self.sides.precision.loss_share:
            return _Weights()
        found = [_shares(self.elements[side], _some_elements(self.sides.measured(side, whole)[0])) for side in range(2)]
        return _Weights(found[0], found[1])


def _told(judged: JudgedValue) -> _SampleGradient:
    figures = judged.measurement
    names = judged.pairing.source, judged.pairing.target
    if figures is None or figures.non_finite_mismatch:
        return _SampleGradient(
            names, judged.factor, inf, inf, is_noise=False, is_zero=False, surely=judged.factor > 1.0
        )
    is_zero = figures.reference_max == 0.0
    size = figures.reference_rms
    return _SampleGradient(
        names, judged.factor, figures.rmse, size, judged.is_noise, is_zero and not figures.mismatched, surely=False
    )


def _is_off(gradient: _SampleGradient, signals: Mapping[tuple[str, str], float]) -> bool:
    """Tell whether a gradient is above its limit, and by more than next to nothing of what other samples have there.

    One that is zero in the reference is smaller than any limit; it counts where other samples show a gradient.
    """
    if gradient.surely or not gradient.factor > 1.0:
        return gradient.surely
    signal = signals.get(gradient.names, 0.0)
    return (not gradient.is_noise or gradient.size == 0.0) and gradient.distance > LEAST_SAMPLE_SHARE * signal > 0.0


# How much each sample counts in the gradient of the batch: that is a sum of theirs, if nothing mixes samples.


@dataclass(frozen=True, slots=True)
class _Shares:
    """The factor of each sample, NaN for one next to nothing; `mixed` if the batch's gradient is no sum of theirs."""

    values: Array
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class _Weights:
    """The shares of both sides, None where they cannot be told."""

    reference: _Shares | None = None
    candidate: _Shares | None = None

    @property
    def known(self) -> tuple[Array, Array] | None:
        """Both, where each side's gradient is such a sum."""
        first, second = self.reference, self.candidate
        return None if first is None or second is None or first.mixed or second.mixed else (first.values, second.values)

    @property
    def mixes_alone(self) -> bool:
        """Tell whether the candidate mixes samples, and the reference does not."""
        first, second = self.reference, self.candidate
        return first is not None and second is not None and second.mixed and not first.mixed

    @property
    def factor(self) -> float | None:
        """How much more most samples count on the candidate's side."""
        if self.known is None:
            return None
        mine, theirs = self.known
        both = np.isfinite(mine) & np.isfinite(theirs)
        both[both] = np.abs(mine[both]) > LEAST_SAMPLE_SHARE * np.abs(mine[both]).max(initial=0.0)
        return float(np.median(theirs[both] / mine[both])) if both.any() else None

    def differing(self) -> set[int]:
        """The samples that count otherwise than most."""
        if self.known is None or self.factor is None:
            return set()
        mine, theirs = self.known
        room = SAMPLE_WEIGHT_TOLERANCE * np.maximum(np.abs(self.factor * mine), np.nanmax(np.abs(theirs)) / len(mine))
        return {int(one) for one in np.flatnonzero(np.abs(theirs - self.factor * mine) > room)}


def _some_elements(gradients: Mapping[str, Array]) -> Array:
    """Elements of all gradients, as many of each, from everywhere; in float64."""
    most = max(1, ELEMENTS_OF_GRADIENTS // max(1, len(gradients)))
    parts = []
    for name in sorted(gradients):
        flat = gradients[name].reshape(-1)
        places = np.linspace(0, flat.size - 1, min(flat.size, most)).astype(np.int64)
        parts.append(flat[places].astype(np.float64))
    return np.concatenate(parts) if parts else np.empty(0)


def _shares(rows: Sequence[Array], whole: Array) -> _Shares | None:
    """Least squares of the batch's gradient by those of its samples; None where these are too much like each other."""
    if any(one.shape != whole.shape for one in rows):
        return None
    table = np.stack(rows)
    sizes, size = np.linalg.norm(table, axis=1), float(np.linalg.norm(whole))
    live = sizes > 0.0
    if not (np.isfinite(table).all() and isfinite(size) and size and 0 < live.sum() < whole.size):
        return None
    unit = (table[live] / sizes[live, None]).T
    factors, _, _, singular = np.linalg.lstsq(unit, whole, rcond=None)
    if singular[-1] < LEAST_SAMPLE_INDEPENDENCE * singular[0]:
        return None
    values = np.full(len(table), np.nan)
    values[live] = factors / sizes[live]
    values[sizes < LEAST_SAMPLE_INDEPENDENCE * sizes.max()] = np.nan  # beside the largest its factor is rounding
    return _Shares(values, mixed=bool(np.linalg.norm(whole - unit @ factors) > MIXED_SAMPLES_SHARE * size))


# What comes of it: a row a sample, and the samples that differ.


def _result(
    sides: _SampleSides, table: _Table, weights: _Weights, noted: Sequence[Finding], frozen_counts: Mapping[str, int]
) -> SampleComparison:
    signals, limit, otherwise = table.signals(), table.loss_limit(), weights.differing()
    off = [[one for one in row if _is_off(one, signals)] for row in table.gradients]
    losses_off = [_is_loss_off(*both, limit) for both in table.losses]
    labels = sides.opened[0].label, sides.opened[1].label
    findings = [*noted]
    if all(losses_off) and not any(off) and not otherwise:  # a number that is shown, and trains nothing
        losses_off = [False] * len(losses_off)
        mine, theirs = table.losses[0]
        message = sentence("step_finding.loss_value_differs", candidate=theirs, reference=mine)
        findings.append(Finding("loss-value-differs", "warning", "loss", message))
    rows = []
    for number, own in enumerate(table.gradients):
        is_off = bool(off[number] or losses_off[number] or number in otherwise)
        row = _row(number, own, off[number], table.losses[number], limit, is_off=is_off)
        rows.append(replace(row, **_shares_of(weights, number)))
    findings += _findings(weights, labels)
    verdict = _verdict(rows, weights, frozen_counts)
    return SampleComparison(*labels, tuple(rows), weights.factor, tuple(findings), verdict)


def _is_loss_off(mine: float | None, theirs: float | None, limit: float | None) -> bool:
    if mine is None or theirs is None or limit is None:
        return False
    if not (isfinite(mine) and isfinite(theirs)):
        return isfinite(mine) != isfinite(theirs)
    return abs(theirs - mine) > limit


def _row(
    number: int,
    gradients: Sequence[_SampleGradient],
    off: Sequence[_SampleGradient],
    losses: tuple[float | None, float | None],
    limit: float | None,
    *,
    is_off: bool,
) -> ComparedSample:
    compared = [gradient for gradient in gradients if gradient in off or gradient.is_zero or not gradient.is_noise]
    worst = max(off or compared, key=lambda gradient: gradient.factor, default=None)
    outcome: StepOutcome = "not aligned" if is_off else "aligned" if compared else "could not tell"
    names = ("", "") if worst is None or (is_off and not off) else worst.names
    factor = 0.0 if worst is None else worst.factor
    return ComparedSample(number, outcome, *losses, limit, factor, *names, len(off), len(compared))


def _shares_of(weights: _Weights, number: int) -> dict[str, Any]:
    if weights.known is None:
        return {}
    values = [float(one[number]) for one in weights.known]
    return {f"{side}_share": one if isfinite(one) else None for side, one in zip(SIDES, values, strict=True)}


def _findings(weights: _Weights, labels: tuple[str, str]) -> Iterator[Finding]:
    for label, one in zip(labels, (weights.reference, weights.candidate), strict=True):
        if one is not None and one.mixed:
            severity: Severity = "warning" if weights.mixes_alone else "note"
            yield Finding("samples-mixed", severity, label, sentence("samples_finding.mixed"))


def _verdict(rows: Sequence[ComparedSample], weights: _Weights, frozen_counts: Mapping[str, int]) -> Verdict:
    differing = [one for one in rows if one.outcome == "not aligned"]
    known = [one for one in rows if one.outcome != "could not tell"]
    coverage = Coverage("samples", len(known), len(rows) - len(known))
    caveats = [sentence(f"samples_caveat.{key}", count=count) for key, count in frozen_counts.items()]
    if weights.known is None:
        caveats.append(sentence("samples_caveat.no_shares"))
    key, facts = _reason(rows, differing, weights)
    outcome = Outcome.NOT_COMPARED if not known else Outcome.ALIGNED if key == "agree" else Outcome.NOT_ALIGNED
    reason = sentence("samples_verdict.nothing") if not known else sentence(f"samples_verdict.{key}", **facts)
    return Verdict(outcome, reason, coverage, tuple(caveats))


def _reason(
    rows: Sequence[ComparedSample], differing: Sequence[ComparedSample], weights: _Weights
) -> tuple[str, dict[str, Any]]:
    """The key of the verdict's reason, and its facts."""
    total, factor = len(rows), weights.factor
    if differing:
        place = _place(max(differing, key=lambda one: (bool(one.candidate), one.factor)))
        key = "some" if len(differing) < total else "all" if total > 1 else "only"
        samples = [str(one.sample) for one in differing[:SAMPLES_IN_VERDICT]]
        more = len(differing) - len(samples)
        return key, {"count": len(differing), "samples": samples, "more": more, "total": total, "place": place}
    if weights.mixes_alone:
        return "mixes", {"total": total}
    if factor is not None and abs(factor - 1.0) > SAMPLE_WEIGHT_TOLERANCE:
        return "factor", {"total": total, "factor": factor}
    return "agree", {"total": total}


def _place(worst: ComparedSample) -> str:
    """Where a sample differs: a parameter's gradient, its loss, or how much it counts."""
    if worst.candidate:
        return worst.candidate
    mine, theirs = worst.reference_loss, worst.candidate_loss
    return sentence("samples_place.loss" if _is_loss_off(mine, theirs, worst.loss_limit) else "samples_place.share")
