"""Which arrays of a batch go to the model and which to its loss, as their names say it, or else their order.

Names are looked at first, those of the model's parameters and those of the loss's; what bears none goes by position
where one way alone fits both. What was taken for what is told with the parts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import is_float
from align.core.training import BatchParts, LabelClasses
from align.errors import CannotRunError, InputsError, UserCodeError
from align.models.live_calls import items_of, leaves, note_labels, with_leaves
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.errors import AlignError

    Shape = tuple[int, ...]


_KINDS = inspect.Parameter
_BY_POSITION = (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
_BY_NAME = (_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY)
_NO_OUTPUT = ("label", "target", "truth")  # in the names of parameters of a loss that no output of a model is meant for


def split_batch(training: Training, batch: Batch, forward: Callable[..., Any]) -> BatchParts:
    """Which arrays of a batch go to the model, and which to its loss.

    Those that bear names of the model's parameters are its inputs, and without a loss all must. Those that bear names
    of the loss's go there. Where no name is the model's, it is given as many as it needs, in their order, if its loss
    takes what is left. A loss that takes more than the outputs and what is left is given the outputs one by one. A step
    of the user's own hands them out itself. Raises InputsError for a batch that fits neither the model nor its loss.
    """
    takes = _takes(forward)
    if training.step is not None:
        named = {name: batch[name] for name in batch if name in takes.names}
        first = named or {name: batch[name] for name in [*batch][: max(1, len(takes.needed))]}
        return BatchParts(first, _others(batch, first))
    return _Split(batch, takes, None if training.loss is None else _loss_takes(training.loss)).parts()


@dataclass(frozen=True, slots=True)
class _Takes:
    """What a function takes: by name, by position, what it `needs` of it, and whether it takes `anything` beside."""

    names: tuple[str, ...]
    places: tuple[str, ...]
    needed: tuple[str, ...]
    anything: bool
    endless: bool

    @property
    def shown(self) -> list[str]:
        return [*dict.fromkeys((*self.places, *self.names))] or ["nothing"]


def _takes(function: Callable[..., Any]) -> _Takes:
    parameters = [*inspect.signature(function).parameters.values()]
    known = [parameter for parameter in parameters if parameter.kind in _BY_POSITION or parameter.kind in _BY_NAME]
    return _Takes(
        tuple(parameter.name for parameter in known if parameter.kind in _BY_NAME),
        tuple(parameter.name for parameter in known if parameter.kind in _BY_POSITION),
        tuple(parameter.name for parameter in known if parameter.default is parameter.empty),
        len(known) < len(parameters),
        any(parameter.kind is _KINDS.VAR_POSITIONAL for parameter in parameters),
    )


def _loss_takes(loss: Any) -> _Takes:
    """What a loss takes; of a function in C, which does not tell it, anything."""
    function = getattr(loss, "construct", None) or getattr(loss, "forward", None) or loss
    try:
        return _takes(function)
    except (TypeError, ValueError):
        return _Takes((), (), (), anything=True, endless=True)


def _others(batch: Batch, taken: Iterable[str]) -> Batch:
    left_out = set(taken)
    return {name: value for name, value in batch.items() if name not in left_out}


class _Split:
    """One batch, and what the model and its loss take; `loss` is None where the model returns its own."""

    def __init__(self, batch: Batch, model: _Takes, loss: _Takes | None) -> None:
        self._batch, self._model, self._loss = batch, model, loss
        named = [name for name in batch if name in model.names]
        wanted = () if loss is None else (*loss.places[1:], *(one for one in loss.names if one not in loss.places))
        beside = {one for one in wanted if loss and one in loss.names}
        self._named_inputs = named
        self._for_both = tuple(name for name in named if loss and name in beside and name in loss.needed)
        self._named_targets = [name for name in batch if name in beside and name not in named] + [*self._for_both]
        self._unnamed = [name for name in batch if name not in named and name not in beside]

    def parts(self) -> BatchParts:
        if self._loss is None:
            return self._of_model_alone()
        inputs, taken_as = self._inputs(self._loss)
        lacking = [one for one in self._model.needed if one not in inputs and one not in taken_as.values()]
        by_position = tuple(name for name in inputs if name not in self._named_inputs)
        if not inputs:
            raise self._unfit(say("batch_fault.no_name_fits"))
        if lacking and not self._model.anything and not (by_position and not taken_as):
            raise self._unfit(say("batch_fault.lacks", lacking=lacking))
        left = [name for name in self._unnamed if name not in inputs]
        renamed = taken_as if self._named_inputs else {}
        return self._with_targets(self._loss, BatchParts(inputs, {}, by_position, renamed, taken_as), left)

    def _of_model_alone(self) -> BatchParts:
        takes = self._model
        if takes.anything:
            return BatchParts(dict(self._batch), {})
        lacking = [name for name in takes.needed if name not in self._named_inputs]
        wanted = lacking or ([] if self._named_inputs else [*takes.places])
        if len(self._unnamed) == len(wanted):
            taken_as = dict(zip(self._unnamed, wanted, strict=True))
            renamed = taken_as if self._named_inputs else {}
            return BatchParts(dict(self._batch), {}, tuple(taken_as), renamed, taken_as)
        if not self._named_inputs:
            raise self._unfit(say("batch_fault.no_name_fits"))
        if lacking:
            raise self._unfit(say("batch_fault.lacks", lacking=lacking))
        raise self._unfit(say("batch_fault.nothing_takes", targets=self._unnamed))

    def _inputs(self, loss: _Takes) -> tuple[Batch, dict[str, str]]:
        """The inputs of the model, and of those that no name says the parameters that they are taken for."""
        takes, left = self._model, self._unnamed
        complete = set(self._named_targets) >= {*loss.needed} - {*loss.places[:1]} and bool(self._named_targets)
        free = [one for one in takes.places if one not in self._named_inputs]
        needed = [one for one in free if one in takes.needed]
        if any(not _is_plain(self._batch[name]) for name in self._named_inputs):
            chosen = left if complete and len(left) == len(needed) else []
            free = needed
        elif complete and not takes.anything:
            chosen = left if len(needed) <= len(left) <= len(free) else []
        else:
            number = 1 if takes.anything else len(needed) or len(free)
            chosen = left[:number] if len(free) >= number or takes.anything else []
        names = {*self._named_inputs, *chosen}
        taken_as = dict(zip(chosen, free, strict=False))
        return {name: value for name, value in self._batch.items() if name in names}, taken_as

    def _with_targets(self, loss: _Takes, parts: BatchParts, left: list[str]) -> BatchParts:
        """The parts with what the loss gets: it takes the outputs as one, or as many of them as nothing else is for."""
        most = sum(one in loss.needed for one in loss.places)
        for outputs in range(1, max(1, most) + 1):
            taken_as = self._assigned(loss, outputs, left)
            if taken_as is not None:
                break
        else:
            raise self._target_fault(loss, left)
        given = {name: taken_as.get(name, name) for name in (*self._named_targets, *left)}
        return self._ordered(loss, parts, given, outputs)

    def _assigned(self, loss: _Takes, outputs: int, left: list[str]) -> dict[str, str] | None:
        """What arrays without a name are taken for if the first parameters take outputs; None: it does not fit."""
        for_outputs = loss.places[:outputs]
        if any(name in for_outputs for name in self._named_targets):
            return None
        if any(word in one.lower() for one in for_outputs[1:] for word in _NO_OUTPUT):
            return None
        free = [one for one in loss.places[outputs:] if one not in self._named_targets]
        taken_as = dict(zip(left, free, strict=False))
        filled = {*for_outputs, *self._named_targets, *taken_as.values()}
        fits = len(left) <= len(free) or loss.endless
        return taken_as if fits and filled >= {*loss.needed} else None

    def _ordered(self, loss: _Takes, parts: BatchParts, given: Mapping[str, str], outputs: int) -> BatchParts:
        """The targets in the order of the loss's parameters; behind one that gets nothing they go by keyword."""
        by_parameter = {parameter: name for name, parameter in given.items()}
        places = loss.places[outputs:]
        filled = [parameter in by_parameter for parameter in places]
        end = filled.index(False) if False in filled else len(places)
        keywords = {
            by_parameter[parameter]: parameter
            for parameter in (*places[end:], *loss.names)
            if parameter in by_parameter
        }
        keywords = {name: parameter for name, parameter in keywords.items() if parameter not in places[:end]}
        first = [by_parameter[parameter] for parameter in places[:end]]
        rest = [name for name in given if name not in first and name not in keywords]
        several = loss.places[:outputs] if outputs > 1 else ()
        guessed = {name: parameter for name, parameter in given.items() if name != parameter}
        noted = guessed if several or len(guessed) > 1 else {}
        return BatchParts(
            parts.inputs,
            {name: self._batch[name] for name in (*first, *rest, *keywords)},
            parts.by_position,
            parts.renamed,
            parts.taken_as,
            keywords,
            several,
            noted,
            self._for_both,
        )

    def _unfit(self, fault: str) -> InputsError:
        return InputsError.of("batch_fault.unfit", batch=[*self._batch], takes=self._model.shown, fault=fault)

    def _target_fault(self, loss: _Takes, left: list[str]) -> InputsError:
        """Why a loss cannot take what is left for it."""
        targets = [name for name in self._batch if name in {*self._named_targets, *left}]
        if not targets:
            return InputsError.of("batch_fault.nothing_for_loss", batch=[*self._batch])
        beside = loss.places[1:]
        most = inf if loss.endless else len(beside)
        least = sum(one in loss.needed for one in beside)
        wanted = f"{least}" if least == most or len(targets) < least else f"{most}"
        return self._unfit(say("batch_fault.loss_takes", wanted=wanted, targets=targets))


