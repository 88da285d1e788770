"""One training step of a side, summed up: what it did to each parameter and buffer."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import EPSILON
from align.core.training import ModelFreezer
from align.core.verdicts import Finding
from align.errors import CannotRunError
from align.models.loop_watcher import layers_recomputed
from align.models.open_side import build_side
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Model
    from align.core.traces import Capture, CaptureSink
    from align.training.open_training import TrainingSide

    Held = tuple[str, Model, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ParameterStep:
    """What one step did to a parameter, in figures of all its elements.

    `gradient` is the largest absolute value of the gradient that the optimizers, or whoever asked, saw; None where the
    framework gave none. `moved` is the largest change, `units` the same in units in the last place of each element.
    `zero_share` is the share of elements whose gradient is exactly zero. `holders` counts the parameter's places in the
    groups of all optimizers, and `rate` is that of the first one, None if there is none or it is a schedule's.
    """

    gradient: float | None
    zero_share: float
    moved: float
    units: float
    holders: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What was seen of one step: the loss, None if a step of the user's own does not return it.

    `parameters` are by name, `buffers` the largest change of each; `called` are the paths of modules that ran,
    `updates` is how often an optimizer was called. `outputs` are what the model returned, by call and name, if they
    were asked for.
    """

    loss: float | None
    parameters: Mapping[str, ParameterStep]
    buffers: Mapping[str, float]
    called: frozenset[str]
    updates: int
    outputs: Mapping[tuple[int, str], Array] = field(default_factory=dict)


def watch_step(
    opened: TrainingSide,
    batch: Batch,
    *,
    moved: Mapping[str, Array] | None = None,
    loss_scale: float = 1.0,
    outputs: bool = False,
) -> TrainingStep:
    """Take one step, with other values of some parameters if they are `moved`; the side is left as it was.

    With `outputs`, what the model returns is kept.
    """
    reader, model = opened.side.reader, opened.side.model
    parameters = [one.name for one in reader.read_parameters(model, opened.label).parameters if not one.buffer]
    sink = (_SummaryWithOutputs if outputs else _Summary)(reader.read_values(model), moved or {}, parameters)
    with layers_recomputed():
        opened.trainer.take_steps(opened.training, (batch,), sink, loss_scale=loss_scale)
    return sink.summary()


