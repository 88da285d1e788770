"""One model run once on fixed inputs, and all of it written into a folder that is compared elsewhere, or later.

Each call is streamed as it begins and ends, each tensor with its figures: a process that is killed, or a kernel that
fails, leaves a trace that ends at the call that was running.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.atomic_files import remove_dead_parts
from align.core.operating_system import LOCK, folder_lock
from align.core.protocols import BackwardRunner, SettingsReader, silent
from align.core.traces import Capture, TensorStatistics, TraceHead
from align.errors import AlignError, CannotRunError, DestinationError, UsageError, UserCodeError
from align.measure.tensor_statistics import summarize_tensor
from align.models.inputs import describe_inputs, read_batches, read_inputs, run_fitted, save_inputs
from align.models.open_side import Side, describe_launch, open_side
from align.models.thresholds import SEED
from align.models.user_code import run_user_code
from align.traces.manifest import (
    INPUTS,
    MANIFEST,
    MODEL_FILE,
    NOISE_FILE,
    TENSORS,
    VALUES,
    capture_as_json,
    write_model,
    write_values,
)
from align.traces.open_trace import NoiseSink, show_trace, write_noise
from align.traces.trace_folder import TraceFolder, TraceWriter, is_kept, keep_part, not_written, read_kept, tell_file
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Inputs, Model, Progress
    from align.core.traces import CallStart, CaptureSink, Measurement, ReturnedParts
    from align.models.inputs import InputsSource
    from align.traces.open_trace import TraceSummary


STAGES = 3  # no limit: what progress is reported of
BACKWARD = "backward"
_FILES = (MANIFEST, TENSORS, MODEL_FILE, VALUES, NOISE_FILE, INPUTS)


def capture_trace(  # noqa: PLR0913 - the options of one command
    side: str | Model | Side,
    folder: Path | str,
    *,
    inputs: InputsSource,
    tensors: Sequence[str] = ("all",),
    functions: bool = False,
    layer_inputs: bool = False,
    backward: bool = False,
    noise: bool = True,
    values: bool = True,
    data: Any = None,
    progress: Progress = silent,
) -> TraceSummary:
    """Run one model on fixed inputs in evaluation mode and write what every module returned into a trace folder.

    `inputs` are as for `compare_forward`; gradients are had of one batch only.
    `tensors` says whose values are kept: "all", "none" (figures only), globs over paths, "first:N" or "sample:N"
    elements. `functions` captures functional calls that are no module's too, `layer_inputs` what calls are given,
    `backward` the gradients of a fixed mix of the outputs, in the folder `backward` inside. `noise` measures the
    rounding noise by a second run in float64, `values` keeps the parameters. `data` is the loader or dataset
    that the training iterates over: its lengths are kept, and it is not read. A run that fails leaves a trace that ends
    where it did. Raises UserCodeError then, and DestinationError for a folder that cannot be written, or holds
    something else.

    >>> import numpy as np, tempfile
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trace = capture_trace(model, folder, inputs={"x": np.array([-1, 3], np.float32)})
    >>> trace.calls[1].outputs[0].statistics.mean
    1.5
    """
    opened = open_side(side)
    backwards = _backward_runner(opened) if backward else None
    batches, folder = read_batches(inputs), Path(folder)
    first = batches[0] if backwards is None else read_inputs(batches)
    head = TraceHead(
        side=opened.label,
        framework=opened.reader.name,
        inputs=describe_inputs(batches),
        seed=SEED,
        functions=functions,
        layer_inputs=layer_inputs,
        kept=read_kept(tensors),
    )
    environment = {**opened.reader.environment(), **describe_launch(), **describe_data(data)}
    parameters = opened.reader.read_parameters(opened.model, opened.label)  # MindSpore may rename them in a run
    with _room(folder):
        _write_model(opened, parameters, folder, values=values)
        save_inputs(folder / INPUTS, batches)
        progress("capture", 1, STAGES)
        write = partial(_write_run, environment, (NOISE_FILE,) if noise else ())
        run = partial(opened.runner.run, opened.model)
        taken = run_fitted(opened, batches, lambda given: write(folder, head, partial(run, given)))
        progress("capture", 2, STAGES)
        if noise:
            write_noise(folder, *_measure_noise(opened, taken, TraceFolder(folder)))
            tell_file(folder, NOISE_FILE)
        if backwards is not None:
            head = replace(head, direction="backward", functions=False, layer_inputs=False)
            back = folder / BACKWARD
            write(back, head, partial(backwards.run_backward, opened.model, first))
            if noise:
                write_noise(back, *_measure_noise(opened, first, TraceFolder(back)))
                tell_file(back, NOISE_FILE)
        progress("capture", STAGES, STAGES)
    return show_trace(folder)


def _backward_runner(side: Side) -> BackwardRunner:
    if isinstance(side.reader, BackwardRunner):
        return side.reader
    raise CannotRunError.of("traces_error.not_backwards", framework=side.reader.name)


def _write_run(
    environment: Mapping[str, str],
    later: Sequence[str],
    folder: Path,
    head: TraceHead,
    run: Callable[[CallWriter], None],
) -> None:
    kind = GivenWriter if head.layer_inputs else CallWriter
    try:
        with kind(folder, environment, head, later=later) as writer:
            run(writer)
    except UserCodeError as error:
        error.hint = say("traces_reason.how_far", folder=folder, hint=error.hint)
        raise


@contextmanager
def _room(folder: Path) -> Iterator[None]:
    """Make the folder and hold it while the block runs, without an older trace; what else is there is never touched."""
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(folder_lock(folder / LOCK, folder, "trace"))
            _take_out_older(folder)
        except OSError as error:
            raise not_written(folder, error) from error
        yield


def _take_out_older(folder: Path) -> None:
    remove_dead_parts(folder)
    strange = sorted(path.name for path in folder.iterdir() if path.name not in (*_FILES, BACKWARD, LOCK))
    if strange and not (folder / MANIFEST).is_file():
        raise DestinationError.of("traces_error.other_folder", folder=folder, names=strange)
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / BACKWARD, ignore_errors=True)


def _write_model(side: Side, parameters: ParameterSet, folder: Path, *, values: bool) -> None:
    settings = side.reader.read_settings(side.model) if isinstance(side.reader, SettingsReader) else []
    write_model(folder, parameters, settings)
    if values:
        write_values(folder, side.reader.read_values(side.model))


def _measure_noise(side: Side, inputs: Inputs, trace: TraceFolder) -> tuple[dict[str, Measurement] | None, str]:
    """Run the model again in float64 and measure what was kept of the ordinary run; or say why that cannot be."""
    head = trace.manifest.head
    if head is None or not head.kept.globs:
        return None, sentence("noise_note.no_tensors")
    sink = NoiseSink(trace)
    try:
        wide = side.runner.widened(side.model)
        if wide is None:
            return None, sentence("noise_note.no_float64", framework=side.reader.name)
        kept = _KeptOnly(sink, head)
        if head.direction == "backward":
            _backward_runner(side).run_backward(wide, read_inputs(inputs), kept)
        else:
            side.runner.run(wide, inputs, kept)
    except UserCodeError as error:
        return None, error.message
    return sink.noise, ""


class _KeptOnly:
    """A sink that hands on what a trace keeps."""

    def __init__(self, sink: CaptureSink, head: TraceHead) -> None:
        self._sink, self._kept, self.functions = sink, head.kept, head.functions

    def add(self, capture: Capture, value: Array) -> None:
        part = keep_part(self._kept, capture, value)
        if part is not None:
            self._sink.add(capture, part)


_FIGURES = TensorStatistics.__slots__


class CallWriter:
    """A CallSink that writes a trace folder; memory is that of one tensor. Use it as a context manager.

    `later` names the files that are noted after the run; `header_bytes` is as for TraceWriter. With `magnitudes`, sums
    of absolute values are among the figures.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        head: TraceHead,
        *,
        later: Sequence[str] = (),
        header_bytes: int | None = None,
        magnitudes: bool = False,
    ) -> None:
        self._kept, self.functions, self._magnitudes = head.kept, head.functions, magnitudes
        self._writer = TraceWriter(
            folder, environment, inputs=head.layer_inputs, head=head, later=later, header_bytes=header_bytes
        )
        self._outputs = 0
        self._latest: dict[str, dict[str, Any]] = {}  # what was noted of the tensors of the call that ended last
        self._current: dict[str, dict[str, Any]] = {}

    def begin(self, start: CallStart) -> None:
        """Note a call that begins."""
        inputs = {name: [kind.shape, kind.dtype] for name, kind in start.inputs.items()}
        self._writer.note(
            {
                "begin": start.module,
                "call": start.call,
                "parent": start.parent,
                "class_name": start.class_name,
                "place": start.place,
                "inputs": inputs,
            }
        )

    def returned(self, parts: ReturnedParts) -> None:
        """Note what the model returned that is no tensor."""
        self._writer.returned(parts)

    def add(self, capture: Capture, value: Array) -> None:
        """Note a tensor with its figures, and keep of it what is to be kept."""
        part = keep_part(self._kept, capture, value)
        noted: dict[str, Any] = {
            "statistics": _figures(summarize_tensor(value, magnitude=self._magnitudes)),
            "offset": None,
        }
        if part is not None:
            noted |= self._writer.append(capture, part)
            if part.shape != capture.shape:
                noted["kept"] = part.size
        self._note(capture, noted)

    def again(self, capture: Capture, value: Array, known: Capture) -> None:
        """Note that a tensor is one that was just noted."""
        noted = self._latest.get(known.key)
        if noted is None or (noted["offset"] is None) == is_kept(self._kept, capture):
            self.add(capture, value)
        else:
            self._note(capture, noted)

    def _note(self, capture: Capture, noted: dict[str, Any]) -> None:
        self._outputs += capture.role == "output"
        self._current[capture.key] = noted
        self._writer.note({**capture_as_json(capture), **noted}, flush=False)  # the end of the call does

    def recomputed(self, capture: Capture, error: float | None, reason: str) -> None:
        """Note by what share a tensor is off from what its layer makes in float64, or why that is not known."""
        self._writer.note({"recomputed": capture.key, "error": None if error is None else str(error), "reason": reason})

    def finish(self, module: str, call: int) -> None:
        """Note a call that returned."""
        self._latest, self._current = self._current, {}
        self._writer.note({"end": module, "call": call})

    def __enter__(self) -> CallWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            said = error.message if isinstance(error, AlignError) else kind.__name__ if kind else ""
            with contextlib.suppress(DestinationError):  # a full disk is what it failed with
                self._writer.note({"failed": said})
        self._writer.__exit__(kind, error, tb)


