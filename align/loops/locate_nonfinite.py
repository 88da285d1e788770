"""The first NaN, Inf or explosion of a training that a function builds: its steps are taken here, and undone."""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import partial
from math import isfinite, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import write_text
from align.core.documents import to_json_data
from align.core.load_code import model_readers
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, NonfiniteFoundError, UsageError
from align.loops.find_event import Origin
from align.loops.find_explosion import precedes
from align.loops.recorded_pass import NonfiniteEvent, NonfiniteResult
from align.loops.thresholds import EXPLOSION_FACTOR, FLOAT16_LARGEST, KEPT_STEPS, STEPS
from align.loops.watched_framework import RunningFigures, WatchedFramework, scale_for
from align.models.inputs import read_inputs
from align.models.loop_watcher import LoopHost, LoopWatcher
from align.training.open_training import StepUnseen, batch_findings, open_training
from align.words.catalogue import sentence, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from align.core.parameters import Array
    from align.core.protocols import FrameworkName, Progress
    from align.core.training import Training
    from align.loops.find_explosion import Explosion
    from align.loops.recorded_pass import GuiltyPart, NearOverflow
    from align.models.inputs import InputsSource
    from align.words.catalogue import Sentence


def locate_nonfinite(  # noqa: PLR0913 - one parameter an option
    training: str | Training,
    *,
    batches: Sequence[InputsSource],
    steps: int = STEPS,
    keep: int = KEPT_STEPS,
    factor: float = EXPLOSION_FACTOR,
    loss_scale: float = 1.0,
    steps_file: Path | str | None = None,
    progress: Progress = silent,
) -> NonfiniteResult:
    """Take steps of a training until something is not finite, and say where it began and why.

    `training` is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step])
    or a dict of these. `batches` are taken one a step, over and over; the loss is multiplied by `loss_scale` for the
    way back, unless the step is the user's own. Model and optimizer are left as they were. The others are those of
    `watch_nonfinite`. Raises UsageError for no steps or batches.

    >>> from align.core.training import Training
    >>> import torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    >>> made = Training(layer, lambda out, y: torch.sqrt((out - out) * y).sum(), optimizer)
    >>> import numpy as np
    >>> found = locate_nonfinite(made, batches=[{"input": np.ones((1, 2), "f"), "y": np.ones((1, 1), "f")}])
    >>> found.event.step, found.event.direction, found.event.cause
    (0, 'backward', 'root-of-0')
    """
    if steps < 1:
        raise UsageError.of("training_error.no_steps", steps=steps)
    if not batches:
        raise UsageError.of("training_error.no_batch")
    opened = open_training(training)
    given = [read_inputs(one) for one in batches]
    for one in given:
        batch_findings(opened, one)
    watch = NonfiniteWatch(
        opened.side.model, running_figures(keep, factor), stop=True, steps_file=steps_file, loud=False
    )
    counted = _Counted(steps, progress)
    taken = [given[number % len(given)] for number in range(steps)]
    try:
        with watch:
            opened.trainer.take_steps(opened.training, taken, counted, loss_scale=loss_scale)
    except NonfiniteFoundError:
        if watch.event is None:
            raise
    except CannotRunError:
        if watch.event is None:  # else the step failed after what was found
            raise
    return watch.result


class _Counted(StepUnseen):
    """Tells how far it is."""

    def __init__(self, steps: int, progress: Progress) -> None:
        self._steps, self._progress = steps, progress

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        self._progress("nonfinite", step + 1, self._steps)


# A training loop of the user's own, watched for its first NaN, Inf or explosion.


