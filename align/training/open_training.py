"""A side that can be trained, opened, watched for a step, and held: a model with its loss, optimizer and adapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, is_numeric, numpy_dtype
from align.core.training import ModelFreezer, StepTaker, Trainer, Training
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, SideError
from align.models.inputs import as_array, kind_of, named_values, read_batches, refuse_empty
from align.models.live_calls import inside, leaves
from align.models.loop_watcher import layers_recomputed
from align.models.open_side import Side, build_side, refuse_shared
from align.models.user_code import load_function
from align.training.thresholds import KEPT_VALUES
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch, Model
    from align.core.traces import Capture, CaptureSink
    from align.core.training import BatchParts, StepSink
    from align.models.inputs import InputsSource


_PARTS = tuple(field.name for field in fields(Training))


@dataclass(frozen=True, slots=True)
class TrainingSide:
    """A model opened as a side, with what trains it."""

    side: Side
    training: Training
    trainer: StepTaker

    @property
    def label(self) -> str:
        """What the user calls it."""
        return self.side.label


def open_training(given: str | Training, *, from_start: bool = True) -> TrainingSide:
    """Take what trains a model, or build it by `module:function`.

    Each taking of steps begins `from_start`: what a step of the user's own keeps between its calls is put back.
    Raises SideError for a function that returns something else, CannotRunError for a framework that cannot train.
    """
    source = load_function(given)() if isinstance(given, str) else given
    label = given if isinstance(given, str) else type(getattr(source, "model", source)).__name__
    training = _training(label, source)
    side = build_side(training.model)
    if not isinstance(side.reader, Trainer):
        raise CannotRunError.of("training_error.not_trained", framework=side.reader.name)
    training = replace(training, optimizer=_known_optimizers(label, training, side.reader))
    trainer = StepsFromStart(side.reader) if from_start else side.reader
    return TrainingSide(Side(label, side.model, side.reader), training, trainer)


def open_trainings(reference: str | Training, candidate: str | Training) -> tuple[TrainingSide, TrainingSide]:
    """Open both sides; raises SharedModelError too, where a step of the one would move the other."""
    sides = open_training(reference), open_training(candidate)
    refuse_shared((sides[0].side, sides[1].side))
    return sides


def batch_findings(side: TrainingSide, batch: Batch) -> tuple[Finding, ...]:
    """Tell which arrays went where that no name sends there: a note, of several inputs of the model a warning.

    Raises InputsError for a batch that does not fit the side.
    """
    try:
        parts = side.trainer.split_batch(side.training, batch)
    except InputsError as error:
        raise InputsError(say("model_error.of_side", label=side.label, fault=error.message), error.hint) from error
    inputs = [_taken_as(name, parts.taken_as) for name in parts.by_position]
    targets = [_taken_as(name, parts.guessed) for name in parts.guessed]
    notes = {
        ("inputs-by-position", "by_position"): inputs,
        ("targets-by-position", "loss_by_position"): targets,
        ("outputs-one-by-one", "outputs_one_by_one"): parts.outputs,
        ("array-for-both", "for_both"): parts.for_both,
    }
    return tuple(
        Finding(
            code,
            "warning" if len(inputs) > 1 and names is inputs else "note",
            side.label,
            sentence(f"batch_finding.{key}", count=len(names), names=[*names]),
        )
        for (code, key), names in notes.items()
        if names
    )


def _taken_as(name: str, parameters: Mapping[str, str]) -> str:
    return say("batch_finding.as_parameter", name=name, parameter=parameters[name]) if name in parameters else name


def _known_optimizers(label: str, training: Training, reader: Trainer) -> Any:
    """The optimizers of the framework; None where a step of the user's own calls others, whose updates are compared."""
    others = [one for one in training.optimizers if not reader.is_optimizer(one)]
    if not others:
        return training.optimizer
    if training.step is None or len(others) < len(training.optimizers):
        reason = say("training_reason.foreign_optimizer", kind=type(others[0]).__name__, framework=reader.name)
        error = SideError(label, reason)
        error.hint = say("training_reason.step_of_own_optimizer")
        raise error
    return None


def _training(label: str, returned: Any) -> Training:
    if isinstance(returned, Training):
        return returned
    if isinstance(returned, dict) and "model" in returned and returned.keys() <= set(_PARTS):
        return Training(**returned)
    if isinstance(returned, tuple) and 1 < len(returned) <= len(_PARTS):
        return Training(*returned)
    error = SideError(label, say("training_reason.no_training", kind=type(returned).__name__))
    error.hint = say("training_reason.what_to_return")
    raise error


