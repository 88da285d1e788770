"""A training loop of the user's own, watched for its first NaN, Inf or explosion."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.registry import model_readers
from align.errors import CannotRunError, NonfiniteFoundError, UsageError
from align.models.loop_watcher import LoopWatcher
from align.watch.find_explosion import precedes
from align.watch.running_figures import RunningFigures
from align.watch.step_lines import StepLines
from align.watch.thresholds import EXPLOSION_FACTOR, KEPT_STEPS
from align.watch.watched_framework import WatchedFramework
from align.watch.word_event import exploded, headline, judged, worded

if TYPE_CHECKING:
    from types import TracebackType

    from align.core.protocols import FrameworkName
    from align.watch.find_event import Origin
    from align.watch.nonfinite_result import NonfiniteEvent, NonfiniteResult


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
        readers = [one for one in model_readers().values() if isinstance(one, LoopWatcher) and one.loaded()]
        own = [one for one in readers if self._model is None or model_readers()[one.name].owns(self._model)]
        if not own:
            raise CannotRunError.of("watch_error.no_framework")
        for one in own:
            framework = WatchedFramework(one, self)
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
        if not isinstance(watcher, LoopWatcher):
            raise CannotRunError.of("watch_error.no_framework")
        return watcher.loop_callback(self.__enter__, partial(self.__exit__, None, None, None))

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
