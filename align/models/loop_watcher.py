"""Training loops of the user's own, watched: what a framework's adapter lets others see while a loop runs.

A loop is not called by us: hooks sit on what it calls. Tensors and modules are the framework's own; a sink that keeps
one keeps its memory.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from align.core.protocols import Plugin
from align.models.live_calls import leaves, set_meanwhile
from align.models.thresholds import CACHED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.memory import ModuleSpan
    from align.core.parameters import Array
    from align.core.protocols import Model


@dataclass(frozen=True, slots=True)
class LoopCall:
    """One call of a module: its path, "" for the outermost; how often it was called before; its class and depth."""

    path: str
    number: int
    class_name: str
    depth: int


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Of an optimizer: its `epsilons` by place in `held_by`, those that it lacks left out, and its rates likewise.

    An epsilon is as its dtype holds it: one below what float32 holds is 0.
    """

    class_name: str
    epsilons: Mapping[int, float]
    rates: Mapping[int, float]


class LoopSink(Protocol):
    """Sees calls of modules and changes nothing. What it raises ends the user's loop."""

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A module is called."""

    def returned(
        self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Take note that a call returned."""

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """A gradient came back to a tensor that the call returned; only asked of hooks that look `backward`."""


class OperatorSink(Protocol):
    """Sees operators and functional calls, inside modules and outside of them."""

    def computed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """One of them returned."""

    def applied(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """A function of the user's own with a way back of its own returned, known by the name of its class."""


class LoopForms(Protocol):
    """What a framework does with tensors that are watched."""

    def recording(self) -> bool:
        """Tell whether what is computed now may lead to a gradient, as far as the framework knows."""

    def is_floating(self, value: Any) -> bool:
        """Tell whether it is a tensor of floating numbers."""

    def is_parameter(self, value: Any) -> bool:
        """Tell whether it is a parameter of a model."""

    def differentiable(self, value: Any) -> bool:
        """Tell whether a gradient may come back to it."""

    def on_gradient(self, tensor: Any, arrived: Callable[[Any], None]) -> bool:
        """Have `arrived` called with the gradient that comes back to a tensor; False if none can."""

    def hooks_on(self, tensor: Any) -> int:
        """How many hooks a tensor has that may change its gradient, as far as the framework tells."""

    def going_back(self) -> bool:
        """Tell whether a pass back runs, as far as the framework tells: what modules do then, they did before."""

    def on_parameter(self, parameter: Any, arrived: Callable[[Any], None]) -> Callable[[], Any] | None:
        """Have `arrived` called with each gradient of a parameter; what ends that is returned, None if none comes."""

    def begins_anew(self, parameter: Any) -> bool:
        """Tell, when a gradient comes back to it, whether that is added to none: one of a pass before was cleared."""

    def own_way_back(self, module: Any) -> bool:
        """Tell whether a module brings a way back of its own, in the place of what its operators would send."""

    def on_return(self, module: Any, returned: Callable[..., None]) -> Callable[[], Any]:
        """Have `returned` called with what forward hooks with keywords get; what ends that is returned."""

    def norm(self, tensor: Any) -> Any:
        """Root of the sum of squares: a number where that costs no waiting, else a tensor on its device.

        One pass over the elements, in float32 at least. Not finite where an element is not, or where it overflows.
        """

    @property
    def bytes_at_once(self) -> int:
        """Norms are taken when so many bytes of tensors wait: each taking waits for all that runs. 0: one by one."""

    def bytes_of(self, tensor: Any) -> int:
        """The size of a tensor."""

    def norms(self, tensors: Iterable[Any]) -> list[float]:
        """Norms as numbers, of what `norm` returned: waited for once."""

    def joined(self, tensors: list[Any]) -> Array | None:
        """The elements of small tensors one after the other, in float64; None where a device would be waited for."""

    def figures(self, tensor: Any, *, full: bool) -> list[Any]:
        """Its norm as above and elements that are not finite, counted where the norm is not finite.

        If it is to be in `full`, also its sum, largest magnitude and zeros. Each is given as a norm is.
        """

    def copied(self, tensor: Any, into: Any = None) -> Any:
        """A copy of its values, on its device; `into` is a copy of before, whose memory is used again."""

    def distance(self, tensor: Any, before: Any) -> Any:
        """The norm of what was added to a tensor since `before`, which `copied` returned, and may use up."""

    def address(self, tensor: Any) -> int:
        """Where its memory begins."""

    def kept(self, tensor: Any) -> Any:
        """Return the tensor over the same memory, without its place on the way back."""

    def as_array(self, value: Any) -> Array | None:
        """Return a tensor's values, None for anything else."""

    def dtype_of(self, tensor: Any) -> str:
        """The dtype as NumPy calls it."""

    def own_tensors(self, module: Any) -> list[tuple[str, Any]]:
        """Parameters and buffers that a module holds itself, by the names of its attributes."""

    def is_whole(self, module: Any) -> bool:
        """Tell whether it is a layer of the framework's own without layers inside: nobody looks into it."""


@runtime_checkable
class LoopWatcher(Plugin, Protocol):
    """Lets training loops of a framework be watched."""

    @property
    def loop_forms(self) -> LoopForms:
        """What it does with tensors."""

    def loaded(self) -> bool:
        """Tell whether its framework is imported, and so whether a loop of it may run."""

    def loop_modules(self, model: Model) -> list[tuple[str, Any]]:
        """All modules of a model by path, "" for the model itself, each once.

        The paths are those of the user's model where the framework's own code has put something around it.
        """

    def loop_parameters(self, model: Model) -> list[tuple[str, Any]]:
        """All parameters of a model by the names that `read_parameters` gives them."""

    def optimizer_state(self, optimizer: Any) -> OptimizerState:
        """What an optimizer divides by, and its rates."""

    def loop_buffers(self, model: Model) -> list[tuple[str, Any]]:
        """All tensors of floating numbers that a model keeps and no optimizer moves, by name, and are no parameters."""

    def loop_memory(self) -> float:
        """Bytes at most in use so far: on an accelerator what tensors took there, else what the process took."""

    def rates_now(self, optimizer: Any) -> dict[int, float]:
        """The rates of an optimizer's next update by place in `held_by`, those that it does not tell left out."""

    def outermost_calls(self, before: Callable[[Any], None]) -> AbstractContextManager[None]:
        """Tell of each call of a module that no other module runs, before it runs; hooks may be put on it then."""

    def optimizer_calls(
        self, before: Callable[[Any, Any], None], after: Callable[[Any], None]
    ) -> AbstractContextManager[None]:
        """Tell of calls of any optimizer: `before(optimizer, gradients)`, by place in `held_by`, and `after`."""

    def held_by(self, optimizer: Any) -> list[Any]:
        """The parameters that an optimizer moves, in its order."""

    def operators(self, sink: OperatorSink) -> AbstractContextManager[None]:
        """Let a sink see what is computed; only those that user code asks for, or a framework's module that it runs."""


@runtime_checkable
class LoopHost(LoopWatcher, Protocol):
    """Tells where a loop runs, calls back from a framework's own loop, and computes its layers again afterwards."""

    def rank(self) -> tuple[int, int]:
        """The rank of this process, and how many there are: (0, 1) for one alone."""

    def refuse_unseen(self) -> None:
        """Raise CannotRunError where modules run past all hooks, as in MindSpore's graph mode."""

    def step_callback(
        self,
        ended: Callable[[Any, Any], None],
        closed: Callable[[], None],
        begun: Callable[[Any], Any] = lambda _: None,
    ) -> Any:
        """Return a callback for the framework's own loop: of each step that `ended`, and of the loop that is `closed`.

        A step ends with what it returned and what it was given, None where the loop does not tell. `begun` gets the
        data that a loop which begins iterates over, None likewise.

        Raises CannotRunError where that loop is of a package that is not there.
        """

    def random_state(self) -> bytes:
        """The state of the generator that layers draw from: another one after a call that drew."""

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """Return what a copy of a layer returns on the processor in float64, with arrays in the place of tensors.

        It holds these values of its parameters and buffers, and is given (args, kwargs) with arrays for tensors. The
        layer and all random states are left as they were. Raises UserCodeError where the copy or the call fails.
        """

    def own_values(self, module: Any) -> dict[str, Array]:
        """Copy out the parameters and buffers of a layer and of what it holds."""


@dataclass(frozen=True, slots=True)
class ScaleFlow:
    """How a loss scale works: its `name`, whether it is `dynamic`, whether it `drops` an update that overflowed.

    `faked` says what stands in for kernels that the device lacks, "" for nothing.
    """

    name: str
    dynamic: bool
    drops: bool
    faked: str = ""


@runtime_checkable
class LossScaleReader(LoopHost, Protocol):
    """Reads the loss scales of a framework's own flows."""

    def scale_flow(self, scaler: Any) -> ScaleFlow | None:
        """How what scales the loss works; None for what is no loss scale of the framework."""

    def loss_scale(self, scaler: Any) -> float:
        """What the loss is multiplied by now."""

    def scale_by_which(self, optimizer: Any) -> float:
        """What an optimizer divides gradients by itself, 1 for none."""

    def read_step(self, output: Any) -> tuple[float | None, str, bool | None]:
        """The loss, its dtype and whether it overflowed, of what a step returned; None or "" where it does not say."""

    def kept_gradients(self, model: Model) -> list[tuple[str, Any]]:
        """The gradients that parameters hold after a step, by name; none where the framework hands them to the user."""

    def kernels_faked(self, scaler: Any) -> AbstractContextManager[None]:
        """Let a flow run on a device that lacks its kernels, by others that compute the same."""


# Figures of tensors on the processor by NumPy, as LoopForms gives them; torch's own take twice as long there. A piece
# that stays in a core's cache is read for all of them before the next one.


def array_figures(values: Array, *, full: bool) -> list[float]:
    """Norm and elements that are not finite; in full also sum, largest magnitude and zeros."""
    flat, squares, strange, total, zeros, extremes = values.ravel(order="K"), 0.0, 0, 0.0, 0, [0.0]
    with np.errstate(all="ignore"):
        for piece in map(_widened, _pieces(flat)):
            square = float(np.dot(piece, piece))
            squares += square
            if not isfinite(square):
                strange += piece.size - int(np.count_nonzero(np.isfinite(piece)))
            if full:
                total += float(piece.sum())
                extremes += [piece.max(), -piece.min()]
                zeros += int(np.count_nonzero(piece == 0))
    figures = [sqrt(squares), float(strange)]
    return [*figures, total, float(np.max(extremes)), float(zeros)] if full else figures


def joined_norms(values: Array, sizes: Sequence[int]) -> list[float]:
    """The norm of each of the tensors of these sizes, none of them 0, whose elements stand one after the other."""
    with np.errstate(all="ignore"):
        return [*np.sqrt(np.add.reduceat(values * values, _starts(sizes))).tolist()]


def joined_figures(values: Array, sizes: Sequence[int]) -> list[list[float]]:
    """All figures of each of the tensors of these sizes, none of them 0, whose elements stand one after the other."""
    starts = _starts(sizes)
    with np.errstate(all="ignore"):
        sums = (~np.isfinite(values), values, values == 0)
        strange, total, zeros = (np.add.reduceat(column, starts, dtype=np.float64).tolist() for column in sums)
        largest = np.maximum.reduceat(np.abs(values), starts).tolist()
    columns = (joined_norms(values, sizes), strange, total, largest, zeros)
    return [list(row) for row in zip(*columns, strict=True)]


def _starts(sizes: Sequence[int]) -> Array:
    return np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)]).astype(np.int64)


