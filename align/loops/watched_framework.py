"""One framework's part of a loop that is watched: passes recorded by hooks, and read where an optimizer is called."""

from __future__ import annotations

import inspect
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import isfinite, isnan, log2, prod, sqrt
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from align.loops.find_event import Origin, backward_origin, forward_origin, loss_scale_of
from align.loops.find_explosion import UsualSizes, find_explosion, sizes_of
from align.loops.recorded_pass import VIEWS, CallFigures, NearOverflow, Record, RecordedPass, plain_name
from align.loops.thresholds import (
    EXPLOSION_FEWEST_STEPS,
    EXPLOSION_HISTORY,
    FIGURES_BEFORE,
    FLOAT16_LARGEST,
    NEAR_SHOWN,
    SKIPPED_IN_A_ROW,
)
from align.models.live_calls import leaves, user_line
from align.models.loop_watcher import LoopHooks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from align.loops.find_explosion import Explosion
    from align.loops.recorded_pass import Arrival, NonfiniteKind
    from align.models.loop_watcher import LoopCall, LoopForms, LoopWatcher, OptimizerState


class Judge(Protocol):
    """Decides what is made of a pass that was read."""

    figures: RunningFigures

    def found(self, framework: WatchedFramework, origin: Origin) -> None:
        """Something is not finite."""

    def passed(self, framework: WatchedFramework) -> None:
        """A step is over, and its tensors are finite; called once a step, before its update."""


