"""Training steps of one side written into a folder, to be compared on another machine, or later."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import atomic_folder
from align.core.progress import silent
from align.core.protocols import SettingsReader
from align.errors import DestinationError
from align.traces.capture_trace import describe_data
from align.training.open_training import batch_findings, open_training
from align.training.step_result import CapturedSteps
from align.training.steps.record_step import AFTER, COMPUTED
from align.training.steps.recorded_steps import batches_of_steps, record_reference
from align.training.steps.step_folder import FILES, write_steps
from align.training.thresholds import STEPS_OF_ONE_BATCH
from align.training.watch_step import without_dropout

if TYPE_CHECKING:
    from align.core.progress import Progress
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.steps.recorded_steps import ReferenceSteps

CAPTURE_STAGES = 3  # no limit: what progress is reported of


def capture_training_step(  # noqa: PLR0913 - the options of one command
    side: str | Training,
    folder: Path | str,
    *,
    batch: InputsSource,
    steps: int = STEPS_OF_ONE_BATCH,
    overwrite: bool = False,
    data: Any = None,
    progress: Progress = silent,
) -> CapturedSteps:
    """Take training steps of one side and write all that `compare_training_step` needs of them into a folder.

    `side`, `batch` and `steps` are as there. The folder holds losses, tensors and gradients of the layers in the first
    step, gradients and values of parameters and buffers of all steps, their rounding, the settings of the optimizer,
    and the batches; of `data`, the loader or dataset that the training iterates over, its lengths, and it is not read.
    It is written whole or not at all; captured steps are replaced if `overwrite` says so.
    Raises DestinationError for one that is not to be replaced, holds something else, or cannot be written.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> side = Training(ArrayModel(()))
    >>> capture_training_step(side, "none", batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    destination = Path(folder)
    if not overwrite and any((destination / name).exists() for name in FILES):
        raise DestinationError.of("training_error.folder_exists", folder=destination)
    lengths = describe_data(data)
    opened, batches, stages = open_training(side), batches_of_steps(batch, steps), count(1)
    reader, noted = opened.side.reader, batch_findings(opened, batches[0])
    with without_dropout(opened) as findings, atomic_folder(destination, FILES) as part:
        found = record_reference(
            opened, batches, part, begun=lambda: progress("capture", next(stages), CAPTURE_STAGES), layers=True
        )
        own = replace(found.steps, environment={**found.steps.environment, **lengths})
        found = replace(found, steps=own, findings=(*noted, *found.findings, *findings))
        settings = reader.read_settings(opened.side.model) if isinstance(reader, SettingsReader) else []
        write_steps(part, found, settings)
        result = _summary(destination, found, sum(path.stat().st_size for path in part.rglob("*") if path.is_file()))
    progress("capture", CAPTURE_STAGES, CAPTURE_STAGES)
    return result


def _summary(folder: Path, captured: ReferenceSteps, nbytes: int) -> CapturedSteps:
    steps = captured.steps
    return CapturedSteps(
        str(folder),
        steps.label,
        steps.framework,
        tuple(steps.trace.losses),
        len({(one.module, one.call) for one in steps.trace.forward.captures}),
        len(steps.trace.values(0, COMPUTED)),
        len(steps.trace.values(0, AFTER)),
        nbytes,
        {**steps.environment},
        captured.findings,
    )