class StepUnseen:
    """A StepSink that changes nothing and keeps nothing; others are made of it, and say what they look at."""

    functions: CaptureSink | None = None

    @property
    def layers(self) -> bool:
        """Layers are not seen."""
        return False

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:  # noqa: ARG002
        """Let a call have its inputs."""
        return None

    def add(self, capture: Capture, value: Array) -> None:
        """Nothing is kept."""

    def instead(self, capture: Capture, value: Array) -> Array | None:  # noqa: ARG002
        """Nothing gives way."""
        return None

    def awaited(self, capture: Capture) -> None:
        """Nothing is awaited."""

    def arrived(self, capture: Capture, gradient: Array) -> None:
        """Nothing is kept."""

    def sent_back(self, capture: Capture) -> Array | None:  # noqa: ARG002
        """Nothing gives way."""
        return None

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the side's own values."""
        return {}

    def computed(self, name: str, gradient: Array) -> None:
        """Nothing is kept."""

    def rated(self, held: Sequence[tuple[str, float | None]]) -> None:
        """Nothing is kept."""

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:  # noqa: ARG002
        """Let the optimizer have them."""
        return {}

    def updated(self, held: Collection[str], values: Iterable[tuple[str, Array]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Let the side have what its optimizer made."""
        return {}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """Nothing is kept."""


class _Summary(StepUnseen):
    """A StepSink that keeps the last gradient of each parameter, and what moved from `before`."""

    def __init__(self, before: Mapping[str, Array], moved: Mapping[str, Array], parameters: Sequence[str]) -> None:
        self._before, self._moved, self._names = {**before, **moved}, moved, frozenset(parameters)
        self._held: list[tuple[str, float | None]] = []
        self._computed: dict[str, Array] = {}
        self._given: dict[str, Array | None] = {}
        self._parameters: dict[str, ParameterStep] = {}
        self._buffers: dict[str, float] = {}
        self._called: set[str] = set()
        self._updates = 0
        self._loss: float | None = None
        self._outputs: dict[tuple[int, str], Array] = {}

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        self._held = [*held]
        return self._moved

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:  # noqa: ARG002
        self._called.add(module)

    def computed(self, name: str, gradient: Array) -> None:
        self._computed[name] = self._computed[name] + gradient if name in self._computed else np.array(gradient)

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        self._updates += 1
        self._given |= {name: None if value is None else np.array(value) for name, value in gradients.items()}
        return {}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        self._loss = loss
        holders, rates = Counter(name for name, _ in self._held), dict(reversed(self._held))
        for name, after in values:
            before = self._before.get(name)
            if before is not None and name in self._names:
                gradient = self._given.get(name, self._computed.get(name))
                self._parameters[name] = parameter_step(before, after, gradient, holders[name], rates.get(name))
            elif before is not None:
                self._buffers[name] = _change(before, after)

    def summary(self) -> TrainingStep:
        """What was seen."""
        called = frozenset(self._called)
        return TrainingStep(self._loss, self._parameters, self._buffers, called, self._updates, self._outputs)


class _SummaryWithOutputs(_Summary):
    """An OutputSink beside."""

    def returned(self, call: int, name: str, value: Array) -> None:
        self._outputs[call, name] = np.array(value)


def _change(before: Array, after: Array) -> float:
    """The largest change of a buffer; infinite where its shape changed."""
    if before.shape != after.shape:
        return np.inf
    return float(np.abs(after.astype(np.float64) - before.astype(np.float64)).max(initial=0.0))


def parameter_step(
    before: Array, after: Array, gradient: Array | None, holders: int, rate: float | None
) -> ParameterStep:
    """Sum up what a step did: values before and after, and the gradient, all of one shape."""
    old = before.astype(np.float64)
    change = np.abs(after.astype(np.float64) - old)
    last_place = np.ldexp(EPSILON.get(before.dtype.name, 1.0), np.frexp(old)[1] - 1)
    largest = None if gradient is None else float(np.abs(gradient.astype(np.float64)).max(initial=0.0))
    zeros = float(np.mean(gradient == 0)) if gradient is not None and gradient.size else 0.0
    units = float((change / last_place).max(initial=0.0))
    return ParameterStep(largest, zeros, float(change.max(initial=0.0)), units, holders, rate)


# BatchNorm held at its running statistics and dropout switched off, in training mode too.

_MISSING = object()


@dataclass
class Frozen:
    """What was frozen; as a context manager it is undone at the end.

    `batchnorm` and `dropout` are the paths of the layers, "" for the model itself.
    """

    batchnorm: tuple[str, ...]
    dropout: tuple[str, ...]
    _before: list[tuple[Any, str, Any]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Give all layers back what they had."""
        while self._before:
            module, name, value = self._before.pop()
            if value is _MISSING:
                delattr(module, name)
            else:
                setattr(module, name, value)

    def __enter__(self) -> Frozen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def freeze(model: Model, *, batchnorm: bool = True, dropout: bool = True) -> Frozen:
    """Hold BatchNorm at its running statistics, which stay as they are, and switch dropout off, in place.

    It lasts through `model.train()` and `set_train()`, until `undo()` or the end of a `with` block. Scales and shifts
    of BatchNorm are trained as before. Dropout that code calls with a share of its own, without an attribute of the
    module, is not reached: `Frozen.dropout` lists the layers that were. Raises CannotRunError for a model of a
    framework that has no such layers.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> freeze(ArrayModel(()))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models have no layers to freeze
    """
    reader = _freezer(model)
    norms = [*reader.batch_norms(model)] if batchnorm else []
    drops = [*reader.dropouts(model)] if dropout else []
    return _held(norms, drops)


def hold_dropout(model: Model, *, but: Collection[str] = ()) -> Frozen:
    """Switch dropout off as `freeze` does, but in the layers at these paths."""
    return _held([], [one for one in _freezer(model).dropouts(model) if one[0] not in but])


def _freezer(model: Model) -> ModelFreezer:
    reader = build_side(model).reader
    if not isinstance(reader, ModelFreezer):
        raise CannotRunError.of("training_error.no_layers_to_freeze", framework=reader.name)
    return reader


def _held(norms: Sequence[Held], drops: Sequence[Held]) -> Frozen:
    frozen = Frozen(tuple(path for path, _, _ in norms), tuple(path for path, _, _ in drops))
    for _, module, attributes in (*norms, *drops):
        for name, value in attributes.items():
            frozen._before.append((module, name, vars(module).get(name, _MISSING)))  # noqa: SLF001 - its own
            setattr(module, name, value)
    return frozen


@contextmanager
def without_dropout(opened: TrainingSide) -> Iterator[tuple[Finding, ...]]:
    """Switch dropout off in the model of a side while the block runs; a finding says of how many layers."""
    with hold_dropout(opened.training.model) as held:
        message = sentence("dropout_finding.off", count=len(held.dropout))
        yield (Finding("dropout-off", "note", opened.label, message),) if held.dropout else ()