# What a user's step keeps between its calls, such as a counter: noted before steps are taken, put back behind them.
#
# A step that updates every second call would else do another thing each time that it is taken from the same state.

# What has a class of theirs is no bookkeeping of the user's: models and optimizers are put back by their adapters.
_FRAMEWORKS = frozenset({"torch", "mindspore", "numpy", "align"})
_PLAIN_KEPT = (int, float, str, NoneType)


@dataclass(frozen=True)
class StepsFromStart:
    """Takes steps as `taker` does, each time from what the user's step kept at first."""

    taker: StepTaker

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
        """Take the steps, and put back what the user's step kept; see StepTaker."""
        with kept_put_back(training.step, *training.optimizers):
            self.taker.take_steps(
                training, batches, sink, loss_scale=loss_scale, rate_zero=rate_zero, in_own_mode=in_own_mode
            )

    def split_batch(self, training: Training, batch: Batch) -> BatchParts:
        """Split a batch as the taker does; see StepTaker."""
        return self.taker.split_batch(training, batch)


@contextmanager
def kept_put_back(*keepers: object) -> Iterator[None]:
    """Put back what functions keep: in their closures, in globals that they name, in lists, tables and objects there.

    They get the values that they held. What happens inside of tensors, iterators and objects of frameworks stays; of
    the user's own modules and optimizers, as one that counts its calls, plain numbers and texts are put back.
    """
    kept = _Kept()
    for one in keepers:
        kept.visit(one)
    try:
        yield
    finally:
        kept.put_back()


@dataclass
class _Kept:
    """Cells, tables, and lists that were found, each with what it held."""

    cells: list[tuple[Any, Any]] = field(default_factory=list)
    tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = field(default_factory=list)
    lists: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    named: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)  # it keeps them alive: no other object gets the id of one

    def visit(self, value: Any) -> None:
        if id(value) not in self.seen and len(self.seen) < KEPT_VALUES:
            self.seen[id(value)] = value
            for inner in self._inner(value):
                self.visit(inner)

    def _inner(self, value: Any) -> Iterable[Any]:
        if isinstance(value, FunctionType):
            return self._of_function(value)
        if isinstance(value, MethodType):
            return value.__self__, value.__func__
        if isinstance(value, partial):
            return value.func, *value.args, *value.keywords.values()
        if isinstance(value, (dict, list, tuple)):
            return self._of_container(value)
        return self._of_object(value)

    def _of_function(self, function: FunctionType) -> Iterable[Any]:
        filled = [cell for cell in function.__closure__ or () if cell != CellType()]
        cells = [(cell, cell.cell_contents) for cell in filled]
        everything = function.__globals__
        own = {name: everything[name] for name in _names_in(function.__code__) if name in everything}
        self.cells += cells
        self.named.append((everything, own))
        return *(content for _, content in cells), *own.values(), *(function.__defaults__ or ())

    def _of_container(self, value: Any) -> Iterable[Any]:
        if len(value) > KEPT_VALUES:
            return ()
        if isinstance(value, dict):
            self.tables.append((value, {**value}))
            return [*value.values()]
        if isinstance(value, list):
            self.lists.append((value, [*value]))
        return [*value]

    def _of_object(self, value: Any) -> Iterable[Any]:
        """The attributes of an object whose class is the user's own, and what is run when it is called."""
        roots = [base.__module__.partition(".")[0] for base in type(value).__mro__]
        attributes = getattr(value, "__dict__", None)
        if roots[0] in (*_FRAMEWORKS, "builtins") or not isinstance(attributes, dict):
            return ()
        if _FRAMEWORKS.isdisjoint(roots):
            return attributes, vars(type(value)).get("__call__")
        plain = {name: entry for name, entry in attributes.items() if isinstance(entry, _PLAIN_KEPT)}
        hidden = [name for name, entry in plain.items() if name.startswith("_") and type(entry) not in (int, float)]
        self.named.append((attributes, {name: entry for name, entry in plain.items() if name not in hidden}))
        lists = [entry for entry in attributes.values() if isinstance(entry, list) and len(entry) <= KEPT_VALUES]
        self.lists += [(entry, [*entry]) for entry in lists if all(isinstance(one, _PLAIN_KEPT) for one in entry)]
        return ()

    def put_back(self) -> None:
        for cell, content in self.cells:
            cell.cell_contents = content
        for everything, own in self.named:
            everything.update(own)
        for table, entries in self.tables:
            for key in table.keys() - entries.keys():  # never cleared: other threads may look at it
                del table[key]
            table.update(entries)
        for values, before in self.lists:
            values[:] = before


