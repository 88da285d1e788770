"""Both models run on the same inputs, each traced into a folder, and the reference's noise."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import replace_folder
from align.core.name_map import SIDES
from align.errors import DestinationError, ModelFailedError
from align.forward.layers.padding import NO_PADDING, Padding, find_padding
from align.forward.running.measure_noise import measure_noise
from align.forward.running.predict_errors import with_prediction
from align.models.fit_inputs import run_fitted
from align.models.refuse_random import refuse_random
from align.traces.folder_lock import LOCK, folder_lock
from align.traces.trace_folder import TraceFolder
from align.traces.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.protocols import Inputs
    from align.forward.running.measure_noise import Noise
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendTarget


@dataclass(frozen=True, slots=True)
class BothRuns:
    """The traces of both models, with the inputs of all calls, the reference's noise, and what padding decides.

    `inputs` are what each side took: the same numbers, in its own dtypes, or those that the candidate alone was given.
    `failure` is what ended the candidate's run: its trace is cut short there.
    """

    reference: TraceFolder
    candidate: TraceFolder
    noise: Noise
    inputs: tuple[Inputs, Inputs]
    padding: Padding = NO_PADDING
    failure: ModelFailedError | None = None

    @property
    def traces(self) -> tuple[TraceFolder, TraceFolder]:
        """Both traces."""
        return self.reference, self.candidate


def run_both_models(
    sides: tuple[Side, Side],
    inputs: tuple[Inputs, Inputs],
    folder: Path,
    begun: Callable[[], None],
    chip: AscendTarget | None = None,
) -> BothRuns:
    """Run both models and measure the noise; `begun` is called at each of the three stages.

    With a `chip` the noise holds what that is expected to do to the reference.

    Raises ModelFailedError for a reference that fails, and for a candidate that fails before any layer has returned.
    """
    read, took, failure = [], [], None
    for side, own, name in zip(sides, inputs, SIDES, strict=True):
        begun()
        try:
            took.append(run_fitted(side, own, partial(trace_run, side, folder / name)))
        except ModelFailedError as error:
            if side is sides[0] or not TraceFolder(folder / name).captures:
                raise
            took, failure = [*took, own], error
        read.append(TraceFolder(folder / name))
    begun()
    refuse_random(sides[0], took[0], read[0])  # else its random numbers would be its noise
    noise = measure_noise(sides[0], took[0], read[0], None if chip else read[1])
    if chip is not None:
        noise = with_prediction(noise, sides[0], took[0], read[0], chip)
    padding = find_padding(sides[0], took[0], read[0])
    return BothRuns(read[0], read[1], noise, (took[0], took[1]), padding, failure)


def trace_run(side: Side, folder: Path, inputs: Inputs) -> None:
    """Run one model, traced into a folder with the inputs of all calls."""
    with TraceWriter(folder, side.reader.environment(), inputs=True) as writer:
        side.runner.run(side.model, inputs, writer)


@contextmanager
def kept_traces(traces: Path | None) -> Iterator[Path]:
    """Give a folder for the traces of a run, which becomes `traces` if it comes to its end; None: nothing is kept."""
    if traces is None:
        with tempfile.TemporaryDirectory(prefix="align-") as folder:
            yield Path(folder)
        return
    if traces.exists() and not traces.is_dir():
        raise DestinationError.of("forward_error.no_folder", path=traces)
    part = traces.with_name(f"{traces.name}.part")
    traces.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(traces.with_name(f".{traces.name}{LOCK}"), traces, "trace"):
        shutil.rmtree(part, ignore_errors=True)
        yield part
        replace_folder(part, traces)