class WatchedFramework:
    """Sees all calls of one framework (LoopSink, OperatorSink), and counts steps: a step ends after its update.

    A pass that ends in infinities and without an update is one that a loss scaler skipped: a step too. One without an
    update that is finite belongs to the step of the next update (gradients are accumulated).
    """

    def __init__(self, watcher: LoopWatcher, judge: Judge) -> None:
        self.watcher, self.forms = watcher, watcher.loop_forms
        self.step, self.skipped, self.tensors = 0, 0, 0
        self.seen = RecordedPass(self.forms)
        self.stopped = False
        self.names: dict[int, str] = {}
        self.label = watcher.name
        self.loss_scale = 1.0
        self._judge, self._home = judge, f"{Path.cwd()}/"
        self._hooks = LoopHooks(self, self.forms, backward=False)
        self._known: dict[int, Any] = {}
        self._whole: set[int] = set()
        self._trained: set[int] = set()
        self._seen_back: set[int] = set()
        self._skipped_with: tuple[RecordedPass, Origin] | None = None
        self._updated = self._read = self._judged = False
        self._in_a_row = 0
        self._stack = ExitStack()

    def begin(self, model: Any | None) -> None:
        """Put the hooks on; of `model` at once, of others when they are called."""
        self._stack.enter_context(self.watcher.outermost_calls(self._outermost))
        self._stack.enter_context(self.watcher.optimizer_calls(self._before_update, self._after_update))
        self._stack.enter_context(self.watcher.operators(self))
        if model is not None:
            self._hook(model)

    def end(self) -> None:
        """Take all hooks off, and read what is left."""
        self._stack.close()
        if not self.stopped:
            self._end_of_loop()

    @property
    def running(self) -> bool:
        """Tell whether anything of it was seen."""
        return bool(self._known)

    # What hooks tell.

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See LoopSink."""
        if call.depth == 0 and not self.stopped and not self._back:
            given = [(name, one) for name, one in leaves({**dict(enumerate(args)), **kwargs})]
            self.seen.add_batch((self._input_name(module, name), one) for name, one in given if self._floating(one))

    def returned(
        self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """See LoopSink."""
        if self.stopped or self._back or not self._watches(module):
            return
        outputs = [tensor for _, tensor in leaves(output) if self._floating(tensor)]
        if outputs:
            line = user_line(self._home)
            record = Record(call.path, call.number, call.class_name, is_module=True, module=module, line=line)
            record.own_way_back = self.forms.own_way_back(module)
            self.seen.add(record, [leaf for _, leaf in leaves(args)], dict(leaves(dict(kwargs))), outputs)

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """Nothing: places of the pass see gradients themselves."""

    def applied(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """See OperatorSink."""
        self.computed(name, args, kwargs, output, own_way_back=True)

    def computed(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, *, own_way_back: bool = False
    ) -> None:
        """See OperatorSink."""
        if self.stopped or self._back or not (self._hooks.running or self.seen.records):
            return
        call, module = self._hooks.running[-1] if self._hooks.running else (None, None)
        if module is not None and (id(module) in self._whole or not self._watches(module)):
            return
        outputs = [
            tensor for _, tensor in leaves(output) if self._floating(tensor) and not self.forms.is_parameter(tensor)
        ]
        if outputs:
            line = "" if plain_name(name) in VIEWS else user_line(self._home)
            path, number = (call.path, call.number) if call is not None else ("", 0)
            record = Record(path, number, name, is_module=False, module=module, line=line)
            record.own_way_back = own_way_back
            self.seen.add(record, [leaf for _, leaf in leaves(args)], dict(leaves(dict(kwargs))), outputs)

    # Steps.

    @property
    def _back(self) -> bool:
        """Tell whether the pass is on its way back: what is computed then is no call of the user's."""
        return bool(self.seen.arrivals)

    def _outermost(self, module: Any) -> None:
        if self.stopped or self.forms.going_back():  # then it computes its layers again
            return
        if id(module) not in self._known:
            self._hook(module)
        if self._back:
            self._end_of_pass()
        if module.training:
            self._trained.add(id(module))

    def _hook(self, model: Any) -> None:
        """Put hooks on all modules of a model that have none."""
        first = not self._known
        self.label = type(model).__name__ if first else self.label
        label = "" if first else type(model).__name__
        new_modules = [
            (path, module) for path, module in self.watcher.loop_modules(model) if id(module) not in self._known
        ]
        for _, module in new_modules:
            self._known[id(module)] = module
            if self.forms.is_whole(module):
                self._whole.add(id(module))
        named = [(inside(label, path), module) for path, module in new_modules]
        self._stack.enter_context(self._hooks.on_modules(named))
        named = self.watcher.loop_parameters(model)
        self.names |= {id(parameter): name for name, parameter in named}
        for name, parameter in named:
            if id(parameter) not in self._seen_back:
                self._seen_back.add(id(parameter))
                ended = self.forms.on_parameter(parameter, partial(self._parameter_gradient, parameter, name))
                if ended is not None:
                    self._stack.callback(ended)

    def _parameter_gradient(self, parameter: Any, name: str, gradient: Any) -> None:
        if self.stopped or not self.seen.records:
            return
        if self._skipped_with is not None and self.forms.begins_anew(parameter):
            self._skipped_with = None
        self.seen.parameter_arrived(parameter, name, gradient)

    def _watches(self, module: Any) -> bool:
        """Tell whether it trains: no model in evaluation that was in training before."""
        evaluates = not module.training and id(module) in self._trained
        return not evaluates and self.forms.recording()

    def _before_update(self, optimizer: Any, gradients: Any) -> None:
        """Read the pass, and what the optimizer is given."""
        if self.stopped or not self.seen.records:
            return
        self._read_pass()
        if origin := forward_origin(self.seen):
            self._judge.found(self, origin)
            return
        held = zip(self.watcher.held_by(optimizer), gradients, strict=False)
        handed = [Handed(self._name(one), one, value) for one, value in held]
        paths = {name: name.rpartition(".")[0] for name in self.names.values()}
        if origin := gradients_origin(handed, self.seen, paths):
            self._judge.found(self, self._of_pass_before() or origin if origin.direction == "step" else origin)
        elif not self._judged:
            self._judged = True
            self._judge.passed(self)

    def _of_pass_before(self) -> Origin | None:
        """Where a pass before this one went wrong to which gradients were added; that pass is the one shown then."""
        if self._skipped_with is None:
            return None
        self.seen, origin = self._skipped_with
        self.step, self.skipped = self.step - 1, self.skipped - 1
        return origin

    def _after_update(self, optimizer: Any) -> None:
        """Look at the parameters that it moved."""
        if self.stopped:
            return
        self._updated, self._skipped_with = True, None
        held = [(self._name(one), one) for one in self.watcher.held_by(optimizer)]
        if origin := update_origin(self.watcher.optimizer_state(optimizer), held, self.forms):
            self._judge.found(self, origin)

    def _end_of_pass(self) -> None:
        """A new pass begins: count the last one, if it was a step."""
        skipped = self._is_skipped()
        if self.stopped:
            return
        if self._updated or skipped:
            self._in_a_row = self._in_a_row + 1 if skipped else 0
            self.skipped += skipped
            self.step += 1
            self._updated = self._judged = False
            self._hooks.begin(self.step)
        self.seen, self._read = RecordedPass(self.forms), False

    def _is_skipped(self) -> bool:
        """Read a pass that no optimizer has ended; many that end in infinities are no search for a loss scale."""
        if self._updated:
            return False
        self._read_pass()
        if origin := forward_origin(self.seen):
            self._judge.found(self, origin)
            return False
        origin = backward_origin(self.seen)
        if origin is not None:
            self._skipped_with = self.seen, origin
        if origin is not None and self._in_a_row + 1 >= SKIPPED_IN_A_ROW:
            self._judge.found(self, origin)
        return origin is not None

    def _end_of_loop(self) -> None:
        if not self.seen.records or self._updated:
            self.step += self._updated
            return
        self._read_pass()
        origin = forward_origin(self.seen, ended=True) or backward_origin(self.seen)
        skipped = origin is not None and origin.direction == "backward" and self.loss_scale > 1
        if origin is not None and not skipped:
            self._judge.found(self, origin)
        self.skipped += skipped
        self.step += bool(self.seen.arrivals)

    def _read_pass(self) -> None:
        if not self._read:
            self._read = True
            self.seen.read()
            self.tensors = max(self.tensors, len(self.seen.records) + len(self.seen.arrivals))
            self.loss_scale = loss_scale_of(self.seen)

    def _floating(self, value: Any) -> bool:
        return self.forms.is_floating(value)

    def _name(self, parameter: Any) -> str:
        return self.names.get(id(parameter), str(getattr(parameter, "name", None) or ""))

    def _input_name(self, module: Any, name: str) -> str:
        """The name by which the module takes what was given by position."""
        function = getattr(module, "forward", None) or getattr(module, "construct", None)
        try:
            taken = [*inspect.signature(function).parameters] if function else []
        except (TypeError, ValueError):
            taken = []
        first, _, rest = name.partition(".")
        known = taken[int(first)] if first.isdecimal() and int(first) < len(taken) else first
        return f"{known}.{rest}".rstrip(".")


