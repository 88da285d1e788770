"""The first NaN, Inf or explosion of a training that a function builds: its steps are taken here, and undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.progress import silent
from align.errors import CannotRunError, NonfiniteFoundError, UsageError
from align.models.inputs import read_inputs
from align.training.open_training import batch_findings, open_training
from align.training.watch_step import StepUnseen
from align.watch.running_figures import RunningFigures
from align.watch.thresholds import EXPLOSION_FACTOR, KEPT_STEPS, STEPS
from align.watch.watch_nonfinite import NonfiniteWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.progress import Progress
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.watch.nonfinite_result import NonfiniteResult


def locate_nonfinite(
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

    `training` is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step]) or
    a dict of these. `batches` are taken one a step, over and over; the loss is multiplied by `loss_scale` for the way
    back, unless the step is the user's own. Model and optimizer are left as they were. The other arguments are those of
    `watch_nonfinite`. Raises UsageError for no steps or batches.

    >>> from align.core.training import Training
    >>> import torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> made = Training(layer, lambda out, y: torch.sqrt((out - out) * y).sum(), torch.optim.SGD(layer.parameters(), 0.1))
    >>> import numpy as np
    >>> found = locate_nonfinite(made, batches=[{"input": np.ones((1, 2), "f"), "y": np.ones((1, 1), "f")}])
    >>> found.event.step, found.event.direction, found.event.cause
    (0, 'backward', 'root of 0')
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
        opened.side.model, RunningFigures(keep, factor), stop=True, steps_file=steps_file, loud=False
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
