"""`align.dump`: what layers compute in chosen iterations of a loop of the user's own, as trace folders.

Outside of the chosen iterations nothing is hooked: a step costs one comparison of numbers. Each iteration is a folder
of its own, written as it runs, so that a killed process leaves all iterations but the last one whole.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from align.core.operating_system import LOCK, folder_lock
from align.core.parameters import dtype_name
from align.core.protocols import SettingsReader
from align.core.traces import Capture, KeptValues, TraceHead
from align.core.training import ModelFreezer
from align.core.verdicts import ShownResult
from align.errors import (
    CannotRunError,
    DestinationError,
    MissingFileError,
    UnlikeTracesError,
    UsageError,
    UserCodeError,
)
from align.loops.thresholds import DUMP_HEADER_BYTES
from align.measure.measure_arrays import measure
from align.models.inputs import SpilledArrays, describe_inputs, save_inputs
from align.models.live_calls import leaves, with_leaves
from align.models.loop_watcher import LoopHooks, LoopHost
from align.models.open_side import build_side, describe_launch
from align.models.record_calls import call_start
from align.traces.capture_trace import BACKWARD, CallWriter, GivenWriter, describe_data
from align.traces.dumped_side import is_trace_folder, trace_folders_in
from align.traces.manifest import write_model, write_values
from align.traces.trace_folder import TraceFolder, not_written, read_kept
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from align.core.parameters import Array
    from align.core.protocols import LayerSettings, Model
    from align.core.traces import Direction
    from align.models.loop_watcher import LoopCall
    from align.models.open_side import Side


STEP, RANK = "step_{}", "rank_{}"


def dump(  # noqa: PLR0913 - what can be chosen of a dump
    model: Model | Side,
    folder: Path | str,
    *,
    iterations: str = "0",
    ranks: str | None = None,
    layers: Sequence[str] | str = ("*",),
    tensors: Sequence[str] = ("all",),
    backward: bool = True,
    layer_inputs: bool = False,
    values: bool = False,
    float64: bool = False,
    first: int = 0,
    data: Any = None,
) -> Dump:
    """Write what a model's layers return in chosen iterations of a training loop, one trace folder an iteration.

    Call `step()` at the end of each iteration of your loop, and close the dump, best by a `with` block. `iterations`
    and `ranks` are ranges (`0-3,10,100-`); iterations are counted from `first`, ranks are all by default. `layers` are
    globs over the paths of modules, the model itself is always seen. `tensors` says whose values are kept, as in
    `align.capture_trace`: "none" for figures only. `backward` writes the gradients that come back to what layers
    return into `step_N/backward`. `layer_inputs` keeps what calls are given, `values` the parameters at the beginning
    of the iteration. `float64` computes each layer without others inside once more on the processor in float64, and
    notes the relative error of what the loop got. `data` is the loader or dataset of the loop: its lengths are kept,
    and it is not read; `callback()` finds it by itself. Raises UsageError for ranges and globs that name nothing,
    DestinationError for a folder that is not empty or cannot be written, CannotRunError for a model of a framework
    without loops, or one in graph mode.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> dump(ArrayModel(()), "dumps", iterations="0-2")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: no loop can be watched of a arrays model
    """
    chosen, wanted = read_ranges(iterations, "iterations"), read_ranges("0-" if ranks is None else ranks, "ranks")
    side, globs = build_side(model), [layers] if isinstance(layers, str) else [*layers]
    if not isinstance(side.reader, LoopHost):
        raise CannotRunError.of("loop_dump_error.no_loops", framework=side.reader.name)
    rank, size = side.reader.rank()
    seen = _seen_modules(side, side.reader, globs)
    plan = DumpPlan(read_kept(tensors), backward, layer_inputs, values, float64)
    home = Path(folder) / RANK.format(rank) if size > 1 else Path(folder)
    return Dump(side, seen, plan, home if rank in wanted else None, (chosen, first), describe_data(data))


class Dump:
    """A dump of a loop that runs: `step()` ends an iteration, `close()` the dump; as a context manager it is closed.

    `folders` are those that were written so far. What an iteration computed after its last `step()` is left as it is.
    """

    def __init__(
        self,
        side: Side,
        modules: Sequence[tuple[str, Any]],
        plan: DumpPlan,
        home: Path | None,
        steps: tuple[Any, int],
        lengths: Mapping[str, str],
    ) -> None:
        self._side, self._modules, self._plan, self._home = side, modules, plan, home
        self._chosen, self.iteration = steps
        self._first, self._lengths = self.iteration, lengths
        self.folders: list[Path] = []
        self._held, self._current = ExitStack(), ExitStack()
        if home is not None:
            _claim(home, self._held)
        self._begin()

    @property
    def model(self) -> Model:
        """What is dumped."""
        return self._side.model

    def step(self) -> None:
        """End the iteration that runs; the next one begins."""
        self._current.close()
        self.iteration += 1
        self._begin()

    def callback(self) -> Any:
        """Return a callback that calls `step()` and `close()`: of Hugging Face's Trainer, or of `Model.train`."""
        assert isinstance(self._side.reader, LoopHost)  # noqa: S101 - for the type checker: it was asked before
        return self._side.reader.step_callback(lambda *_: self.step(), self.close, self._see_data)

    def close(self) -> None:
        """End the dump: hooks are taken off, the iteration that runs is ended."""
        active, self._home = self._home is not None, None
        self._current.close()
        self._held.close()
        if active and not self.folders:
            facts = {"count": self.iteration - self._first, "iterations": self._chosen.shown}
            warnings.warn(say("loop_dump_reason.none_reached", **facts), RuntimeWarning, stacklevel=2)

    def _begin(self) -> None:
        if self._home is None or self.iteration not in self._chosen:
            return
        reader = self._side.reader
        assert isinstance(reader, LoopHost)  # noqa: S101 - for the type checker
        reader.refuse_unseen()
        folder = self._home / STEP.format(self.iteration)
        settings = reader.read_settings(self._side.model) if isinstance(reader, SettingsReader) else []
        sink = DumpedIteration((self._side, reader), folder, self.iteration, self._plan, (settings, self._environment))
        hooks = LoopHooks(sink, reader.loop_forms, backward=self._plan.backward)
        sink.hooks = hooks
        self._current = ExitStack()
        self._current.callback(self._ended, sink)
        self._current.enter_context(sink)
        self._current.enter_context(hooks.on_modules(self._modules))

    def _environment(self) -> dict[str, str]:
        return {**self._side.reader.environment(), **describe_launch(), **self._lengths}

    def _see_data(self, data: Any) -> None:
        """Keep the lengths of the data of a framework's own loop, if none were given; that never ends the loop."""
        with suppress(UsageError):
            self._lengths = self._lengths or describe_data(data)

    def _ended(self, sink: DumpedIteration) -> None:
        if sink.begun:
            self.folders.append(sink.folder)

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        self._home = None
        try:
            self._current.__exit__(kind, error, tb)
        finally:
            self._held.close()