def array_distance(before: Array, now: Array) -> float:
    """The norm of a difference."""
    squares = 0.0
    with np.errstate(all="ignore"):
        for first, second in zip(_pieces(before.reshape(-1)), _pieces(now.reshape(-1)), strict=True):
            piece = _widened(first - second)
            squares += float(np.dot(piece, piece))
    return sqrt(squares)


def _pieces(flat: Array) -> list[Array]:
    return [flat[first : first + CACHED_ELEMENTS] for first in range(0, flat.size, CACHED_ELEMENTS)]


def _widened(values: Array) -> Array:
    return values if values.dtype.char in "fd" else values.astype(np.float32)


# Hooks on all modules of a model in a loop that is not ours, forward and backward; all are taken off again.


class LoopHooks:
    """Counts the calls of modules within a step, and tells a sink of them; `step` is set by whoever counts steps.

    Calls that raise and are caught by the user's model are forgotten when the module around them returns. `backward`
    tells of which tensors, or whether of any, the sink hears what gradient comes back.
    """

    def __init__(self, sink: LoopSink, forms: LoopForms, *, backward: bool | Callable[[Any], bool] = True) -> None:
        self.step = 0
        self.running: list[tuple[LoopCall, Any]] = []
        self._sink, self._forms, self._backward = sink, forms, bool(backward)
        self._is_chosen = backward if callable(backward) else lambda _tensor: True
        self._calls: Counter[str] = Counter()

    def begin(self, step: int) -> None:
        """A step begins: calls are counted anew."""
        self.step = step
        self._calls.clear()

    @contextmanager
    def on_modules(self, modules: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """See all calls of these modules, given by path."""
        with ExitStack() as stack:
            for path, module in modules:
                before = module.register_forward_pre_hook(partial(self._before, path), with_kwargs=True)
                stack.callback(before.remove)
                stack.callback(self._forms.on_return(module, partial(self._after, path)))
            yield

    def _before(self, path: str, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        call = LoopCall(path, self._calls[path], type(module).__name__, len(self.running))
        self._calls[path] += 1
        self.running.append((call, module))
        self._sink.entered(call, module, args, kwargs)

    def _after(self, _path: str, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if not any(one is module for _, one in self.running):  # hooks were put on while it ran
            return
        call, found = self.running.pop()
        while found is not module:
            call, found = self.running.pop()
        self._sink.returned(call, module, args, kwargs, output)
        for name, leaf in leaves(output) if self._backward else ():
            if self._forms.differentiable(leaf) and self._is_chosen(leaf):
                self._forms.on_gradient(leaf, partial(self._sink.arrived, call, name))


class SpanRecorder:
    """A LoopSink that notes the calls of modules on the way forward as spans of operators.

    `now` is the number of operators so far, `place_of` the place of what a tensor lies in, None for what is not known,
    `forward` tells whether the way forward is taken.
    """

    def __init__(
        self, now: Callable[[], int], place_of: Callable[[Any], int | None], forward: Callable[[], bool]
    ) -> None:
        self.spans: list[ModuleSpan] = []
        self._now, self._place_of, self._forward = now, place_of, forward
        self._open: list[int] = []

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Note where it begins; what did not return is forgotten."""
        del self._open[call.depth :]
        self._open.append(self._now())

    def returned(
        self,
        call: LoopCall,
        module: Any,  # noqa: ARG002
        args: tuple[Any, ...],  # noqa: ARG002
        kwargs: Mapping[str, Any],  # noqa: ARG002
        output: Any,
    ) -> None:
        """Note the span, with the places of what it returned."""
        from align.core.memory import ModuleSpan  # here alone: few commands need it

        if self._forward():
            places = (self._place_of(leaf) for _, leaf in leaves(output))
            known = frozenset(place for place in places if place is not None)
            self.spans.append(ModuleSpan(call.path, call.class_name, self._open[call.depth], self._now(), known))

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """Nothing: no gradients are asked for."""


# Whether layers of activation checkpointing are computed again on the way back, as a side by itself does.
#
# Otherwise they run once, as all layers do: then what they take and return, and the gradients of it, are seen like
# any.

_recomputes = ContextVar("recomputes", default=False)
_noted: ContextVar[list[bool] | None] = ContextVar("noted", default=None)


def layers_run_once() -> bool:
    """Tell whether steps are to pass checkpointing by."""
    return not _recomputes.get()


def layers_recomputed() -> AbstractContextManager[bool]:
    """Let steps in this block run as a side takes them by itself."""
    return set_meanwhile(_recomputes, True)


def note_recompute() -> None:
    """Note that something is checkpointed, though it is passed by."""
    noted = _noted.get()
    if noted is not None:
        noted.append(True)


def recompute_noted() -> AbstractContextManager[list[bool] | None]:
    """Yield a list that is not empty any more once something was passed by in this block."""
    return set_meanwhile(_noted, [])
