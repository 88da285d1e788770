"""A trace folder shown as the tree of its calls, with the place where it ends if the run did not come to its end."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.trace_metadata import CallStart, TracedCall, TracedTensor, TraceSummary
from align.errors import MissingFileError
from align.traces.open_trace import check_beside
from align.traces.stored.manifest import NOISE
from align.traces.stored_model import MODEL, read_model
from align.traces.stored_noise import read_noise
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.traces import Capture


def show_trace(folder: Path | str) -> TraceSummary:
    """Read a trace folder; raises MissingFileError or RunFolderError where there is none, or it is damaged.

    >>> import numpy as np, tempfile
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> from align.traces.capture_trace import capture_trace
    >>> model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = capture_trace(model, folder, inputs={"x": np.ones(3, np.float32)})
    ...     [call.module for call in show_trace(folder).calls]
    ['', 'act']
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    trace = TraceFolder(folder)
    check_beside(trace, contents=(MODEL, NOISE))  # of the larger files the sizes will do
    noise, missing = read_noise(folder)
    model = read_model(folder)
    return TraceSummary(
        folder=str(folder),
        head=trace.manifest.head,
        environment=trace.environment,
        complete=trace.complete,
        running=tuple(_name(start) for start in trace.manifest.running),
        failure=trace.manifest.failure,
        calls=tuple(_calls(trace)),
        tensors=len(trace.captures),
        nbytes=sum({place.offset: place.nbytes for place in trace.manifest.places.values()}.values()),
        parameters=len(model[0].parameters) if model else 0,
        noise=len(noise or ()),
        noise_missing=missing,
    )


def _calls(trace: TraceFolder) -> Iterator[TracedCall]:
    """Calls as they began; those of a trace that knows no beginnings as they ended."""
    outputs: dict[tuple[str, int], list[Capture]] = defaultdict(list)
    for capture in trace.captures:
        outputs[capture.module, capture.call].append(capture)
    starts = trace.manifest.starts or [
        CallStart(module, call, None, own[0].class_name) for (module, call), own in outputs.items()
    ]
    running = {(start.module, start.call) for start in trace.manifest.running}
    depths: dict[str | None, int] = {None: -1}
    for start in starts:
        key = start.module, start.call
        own = outputs[key]
        depths[start.module] = depth = depths.get(start.parent, -1) + 1
        yield TracedCall(
            start.module,
            start.call,
            start.class_name,
            depth if trace.manifest.starts else own[0].depth,
            start.place,
            start.inputs,
            tuple(_tensor(trace, capture) for capture in own),
            key not in running,
        )


def _tensor(trace: TraceFolder, capture: Capture) -> TracedTensor:
    place = trace.manifest.places.get(capture.key)
    kept = 0 if place is None else prod(place.shape)
    return TracedTensor(capture.output, capture.shape, capture.dtype, trace.manifest.statistics.get(capture.key), kept)


def _name(start: CallStart) -> str:
    return start.module + (f"#{start.call}" if start.call else "")