def inside(label: str, path: str) -> str:
    """A path in what is called `label`."""
    return f"{label}.{path}".strip(".") if label else path


# Whether the gradients that an optimizer is given are finite, and what it makes of its parameters; if not, why.
#
# Gradients that came back finite, and are not where the optimizer gets them, were changed by the step.


@dataclass(frozen=True, slots=True)
class Handed:
    """A gradient that an optimizer is given, with the parameter that it is of and its name."""

    name: str
    parameter: Any
    gradient: Any


def gradients_origin(handed: Sequence[Handed], seen: RecordedPass, paths: Mapping[str, str]) -> Origin | None:
    """Where gradients that are not finite began; None if all are finite, whose sizes are noted. `paths` are by name."""
    given = [entry for entry in handed if entry.gradient is not None and seen.forms.is_floating(entry.gradient)]
    norms = seen.forms.norms([seen.forms.norm(entry.gradient) for entry in given])
    bad = []
    for entry, taken in zip(given, norms, strict=True):
        norm = taken if isfinite(taken) or isnan(taken) else seen.norm_in_float64(entry.gradient)
        if entry.name:
            seen.handed[entry.name] = norm / sqrt(max(prod(entry.gradient.shape), 1))
        if not isfinite(norm):
            bad.append((entry, norm))
    if not bad:
        return None
    return backward_origin(seen) or _of_step(bad, seen) or _of_parameter(*bad[-1], seen, paths)