def _seen_modules(side: Side, host: LoopHost, globs: Sequence[str]) -> list[tuple[str, Any]]:
    """The model itself, and the modules that fit; raises UsageError for globs that fit none."""
    modules = host.loop_modules(side.model)
    paths = [path for path, _ in modules if path]
    idle = [glob for glob in globs if paths and not any(fnmatchcase(path, glob) for path in paths)]
    if idle:
        raise UsageError.of("loop_dump_error.no_layer_fits", globs=idle, count=len(paths), paths=paths)
    return [(path, one) for path, one in modules if not path or any(fnmatchcase(path, glob) for glob in globs)]


def _claim(home: Path, stack: ExitStack) -> None:
    """Make the folder and hold it; raises DestinationError for one that is not empty, or cannot be written."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        if names := sorted(path.name for path in home.iterdir() if path.name != LOCK):
            raise DestinationError.of("loop_dump_error.folder_not_empty", folder=home, names=names)
        stack.enter_context(folder_lock(home / LOCK, home, "trace"))
    except OSError as error:
        raise not_written(home, error) from error


# One iteration of a loop as it is written: calls of modules and the gradients that come back, in trace folders.
#
# Layers are computed again in float64 when the iteration has ended: what fails then fails in nobody's way back.

_INPUTS = "inputs.npz"  # in a trace folder


@dataclass(frozen=True, slots=True)
class DumpPlan:
    """What is written of each chosen iteration."""

    kept: KeptValues = field(default_factory=KeptValues)
    backward: bool = True
    layer_inputs: bool = False
    values: bool = False
    float64: bool = False


@dataclass(slots=True)
class _Again:
    """A call that is to be computed again: the layer, its values, what it was given, and what it returned by key."""

    module: Any
    values: Mapping[str, Array]
    given: tuple[Any, Any]
    random: bytes
    outputs: dict[str, Capture] = field(default_factory=dict)
    drew: bool = False


class DumpedIteration:
    """A LoopSink that writes one iteration. Nothing is written before the first call: its inputs head the trace."""

    hooks: LoopHooks

    def __init__(
        self,
        place: tuple[Side, LoopHost],
        folder: Path,
        step: int,
        plan: DumpPlan,
        described: tuple[Sequence[LayerSettings], Callable[[], Mapping[str, str]]],
    ) -> None:
        (self._side, self._host), self.folder, self._step, self._plan = place, folder, step, plan
        self._settings, self._environment = described
        self._stack = ExitStack()
        self._forward: CallWriter | None = None
        self._backward: CallWriter | None = None
        self._orders = [0, 0]
        self._home = f"{Path.cwd()}{os.sep}"
        self._again: list[_Again] = []
        self._running: list[_Again | None] = []
        self._returned = SpilledArrays()
        self._values: dict[int, Mapping[str, Array]] = {}
        reader, model = self._side.reader, self._side.model
        known = reader.dropouts(model) if plan.float64 and isinstance(reader, ModelFreezer) else ()
        self._draws = {path for path, module, _ in known if module.training}

    @property
    def begun(self) -> bool:
        """Tell whether a module was called, and so whether there is a folder."""
        return self._forward is not None

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a call that begins."""
        given = dict(enumerate(args)) | dict(kwargs)
        writer = self._forward or self._open(call, module, args, kwargs)
        running = self.hooks.running
        parent = running[-2][0].path if len(running) > 1 else None
        writer.begin(call_start((call.path, call.number, parent, call.class_name), given, self._home))
        if isinstance(writer, GivenWriter):
            writer.enter(call.path, call.number, self._arrays(given))
        if self._plan.float64:
            del self._running[call.depth :]
            again = self._to_compute(module, args, kwargs)
            if again is not None:
                again.drew = call.path in self._draws
            self._running.append(again)

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Note what a call returned."""
        assert self._forward is not None  # noqa: S101 - for the type checker: calls begin before they return
        again = self._running[call.depth] if self._plan.float64 else None
        for name, array in self._arrays(output).items():
            capture = self._capture(0, call, name, array)
            self._forward.add(capture, array)
            if again is not None and array.dtype.kind in "fV":
                self._returned[capture.key] = array
                again.outputs[name] = capture
        self._forward.finish(call.path, call.number)
        if again is not None:
            again.drew |= self._host.random_state() != again.random
            self._again.append(again)

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """Note a gradient that came back to what a call returned."""
        array = self._host.loop_forms.as_array(gradient)
        if self._backward is not None and array is not None:
            self._backward.add(self._capture(1, call, name, array), array)

    def _capture(self, direction: int, call: LoopCall, name: str, array: Array) -> Capture:
        order = self._orders[direction]
        self._orders[direction] += 1
        shape, dtype = tuple(array.shape), dtype_name(array.dtype)
        return Capture(order, call.path, call.number, name, call.class_name, shape, dtype, call.depth)

    def _arrays(self, value: Any) -> dict[str, Array]:
        found = ((name, self._host.loop_forms.as_array(leaf)) for name, leaf in leaves(value))
        return {name: array for name, array in found if array is not None}

    def _open(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallWriter:
        """Make the folder, describe the model and the batch, and begin to write."""
        side, plan = self._side, self._plan
        inputs = {} if call.path else self._arrays(_named(module, args, kwargs))
        head = TraceHead(side.label, side.reader.name, describe_inputs(inputs), "training", self._step, kept=plan.kept)
        back, head = replace(head, direction="backward"), replace(head, layer_inputs=plan.layer_inputs)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_model(self.folder, side.reader.read_parameters(side.model, side.label), self._settings)
        if plan.values:
            write_values(self.folder, side.reader.read_values(side.model))
        if plan.kept.globs:
            save_inputs(self.folder / _INPUTS, inputs)
        kind = GivenWriter if plan.layer_inputs else CallWriter
        self._forward = self._stack.enter_context(self._writer(kind, self.folder, head))
        if plan.backward:
            self._backward = self._stack.enter_context(self._writer(CallWriter, self.folder / BACKWARD, back))
        return self._forward

    def _writer(self, kind: type[CallWriter], folder: Path, head: TraceHead) -> CallWriter:
        return kind(folder, self._environment(), head, header_bytes=DUMP_HEADER_BYTES, magnitudes=True)

    def _to_compute(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Again | None:
        """Keep what a layer without others inside needs to be computed again."""
        if len(self._host.loop_modules(module)) > 1:
            return None
        kept = SpilledArrays()

        def array(name: str, leaf: Any) -> Any:
            value = self._host.loop_forms.as_array(leaf)
            if value is None:
                return leaf
            kept[name] = value
            return kept[name]

        if id(module) not in self._values:
            self._values[id(module)] = SpilledArrays(self._host.own_values(module))
        given = with_leaves((args, dict(kwargs)), array)
        return _Again(module, self._values[id(module)], given, self._host.random_state())

    def _compute_again(self) -> None:
        assert self._forward is not None  # noqa: S101 - for the type checker
        for one in self._again:
            wide, reason = self._wide(one)
            for name, capture in one.outputs.items():
                error = None
                if name in wide and wide[name].shape == capture.shape:
                    error = measure(wide[name], self._returned[capture.key]).relative_l2
                    reason = "" if error is not None else say("loop_dump_reason.reference_zero")
                self._forward.recomputed(capture, error, reason)

    def _wide(self, repeated: _Again) -> tuple[dict[str, Array], str]:
        """What the layer returns in float64, or why that is not known."""
        if repeated.drew:
            return {}, say("loop_dump_reason.draws")
        try:
            output = self._host.recomputed(repeated.module, repeated.values, repeated.given)
        except UserCodeError as error:
            return {}, error.message.partition("\n")[0]
        return {name: leaf for name, leaf in leaves(output) if isinstance(leaf, np.ndarray)}, ""

    def __enter__(self) -> DumpedIteration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._stack:
            if kind is None and self._again:
                self._compute_again()
            elif error is not None:
                self._stack.__exit__(kind, error, tb)


def _named(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the model is given, by the names of its parameters where they say it."""
    method = getattr(module, "forward", None) or module.construct
    try:
        return inspect.signature(method).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {**{str(place): one for place, one in enumerate(args)}, **kwargs}


