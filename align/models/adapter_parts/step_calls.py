"""Calls of modules while a training step runs, and the gradients that come back to what they take and return.

A tensor may give way to another one. Then the way back is cut there: what arrives is handed to the sink, and another
gradient goes back from the tensor that gave way, so that each layer's way back is seen by itself. All of these hang on
what the model returns, so that one backward pass of whoever calls it, the user's own too, starts them.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from align.core.parameters import dtype_name
from align.core.protocols import LearningRates
from align.core.thresholds import LONGEST_SCHEDULE
from align.core.traces import Capture
from align.core.training import DropoutLayer, OutputSink
from align.errors import UserCodeError
from align.models.live_calls import hooked, leaves, with_leaves
from align.models.record_calls import CallRecorder
from align.models.thresholds import KEPT_SHARE_DIGITS, SEED
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.core.training import DropoutSink, StepSink
    from align.models.live_calls import FromArray

    ToArray = Callable[[Any], Array]


class GradientForms(Protocol):
    """How a framework watches gradients; all tensors are its own."""

    def to_array(self, value: Any) -> Array | None:
        """Copy out a tensor; None for anything else."""

    def has_gradient(self, value: Any) -> bool:
        """Tell whether a tensor can have one."""

    def awaits(self, tensor: Any) -> bool:
        """Tell whether one may come back to it, as far as the framework knows."""

    def watched(self, tensor: Any, arrived: Callable[[Array], None]) -> Any:
        """Return the same tensor as a place of its own on the way back, which tells what arrives."""

    def copy_back(self, tensor: Any, given: Any, returned: Any) -> None:
        """If a call wrote into the tensor that it was given, bring what it returned into the one the caller holds."""

    def cut(self, tensor: Any, value: Array, arrived: Callable[[Array], None]) -> Any:
        """Return another value in the dtype and place of a tensor, which tells what arrives and passes nothing on."""

    def tied(self, tensor: Any, given: Callable[[], Array | None]) -> Any:
        """Return a scalar 0: if it is used, the gradient `given` goes back to the tensor."""

    def joined(self, tensor: Any, ties: Sequence[Any]) -> Any:
        """Return the tensor with these zeros added to it."""


class StepCalls:
    """Counts the calls of modules in one step, and hands tensors and gradients to a sink.

    `output_shapes` are those of the tensors that the model itself has returned so far; `updated` are the parameters
    that an optimizer has moved.
    """

    def __init__(self, sink: StepSink, forms: GradientForms) -> None:
        self._sink, self._forms = sink, forms
        self._output_sink = sink if isinstance(sink, OutputSink) else None
        self.output_shapes: list[tuple[int, ...]] = []
        self.updated: set[str] = set()
        self._running: list[str] = []
        self._calls: Counter[str] = Counter()
        self._ties: list[Any] = []
        self._given: list[list[tuple[Any, Any]]] = []
        self._order = 0

    @property
    def is_running(self) -> bool:
        """Tell whether a module of the model is."""
        return bool(self._running)

    def functions_seen(
        self, captured: Callable[[CallRecorder], AbstractContextManager[Any]], from_array: FromArray
    ) -> AbstractContextManager[Any]:
        """Let the sink see functional calls outside of the model, as `OUTSIDE/function`, if it wants them."""
        if self._sink.functions is None:
            return nullcontext()
        return captured(_OutsideCalls(self._sink.functions, self._forms, from_array, self))

    def computed(self, name: str, gradient: Any) -> None:
        """Let the sink see a parameter's gradient: what comes after its update is for another network's loss."""
        if name not in self.updated and (value := self._forms.to_array(gradient)) is not None:
            self._sink.computed(name, value)

    def seen(self, modules: Iterable[tuple[str, Any]]) -> AbstractContextManager[None]:
        """See all calls of these modules, given by path; hooks are taken off again."""
        return hooked(modules, self._before, self._after)

    def _before(self, path: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._running.append(path)
        if not self._sink.layers:
            self._sink.enter(path, self._calls[path], {})
            return None
        given = dict(enumerate(args)) | kwargs
        tensors = {
            name: (leaf, value) for name, leaf in leaves(given) if (value := self._forms.to_array(leaf)) is not None
        }
        others = self._sink.enter(path, self._calls[path], {name: value for name, (_, value) in tensors.items()}) or {}
        new: dict[str, Any] = {}
        same: dict[int, Any] = {}  # attention asks whether its query is its key
        for name, (leaf, value) in tensors.items():
            if id(leaf) in same:
                new[name] = same[id(leaf)]
            elif self._forms.has_gradient(leaf) and (path or name in others):
                capture = self._capture(path, type(module).__name__, name, value, role="input")
                new[name] = same[id(leaf)] = self._passed(capture, leaf, others.get(name))
        self._given.append([(leaf, new[name]) for name, (leaf, _) in tensors.items() if name in new])
        given = with_leaves(given, new.get)
        return tuple(given.pop(place) for place in range(len(args))), given

    def _after(self, path: str, module: Any, _args: Any, _kwargs: Any, output: Any) -> Any:
        while self._running.pop() != path:  # modules that raised, and were caught by the model itself
            pass
        if not path:
            self._see_outputs(output)
        if not self._sink.layers:
            self._calls[path] += 1
            return None
        given = []
        while len(self._given) > len(self._running):
            given += self._given.pop()
        new = {}
        passed = {}
        for name, leaf in leaves(output):
            value = self._forms.to_array(leaf)
            if value is not None:
                capture = self._capture(path, type(module).__name__, name, value)
                self._sink.add(capture, value)
                self._order += 1
                if self._forms.has_gradient(leaf):
                    new[name] = passed[id(leaf)] = self._passed(capture, leaf, self._sink.instead(capture, value))
        for leaf, own in given:  # of what was changed in place the caller may use what it gave, not what is returned
            self._forms.copy_back(leaf, own, passed.get(id(own), own))
        if not self._running:
            new = {name: self._forms.joined(tensor, self._ties) for name, tensor in new.items()}
            self._ties = []
        self._calls[path] += 1
        return with_leaves(output, new.get) if new else None

    def _see_outputs(self, output: Any) -> None:
        found = [(name, leaf) for name, leaf in leaves(output) if hasattr(leaf, "shape")]
        self.output_shapes += [tuple(leaf.shape) for _, leaf in found]
        for name, leaf in found if self._output_sink is not None else ():
            if self._output_sink is not None and (value := self._forms.to_array(leaf)) is not None:
                self._output_sink.returned(self._calls[""], name, value)

    def _capture(self, path: str, kind: str, name: str, value: Array, role: Any = "output") -> Capture:
        depth = len(self._running) - (role == "input")
        shape = tuple(value.shape)
        return Capture(self._order, path, self._calls[path], name, kind, shape, dtype_name(value.dtype), depth, role)

    def _passed(self, capture: Capture, leaf: Any, other: Array | None) -> Any:
        arrived = partial(self._sink.arrived, capture)
        if self._forms.awaits(leaf):
            self._sink.awaited(capture)
        if other is None:
            return self._forms.watched(leaf, arrived)
        self._ties.append(self._forms.tied(leaf, partial(self._sink.sent_back, capture)))
        return self._forms.cut(leaf, other, arrived)


OUTSIDE = "(step)"
"""Stands for the path of a module where a step runs code outside of the model."""


class _OutsideCalls(CallRecorder):
    def __init__(self, sink: CaptureSink, forms: GradientForms, from_array: FromArray, calls: StepCalls) -> None:
        super().__init__(sink, forms.to_array, from_array)
        self._of_step = calls

    @property
    def running(self) -> str | None:
        return None if self._of_step.is_running else OUTSIDE


class GradientRecorder:
    """Hands the gradient of every tensor that a module returned to a sink, in the order in which they arrive."""

    def __init__(self, sink: CaptureSink, to_array: ToArray, has_gradient: Callable[[Any], bool]) -> None:
        self._sink, self._to_array, self._has_gradient = sink, to_array, has_gradient
        self._calls: Counter[str] = Counter()
        self._order = 0

    @contextmanager
    def watching(self, modules: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """See what these modules return, given by path; hooks are taken off again."""
        with ExitStack() as stack:
            for path, module in modules:
                hook = partial(self._returned, path, type(module).__name__)
                stack.callback(module.register_forward_hook(hook).remove)
            yield

    def _returned(self, path: str, class_name: str, _module: Any, _inputs: Any, output: Any) -> None:
        call = self._calls[path]
        self._calls[path] += 1
        for name, leaf in leaves(output):
            if self._has_gradient(leaf):
                leaf.register_hook(partial(self._arrived, path, call, name, class_name))

    def _arrived(self, path: str, call: int, name: str, class_name: str, gradient: Any) -> None:
        value = self._to_array(gradient)
        shape = tuple(value.shape)
        self._sink.add(Capture(self._order, path, call, name, class_name, shape, value.dtype.name), value)
        self._order += 1


def random_weighted_sum(output: Any, has_gradient: Callable[[Any], bool], like: FromArray) -> Any:
    """Sum of all tensors with a gradient in `output`, each element times a standard normal number.

    The numbers are the same for outputs of the same structure and shapes; `like` makes a tensor of them.
    """
    generator = np.random.default_rng(SEED)
    found = [leaf for _, leaf in leaves(output) if has_gradient(leaf)]
    return sum((leaf * like(generator.standard_normal(tuple(leaf.shape)), leaf)).sum() for leaf in found)


# A framework's own layers for dropout found, and their outputs multiplied by masks that are given.
#
# Masks come as hooks on layers whose own share is held at 0. So they need no generator of the framework: on a CPU
# `nn.Dropout2d` and `ops.dropout2d` of MindSpore cannot be seeded. Hooks are plain functions, which copies of a model
# share, so that its run in float64 sees the very same masks.

# What modules call the share that they drop, or that they keep, where they hand it to a function themselves.
_DROPS = re.compile(r"Drop|Stochastic_?Depth")
_SHARES = re.compile(r"(?:\w+_)?(?:dropout|drop)(?:_(?:p|prob|rate|ratio))?|keep_prob")


@dataclass(frozen=True, slots=True)
class DropoutForm:
    """Where a class keeps its share, which is the kept one if it `keeps`; `spatial` is a DropoutLayer's."""

    base: type
    attribute: str
    keeps: bool = False
    spatial: int = 0