def _of_step(bad: Sequence[tuple[Handed, float]], seen: RecordedPass) -> Origin | None:
    """What the step made of gradients that came back finite; None where one of them was not seen to come back.

    A parameter that only the optimizer knows is a copy: its gradient was made of those that came back to the model.
    """
    back = [seen.came_back(one.parameter) for one, _ in bad]
    if any(one is None for one in back) and (not seen.anything_came_back() or any(one is not None for one in back)):
        return None
    handed, norm = bad[0]
    size = back[0].norm if back[0] is not None else 0.0
    cause = "float16-in-step" if not isnan(norm) and size > FLOAT16_LARGEST else "changed-in-step"
    dtype = seen.forms.dtype_of(handed.gradient)
    return Origin(_kind(norm), "step", None, "gradient", handed.name, cause, dtype)


def _of_parameter(handed: Handed, norm: float, seen: RecordedPass, paths: Mapping[str, str]) -> Origin:
    """The gradient of a parameter that was not seen to come back; the last layer's come back first."""
    records = [one for one in seen.records if one.path == paths.get(handed.name, "")]
    record = records[0] if records else None
    dtype = record.dtype if record else ""
    cause = "float16-gradient-overflow" if dtype == "float16" else "gradient-overflow"
    return Origin(_kind(norm), "backward", record, "gradient", handed.name, cause, dtype)


def update_origin(state: OptimizerState, held: Sequence[tuple[str, Any]], forms: LoopForms) -> Origin | None:
    """The first parameter that an update made NaN or Inf of; None if all are finite."""
    floating = [(place, name, tensor) for place, (name, tensor) in enumerate(held) if forms.is_floating(tensor)]
    norms = forms.norms([forms.norm(tensor) for _, _, tensor in floating])
    for (place, name, tensor), norm in zip(floating, norms, strict=True):
        if not isfinite(norm) and not _only_large(tensor, norm, forms):
            cause = "rate-not-finite" if not isfinite(state.rates.get(place, 0.0)) else "update-overflow"
            cause = "epsilon-0" if state.epsilons.get(place) == 0 else cause
            return Origin(_kind(norm), "update", None, "parameter", name, cause, forms.dtype_of(tensor))
    return None


def _only_large(tensor: Any, norm: float, forms: LoopForms) -> bool:
    """Tell whether the norm overflowed, not a value."""
    array = forms.as_array(tensor)
    return not isnan(norm) and array is not None and bool(np.isfinite(array.astype(np.float64)).all())


def _kind(norm: float) -> NonfiniteKind:
    return "NaN" if isnan(norm) else "Inf"


# Figures of the last steps: the ring that is shown, running medians, what comes near the end of float16.