# Which iterations, or ranks, are meant: `0-3,10,100-`.

_PART = re.compile(r"(\d{1,15})(-(\d{1,15})?)?")


@dataclass(frozen=True, slots=True)
class StepRanges:
    """Ranges of numbers from 0, both ends included; the last one may be open."""

    ranges: tuple[tuple[int, float], ...]

    @property
    def shown(self) -> str:
        """The ranges as they are written."""
        parts = ((first, "" if last == inf else f"{last:.0f}") for first, last in self.ranges)
        return ",".join(str(first) if last == str(first) else f"{first}-{last}" for first, last in parts)

    def __contains__(self, number: int) -> bool:
        """Tell whether a number is in one of them."""
        return any(first <= number <= last for first, last in self.ranges)


def read_ranges(text: str, what: str) -> StepRanges:
    """Read ranges; raises UsageError for a text that is none, with `what` they are of.

    >>> 101 in read_ranges("0-3,10,100-", "iterations")
    True
    """
    parts = [part.strip() for part in text.split(",")]
    found = [_PART.fullmatch(part) for part in parts]
    strange = [part for part, match in zip(parts, found, strict=True) if match is None]
    known = ((int(match[1]), match[2], match[3]) for match in found if match)
    ranges = [(first, float(last or inf) if open_end else first) for first, open_end, last in known]
    turned = [f"{first}-{last:.0f}" for first, last in ranges if last < first]
    if strange or turned:
        wrong = [repr(one) for one in strange + turned if one != text]
        raise UsageError.of("loop_dump_error.no_ranges", what=what, text=text, parts=wrong)
    return StepRanges(tuple(ranges))