def find_dropout_layers(
    modules: Iterable[tuple[str, Model]], forms: Sequence[DropoutForm], method: str
) -> Iterator[DropoutLayer]:
    """Yield the layers of these classes, of derived ones those whose `method`, the forward, is the class's own."""
    for path, module in modules:
        form = next((one for one in forms if isinstance(module, one.base)), None)
        if form is None or method in vars(module) or getattr(type(module), method) is not getattr(form.base, method):
            continue
        value = float(reduce(getattr, form.attribute.split("."), module))
        yield DropoutLayer(path, module, round(1.0 - value if form.keeps else value, KEPT_SHARE_DIGITS), form.spatial)


@contextmanager
def masked_outputs(
    layers: Iterable[DropoutLayer],
    model: Model,
    sink: DropoutSink,
    multiplied: Callable[[Any, Array, bool], Any],
) -> Iterator[None]:
    """Give layers their masks; `multiplied(output, mask, inplace)` is the framework's product."""

    def begin(*_: Any) -> None:
        sink.begin()

    def end(*_: Any) -> None:
        sink.end()

    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(begin).remove)
        for one in layers:
            stack.callback(one.module.register_forward_hook(_hook(one, sink, multiplied)).remove)
        stack.callback(model.register_forward_hook(end).remove)
        yield