class GivenWriter(CallWriter):
    """A CallWriter that also keeps what calls are given; what was written before is not written again."""

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Note the tensors that a call is given."""
        for name, value in inputs.items():
            shape, dtype = tuple(value.shape), value.dtype.name
            self.add(Capture(self._outputs, module, call, name, "", shape, dtype, role="input"), value)


def _figures(statistics: TensorStatistics) -> dict[str, float | None]:
    """All finite: JSON can hold them. What was not asked for is left out."""
    figures = {name: getattr(statistics, name) for name in _FIGURES}
    return {name: value for name, value in figures.items() if name != "magnitude" or value is not None}


# How long the data of a training is: samples, batches of an epoch, the size of one, as a loader or dataset tells
# them.
#
# No framework is imported: what is given says by its own attributes what it is. A length that would have to be
# counted by reading all data is not asked for.

SAMPLES, BATCHES, BATCH_SIZE = "dataset samples", "dataset batches", "dataset batch_size"


def describe_data(data: Any) -> dict[str, str]:
    """Lengths that a loader or a dataset tells without being read; what it does not tell is left out.

    `data` is a DataLoader or dataset of torch, a dataset of MindSpore, or any object with a length: one that is indexed
    holds samples, one that is only looped over gives batches. Raises UsageError for what is none of these.

    >>> describe_data([("x", 1), ("y", 2)])
    {'dataset samples': '2'}
    """
    if data is None:
        return {}
    sized = any(hasattr(data, name) for name in ("get_dataset_size", "__iter__", "__getitem__"))
    if isinstance(data, (str, bytes, Mapping)) or not sized:
        raise UsageError.of("data_error.no_data", kind=type(data).__name__)
    read = _of_pipeline if hasattr(data, "get_dataset_size") else _of_loader if _is_loader(data) else _of_dataset
    return {name: str(number) for name, number in read(data).items() if number is not None}


def _is_loader(data: Any) -> bool:
    """Tell what gives batches: torch's DataLoader and what is like it."""
    return hasattr(data, "batch_size") or not hasattr(data, "__getitem__")


