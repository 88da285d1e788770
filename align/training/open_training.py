"""A side that can be trained: a model with its loss and optimizer, and the adapter that takes a step of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import CodeType, FunctionType, MethodType, NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_numeric, numpy_dtype
from align.core.training import StepTaker, Trainer, Training
from align.core.verdicts import Finding
from align.errors import CannotRunError, InputsError, SideError
from align.models.inputs import as_array, kind_of, named_values, read_batches, refuse_empty
from align.models.live_calls import inside, leaves
from align.models.open_side import Side, build_side, refuse_shared
from align.models.user_code import load_function
from align.training.thresholds import KEPT_VALUES
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
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
    made = load_function(given)() if isinstance(given, str) else given
    label = given if isinstance(given, str) else type(getattr(made, "model", made)).__name__
    training = _training(label, made)
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
    told = {
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
        for (code, key), names in told.items()
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


def _training(label: str, made: Any) -> Training:
    if isinstance(made, Training):
        return made
    if isinstance(made, dict) and "model" in made and made.keys() <= set(_PARTS):
        return Training(**made)
    if isinstance(made, tuple) and 1 < len(made) <= len(_PARTS):
        return Training(*made)
    error = SideError(label, say("training_reason.no_training", kind=type(made).__name__))
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
        """As the taker does; see StepTaker."""
        return self.taker.split_batch(training, batch)


@contextmanager
def kept_put_back(*keepers: object) -> Iterator[None]:
    """Put back what functions keep: in their closures, in globals that they name, in lists, tables and objects there.

    They get the values that they held. What happens inside of tensors, iterators and objects of frameworks stays; of
    the user's own modules and optimizers, as one that counts its calls, plain numbers and texts are put back.
    """
    kept = _Kept()
    for keeper in keepers:
        kept.visit(keeper)
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
        """Note what a value holds, and what that holds."""
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
        cells = [(cell, cell.cell_contents) for cell in function.__closure__ or () if _is_filled(cell)]
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
        plain = {name: own for name, own in attributes.items() if isinstance(own, _PLAIN_KEPT)}
        hidden = [name for name, own in plain.items() if name.startswith("_") and type(own) not in (int, float)]
        self.named.append((attributes, {name: own for name, own in plain.items() if name not in hidden}))
        lists = [own for own in attributes.values() if isinstance(own, list) and len(own) <= KEPT_VALUES]
        self.lists += [(own, [*own]) for own in lists if all(isinstance(one, _PLAIN_KEPT) for one in own)]
        return ()

    def put_back(self) -> None:
        """Give everything that was found what it held."""
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


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - to ask is the only way
    except ValueError:
        return False
    return True


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
    found = dict(leaves(batch))
    if unlike := [f"{name} ({kind_of(one)})" for name, one in found.items() if not _is_taken(one)]:
        raise InputsError.of("inputs_fault.unknown_values", unlike=unlike)
    refuse_empty(source, {name: one for name, one in found.items() if isinstance(one, np.ndarray)})
    return batch


def _value(value: Any) -> Any:
    """The value with arrays for tensors and numbers; what is of no known kind stays."""
    if isinstance(value, _PLAIN_IN_BATCH):
        return value
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        whole = as_array(value) if all(_is_number(one) for one in _items(value)) else None
        if whole is not None and not whole.dtype.hasobject:
            return _native(whole)
        return value if hasattr(value, "_fields") else type(value)(_value(item) for item in value)
    array = as_array(value)
    return value if array.dtype.hasobject else _native(array)


def _items(value: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    """The items of lists in lists."""
    for item in value:
        if isinstance(item, (list, tuple)):
            yield from _items(item)
        else:
            yield item


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.generic))


def _native(array: Array) -> Array:
    return array.astype(numpy_dtype(array.dtype.name), copy=False) if is_numeric(array.dtype.name) else array


def _is_taken(leaf: Any) -> bool:
    return is_numeric(leaf.dtype.name) if isinstance(leaf, np.ndarray) else isinstance(leaf, _PLAIN_IN_BATCH)


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
        """What a value is but for its arrays."""
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
