"""Captured steps of several ranks held against each other; and which layers move a training, found by halving.

Ranks begin from equal values and read distinct samples. The gradient that their optimizers get is the mean of what the
ranks compute, and is equal on all of them. A folder of `align capture --step` holds both: what came back to each
parameter, and what the optimizer was given.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, is_float
from align.core.protocols import silent
from align.core.training import LayerSubstituter
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import AlignError, CannotRunError, UsageError, UserCodeError
from align.forward.bisect_precision import Movement, inner_layers, sensitive_layers
from align.models.open_side import check_dtype
from align.models.user_code import find_function, run_user_code
from align.training.compare_training_step import read_steps
from align.training.open_training import StepUnseen, batch_findings, open_training, without_dropout
from align.training.steps.judge_step import RandomRounding
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED, GIVEN, LossesOfSteps
from align.training.steps.recorded_steps import batches_of_steps, trained_parameters
from align.training.thresholds import (
    EQUAL_RUNS_FACTOR,
    EQUAL_RUNS_ROUNDED,
    NEAR_FACTOR,
    RANK_ROUNDING,
    TRAINING_LOSS_LIMIT,
)
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch, Progress
    from align.core.training import Training
    from align.forward.bisect_precision import SensitiveLayer
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.steps.recorded_steps import RecordedSteps

    Implementation = Callable[[str, Any], Callable[..., Any] | None]

FIRST_STEP = 0  # format: steps count from 0 in a folder


@dataclass(frozen=True, slots=True)
class ComparedRank:
    """One rank: its folder, the samples of its batch, its loss, and how many parameters differ from the first rank's.

    `started` are those that begin from other values, `ended` those that differ after the step, `given` those whose
    optimizers got another gradient.
    """

    folder: str
    samples: int
    loss: float | None
    started: int
    given: int
    ended: int


@dataclass(frozen=True, slots=True)
class RankComparison(ShownResult):
    """The ranks of one training. `factor` is that of the optimizers' gradient over the mean of the ranks' own.

    It is None where the ranks got unlike gradients, or none is known.
    """

    result_kind = "ranks"
    ranks: tuple[ComparedRank, ...]
    factor: float | None
    findings: tuple[Finding, ...]
    verdict: Verdict


def compare_ranks(folders: Sequence[Path | str]) -> RankComparison:
    """Compare the captured steps of two or more ranks; raises UsageError for fewer, RunFolderError for other folders.

    >>> compare_ranks(["rank0"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.UsageError: ranks are compared with each other, and 1 folder is given
    """
    if len(folders) < 2:
        raise UsageError.of("training_error.one_rank", count=len(folders))
    steps = [read_steps(Path(folder)).steps for folder in folders]
    labels = [str(folder) for folder in folders]
    names = [[*recorded.parameters.names] for recorded in steps]
    if any(set(rank_names) != set(names[0]) for rank_names in names):
        other = next(place for place, rank_names in enumerate(names) if set(rank_names) != set(names[0]))
        only = sorted(set(names[0]) ^ set(names[other]))
        raise UsageError.of("training_error.other_model", folder=labels[other], first=labels[0], names=only)
    values = {
        what: [recorded.trace.values(FIRST_STEP, what) for recorded in steps]
        for what in (BEFORE, COMPUTED, GIVEN, AFTER)
    }
    factor, of_gradients = _judge_gradients(
        values[COMPUTED], values[GIVEN], [_samples(recorded) for recorded in steps], labels
    )
    findings = (*_judge_starts(values[BEFORE], labels), *_judge_batches(steps, labels), *of_gradients,
                *_judge_ends(steps, values[AFTER], bool(of_gradients)))  # fmt: skip
    ranks = []
    for place, (label, recorded) in enumerate(zip(labels, steps, strict=True)):
        unlike = (len(_unlike(values[what][0], values[what][place])) for what in (BEFORE, GIVEN, AFTER))
        ranks.append(ComparedRank(label, _samples(recorded), recorded.trace.losses[FIRST_STEP], *unlike))
    verdict = _verdict(ranks, findings, len(names[0]), len(values[GIVEN][0]))
    return RankComparison(tuple(ranks), factor, findings, verdict)


def _samples(steps: RecordedSteps) -> int:
    sizes = [len(value) for value in steps.batches[FIRST_STEP].values() if getattr(value, "ndim", 0)]
    return max(sizes, default=0)


def _unlike(first: Mapping[str, Array], second: Mapping[str, Array]) -> list[str]:
    """The names whose values are not the same bit for bit, or that one side lacks."""
    both = [name for name in first if name in second]
    unlike = {name for name in both if not np.array_equal(first[name], second[name], equal_nan=True)}
    return sorted(unlike | ({*first} ^ {*second}))


def _judge_starts(starts: Sequence[Mapping[str, Array]], labels: Sequence[str]) -> Iterator[Finding]:
    """Parameters that begin from other values on some rank."""
    ranks: dict[str, list[str]] = defaultdict(list)
    for label, start in zip(labels[1:], starts[1:], strict=True):
        for name in _unlike(starts[0], start):
            ranks[name].append(label)
    if ranks:
        message = sentence(
            "ranks_finding.starts",
            count=len(ranks),
            names=[*ranks],
            ranks=sorted({*chain.from_iterable(ranks.values())}),
        )
        yield Finding("initial-values-differ", "error", next(iter(ranks)), message)


def _judge_batches(steps: Sequence[RecordedSteps], labels: Sequence[str]) -> Iterator[Finding]:
    """Samples that several ranks read, and batches of unlike sizes."""
    readers: dict[bytes, list[str]] = defaultdict(list)
    for label, recorded in zip(labels, steps, strict=True):
        for key in {_fingerprint(recorded.batches[FIRST_STEP], sample) for sample in range(_samples(recorded))}:
            readers[key].append(label)
    shared = [ranks for ranks in readers.values() if len(ranks) > 1]
    if shared:
        whole = all(len(ranks) == len(labels) for ranks in readers.values())
        what = "ranks_finding.same_data" if whole else "ranks_finding.shared_samples"
        message = sentence(what, count=len(shared), ranks=sorted({*chain.from_iterable(shared)}))
        yield Finding("same-samples", "error", labels[0], message)
    sizes = [_samples(recorded) for recorded in steps]
    if len(set(sizes)) > 1:
        yield Finding("batch-sizes", "warning", labels[0], sentence("ranks_finding.sizes", sizes=[*map(str, sizes)]))


def _fingerprint(batch: Mapping[str, Any], sample: int) -> bytes:
    """The bytes of one sample, in all fields that have an axis for samples."""
    return b"".join(np.ascontiguousarray(value[sample]).tobytes() for _, value in sorted(batch.items())
                    if getattr(value, "ndim", 0) and len(value) > sample)  # fmt: skip


def _judge_gradients(
    computed: Sequence[Mapping[str, Array]],
    given: Sequence[Mapping[str, Array]],
    sizes: Sequence[int],
    labels: Sequence[str],
) -> tuple[float | None, list[Finding]]:
    """What the optimizers got, against what each rank computed: its own, the sum, the mean, or another multiple."""
    names = [
        name
        for name in given[0]
        if all(name in gradients for gradients in (*computed, *given)) and is_float(given[0][name].dtype.name)
    ]
    apart = [name for name in names if any(not _near(given[0][name], gradients[name]) for gradients in given[1:])]
    unreduced = [
        name for name in apart if all(_near(got[name], local[name]) for got, local in zip(given, computed, strict=True))
    ]
    findings = []
    if unreduced:
        key = "ranks_finding.no_reducer" if len(unreduced) == len(names) else "ranks_finding.some_not_reduced"
        findings.append(_finding("gradients-not-reduced", key, unreduced, len(names)))
    if rest := [name for name in apart if name not in unreduced]:
        findings.append(_finding("gradients-differ", "ranks_finding.gradients_differ", rest, len(names)))
    shared = [name for name in names if name not in apart]
    if not shared:
        return None, findings
    means = {name: _mean([gradients[name] for gradients in computed], None) for name in shared}
    factor = _factor([given[0][name] for name in shared], [means[name] for name in shared])
    if abs(factor - 1) <= NEAR_FACTOR:
        return factor, findings
    weighted = [_mean([gradients[name] for gradients in computed], sizes) for name in shared]
    if len(set(sizes)) > 1 and abs(_factor([given[0][name] for name in shared], weighted) - 1) <= NEAR_FACTOR:
        return factor, findings
    key = "ranks_finding.sum" if abs(factor - len(labels)) <= NEAR_FACTOR * len(labels) else "ranks_finding.factor"
    message = sentence(key, factor=factor, count=len(labels))
    return factor, [*findings, Finding("gradients-not-mean", "error", shared[0], message, {"factor": factor})]


def _finding(code: str, key: str, names: Sequence[str], total: int) -> Finding:
    return Finding(code, "error", names[0], sentence(key, count=len(names), total=total, names=[*names]))


def _near(first: Array, second: Array) -> bool:
    """Equal up to the rounding of a sum over the ranks in another order."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    scale = max(float(np.abs(a).max(initial=0)), float(np.abs(b).max(initial=0)))
    epsilon = max(EPSILON.get(part.dtype.name, 0.0) for part in (first, second))
    return first.shape == second.shape and bool(np.all(np.abs(a - b) <= RANK_ROUNDING * epsilon * scale))


def _mean(values: Sequence[Array], weights: Sequence[int] | None) -> Array:
    mean: Array = np.average(np.stack([value.astype(np.float64) for value in values]), 0, weights)
    return mean


def _factor(given: Sequence[Array], means: Sequence[Array]) -> float:
    """Least squares of given = factor * mean over all parameters."""
    mixed = sum(float(np.vdot(a.astype(np.float64), b)) for a, b in zip(given, means, strict=True))
    square = sum(float(np.vdot(b, b)) for b in means)
    return mixed / square if square else 1.0


def _judge_ends(
    steps: Sequence[RecordedSteps], after: Sequence[Mapping[str, Array]], is_told: bool
) -> Iterator[Finding]:
    """Parameters and statistics that part in the step, though the gradients were equal."""
    unlike = sorted({name for other in after[1:] for name in _unlike(after[0], other)})
    buffers = {parameter.name for parameter in steps[0].parameters.parameters if parameter.buffer}
    statistics = [name for name in unlike if name in buffers]
    trained = [name for name in unlike if name not in buffers]
    if trained and not is_told:
        yield _finding("parameters-part", "ranks_finding.parameters_part", trained, len(after[0]))
    if statistics:
        message = sentence("ranks_finding.statistics", count=len(statistics), names=statistics)
        yield Finding("statistics-by-rank", "warning", statistics[0], message)


def _verdict(ranks: Sequence[ComparedRank], findings: Sequence[Finding], parameters: int, given: int) -> Verdict:
    coverage = Coverage("parameters", parameters)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        reason = sentence("ranks_verdict.differ", count=len(errors), first=errors[0].message)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not given:
        return Verdict(Outcome.NOT_COMPARED, sentence("ranks_verdict.no_gradients"), coverage)
    return Verdict(Outcome.ALIGNED, sentence("ranks_verdict.agree", count=len(ranks)), coverage)


# Which layers move a training: the set of them that compute otherwise is halved until it cannot be smaller.
#
# Layers are replaced in the live model, on its own parameters, and each training starts from the same values. What
# counts is the loss after the last update, against what equal trainings differ by.


def bisect_training(  # noqa: PLR0913 - the options of one command
    side: str | Training,
    *,
    batch: InputsSource,
    steps: int,
    precision: str | None = None,
    device: str | None = None,
    implementation: str | Implementation | None = None,
    layers: str = "*",
    limit: float | None = None,
    progress: Progress = silent,
) -> TrainingBisection:
    """Find the smallest sets of layers that move the loss after so many `steps` where they compute otherwise.

    `side` and `batch` are as for `align.compare_training_step`. Otherwise is in another `precision`, on another
    `device`, or by another `implementation`: a function that is given a layer's path and the layer, and returns what
    is to be called in its place on the same parameters, None for a layer that is to stay. Layers are called modules
    without called modules inside, whose path fits the glob `layers`. `limit` is a relative movement of the loss;
    without it, it is 0.005, or ten times what equal trainings differ by if that is more. Raises UsageError unless
    exactly one of the three is given, CannotRunError where nothing can run so, or the loss is not known.

    >>> bisect_training("train.py:build", batch={}, steps=3)
    Traceback (most recent call last):
    align.errors.UsageError: one of a precision, a device and an implementation is needed
    Hint: give --precision, --device or --implementation, and only one of them
    """
    check_dtype(precision)
    if sum(one is not None for one in (precision, device, implementation)) != 1:
        raise UsageError.of("training_error.one_change")
    if limit is not None and not 0.0 < limit < inf:
        raise UsageError.of("training_error.no_limit", limit=limit)
    opened, batches = open_training(side), batches_of_steps(batch, steps + 1)[: steps + 1]
    if steps < 1:
        raise UsageError.of("training_error.no_steps", steps=steps)
    trained_parameters(opened)
    noted = batch_findings(opened, batches[0])
    if isinstance(implementation, str):
        implementation = find_function(implementation, "implementation file")
    change = _Change(opened, precision, device, implementation)
    with without_dropout(opened) as findings:
        bench = _Bench(opened, batches, change, progress, _called_layers(opened, batches[0], layers))
        allowed = bench.measure_noise(limit)
        everything = bench.move_all()
        rows = sensitive_layers(bench)
        rest = bench.move(tuple(path for path in bench.layers if path not in {row.module for row in rows}))
    progress("bisect", len(bench.runs), len(bench.runs))
    named = implementation if isinstance(implementation, str) else getattr(implementation, "__name__", "")
    return TrainingBisection(
        model=opened.label,
        steps=steps,
        precision=precision or "",
        device=device or "",
        implementation=named or "",
        tried=len(bench.layers),
        loss=bench.loss,
        all_loss=bench.all_loss,
        noise=bench.noise,
        equal_runs=1 + EQUAL_RUNS_ROUNDED,
        limit=allowed,
        all_moved=everything.moved,
        all_factor=everything.factor,
        layers=rows,
        rest_moved=rest.moved,
        rest_factor=rest.factor,
        complete=rest.factor <= 1.0,
        not_run=bench.not_run,
        runs=bench.trainings,
        findings=(*noted, *findings),
        environment={opened.side.reader.name: opened.side.reader.environment()},
        verdict=_bisected_verdict(len(rows), bench, precision or device or named or ""),
    )


@dataclass(frozen=True)
class _Change:
    """What is otherwise about a layer."""

    side: TrainingSide
    precision: str | None
    device: str | None
    implementation: Implementation | None

    @property
    def adapter(self) -> LayerSubstituter:
        reader = self.side.side.reader
        if not isinstance(reader, LayerSubstituter):
            raise CannotRunError.of("forward_error.not_moved", framework=reader.name)
        return reader

    def stand_in(self, path: str) -> Callable[..., Any] | None:
        """What takes the place of a layer; None: it stays. Raises UserCodeError where it cannot be made."""
        model, adapter = self.side.side.model, self.adapter
        code: Callable[[], Callable[..., Any] | None]
        if self.implementation is None:
            code = partial(adapter.recast_layer, model, path, self.device, self.precision)
        else:
            code = partial(self.implementation, path, adapter.bare_layer(model, path))
        made = run_user_code(code, partial(UserCodeError, say("training_reason.replacing", path=path)))
        if made is not None and not callable(made):
            raise UsageError.of("training_error.no_stand_in", path=path, kind=type(made).__name__)
        return made


@dataclass
class _Bench:
    """The training, taken with some of its layers otherwise; no such training is taken twice."""

    side: TrainingSide
    batches: Sequence[Batch]
    change: _Change
    progress: Progress
    layers: dict[str, str]
    not_run: dict[str, str] = field(default_factory=dict)
    runs: dict[frozenset[str], Movement] = field(default_factory=dict)
    stand_ins: dict[str, Callable[..., Any]] = field(default_factory=dict)
    loss: float = 0.0
    all_loss: float = 0.0
    noise: float = 0.0
    limit: float = TRAINING_LOSS_LIMIT
    trainings: int = 0

    def measure_noise(self, limit: float | None) -> float:
        """Take the training as it is, and equal ones; return the share by which the loss may move."""
        self.loss = self._last_loss({})
        if not isfinite(self.loss):
            raise CannotRunError.of("training_error.loss_not_finite", side=self.side.label, loss=self.loss)
        values = self.side.side.reader.read_values(self.side.side.model)
        rounding = RandomRounding()
        starts = [{}, *({name: rounding(one) for name, one in values.items()} for _ in range(EQUAL_RUNS_ROUNDED))]
        self.noise = max(_share(self.loss, self._last_loss({}, start)) for start in starts)
        self.limit = limit or max(TRAINING_LOSS_LIMIT, EQUAL_RUNS_FACTOR * self.noise)
        return self.limit

    def move_all(self) -> Movement:
        """Replace all layers; those that cannot be, or fail, are left out from now on."""
        for path in list(self.layers):
            self._make(path)
        self._refuse_none()
        try:
            moved = self.move(tuple(self.layers))
        except UserCodeError:
            self._leave_out_failing()
            self._refuse_none()
            moved = self.move(tuple(self.layers))
        return moved

    def move(self, paths: tuple[str, ...]) -> Movement:
        key = frozenset(paths)
        if key not in self.runs:
            loss = self._last_loss({path: self.stand_ins[path] for path in paths}) if paths else self.loss
            if len(paths) == len(self.layers):
                self.all_loss = loss
            moved = _share(self.loss, loss)
            self.runs[key] = Movement(moved, moved / self.limit)
            self.progress("bisect", len(self.runs), 2 * len(self.runs))
        return self.runs[key]

    def _last_loss(
        self, stand_ins: Mapping[str, Callable[..., Any]], start: Mapping[str, Array] | None = None
    ) -> float:
        sink = LossesOfSteps(start)
        self.trainings += 1
        with self.change.adapter.substituted(self.side.side.model, stand_ins):
            self.side.trainer.take_steps(self.side.training, self.batches, sink)
        if (loss := sink.losses[-1]) is None:
            raise CannotRunError.of("training_error.no_loss_returned", side=self.side.label)
        return loss

    def _make(self, path: str) -> None:
        try:
            stand_in = self.change.stand_in(path)
        except UserCodeError as error:
            self._leave_out(path, error)
            return
        if stand_in is None:
            del self.layers[path]
        else:
            self.stand_ins[path] = stand_in

    def _leave_out_failing(self) -> None:
        """Try each layer alone for a step: where a way back fails, nothing says whose it was."""
        for path in list(self.layers):
            with self.change.adapter.substituted(self.side.side.model, {path: self.stand_ins[path]}):
                try:
                    self.side.trainer.take_steps(self.side.training, self.batches[:1], StepUnseen())
                except UserCodeError as error:
                    self._leave_out(path, error)

    def _leave_out(self, path: str, error: AlignError) -> None:
        self.not_run[path] = error.message.partition("\n")[0]
        del self.layers[path]

    def _refuse_none(self) -> None:
        if not self.layers:
            listed = [say("fault_list.one", head=path, fault=reason) for path, reason in list(self.not_run.items())[:3]]
            raise CannotRunError.of("training_error.no_layer_changed", reasons=listed)


class _Called(StepUnseen):
    """A StepSink that notes which modules are called."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:  # noqa: ARG002
        self.paths[module] = None


def _called_layers(side: TrainingSide, batch: Batch, pattern: str) -> dict[str, str]:
    """Classes of the called layers that fit, by path; raises UsageError if there is none."""
    called = _Called()
    side.trainer.take_steps(side.training, (batch,), called)
    modules = side.side.reader.read_parameters(side.side.model, side.label).modules
    classes = {one.path: one.classes[0].rpartition(".")[2] for one in modules if one.classes}
    return inner_layers({path: classes.get(path, "") for path in called.paths if path}, pattern)


def _share(before: float, after: float) -> float:
    """The change of a loss as a share of itself; infinite where it became no number."""
    if not isfinite(after):
        return inf
    moved = abs(after - before)
    return moved / abs(before) if before else inf if moved else 0.0


def _bisected_verdict(moved: int, bench: _Bench, place: str) -> Verdict:
    coverage = Coverage("layers", len(bench.layers), len(bench.not_run))
    total = len(bench.layers)
    if not moved:
        return Verdict(Outcome.ALIGNED, sentence("training_bisection.within", count=total, place=place), coverage)
    reason = sentence("training_bisection.moved", count=moved, total=total, place=place)
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)


# What halving the layers of a training found: those whose precision, device or implementation moves its loss.


@dataclass(frozen=True, slots=True)
class TrainingBisection(ShownResult):
    """The layers that move a training's loss after `steps` updates where they compute otherwise.

    Otherwise is in another `precision`, on another `device` or by another `implementation`; two of them are "". `loss`
    is that of the training as it is, `all_loss` with all `tried` layers otherwise. `noise` is the largest share by
    which the loss moved in `equal_runs`: one from the same values, the others from values rounded at random. `limit`
    is the share that is allowed, `all_factor` and `rest_factor` multiples of it: with all layers, and with all but
    those in the list. `not_run` are layers that cannot run so, and why. `complete` is False if there may be more sets.
    """

    result_kind = "training"
    model: str
    steps: int
    precision: str
    device: str
    implementation: str
    tried: int
    loss: float
    all_loss: float
    noise: float
    equal_runs: int
    limit: float
    all_moved: float
    all_factor: float
    layers: tuple[SensitiveLayer, ...]
    rest_moved: float
    rest_factor: float
    complete: bool
    not_run: dict[str, str]
    runs: int
    findings: tuple[Finding, ...]
    environment: dict[str, dict[str, str]]
    verdict: Verdict