# Two iterations of one training held against each other by the figures of their tensors.
#
# Their batches are others, so that no limit applies: what shows is which tensor grew, shrank, or is no number any
# more.


@dataclass(frozen=True, slots=True)
class ChangedTensor:
    """A tensor in both iterations; `factor` is its root mean square over that of before, at least 1 either way.

    `non_finite_before` and `non_finite_after` count NaN and Inf. The factor is infinite where one of both is zero or
    has no finite element.
    """

    direction: Direction
    module: str
    call: int
    output: str
    class_name: str
    rms_before: float | None
    rms_after: float | None
    factor: float
    non_finite_before: int
    non_finite_after: int


@dataclass(frozen=True, slots=True)
class IterationChanges(ShownResult):
    """What changed between two iterations of one run; it decides nothing, so there is no verdict.

    `tensors` stand in the order of the run, forward first. `first_non_finite` is the place in that list of the first
    one that has NaN or Inf and had none `before`, None for none; backward, order is that in which gradients arrived.
    `unpaired` counts the tensors of one iteration only.
    """

    result_kind = "iterations"
    before: int
    after: int
    model: str
    tensors: tuple[ChangedTensor, ...]
    first_non_finite: int | None
    unpaired: int


def compare_iterations(before: Path | str, after: Path | str) -> IterationChanges:
    """Compare two iterations of one run that `align.dump` wrote, by the figures of each tensor.

    Raises MissingFileError or RunFolderError for what is no trace folder, UsageError for a folder of several,
    UnlikeTracesError for two models.

    >>> compare_iterations("dumps/step_3", "dumps/step_4")
    Traceback (most recent call last):
    align.errors.MissingFileError: trace folder not found: dumps/step_3
    Hint: check the path; relative paths start at the current folder
    """
    paths = Path(before), Path(after)
    for path in paths:
        _check_is_iteration(path)
    traces = TraceFolder(paths[0]), TraceFolder(paths[1])
    heads = [trace.manifest.head for trace in traces]
    sides = [(head.side, head.framework) if head else ("", "") for head in heads]
    if sides[0] != sides[1]:
        fault = say("trace_fault.different", name="model", reference=sides[0][0], candidate=sides[1][0])
        both = say("trace_fault.both", reference=paths[0], candidate=paths[1])
        raise UnlikeTracesError(both, [fault], say("loop_dump_reason.of_one_run"))
    rows, unpaired = _rows(traces, "forward")
    backward = [path / BACKWARD for path in paths]
    if all(path.is_dir() for path in backward):
        more, alone = _rows((TraceFolder(backward[0]), TraceFolder(backward[1])), "backward")
        rows, unpaired = [*rows, *more], unpaired + alone
    steps = [head.step if head else 0 for head in heads]
    first = next((n for n, row in enumerate(rows) if row.non_finite_after and not row.non_finite_before), None)
    return IterationChanges(steps[0], steps[1], sides[0][0], tuple(rows), first, unpaired)


