"""Training steps of a model: what takes them, who sees them, and layers that compute otherwise in training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from align.core.protocols import Plugin, SettingsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array, Emulation, GradientsMet, Shape
    from align.core.protocols import Batch, Model
    from align.core.traces import Capture, CaptureSink


@dataclass(frozen=True, slots=True)
class Training:
    """A model with what trains it, all of one framework.

    `loss(outputs, *targets)` returns a scalar; None if the model itself does: alone, first of several, or as `loss`.
    `optimizer` is one optimizer, several, or None. `step(batch)`, if given, is the user's own step: it is handed the
    batch as tensors by name, calls the optimizer itself, and may return the loss: alone, as the first number of
    several, or as `loss`.

    >>> Training(model=None, loss=None).step is None
    True
    """

    model: Any
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    step: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def optimizers(self) -> tuple[Any, ...]:
        """All of them."""
        if self.optimizer is None:
            return ()
        return tuple(self.optimizer) if isinstance(self.optimizer, (list, tuple)) else (self.optimizer,)


@dataclass(frozen=True, slots=True)
class BatchParts:
    """One batch of arrays by name: `inputs` go to the model, `targets` to the loss, in their order.

    `by_position` are the inputs whose names the model does not know, which it is given in their order: `taken_as` the
    parameters of these names, `renamed` to them where others go by name. Of the targets, `keywords` go by the names of
    the loss's parameters, and `guessed` are those that its order alone decides. `outputs` are the parameters of a loss
    that takes the model's outputs one by one, none if it takes them as one. `for_both` go to the model and the loss.
    """

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]
    by_position: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    taken_as: Mapping[str, str] = field(default_factory=dict)
    keywords: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    guessed: Mapping[str, str] = field(default_factory=dict)
    for_both: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelClasses:
    """Labels that a loss takes as numbers of classes, 0 to `count` - 1, and the one that it leaves out.

    `field` is the array of the batch that holds them, with `axes` axes for each sample. `training` names whose loss it
    is. It `is_direct` if a class of the framework takes them as they stand in the batch: other code may leave some out.
    """

    field: str
    axes: int
    count: int
    ignored: int | None
    training: str = ""
    is_direct: bool = True


@runtime_checkable
class GradientReader(SettingsReader, Protocol):
    """Looks at the gradients that a chip would hold in float16."""

    def gradients_met(self, training: Training, emulation: Emulation, batch: Batch) -> tuple[GradientsMet, ...]:
        """Those on the way back from the loss, by module and operator; without a loss from the sum of all outputs.

        Raises UserCodeError where that fails, InputsError for a batch that fits neither the model nor its loss.
        """


@runtime_checkable
class MomentReader(Protocol):
    """Reads what a live optimizer keeps of each parameter from step to step: its moments."""

    def read_moments(self, optimizer: Any, model: Any) -> Iterator[tuple[str, str, Array]]:
        """Yield the parameter's name in the model, what the optimizer calls the moment, and its value.

        Left out is what has another shape than the parameter, as counts of steps have. Arrays may be reused.
        """


class StepSink(Protocol):
    """Sees training steps and may change what happens in them. Arrays may be reused after a call: copy what is kept.

    Names of parameters and buffers are those of `read_values`.
    """

    @property
    def layers(self) -> bool:
        """Tell whether tensors and gradients of layers are to be seen; else only which layers run."""

    @property
    def functions(self) -> CaptureSink | None:
        """A FunctionSink for the functional calls that the step makes outside of the model; None for none."""

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:
        """A step begins, counted from 0; return the values of parameters and buffers that are to be others.

        `held` are names and rates of all parameters in the groups of the optimizers, "" for one that is not the
        model's; a rate is None where a schedule gives it.
        """

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Take the tensors that a call is given, as an InputSink does; what is returned takes their place."""

    def add(self, capture: Capture, value: Array) -> None:
        """Take a tensor that a call returned."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what is to take the place of it; None: it stays."""

    def awaited(self, capture: Capture) -> None:
        """A gradient may come back to this tensor."""

    def arrived(self, capture: Capture, gradient: Array) -> None:
        """Take the gradient that came back to a tensor: to an input from this call alone, to an output from all."""

    def sent_back(self, capture: Capture) -> Array | None:
        """Return the gradient to go back from a tensor that gave way to another one; None for none."""

    def computed(self, name: str, gradient: Array) -> None:
        """Take the gradient of a parameter that one way back gave; a step may have several."""

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """An optimizer is called with these gradients; return those that it is to get instead."""

    def rated(self, held: Sequence[tuple[str, float | None]]) -> None:
        """An optimizer is about to update parameters of these names at these rates; of a schedule a rate is None."""

    def updated(self, held: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:
        """An optimizer has updated what it holds; `values` are all parameters. Return those that are to be others."""

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """A step ended; `values` are all parameters and buffers, `loss` None where a user's step returns none."""


@runtime_checkable
class OutputSink(Protocol):
    """A StepSink that sees what the model itself returns, whether layers are seen or not."""

    def returned(self, call: int, name: str, value: Array) -> None:
        """Take a tensor that a call of the model returned, by the number of the call and its name there."""


class StepTaker(Protocol):
    """Takes training steps of a live model, with its loss and its optimizer."""

    def take_steps(
        self,
        training: Training,
        batches: Sequence[Batch],
        sink: StepSink,
        *,
        loss_scale: float = 1.0,
        rate_zero: bool = False,
        in_own_mode: bool = False,
    ) -> None:
        """Take one step after another in training mode on fixed random numbers, seen by the sink.

        Batches are split as `split_batch` does. The loss is multiplied by `loss_scale` for the way back, unless the
        step is the user's own. With `rate_zero` optimizers are called at a learning rate of 0. With `in_own_mode` the
        mode is that in which the user's code has the model. The model, its optimizers and their schedules, modes and
        random states are left as they were. Raises UserCodeError where the step fails, CannotRunError for a loss that
        is no scalar and a rate that cannot be set to 0, InputsError for a batch that does not fit.
        """

    def split_batch(self, training: Training, batch: Batch) -> BatchParts:
        """Tell what of a batch goes to the model, and what, in its order, to the loss.

        Raises InputsError where its names do not say it, or the model or the loss would not take it.
        """


@runtime_checkable
class Trainer(SettingsReader, StepTaker, Protocol):
    """The adapter of a framework as what takes training steps."""


@runtime_checkable
class LayerSubstituter(Plugin, Protocol):
    """Lets other code compute in the place of layers of a live model, forward and back, on the layers' own tensors."""

    def recast_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Return what computes as a layer does, there or in that precision; its outputs come back as the layer's own.

        Gradients reach the layer's parameters, and what it writes into its buffers reaches these. Raises CannotRunError
        where that cannot be.
        """

    def bare_layer(self, model: Model, path: str) -> Model:
        """Return a twin of a layer that holds the same tensors and is not substituted with it."""

    def substituted(self, model: Model, stand_ins: Mapping[str, Callable[..., Any]]) -> AbstractContextManager[None]:
        """Let these answer for the layers at their paths for a while, in the layers' hooks."""


@runtime_checkable
class ModelFreezer(Plugin, Protocol):
    """Finds the layers that compute otherwise in training mode, and says how they are held."""

    def batch_norms(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Path and module of each, with the attributes that hold it at its running statistics."""

    def dropouts(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Path and module of each that drops a share of its values, with the attributes that switch it off."""


@runtime_checkable
class SeedSetter(Plugin, Protocol):
    """Makes a whole framework give the same in each run of a program."""

    def set_seed(self, seed: int, threads: int | None) -> list[str]:
        """Seed all generators and choose deterministic kernels; return what was set, one line each."""


@dataclass(frozen=True, slots=True)
class DropoutLayer:
    """A framework's own layer for dropout, and the share in 0..1 that it sets to 0; the rest is scaled by 1/(1-share).

    `spatial` is 0 where single values are dropped, else the number of axes behind the channels that are dropped whole.
    """

    path: str
    module: Any
    share: float
    spatial: int = 0


@dataclass(frozen=True, slots=True)
class DropoutCall:
    """A call of such a layer, the `place`-th of one run of the model, counted from 0; `share` 0 if it drops nothing."""

    place: int
    path: str
    class_name: str
    shape: Shape
    share: float
    spatial: int


class DropoutSink(Protocol):
    """Sees the calls of layers for dropout while the model runs, and gives them their masks."""

    def begin(self) -> None:
        """The model itself is called."""

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array | None:
        """Return what a layer's output is multiplied by, in float64; None: it stays. `active` in training mode."""

    def end(self) -> None:
        """The call of the model is over."""


@runtime_checkable
class DropoutReader(ModelFreezer, Protocol):
    """Finds a framework's own layers for dropout, and lets masks take the place of what they draw."""

    def dropout_layers(self, model: Model) -> list[DropoutLayer]:
        """List those that compute what the framework's class does; what is derived and computes otherwise is none."""

    def masked(self, layers: Iterable[DropoutLayer], model: Model, sink: DropoutSink) -> AbstractContextManager[None]:
        """Multiply what these layers of a model return by the sink's masks, gradients too; they must drop nothing.

        What else looks at their outputs later sees them after the mask. A copy of the model asks the same sink.
        """