def _is_plain(value: Any) -> bool:
    return items_of(type(value)) is None and not hasattr(value, "shape")  # type: ignore[arg-type]


def call_loss(loss: Callable[..., Any], outputs: Any, given: Mapping[str, Any], parts: BatchParts) -> Any:
    """What the loss makes of the model's outputs and of its part of the tensors of a batch.

    Of a dict it is `loss`. Raises InputsError for outputs that are not as many as the loss takes one by one.
    """
    own = _one_by_one(outputs, parts) if parts.outputs else (outputs,)
    targets = (given[name] for name in parts.targets if name not in parts.keywords)
    made = loss(*own, *targets, **{parameter: given[name] for name, parameter in parts.keywords.items()})
    return made["loss"] if isinstance(made, Mapping) and "loss" in made else made


def _one_by_one(outputs: Any, parts: BatchParts) -> tuple[Any, ...]:
    """The outputs that a loss takes one by one: by its names for them if they have these, else by position."""
    names = parts.outputs
    if isinstance(outputs, Mapping) and all(name in outputs for name in names):
        return tuple(outputs[name] for name in names)
    if not isinstance(outputs, Mapping) and all(hasattr(outputs, name) for name in names):
        return tuple(getattr(outputs, name) for name in names)
    if isinstance(outputs, (tuple, list)) and len(outputs) == len(names):
        return tuple(outputs)
    if not parts.targets and not isinstance(outputs, (tuple, list, Mapping)):
        raise InputsError.of("batch_fault.nothing_for_loss", batch=[*parts.inputs])
    count = len(outputs) if isinstance(outputs, (tuple, list)) else 1
    returned = say("batch_fault.returned_count", count=count)
    if isinstance(outputs, Mapping):
        returned = say("batch_fault.returned_dict", names=[*map(str, outputs)] or ["nothing"])
    targets = [*parts.targets] or ["nothing"]
    raise InputsError.of("batch_fault.other_outputs", outputs=[*names], targets=targets, returned=returned)