def refuse_one_iteration(folder: Path) -> NoReturn:
    """Say what to name beside one folder, or in the place of one that holds several iterations."""
    _check_is_iteration(folder)
    raise UsageError.of("loop_dump_error.one_iteration", folder=folder)


def _check_is_iteration(folder: Path) -> None:
    """Raise UsageError that names the iterations inside of a folder that is none itself, and two of one rank."""
    if not folder.is_dir():
        raise MissingFileError(folder, "trace folder")
    iterations = [] if is_trace_folder(folder) else trace_folders_in(folder)
    if not iterations:
        return
    of_one_rank = [one for one in iterations if one.parent == iterations[0].parent]
    inside = [str(one.relative_to(folder)) for one in iterations]
    facts = {"folder": folder, "count": len(inside), "inside": inside, "first": [*map(str, of_one_rank[:2])]}
    raise UsageError.of("loop_dump_error.folder_of_iterations", **facts)


def _rows(traces: tuple[TraceFolder, TraceFolder], direction: Direction) -> tuple[list[ChangedTensor], int]:
    first, second = (trace.manifest.statistics for trace in traces)
    rows = []
    for capture in sorted(traces[1].captures, key=lambda capture: capture.order):
        if capture.key in first and capture.key in second:
            before, after = first[capture.key], second[capture.key]
            tensor = (direction, capture.module, capture.call, capture.output, capture.class_name)
            figures = (before.rms, after.rms, _factor(before.rms, after.rms))
            rows.append(ChangedTensor(*tensor, *figures, before.nan + before.inf, after.nan + after.inf))
    return rows, len(first.keys() ^ second.keys())


def _factor(before: float | None, after: float | None) -> float:
    if before == after:
        return 1.0
    if not before or not after:
        return inf
    return max(before / after, after / before)