def _of_dataset(data: Any) -> dict[str, int | None]:
    return {SAMPLES: _asked(partial(len, data))}


def _of_loader(loader: Any) -> dict[str, int | None]:
    """Describe a loader; its dataset is the whole one, its batches are those of one rank."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    samples = _asked(partial(len, loader.dataset)) if hasattr(loader, "dataset") else None
    return {SAMPLES: samples, BATCHES: _asked(partial(len, loader)), BATCH_SIZE: size if _is_count(size) else None}


def _of_pipeline(data: Any) -> dict[str, int | None]:
    """Of MindSpore's chain of operations: samples are what reaches `batch`; those of a rank alone are left out."""
    chain = _chain(data)
    if any(getattr(one, "source_len", None) == -1 for one in chain):  # a generator that would be run to count it
        return {BATCH_SIZE: _batch_size(chain)}
    whole = _asked(data.get_dataset_size)
    if (place := _place_of_batch(chain)) is None:
        return {SAMPLES: None if _is_split(chain) else whole}
    samples = None if _is_split(chain) else _asked(chain[place + 1].get_dataset_size)
    return {SAMPLES: samples, BATCHES: whole, BATCH_SIZE: _batch_size(chain)}


def _chain(data: Any) -> list[Any]:
    """Operations from the last to the source, as far as each has one input."""
    found = [data]
    while len(before := list(getattr(found[-1], "children", ()))) == 1:
        found += before
    return found


def _place_of_batch(chain: list[Any]) -> int | None:
    return next((at for at, one in enumerate(chain[:-1]) if hasattr(one, "drop_remainder")), None)


def _batch_size(chain: list[Any]) -> int | None:
    place = _place_of_batch(chain)
    size = getattr(chain[place], "batch_size", None) if place is not None else None
    return size if _is_count(size) else None


def _is_split(chain: list[Any]) -> bool:
    return (getattr(chain[-1], "num_shards", None) or 1) > 1


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _asked(length: Callable[[], int]) -> int | None:
    """What the user's data says of its length; None where it has none."""
    try:
        found = run_user_code(length, lambda error: UserCodeError(say("data_error.length"), error))
    except UserCodeError:
        return None
    return found if _is_count(found) or found == 0 else None