def _hook(layer: DropoutLayer, sink: DropoutSink, multiplied: Callable[[Any, Array, bool], Any]) -> Any:
    def given_mask(module: Any, _args: Any, output: Any) -> Any:
        mask = sink.mask(layer, tuple(output.shape), active=bool(module.training))
        return None if mask is None else multiplied(output, mask, getattr(module, "inplace", False))

    return given_mask


def dropping(
    modules: Iterable[tuple[str, Model]], off: Mapping[str, float]
) -> Iterator[tuple[str, Model, dict[str, Any]]]:
    """Modules that drop a share of what they are given, each with the attributes that switch it off.

    Layers for dropout, by their class or one that it derives from, have the attributes `off`; others keep a share as a
    number under a usual name.
    """
    for path, module in modules:
        attributes = vars(module)
        drops = any(_DROPS.search(one.__name__) for one in type(module).__mro__)
        switches = {name: value for name, value in off.items() if drops and name in attributes}
        shares = {name for name, value in attributes.items() if isinstance(value, float) and 0.0 < value < 1.0}
        switches |= {name: 1.0 if name == "keep_prob" else 0.0 for name in shares if _SHARES.fullmatch(name)}
        if switches:
            yield path, module, switches


# How many steps a schedule is made for, and how many it names: behind which step the next change may come.
#
# A schedule with an end (a cosine, a polynomial) says nothing about the steps behind it; one that decays every so
# many steps goes on for ever, however that number is called.