def watch_nonfinite(
    model: Any = None,
    *,
    keep: int = KEPT_STEPS,
    factor: float = EXPLOSION_FACTOR,
    stop: bool = False,
    steps_file: Path | str | None = None,
) -> NonfiniteWatch:
    """Watch the training that runs inside of `with`, and say where its first NaN, Inf or explosion begins.

    All modules and optimizers that run are seen; `model` gives paths their root, by default the first module that is
    called. Figures of the last `keep` steps are kept. A tensor explodes whose root mean square is above `factor` times
    its running median. What is found is printed to standard error at once and stands in `result`; with `stop`, the
    loop ends in a NonfiniteFoundError. `steps_file` gets a line for each step while it runs, so that a process that is
    killed leaves the figures of its last steps. Torch or MindSpore must be imported before, MindSpore in PYNATIVE mode.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> with watch_nonfinite() as watch:
    ...     loss = torch.log(layer(torch.ones(1, 2)).sum() * 0)
    ...     loss.backward()
    >>> watch.result.event.cause
    'log-of-0'
    """
    return NonfiniteWatch(model, running_figures(keep, factor), stop=stop, steps_file=steps_file)


def running_figures(keep: int, factor: float) -> RunningFigures:
    """Figures of `keep` steps; raises UsageError for a number that makes no sense."""
    if keep < 1:
        raise UsageError.of("watch_error.no_steps_kept", keep=keep)
    if not factor > 1:
        raise UsageError.of("watch_error.no_factor", factor=factor)
    return RunningFigures(keep, factor)


class NonfiniteWatch:
    """What `watch_nonfinite` returns: a context, and the `result` of what it saw."""

    def __init__(
        self, model: Any, figures: RunningFigures, *, stop: bool, steps_file: Path | str | None, loud: bool = True
    ) -> None:
        self.figures = figures
        self._model, self._stop, self._loud = model, stop, loud
        self.event: NonfiniteEvent | None = None
        self._before: tuple[Any, ...] = ((), ())
        self._frameworks: list[WatchedFramework] = []
        self._found_in: WatchedFramework | None = None
        self._lines = StepLines(Path(steps_file), figures.ring.maxlen or 1) if steps_file is not None else None

    def __enter__(self) -> NonfiniteWatch:
        readers = [reader for reader in model_readers().values() if isinstance(reader, LoopWatcher) and reader.loaded()]
        own = [reader for reader in readers if self._model is None or model_readers()[reader.name].owns(self._model)]
        if not own:
            raise CannotRunError.of("watch_error.no_framework")
        for reader in own:
            framework = WatchedFramework(reader, self)
            framework.begin(self._model)
            self._frameworks.append(framework)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop, self._stop = self._stop, False
        for framework in self._frameworks:
            framework.end()
        if stop and kind is None and self.event is not None:
            raise NonfiniteFoundError.of("watch_error.found", headline=headline(self.event))

    def callback(self, framework: FrameworkName) -> Any:
        """A callback in the place of `with`: of MindSpore's `Model.train`, or the Trainer of transformers ("torch")."""
        watcher = model_readers()[framework]
        if not isinstance(watcher, LoopHost):
            raise CannotRunError.of("watch_error.no_framework")
        close = partial(self.__exit__, None, None, None)
        return watcher.step_callback(lambda *_: None, close, lambda _: self.__enter__())

    @property
    def result(self) -> NonfiniteResult:
        """What was seen up to now."""
        shown = self._found_in or max(self._frameworks, key=lambda one: (one.running, one.step), default=None)
        if shown is None:
            raise CannotRunError.of("watch_error.not_begun")
        return judged(shown, self.event, self._before, self.figures.near)

    # What the frameworks tell.

    def found(self, framework: WatchedFramework, origin: Origin) -> None:
        """See Judge."""
        explosion = self.figures.explosion(framework.seen)
        if explosion is not None and precedes(explosion, origin):
            self._settle(framework, *exploded(framework, explosion))
        else:
            self._settle(framework, worded(framework, origin), origin)

    def passed(self, framework: WatchedFramework) -> None:
        """See Judge."""
        self.figures.note_near(framework.step, framework.seen, framework.loss_scale)
        if explosion := self.figures.explosion(framework.seen):
            self._settle(framework, *exploded(framework, explosion))
            return
        self.figures.add(framework.step, framework.seen)
        if self._lines is not None:
            self._lines.add(framework.step, framework.loss_scale, self.figures.ring[-1][1])

    def _settle(self, framework: WatchedFramework, event: NonfiniteEvent, origin: Origin) -> None:
        for one in self._frameworks:
            one.stopped = True
        way = origin.direction
        before = self.figures.before(framework.step, framework.seen, origin.record, origin.arrival, way)
        self.event, self._before, self._found_in = event, before, framework
        if self._lines is not None:
            self._lines.end(event)
        if self._loud and sys.stderr is not None:
            sys.stderr.write(f"align: {headline(event)}\n")
        if self._stop:
            self._stop = False
            raise NonfiniteFoundError.of("watch_error.found", headline=headline(event))