def call_arguments(parts: BatchParts, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the model is given of the tensors of a batch, by the names that it has for them where they are known."""
    return {parts.renamed.get(name, name): given[name] for name in parts.inputs}


# What a training step is given and returns: the tensors of a batch, and the number of the loss.


def tensors_of(
    batch: Batch, parts: BatchParts, as_tensor: Callable[[Array], Any], label_dtype: str, *, widened: bool = False
) -> dict[str, Any]:
    """The tensors of a batch by name, in lists, tuples and dicts as the arrays are; what is no array stays as it is.

    Integers get the dtype in which the framework's losses take labels, but those that the model takes as they are. Of
    these int32 are `widened` too: a step of the user's own may take its labels from what the model is given.
    """

    def tensor(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        kept = name in parts.inputs and name not in parts.targets and not (widened and leaf.dtype == np.int32)
        return as_tensor(leaf if kept else _label(leaf, label_dtype))

    return dict(with_leaves(dict(batch), tensor))


def _label(value: Array, dtype: str) -> Array:
    """Integers in another dtype, if it holds them."""
    if value.dtype.kind not in "iu" or not value.size:
        return value
    limits = np.iinfo(dtype)
    return value.astype(dtype) if limits.min <= value.min() and value.max() <= limits.max else value


def scalar(loss: Any) -> float | None:
    """A loss as a number, None if there is none; raises CannotRunError for one of several elements."""
    if loss is None:
        return None
    if _is_number(loss):
        return float(np.asarray(loss).astype(np.float64).reshape(()))
    raise CannotRunError.of("step_loss.no_number", got=_kind(loss))


def own_loss(outputs: Any) -> Any:
    """The loss of a model that returns its own: all of it, what it calls `loss`, or the first of several.

    Raises CannotRunError if there is none.
    """
    if isinstance(outputs, (tuple, list)):
        loss = next(iter(outputs), None)
    else:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", outputs)
    if loss is None:
        raise CannotRunError.of("step_loss.none")
    return loss


def loss_of_step(returned: Any, to_array: Callable[[Any], Any]) -> float | None:
    """The loss in what a step returned, None for nothing: all of it, `loss` of a dict or object, or the first number.

    `to_array` turns a framework's tensor into an array and leaves all else. Raises CannotRunError where it is not
    clear which of several parts is the loss.
    """
    value = to_array(returned)
    if isinstance(value, Mapping):
        if "loss" not in value:
            raise CannotRunError.of("step_loss.not_in_dict", names=[*map(str, value)] or ["nothing"])
        value = to_array(value["loss"])
    elif hasattr(value, "loss"):
        value = to_array(value.loss)
    elif isinstance(value, (tuple, list)):
        value = _first_number([to_array(one) for one in value])
    return scalar(value)


def _first_number(parts: list[Any]) -> Any:
    """The loss among several parts: the first one, or the only one that is a floating number."""
    numbers = [part for part in parts if _is_number(part) and is_float(np.asarray(part).dtype.name)]
    if not numbers or (len(numbers) > 1 and parts[0] is not numbers[0]):
        fault = "step_loss.several_numbers" if numbers else "step_loss.no_single_number"
        raise CannotRunError.of(fault, kinds=[_kind(one) for one in parts])
    return numbers[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.size(value) == 1


def _kind(value: Any) -> str:
    return f"array of {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


# Labels that are no class of the outputs, found before a loss takes them.
#
# Nobody can rely on a framework there: torch raises on a CPU and ends all later work on a GPU, MindSpore raises,
# takes another class, leaves the label out, returns infinity or ends the process, depending on the operator. So what
# takes labels as indices of classes is looked at first; whatever else raises over an index is explained afterwards.

# What frameworks say of an index that there is not.
_OF_AN_INDEX = re.compile(r"out of (bounds|range)|must be in|does not index|must be smaller than|device-side assert")


@dataclass(frozen=True)
class LabelCheck:
    """Looks at labels that a step makes of the arrays of a batch that are not the model's own."""

    targets: Batch

    def look(self, classes: int, labels: Array, ignored: int | None = None) -> None:
        """Raise InputsError for labels that are none of so many classes, and not the one that is ignored."""
        if labels.dtype.kind in "iu" and (name := self._named(labels)):
            axes = np.ndim(dict(leaves(self.targets))[name]) - 1
            note_labels(LabelClasses(name, axes, classes, ignored))
        if labels.dtype.kind in "iu" and (fault := self._fault(classes, labels, ignored)):
            raise fault

    def look_from_one(self, classes: int, labels: Array) -> None:
        """Raise InputsError for labels of the batch that begin with 1, and end with the number of classes.

        For what makes nothing of other labels on purpose, as one-hot rows are made.
        """
        from_one = labels.size and labels.dtype.kind in "iu" and labels.min() >= 1 and labels.max() == classes
        if from_one and self._named(labels):
            self.look(classes, labels)

    def checked(self, step: Callable[[], Any], output_shapes: Sequence[Shape], framework: str) -> Any:
        """What a step returns; its error is one of labels if it is of an index, and labels of the batch explain it."""
        step_name = say("model_error.training_step", framework=framework)

        def failed(error: BaseException) -> AlignError:
            whole = (
                array for array in self.targets.values() if isinstance(array, np.ndarray) and array.dtype.kind in "iu"
            )
            of_index = _OF_AN_INDEX.search(str(error))
            pairs = product(whole, output_shapes) if of_index else ()  # lists hold no row a sample
            found = ((labels, _class_count(shape, labels)) for labels, shape in pairs)
            faults = (self._fault(classes, labels, None) for labels, classes in found if classes)
            return next((fault for fault in faults if fault), None) or UserCodeError(step_name, error)

        return run_user_code(step, failed)

    def _fault(self, classes: int, labels: Array, ignored: int | None) -> InputsError | None:
        counted = labels if ignored is None else labels[labels != ignored]
        least, most = (int(counted.min()), int(counted.max())) if counted.size else (0, 0)
        if least >= 0 and most < classes:
            return None
        name = self._named(labels) or say("batch_fault.labels_made")
        ends = {"least": least, "most": most}
        return InputsError.of("batch_fault.labels_beyond", name=name, last=classes - 1, classes=classes, **ends)

    def _named(self, labels: Array) -> str:
        """The name of the array of the batch that holds these labels, in whatever shape; "" if there is none."""
        flat = labels.ravel()
        same = (name for name, value in _integers(self.targets) if np.array_equal(value.ravel(), flat))
        return next(same, "")


def _integers(targets: Batch) -> list[tuple[str, Array]]:
    return [(name, one) for name, one in leaves(targets) if isinstance(one, np.ndarray) and one.dtype.kind in "iu"]


def _class_count(outputs: Shape, labels: Array) -> int:
    """How many classes outputs have of which there is a row for each label; 0 if there is none."""
    if len(outputs) < 2 or not labels.size:
        return 0
    for axis in dict.fromkeys((1, len(outputs) - 1)):
        rows = outputs[:axis] + outputs[axis + 1 :]
        if labels.shape in (rows, (*rows, 1), (int(np.prod(rows)),)):
            return outputs[axis]
    return 0


@contextmanager
def replaced(places: Iterable[tuple[Any, str, Callable[[Any], Any]]]) -> Iterator[None]:
    """Let what is made of attributes of modules or classes stand for these for a while.

    Those that there are not are passed over: frameworks keep some of these names to themselves, and may rename them.
    """
    with ExitStack() as stack:
        for owner, name, make in places:
            if (before := getattr(owner, name, None)) is not None:
                own = name in vars(owner)  # else a class has it from the class that it is derived from
                stack.callback(*((setattr, owner, name, before) if own else (delattr, owner, name)))
                setattr(owner, name, make(before))
        yield


def looked_at(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls `look` with its arguments first."""

    def passed_on_to_framework(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return function(*args, **kwargs)

    return passed_on_to_framework


def class_count(shape: Sequence[int]) -> int:
    """How many classes outputs of this shape have, as losses take them: along axis 1, of a lone row along axis 0."""
    return shape[1] if len(shape) > 1 else shape[0] if shape else 0