ENDS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}
COUNTERS = ("last_epoch", "verbose")  # where a schedule is, not what it is


def scheduler_end(scheduler: Any) -> int:
    """The number of steps that a scheduler is made for, 0 if it has no end: behind them, some start anew."""
    if parts := scheduler_parts(scheduler):
        milestones = getattr(scheduler, "_milestones", None)
        if milestones is None:
            return max(map(scheduler_end, parts))
        last = scheduler_end(parts[-1])
        return int(milestones[-1]) + last if last else 0
    return int(getattr(scheduler, ENDS.get(type(scheduler).__name__, ""), 0) or 0)


def scheduler_parts(scheduler: Any) -> tuple[Any, ...]:
    """The schedulers that one runs in turn or at once."""
    return tuple(getattr(scheduler, "_schedulers", ()))


def scheduled_rates(schedulers: Sequence[Any], stepped: Callable[[], list[list[float]]]) -> list[LearningRates]:
    """The rates of each group under schedulers, which `stepped` steps; raises UserCodeError where one fails."""
    known, reach = max(map(scheduler_end, schedulers)) or None, largest_step(schedulers)
    kinds = sorted({type(one).__name__ for one in schedulers})
    values = run_user_code(stepped, lambda error: UserCodeError(say("model_error.stepping", schedulers=kinds), error))
    return [LearningRates(tuple(own), known, by=" and ".join(kinds), reach=reach) for own in values]


def largest_step(schedules: Iterable[object]) -> int:
    """The largest whole number that schedules and their parts, or functions that they call, are given; 0 if none."""
    found = [number for one in schedules for number in _numbers(one)]
    return int(max((one for one in found if 0 < one <= LONGEST_SCHEDULE), default=0))


def _numbers(schedule: object) -> Iterator[float]:
    own = {name: value for name, value in vars(schedule).items() if not name.startswith("_")}
    own["milestones behind"] = getattr(schedule, "_milestones", ())
    yield from (number for name, value in own.items() if name not in COUNTERS for number in _whole(value))
    yield from (number for part in scheduler_parts(schedule) for number in _numbers(part))


def _whole(value: object) -> Iterator[float]:
    """The whole numbers in a setting, in a list or the keys of a mapping, or among what a function is given."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (value,) if value == value // 1 else ()
    elif isinstance(value, (list, tuple, dict)):
        yield from (number for item in value for number in _whole(item))
    elif isinstance(value, partial):
        yield from _whole([value.func, *value.args, *value.keywords.values()])
    elif isinstance(value, FunctionType):
        kept = (cell.cell_contents for cell in value.__closure__ or ())
        yield from _whole([*value.__code__.co_consts, *(value.__defaults__ or ()), *kept])