# What was found, in words: the event with its reason, its remedy, and what is known of the weights.


def worded(framework: WatchedFramework, origin: Origin) -> NonfiniteEvent:
    """The event that an origin is."""
    scale, better = _scales(framework, origin)
    facts = {
        "tensor": origin.tensor,
        "operator": origin.record.name if origin.record is not None else "",
        "dtype": origin.dtype,
        "scale": framework.loss_scale,
        "better": better or 0.0,
        "samples": ", ".join(map(str, origin.samples)),
    }
    key = origin.cause.replace("-", "_")
    cause, remedy = sentence(f"nonfinite_cause.{key}", **facts), sentence(f"nonfinite_remedy.{key}", **facts)
    return _event(framework, origin, cause, remedy, scale, better)


def _event(  # noqa: PLR0913 - what an event has beside its origin
    framework: WatchedFramework,
    origin: Origin,
    cause: str,
    remedy: str,
    scale: float | None,
    better: float | None = None,
    factor: float | None = None,
) -> NonfiniteEvent:
    record = origin.record
    # The layer of a parameter that went wrong; what the step does is done in none.
    layer = "" if origin.direction == "step" else origin.tensor.rpartition(".")[0]
    return NonfiniteEvent(
        origin.kind,
        framework.step,
        origin.direction,
        record.path if record is not None else layer,
        record.call if record is not None else 0,
        record.name if record is not None else "",
        record.line if record is not None else "",
        origin.part,
        origin.tensor,
        origin.cause,
        cause,
        remedy,
        _weights(framework, origin),
        origin.samples,
        origin.dtype,
        scale,
        better,
        factor,
    )


def exploded(framework: WatchedFramework, explosion: Explosion) -> tuple[NonfiniteEvent, Origin]:
    """The event that an explosion is."""
    record, way, tensor = explosion.record, explosion.direction, explosion.tensor
    part: GuiltyPart = "output" if way == "forward" else "gradient"
    dtype = explosion.arrival.dtype if explosion.arrival is not None else record.dtype if record is not None else ""
    origin = Origin("explosion", way, record, part, tensor, "explosion", dtype, (), explosion.arrival)
    facts = {"factor": explosion.factor, "rms": explosion.rms, "tensor": tensor}
    cause, remedy = (sentence(f"nonfinite_{said}.{explosion.words}", **facts) for said in ("cause", "remedy"))
    scale = framework.loss_scale if framework.loss_scale > 1 else None
    return _event(framework, origin, cause, remedy, scale, factor=explosion.factor), origin


def headline(event: NonfiniteEvent) -> Sentence:
    """The line that says what matters."""
    facts = {
        "kind": event.kind,
        "step": event.step,
        "direction": word("nonfinite_direction", event.direction),
        "layer": event.layer,
        "operator": event.operator,
        "reason": event.reason,
        "line": event.line,
    }
    place = "in_step" if event.direction == "step" else "in_layer" if event.layer else "outside"
    return sentence(f"nonfinite_verdict.{place}", **facts)