def _names_in(code: CodeType) -> set[str]:
    """The names that a function, and what is defined in it, reads or writes beside its own."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


# Batches of training steps as people have them: arrays, nested lists, tuples and dicts of arrays, and plain values.
#
# What is no array is an argument of the model, of the loss or of the step, and is given to it as it is: a word, a
# number of Python, a switch, None. In a file the arrays stand by name, and what is around them is told beside it.

_PLAIN_IN_BATCH = (bool, int, float, str, type(None))


def read_training_batch(source: InputsSource) -> dict[str, Any]:
    """Return one batch by name, as `read_training_batches` does; raises InputsError for several."""
    batches = read_training_batches(source)
    if len(batches) > 1:
        raise InputsError.of("inputs_fault.several_batches", count=len(batches))
    return batches[0]


def read_training_batches(source: InputsSource) -> tuple[dict[str, Any], ...]:
    """Return batches by name from what `read_batches` takes; from Python their values may be nested and plain.

    A list of numbers is an array, any other list a list. Raises InputsError for values of other kinds.
    """
    return read_batches(source, _checked)


def _checked(source: object, made: Any) -> dict[str, Any]:
    batch = {name: _value(value) for name, value in named_values(source, made).items()}
    values = dict(leaves(batch))
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    refused = {
        name: value for name, value in values.items() if name not in arrays and not isinstance(value, _PLAIN_IN_BATCH)
    }
    refused |= {name: value for name, value in arrays.items() if not is_numeric(value.dtype.name)}
    if refused:
        unlike = [f"{name} ({kind_of(value)})" for name, value in values.items() if name in refused]
        raise InputsError.of("inputs_fault.unknown_values", unlike=unlike)
    refuse_empty(source, arrays)
    return batch


def _value(value: Any) -> Any:
    """The value with arrays for tensors and numbers; what is of no known kind stays."""
    if isinstance(value, _PLAIN_IN_BATCH):
        return value
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        whole = (
            as_array(value) if all(isinstance(one, (bool, int, float, np.generic)) for one in _items(value)) else None
        )
        if whole is not None and not whole.dtype.hasobject:
            return _native(whole)
        return value if hasattr(value, "_fields") else type(value)(_value(item) for item in value)
    array = as_array(value)
    return value if array.dtype.hasobject else _native(array)


def _items(value: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    for item in value:
        if isinstance(item, (list, tuple)):
            yield from _items(item)
        else:
            yield item


def _native(array: Array) -> Array:
    return array.astype(numpy_dtype(array.dtype.name), copy=False) if is_numeric(array.dtype.name) else array


def taken_apart(batches: Sequence[Batch]) -> tuple[list[dict[str, Array]], list[Any]]:
    """The arrays of each batch by name, and what is around them, as JSON holds it; see `put_together`."""
    found = [_Apart() for _ in batches]
    forms = [apart.form(dict(batch), "") for apart, batch in zip(found, batches, strict=True)]
    return [apart.arrays for apart in found], forms


class _Apart:
    """Arrays that were found, by a name of its own each."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def form(self, value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray):
            while name in self.arrays:
                name += "'"
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, dict):
            return {"dict": [[key, self.form(item, inside(name, key))] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            items = [self.form(item, inside(name, place)) for place, item in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": items}
        return {"float": repr(value)} if isinstance(value, float) else {"value": value}


def put_together(batches: Sequence[Mapping[str, Array]], forms: Sequence[Any] | None) -> tuple[dict[str, Any], ...]:
    """Undo `taken_apart`; without forms, as folders of older versions are, each array stands by its name.

    Raises ValueError, KeyError or TypeError for forms that it did not make.
    """
    if forms is None:
        return tuple(map(dict, batches))
    return tuple(_made(form, arrays) for form, arrays in zip(forms, batches, strict=True))


def _made(form: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    ((kind, content),) = form.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: _made(item, arrays) for key, item in content}
    if kind in ("list", "tuple"):
        items = [_made(item, arrays) for item in content]
        return items if kind == "list" else tuple(items)
    return float(content) if kind == "float" else content


# One training step of a side, summed up: what it did to each parameter and buffer.


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
        called = frozenset(self._called)
        return TrainingStep(self._loss, self._parameters, self._buffers, called, self._updates, self._outputs)


class _SummaryWithOutputs(_Summary):
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

    def __exit__(self, *error: object) -> None:
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


def _held(
    norms: Sequence[tuple[str, Model, dict[str, Any]]], drops: Sequence[tuple[str, Model, dict[str, Any]]]
) -> Frozen:
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