Key = tuple[str, str, int, str, int]
Way = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One tensor of a step that is shown: what made it, and on which way; `arrival` is the gradient."""

    key: Key
    direction: Way
    record: Record
    arrival: Arrival | None
    rms: float


class RunningFigures:
    """Keeps the figures of `keep` steps, and medians over more."""

    def __init__(self, keep: int, factor: float) -> None:
        self.factor = factor
        self.ring: deque[tuple[int, dict[Key, float]]] = deque(maxlen=keep)
        self.near: list[NearOverflow] = []
        self._history: dict[Hashable, deque[float]] = {}

    def explosion(self, seen: RecordedPass) -> Explosion | None:
        """What made the first tensor of the pass that is above the factor."""
        sizes = [*sizes_of(seen)]
        long = {one.same for one in sizes if len(self._history.get(one.same, ())) >= EXPLOSION_FEWEST_STEPS}
        medians = {one.same: median(self._history[one.same]) for one in sizes if one.same in self._history}
        return find_explosion(seen, UsualSizes(sizes, medians, long), self.factor)

    def add(self, step: int, seen: RecordedPass) -> None:
        """Take the figures of a step that was sound."""
        self.ring.append((step, {one.key: one.rms for one in figures_of(seen)}))
        for same, rms in {one.same: one.rms for one in sizes_of(seen)}.items():
            self._history.setdefault(same, deque(maxlen=EXPLOSION_HISTORY)).append(rms)

    def note_near(self, step: int, seen: RecordedPass, loss_scale: float) -> None:
        """Keep what comes near the end of float16, the largest first, each tensor once."""
        for figure in figures_of(seen):
            largest = figure.arrival.largest if figure.arrival is not None else figure.record.largest
            if largest is not None and largest > FLOAT16_LARGEST / 4 and isfinite(largest):
                back = figure.direction == "backward"
                scales = (loss_scale, scale_for(largest, loss_scale)) if back else (None, None)
                made = figure.record
                self.near.append(NearOverflow(made.path, made.name, figure.direction, step, largest, *scales))
        best: dict[tuple[str, str, str], NearOverflow] = {}
        for near in sorted(self.near, key=lambda each: -each.largest):
            best.setdefault((near.layer, near.operator, near.direction), near)
        self.near = [*best.values()][:NEAR_SHOWN]

    def before(
        self, step: int, seen: RecordedPass, record: Record | None, arrival: Arrival | None, way: str
    ) -> tuple[tuple[int, ...], tuple[CallFigures, ...]]:
        """The calls up to the one at fault, with their figures of the last steps; steps, and rows."""
        figures = [figure for figure in figures_of(seen, failing=True) if figure.direction == way or way == "update"]

        def at_fault(one: Figure) -> bool:
            return one.arrival is arrival if arrival is not None else one.record is record and one.arrival is None

        place = next((n for n, figure in enumerate(figures) if at_fault(figure)), len(figures) - 1)
        shown = figures[max(0, place - FIGURES_BEFORE + 1) : place + 1]
        steps = [(number, known) for number, known in self.ring if number != step]
        steps = steps[-(self.ring.maxlen or 1) + 1 :] if self.ring.maxlen != 1 else []
        rows = []
        for figure in shown:
            made, rms = figure.record, (*(known.get(figure.key) for _, known in steps), figure.rms)
            rows.append(CallFigures(made.path, made.call, made.name, made.line, figure.direction, rms))
        return (*(number for number, _ in steps), step), tuple(rows)


def figures_of(seen: RecordedPass, *, failing: bool = False) -> Iterator[Figure]:
    """All tensors of a pass, forward in order of return, then gradients in order of coming; those of calls only."""
    for record in seen.records:
        if failing or isfinite(record.norm):
            yield Figure(("forward", *record.key), "forward", record, None, record.rms)
    for arrival in seen.arrivals:
        if arrival.parameter or arrival.again or arrival.changed:
            continue
        maker = arrival.place.producer or next(iter(arrival.place.consumers), None)
        if maker is not None and (failing or isfinite(arrival.norm)):
            name = "" if arrival.place.producer is not None else "input of "
            key = ("backward", maker.path, maker.call, name + maker.name, maker.index)
            yield Figure(key, "backward", maker, arrival, arrival.rms)


def scale_for(largest: float, loss_scale: float) -> float:
    """The largest power of two that keeps a gradient of this size, under this loss scale, below a quarter of 65504."""
    return float(2.0 ** int(log2(max(loss_scale * FLOAT16_LARGEST / 4 / largest, 2.0**-24)) // 1))