def judged(
    framework: WatchedFramework, event: NonfiniteEvent | None, before: Sequence[Any], near: Sequence[NearOverflow]
) -> NonfiniteResult:
    """The result of a training that was watched so far; raises CannotRunError where nothing ran."""
    steps = framework.step + (event is not None)
    if event is None and steps == 0:
        raise CannotRunError.of("watch_error.nothing_ran")
    coverage = Coverage("steps", max(steps, 1))
    if event is not None:
        verdict = Verdict(Outcome.NOT_ALIGNED, headline(event), coverage)
    else:
        verdict = Verdict(Outcome.ALIGNED, sentence("nonfinite_verdict.nothing", steps=steps), coverage)
    names, counts = (framework.label, framework.watcher.name), (steps, framework.skipped, framework.tensors)
    findings = tuple(_findings(framework, near))
    return NonfiniteResult(*names, *counts, event, before[0], before[1], tuple(near), findings, verdict)


def _findings(framework: WatchedFramework, near: Sequence[NearOverflow]) -> list[Finding]:
    findings = []
    if framework.skipped:
        message = sentence("nonfinite_finding.skipped", count=framework.skipped)
        findings.append(Finding("steps-skipped", "note", framework.label, message))
    if near:
        back = [one.better_scale for one in near if one.better_scale is not None]
        key = "nonfinite_finding.near_backward" if back else "nonfinite_finding.near_forward"
        facts = {"layer": near[0].layer, "largest": near[0].largest, "scale": min(back, default=0.0)}
        findings.append(Finding("float16-near-overflow", "warning", near[0].layer, sentence(key, **facts)))
    return findings


def _weights(framework: WatchedFramework, origin: Origin) -> Sentence:
    """What is known of the weights before this step, and so where the fault is not."""
    if origin.direction in ("update", "step"):
        return sentence(f"nonfinite_weights.{origin.direction}")
    if origin.part == "parameter":
        return sentence("nonfinite_weights.first" if framework.step == 0 else "nonfinite_weights.between")
    return sentence("nonfinite_weights.sound")


def _scales(framework: WatchedFramework, origin: Origin) -> tuple[float | None, float | None]:
    """The loss scale in force, and one that avoids an overflow in float16 on the way back."""
    scale = framework.loss_scale
    if origin.direction != "backward" or origin.cause != "float16-gradient-overflow":
        return (scale if scale > 1 else None), None
    given = [one.gradient for one in origin.record.outputs if one.gradient is not None] if origin.record else []
    norms = [float(one.norm) for one in given if isfinite(one.norm)]
    guess = scale_for(max([*norms, FLOAT16_LARGEST]), scale)  # a norm is at least the largest value
    return scale, min(guess, 2.0 ** (log2(scale) // 1 - 1)) if scale > 1 else None


# A file that grows by a line a step while a training runs, so that a process that is killed leaves its last steps.
#
# Each line is a JSON object and is handed to the system when its step is over: after `kill -9` all steps are there
# but for the one that ran. The file is begun anew, whole, when it holds twice the steps that are kept.


class StepLines:
    """Writes the lines of one training."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path, self._keep = path, keep
        self._lines: list[str] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "")
        except OSError as error:
            raise CannotRunError.of("watch_error.no_steps_file", path=path, reason=error.strerror) from error

    def add(self, step: int, loss_scale: float, figures: Mapping[tuple[str, str, int, str, int], float]) -> None:
        """Add a step: the figures are root mean squares by direction, layer, call, operator and its number."""
        rows = [[*key, rms] for key, rms in figures.items()]
        self._write({"step": step, "loss_scale": loss_scale, "rms": rows})

    def end(self, event: Any) -> None:
        """Add what was found."""
        self._write({"event": to_json_data(dataclasses.asdict(event))})

    def _write(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(to_json_data(row)) + "\n"
        self._lines.append(line)
        if len(self._lines) > 2 * self._keep:
            self._lines = self._lines[-self._keep :]
            write_text(self._path, "".join(self._lines))
        else:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
