"""Which layers move a training: the set of them that compute otherwise is halved until it cannot be smaller.

Layers are replaced in the live model, on its own parameters, and each training starts from the same values. What
counts is the loss after the last update, against what equal trainings differ by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from align.core.progress import silent
from align.core.training import LayerSubstituter
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import AlignError, CannotRunError, UsageError, UserCodeError
from align.forward.bisect_precision import Movement, inner_layers, sensitive_layers
from align.models.open_side import check_dtype
from align.models.user_code import find_function, run_user_code
from align.training.open_training import batch_findings, open_training
from align.training.steps.judge_step import RandomRounding
from align.training.steps.recorded_steps import batches_of_steps, trained_parameters
from align.training.thresholds import EQUAL_RUNS_FACTOR, EQUAL_RUNS_ROUNDED, TRAINING_LOSS_LIMIT
from align.training.watch_step import StepUnseen, without_dropout
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.progress import Progress
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.core.verdicts import Finding
    from align.forward.bisect_precision import SensitiveLayer
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide

    Implementation = Callable[[str, Any], Callable[..., Any] | None]


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
    change = _Change(opened, precision, device, _function(implementation))
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
        verdict=_verdict(len(rows), bench, precision or device or named or ""),
    )


def _function(given: str | Implementation | None) -> Implementation | None:
    return find_function(given, "implementation file") if isinstance(given, str) else given


@dataclass(frozen=True)
class _Change:
    """What is otherwise about a layer."""

    side: TrainingSide
    precision: str | None
    device: str | None
    implementation: Implementation | None

    @property
    def adapter(self) -> LayerSubstituter:
        """The adapter of the side's framework."""
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
            found = self.move(tuple(self.layers))
        except UserCodeError:
            self._leave_out_failing()
            self._refuse_none()
            found = self.move(tuple(self.layers))
        return found

    def move(self, paths: tuple[str, ...]) -> Movement:
        """Train with these layers otherwise."""
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
        sink = _Losses(start or {})
        self.trainings += 1
        with self.change.adapter.substituted(self.side.side.model, stand_ins):
            self.side.trainer.take_steps(self.side.training, self.batches, sink)
        if (loss := sink.losses[-1]) is None:
            raise CannotRunError.of("training_error.no_loss_returned", side=self.side.label)
        return loss

    def _make(self, path: str) -> None:
        try:
            made = self.change.stand_in(path)
        except UserCodeError as error:
            self._leave_out(path, error)
            return
        if made is None:
            del self.layers[path]
        else:
            self.stand_ins[path] = made

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


class _Losses(StepUnseen):
    """A StepSink that starts from other values, and keeps the losses."""

    def __init__(self, start: Mapping[str, Array]) -> None:
        self._start = start
        self.losses: list[float | None] = []

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Fill the model before the first step."""
        return {} if step else self._start

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Keep the loss."""
        self.losses.append(loss)


class _Called(StepUnseen):
    """A StepSink that notes which modules are called."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:  # noqa: ARG002
        """Note a module."""
        self.paths[module] = None


def _called_layers(side: TrainingSide, batch: Batch, pattern: str) -> dict[str, str]:
    """Classes of the called layers that fit, by path; raises UsageError if there is none."""
    called = _Called()
    side.trainer.take_steps(side.training, (batch,), called)
    modules = side.side.reader.read_parameters(side.side.model, side.label).modules
    classes = {one.path: one.classes[0].rpartition(".")[2] for one in modules if one.classes}
    return inner_layers({path: classes.get(path, "") for path in called.paths if path}, pattern)


def _share(before: float, after: float) -> float:
    """By what share of itself a loss moved; infinite where it became no number."""
    if not isfinite(after):
        return inf
    moved = abs(after - before)
    return moved / abs(before) if before else inf if moved else 0.0


def _verdict(found: int, bench: _Bench, place: str) -> Verdict:
    coverage = Coverage("layers", len(bench.layers), len(bench.not_run))
    total = len(bench.layers)
    if not found:
        return Verdict(Outcome.ALIGNED, sentence("training_bisection.within", count=total, place=place), coverage)
    reason = sentence("training_bisection.moved", count=found, total=total, place=place)
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
