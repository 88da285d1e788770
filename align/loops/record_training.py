"""`align.watch`: the cheap record of a whole training, a few figures a step for each layer and parameter.

Figures are taken where the tensors are, and come over once a step. A row of a parameter holds its weight as it was
before the update, the gradient that the optimizer was given, and how far the update moved it. What a step costs is
what it reads of memory: of large tensors every other step reads outputs and gradients once, for their norms.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.atomic_files import write_text
from align.core.operating_system import LOCK, folder_lock
from align.core.traces import Capture
from align.errors import CannotRunError, UsageError
from align.loops.thresholds import (
    FINGERPRINT_PERIOD,
    FULL_EVERY,
    LARGE_EVERY,
    LARGE_TENSOR,
    SEGMENT_ROWS,
    SEGMENT_STEPS,
    TINY_TENSOR,
)
from align.loops.watched_folder import (
    FIGURES,
    LAYERS,
    RANK,
    TABLES,
    Segment,
    WatchedHead,
    arrow,
    claimed_session,
    write_head,
    write_segment,
)
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, LossScaleReader, joined_figures, joined_norms
from align.models.open_side import build_side, describe_launch
from align.traces.manifest import capture_as_json, write_model
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.models.loop_watcher import LoopCall
    from align.models.open_side import Side


def watch(  # noqa: PLR0913 - what can be chosen of a record
    model: Model | Side,
    optimizer: Any,
    folder: Path | str,
    *,
    every: int = 1,
    layers: Sequence[str] | str | None = None,
    scaler: Any = None,
    resume: int | None = None,
    updates: bool = True,
    full: int = FULL_EVERY,
) -> Watch:
    """Record a training loop: figures of each step, layer and parameter, into Parquet files in `folder`.

    Call `step(loss, batch)` at the end of each iteration, or give the framework's own loop `callback()`; leave it by
    a `with` block or `close()`. `optimizer` is one or several, None for all that the loop calls. Of `every` so many
    steps one is recorded. `layers` are globs over paths of modules; by default those that hold no others, and the
    model itself. `scaler` is what scales the loss. `resume` is the step at which a training goes on that was recorded
    here before: rows from there on are taken anew. Without it a folder that holds a record is refused.
    `updates=False` keeps no copy of the weights, and knows no updates. Of tensors with more than 65,536 elements all
    figures stand in one step of `full`, the first recorded one included; of the others one of two has the norms of
    outputs and of parameters' gradients, and counts of NaN and Inf. Raises UsageError for globs that fit nothing,
    DestinationError for the folder, CannotRunError for a model of a framework without loops or in graph mode,
    FrameworkMissingError without pyarrow.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> watch(ArrayModel(()), None, "record")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: no loop can be watched of a arrays model
    """
    side = build_side(getattr(model, "_orig_mod", model))  # of torch.compile
    reader = side.reader
    if not isinstance(reader, LossScaleReader):
        raise CannotRunError.of("loop_dump_error.no_loops", framework=reader.name)
    arrow()
    reader.refuse_unseen()
    for steps in (every, full):
        if steps < 1:
            raise UsageError.of("watched_error.every", every=steps)
    if scaler is not None and reader.scale_flow(scaler) is None:
        raise UsageError.of("loop_dump_error.no_scaler", kind=type(scaler).__name__, framework=reader.name)
    globs = [layers] if isinstance(layers, str) else layers
    modules = _chosen_modules(side, reader, globs)
    rank, ranks = reader.rank()
    home = Path(folder) / RANK.format(rank)
    environment = {**reader.environment(), **describe_launch()}
    head = WatchedHead(side.label, reader.name, rank, ranks, every, (), environment, updates, full)
    return Watch(side, reader, _optimizers(optimizer), modules, (home, head, resume), scaler)


def _optimizers(given: Any) -> list[Any]:
    if given is None:
        return []
    listed = [*given] if isinstance(given, (list, tuple)) else [given]
    # Accelerate and others wrap an optimizer, which is the one that is called.
    return [getattr(one, "optimizer", None) or getattr(one, "optim", None) or one for one in listed]


def _chosen_modules(side: Side, reader: LossScaleReader, globs: Sequence[str] | None) -> list[tuple[str, Any]]:
    modules = reader.loop_modules(side.model)
    paths = [path for path, _ in modules if path]
    if globs is None:
        around = {path.rpartition(".")[0] for path in paths}
        return [(path, module) for path, module in modules if not path or path not in around]
    idle = [glob for glob in globs if not any(fnmatchcase(path, glob) for path in paths)]
    if idle:
        raise UsageError.of("loop_dump_error.no_layer_fits", globs=idle, count=len(paths), paths=paths)
    return [(path, one) for path, one in modules if not path or any(fnmatchcase(path, glob) for glob in globs)]


@dataclass(slots=True)
class _Sums:
    """Figures of one layer in one step, gathered over its calls; or of one parameter.

    `whole` tells whether all figures of all tensors were taken, `back_whole` whether all gradients that came back were,
    `unread` whether there are tensors of which nothing was taken.
    """

    elements: int = 0
    squares: float = 0.0
    total: float = 0.0
    largest: float = 0.0
    zeros: float = 0.0
    strange: float = 0.0
    calls: int = 0
    whole: bool = True
    back_elements: int = 0
    back_squares: float = 0.0
    back_whole: bool = True
    unread: bool = False

    def add(self, elements: int, scale: float, figures: Sequence[float]) -> None:
        """Add a tensor, whose values are divided by a loss scale."""
        norm, strange, *rest = figures
        self.elements += elements
        self.squares += norm / scale * (norm / scale)  # a power would raise where this overflows
        self.strange += strange
        if not rest:
            self.whole = False
            return
        total, largest, zeros = rest
        self.total += total / scale
        self.largest = largest / scale if not largest / scale <= self.largest else self.largest  # NaN stays
        self.zeros += zeros

    @property
    def rest(self) -> dict[str, float | None]:
        """Mean, largest magnitude and share of zeros, where they are known of all."""
        if not self.whole or self.unread:
            return {"mean": None, "largest": None, "zeros": None}
        elements = self.elements or 1
        return {"mean": self.total / elements, "largest": self.largest, "zeros": self.zeros / elements}


@dataclass(slots=True)
class _Step:
    """What is seen of the step that runs; `waiting` are numbers that the device still computes, `joined` tiny weights.

    `full` tells whether all figures of large tensors are taken too, `due` whether those of parameters at an update;
    `reads` and `reads_gradients` tell whether at least the norms of large outputs and gradients are.
    """

    full: bool = False
    due: bool = False
    reads: bool = True
    reads_gradients: bool = True
    layers: dict[str, _Sums] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    waiting: list[tuple[Callable[..., None], list[Any]]] = field(default_factory=list)
    unread: list[tuple[Callable[..., None], Any, Callable[..., list[Any]]]] = field(default_factory=list)
    unread_bytes: int = 0
    gradients: dict[str, _Sums] = field(default_factory=dict)
    weights: dict[str, float | None] = field(default_factory=dict)
    updates: dict[str, float | None] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    copies: dict[int, tuple[str, Any, Any]] = field(default_factory=dict)
    joined: list[tuple[list[str], list[Any], Array]] = field(default_factory=list)
    loss: Any = None
    scale: float = 1.0
    divided_by: float = 1.0
    updated: int = 0
    data: dict[str, float] = field(default_factory=dict)
    began: float | None = None


class Watch:
    """A training that is recorded: `step()` ends an iteration, `close()` the record. `folder` is that of this rank."""

    def __init__(
        self,
        side: Side,
        reader: LossScaleReader,
        optimizers: Sequence[Any],
        modules: Sequence[tuple[str, Any]],
        place: tuple[Path, WatchedHead, int | None],
        scaler: Any,
    ) -> None:
        self._side, self._reader, self._forms, self._optimizers = side, reader, reader.loop_forms, optimizers
        self._modules, self._scaler = modules, scaler
        self.folder, head, resume = place
        parameters = side.reader.read_parameters(side.model, side.label)
        self._head = claimed_session(self.folder, head, parameters.names, resume)
        self.number = self._head.starts[-1]
        self._current = ExitStack()
        self._segments = {table: Segment() for table in TABLES}
        self._step = _Step()
        self._last_full: int | None = None
        self._last_read = self._last_read_update = -LARGE_EVERY
        self._due = False
        self._ended, self._closed = time.perf_counter(), False
        self._hooks: LoopHooks | None = None
        self._is_first, self._has_trained, self._state = True, False, b""
        self._random: list[str] = [*self._head.random]
        self._kept: dict[int, Any] = {}  # memory of the weights of the step before
        with ExitStack() as stack:
            stack.enter_context(folder_lock(self.folder / LOCK, self.folder, "trace"))
            write_model(self.folder, parameters, [])
            write_head(self.folder, self._head)
            stack.enter_context(reader.outermost_calls(self._outermost))
            stack.enter_context(reader.optimizer_calls(self._before_update, lambda _: None))
            self._begin()
            self._held = stack.pop_all()

    def step(self, loss: Any = None, batch: Any = None) -> None:
        """End an iteration with its loss, and what was read for it: tensors or arrays, alone or in containers.

        An iteration without an update is one whose gradients are added to the next one's, or that a scaler skipped.
        """
        if self._closed:
            return
        now = time.perf_counter()
        if self._records:
            if batch is not None:
                self._step.data = {}
                self._see_data(leaves(batch))
            if self._is_first and not self._step.layers:
                warnings.warn(say("watched_fault.no_call"), RuntimeWarning, stacklevel=2)
            self._write_row(loss, now)
        self.number += 1
        self._ended = time.perf_counter()
        self._begin()

    def callback(self, loop: str | None = None) -> Any:
        """Return a callback that calls `step` and `close`: of Hugging Face's Trainer or of `Model.train`.

        With `loop="lightning"`, of Lightning's Trainer.
        """
        if loop == "lightning":
            return _lightning_callback(self)
        return self._reader.step_callback(self.step, self.close)

    def close(self) -> None:
        """Take all hooks off and write what is left."""
        if self._closed:
            return
        self._closed = True
        try:
            self._current.close()
            self._flush()
        finally:
            self._held.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # What hooks tell.

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """See LoopSink."""
        if not self._trains():
            return
        if call.depth == 0 and not call.path:
            self._see_data(leaves({**dict(enumerate(args)), **kwargs}))
            self._state = b""
        self._note_draw(call.path)

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """See LoopSink."""
        if self._forms.going_back() or not self._trains():  # a checkpointed layer is computed again
            return
        self._note_draw(call.path)
        sums = self._step.layers.setdefault(call.path, _Sums())
        sums.calls += 1
        if not call.path:
            self._step.loss = _loss_among(output)
        for name, leaf in leaves(output):
            if self._forms.is_floating(leaf):
                if self._is_first and not call.number:
                    shape, dtype = tuple(leaf.shape), self._forms.dtype_of(leaf)
                    order = len(self._step.captures)
                    capture = Capture(order, call.path, call.number, name, call.class_name, shape, dtype, call.depth)
                    self._step.captures.append(capture)
                if self._step.reads or _is_small(leaf):
                    self._read(leaf, partial(sums.add, _size(leaf), 1.0), self._forms.figures)
                else:
                    sums.unread = True
                if self._forms.differentiable(leaf) and not self._looks_back(leaf):
                    sums.back_whole = False

    def _trains(self) -> bool:
        """Tell whether a call belongs to the training: no pass of a validation between two steps."""
        if self._side.model.training:
            self._has_trained = True
        return self._forms.recording() and (bool(self._side.model.training) or not self._has_trained)

    def _note_draw(self, path: str) -> None:
        """Note, in the first step, a layer that drew random numbers, or before which some were drawn."""
        if self._is_first:
            state = self._reader.random_state()
            if self._state and state != self._state and path not in self._random:
                self._random.append(path)
            self._state = state

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:  # noqa: ARG002
        """See LoopSink."""
        if gradient is None or not self._forms.is_floating(gradient) or call.path not in self._step.layers:
            return
        sums = self._step.layers[call.path]
        self._read(gradient, partial(_take_back, sums, _size(gradient)), self._norm)

    def _looks_back(self, output: Any) -> bool:
        return self._step.full or _is_small(output)

    def _outermost(self, _module: Any) -> None:
        self._step.began = time.perf_counter() if self._step.began is None else self._step.began

    def _before_update(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        if not self._watches(optimizer):
            return
        self._step.updated += 1
        if not self._records:
            return
        self._take_unread()
        step, names = self._step, self._names()
        if step.updated == 1:
            step.reads_gradients = step.due or self._is_turn(self._last_read_update)
            self._last_read_update = self.number if step.reads_gradients else self._last_read_update
        step.divided_by = self._reader.scale_by_which(optimizer)
        rates = self._reader.rates_now(optimizer)
        tiny: list[tuple[str, Any, Any]] = []
        for place, (parameter, gradient) in enumerate(zip(self._reader.held_by(optimizer), gradients, strict=False)):
            name = names.get(id(parameter), "")
            if not name and not self._optimizers:
                continue  # another model's
            name = name or str(getattr(parameter, "name", None) or f"parameter {place}")
            if place in rates:
                step.rates[name] = rates[place]
            known = gradient if gradient is not None and self._forms.is_floating(gradient) else None
            if _is_tiny(parameter) and (known is None or _size(known) == _size(parameter)):
                tiny.append((name, parameter, known))
            else:
                self._take_parameter(name, parameter, known)
        if not self._take_joined(tiny):
            for row in tiny:
                self._take_parameter(*row)

    def _take_parameter(self, name: str, parameter: Any, gradient: Any) -> None:
        step, full = self._step, self._step.due or _is_small(parameter)
        self._take_weight(name, parameter, full=full)
        if gradient is not None:
            self._take_gradient(name, gradient, step.divided_by, full=full)
        if self._head.exact and full and id(parameter) not in step.copies:
            before = self._forms.copied(parameter, self._kept.get(id(parameter)))
            self._kept[id(parameter)] = before
            step.copies[id(parameter)] = name, parameter, before

    def _take_joined(self, tiny: Sequence[tuple[str, Any, Any]]) -> bool:
        """Take the figures of tiny parameters together; False where they must be taken one by one."""
        step = self._step
        if first := [(name, parameter) for name, parameter, _ in tiny if name not in step.weights]:
            names, parameters = [name for name, _ in first], [parameter for _, parameter in first]
            if (before := self._forms.joined(parameters)) is None:
                return False
            step.weights |= zip(names, joined_norms(before, [*map(_size, parameters)]), strict=True)
            if self._head.exact:
                step.joined.append((names, parameters, before))
        if given := [(name, gradient) for name, _, gradient in tiny if gradient is not None]:
            sizes = [_size(gradient) for _, gradient in given]
            if (values := self._forms.joined([gradient for _, gradient in given])) is None:
                return False
            for (name, _), size, figures in zip(given, sizes, joined_figures(values, sizes), strict=True):
                step.gradients[name] = _Sums()
                step.gradients[name].add(size, step.divided_by, figures)
        return True

    def _take_weight(self, name: str, tensor: Any, *, full: bool) -> None:
        if name not in self._step.weights:
            self._step.weights[name] = None  # until the number is there
            if full:
                self._wait(self._norm(tensor), partial(_put, self._step.weights, name))

    def _take_gradient(self, name: str, gradient: Any, scale: float, *, full: bool) -> None:
        sums = self._step.gradients[name] = _Sums()
        if not (self._step.reads_gradients or _is_small(gradient)):
            sums.unread = True
            return
        self._wait(self._forms.figures(gradient, full=full), partial(sums.add, _size(gradient), scale))

    # Reading, and the rows.

    @property
    def _records(self) -> bool:
        return self._hooks is not None

    def _norm(self, tensor: Any, *, full: bool = True) -> list[Any]:  # noqa: ARG002
        return [self._forms.norm(tensor)]

    def _watches(self, optimizer: Any) -> bool:
        return not self._closed and (not self._optimizers or any(one is optimizer for one in self._optimizers))

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self._reader.loop_parameters(self._side.model)}

    def _begin(self) -> None:
        scale = self._reader.loss_scale(self._scaler) if self._scaler is not None else 1.0
        self._step = _Step(scale=scale)
        if (self.number - self._head.starts[0]) % self._head.every:
            self._current.close()
            self._hooks = None
            return
        part = self.number // self._head.full  # the first step that is recorded of each part is full
        self._step.full, self._last_full = part != self._last_full, part
        self._due = self._step.due = self._due or self._step.full  # until an update comes
        self._step.reads = self._step.reads_gradients = self._step.full or self._is_turn(self._last_read)
        self._last_read = self.number if self._step.reads else self._last_read
        if self._hooks is None:  # else they are on from the step before
            self._hooks = LoopHooks(self, self._forms, backward=self._looks_back)
            self._current.enter_context(self._hooks.on_modules(self._modules))
        self._hooks.begin(self.number)
        self._hooks.running.clear()

    def _is_turn(self, last: int) -> bool:  # by the number of the step, so that two records fit
        return self.number % LARGE_EVERY == 0 or last <= self.number - LARGE_EVERY

    def _read(self, tensor: Any, take: Callable[..., None], figures: Callable[..., list[Any]]) -> None:
        """Take a tensor's figures at once, or with others when enough of them wait."""
        step = self._step
        if not self._forms.bytes_at_once:
            self._wait(figures(tensor, full=step.full or _is_small(tensor)), take)
            return
        step.unread.append((take, tensor, figures))
        step.unread_bytes += self._forms.bytes_of(tensor)
        if step.unread_bytes >= self._forms.bytes_at_once:
            self._take_unread()

    def _take_unread(self) -> None:
        unread, self._step.unread, self._step.unread_bytes = self._step.unread, [], 0
        for take, tensor, figures in unread:
            self._wait(figures(tensor, full=self._step.full or _is_small(tensor)), take)

    def _wait(self, numbers: list[Any], take: Callable[..., None]) -> None:
        self._step.waiting.append((take, numbers))

    def _see_data(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Take fingerprints of the batch, of floats and of whole numbers: sums, each element weighted by its place."""
        data = self._step.data
        for _, leaf in tensors:
            values = leaf if isinstance(leaf, np.ndarray) else self._forms.as_array(leaf)
            if values is None or not values.size or values.dtype.kind not in "fbiuV":
                continue
            rows = (values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)).astype(np.float64)
            inside = 1 + np.arange(rows.shape[1]) % FINGERPRINT_PERIOD / FINGERPRINT_PERIOD
            kind = "samples" if values.dtype.kind in "fV" else "labels"
            data[kind] = data.get(kind, 0.0) + float(np.arange(1, len(rows) + 1) @ (rows @ inside))
            data[f"{kind}_size"] = data.get(f"{kind}_size", 0.0) + values.size

    def _collect(self) -> None:
        """All numbers that wait: one copy from the device."""
        self._take_unread()
        waiting, self._step.waiting = self._step.waiting, []
        numbers = iter(self._forms.norms([number for _, row in waiting for number in row]))
        for take, row in waiting:
            take([next(numbers) for _ in row])

    def _write_row(self, loss: Any, now: float) -> None:
        step, model = self._step, self._side.model
        self._take_still([*self._reader.loop_parameters(model), *self._reader.loop_buffers(model)])
        self._take_updates()
        if not step.updated:
            for name, gradient in self._reader.kept_gradients(model):
                self._take_gradient(name, gradient, step.scale, full=step.full or _is_small(gradient))
        self._due &= not step.updated
        self._collect()
        if self._is_first:
            self._write_first()
        number, segments = self.number, self._segments
        scale = step.divided_by if self._scaler is None else step.scale
        for path, sums in step.layers.items():
            segments["layers"].add(number, path, _layer_row(sums, scale))
        for name, weight in step.weights.items():
            segments["parameters"].add(number, name, _parameter_row(step, name, weight))
        given = step.loss if loss is None else _named_loss(loss, loss)
        value, _, _ = self._reader.read_step(given) if given is not None else (None, "", None)
        known = [sums.squares for sums in step.gradients.values() if not sums.unread]
        began = now if step.began is None else step.began
        row = dict.fromkeys((*FIGURES["steps"],)) | {
            "loss": value,
            "rate": max(step.rates.values(), default=None),
            "scale": step.scale if self._scaler is not None else None,
            "gradient": sqrt(sum(known)) if 0 < len(known) == len(step.gradients) else None,
            **step.data,
            "seconds": now - began,
            "data_seconds": began - self._ended,
            "memory": self._reader.loop_memory(),
            "passes": step.layers[""].calls if "" in step.layers else 0,
            "updates": step.updated,
            "full_layers": int(step.full) if step.reads else -1,
            "full_parameters": int(step.due and step.updated > 0) if step.reads_gradients else -1,
        }
        segments["steps"].add(number, None, row)
        if len(segments["steps"]) >= SEGMENT_STEPS or len(segments["parameters"]) >= SEGMENT_ROWS:
            self._flush()

    def _take_still(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Take the norms of what no optimizer moved in this step."""
        step = self._step
        known, floating = step.weights, self._forms.is_floating
        left = [(name, tensor) for name, tensor in tensors if name not in known and floating(tensor)]
        tiny = [(name, tensor) for name, tensor in left if _is_tiny(tensor)]
        values = self._forms.joined([tensor for _, tensor in tiny]) if tiny else None
        if values is not None:
            norms = joined_norms(values, [_size(tensor) for _, tensor in tiny])
            step.weights |= zip((name for name, _ in tiny), norms, strict=True)
        for name, tensor in left:
            self._take_weight(name, tensor, full=step.full or _is_small(tensor))

    def _take_updates(self) -> None:
        step = self._step
        for names, parameters, before in step.joined:
            if (after := self._forms.joined(parameters)) is not None:
                step.updates |= zip(names, joined_norms(after - before, [*map(_size, parameters)]), strict=True)
        for name, parameter, before in step.copies.values():
            self._wait([self._forms.distance(parameter, before)], partial(_put, step.updates, name))

    def _write_first(self) -> None:
        """What the first step called, by which layers are paired with another record's, and which of them drew."""
        lines = [json.dumps(capture_as_json(capture)) for capture in self._step.captures]
        write_text(self.folder / LAYERS, "\n".join(lines) + "\n")
        self._head = replace(self._head, random=tuple(self._random))
        write_head(self.folder, self._head)
        self._is_first = False

    def _flush(self) -> None:
        if len(self._segments["steps"]):
            write_segment(self.folder, len(self._head.starts) - 1, self._segments)
            self._segments = {table: Segment() for table in TABLES}


def _take_back(sums: _Sums, elements: int, figures: Sequence[float]) -> None:
    sums.back_elements += elements
    sums.back_squares += figures[0] * figures[0]


def _put(numbers: dict[str, float | None], name: str, figures: Sequence[float]) -> None:
    numbers[name] = figures[0]


def _loss_among(output: Any) -> Any:
    """The loss that a model returns by that name, or alone; None where it returns none."""
    return _named_loss(output, output if getattr(output, "shape", None) is not None and _size(output) == 1 else None)


def _named_loss(output: Any, default: Any) -> Any:
    named = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return default if named is None else named


def _size(tensor: Any) -> int:
    size = 1
    for length in tensor.shape:
        size *= int(length)
    return size


def _is_small(tensor: Any) -> bool:
    return _size(tensor) <= LARGE_TENSOR


def _is_tiny(tensor: Any) -> bool:
    return 0 < _size(tensor) <= TINY_TENSOR


def _layer_row(sums: _Sums, scale: float) -> dict[str, float | None]:
    knows_back = sums.back_elements and sums.back_whole
    return {
        "rms": None if sums.unread else sqrt(sums.squares / (sums.elements or 1)),
        **sums.rest,
        "gradient": sqrt(sums.back_squares / sums.back_elements) / scale if knows_back else None,
        "nonfinite": None if sums.unread else int(sums.strange),
        "calls": sums.calls,
    }


def _parameter_row(step: _Step, name: str, weight: float | None) -> dict[str, float | None]:
    sums = step.gradients.get(name, _Sums(whole=False))
    return {
        "weight": weight,
        "gradient": sqrt(sums.squares) if name in step.gradients and not sums.unread else None,
        "update": step.updates.get(name),
        **sums.rest,
        "rate": step.rates.get(name),
        "nonfinite": None if sums.unread else int(sums.strange),
    }


def _lightning_callback(record: Watch) -> Any:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError as error:
        raise CannotRunError.of("watched_error.no_lightning") from error

    class WatchCallback(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, _trainer: Any, _module: Any, outputs: Any, batch: Any, _index: int) -> None:
            record.step(outputs, batch)

        def on_train_end(self, *_: Any) -> None:
            record.close()

    return WatchCallback()
