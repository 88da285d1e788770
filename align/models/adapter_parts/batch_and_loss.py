"""What a training step is given and returns: arrays that go to the model, or to its loss, and the number of the loss.

The names of the model's parameters tell which arrays are its inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_float
from align.core.training import BatchParts
from align.errors import CannotRunError, InputsError
from align.models.nested_values import with_leaves
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.core.training import Training

_KINDS = inspect.Parameter
_BY_POSITION = (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
_BY_NAME = (_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY)


def split_batch(training: Training, batch: Batch, forward: Callable[..., Any]) -> BatchParts:
    """Which arrays of a batch go to the model, and which to its loss.

    Those that bear names of the model's parameters are its inputs, and without a loss all must. Where no name is the
    model's, it is given as many as it needs, in their order, if its loss takes what is left. A step of the user's own
    hands them out itself. Raises InputsError for a batch that fits neither the model nor its loss.
    """
    takes = _takes(forward)
    named = {name: batch[name] for name in batch if name in takes.names}
    if training.step is not None:
        first = named or {name: batch[name] for name in [*batch][: max(1, len(takes.needed))]}
        return BatchParts(first, _without(batch, first))
    inputs = dict(batch) if training.loss is None and takes.anything else named
    first = dict(_in_order(training, batch, takes)) if not inputs else {}
    parts = BatchParts(inputs or first, _without(batch, inputs or first), tuple(first))
    _refuse_unfit(training, batch, takes, parts)
    return parts


@dataclass(frozen=True, slots=True)
class _Takes:
    """What a function takes: by name, by position, what it `needs` of it, and whether it takes `anything` beside."""

    names: tuple[str, ...]
    places: tuple[str, ...]
    needed: tuple[str, ...]
    anything: bool


def _takes(function: Callable[..., Any]) -> _Takes:
    found = [*inspect.signature(function).parameters.values()]
    known = [one for one in found if one.kind in _BY_POSITION or one.kind in _BY_NAME]
    return _Takes(
        tuple(one.name for one in known if one.kind in _BY_NAME),
        tuple(one.name for one in known if one.kind in _BY_POSITION),
        tuple(one.name for one in known if one.default is one.empty),
        len(known) < len(found),
    )


def _without(batch: Batch, taken: Collection[str]) -> Batch:
    return {name: value for name, value in batch.items() if name not in taken}


def _in_order(training: Training, batch: Batch, takes: _Takes) -> Batch:
    """The inputs of a batch of which no name is the model's: its first arrays, where their number is known."""
    number = 1 if takes.anything else len(takes.needed) or len(takes.places)
    first = dict([*batch.items()][:number])
    fits = len(takes.places) >= number or takes.anything
    return first if fits and (training.loss is not None or len(batch) == number) else {}


def _refuse_unfit(training: Training, batch: Batch, takes: _Takes, parts: BatchParts) -> None:
    """Raise InputsError where the model or its loss would get too little, or what was not meant for it."""
    lacking = [] if parts.by_position or takes.anything else [name for name in takes.needed if name not in parts.inputs]
    fault = ""
    if not parts.inputs:
        fault = say("batch_fault.no_name_fits")
    elif lacking:
        fault = say("batch_fault.lacks", lacking=lacking)
    elif training.loss is None and parts.targets:
        fault = say("batch_fault.nothing_takes", targets=[*parts.targets])
    elif training.loss is not None and parts.targets:
        fault = _target_fault(training.loss, parts.targets)
    if fault:
        names = [*dict.fromkeys((*takes.places, *takes.names))] or ["nothing"]
        raise InputsError.of("batch_fault.unfit", batch=[*batch], takes=names, fault=fault)
    if training.loss is not None and not parts.targets and _target_fault(training.loss, ()):
        raise InputsError.of("batch_fault.nothing_for_loss", batch=[*batch])


def _target_fault(loss: Any, targets: Collection[str]) -> str:
    """Why a loss cannot take so many arrays beside the outputs; "" if it can, or does not tell what it takes."""
    function = getattr(loss, "construct", None) or getattr(loss, "forward", None) or loss
    try:
        found = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # of a function in C
        return ""
    places = [one for one in found if one.kind in _BY_POSITION][1:]
    most = inf if any(one.kind is _KINDS.VAR_POSITIONAL for one in found) else len(places)
    least = sum(one.default is one.empty for one in places)
    if least <= len(targets) <= most:
        return ""
    wanted = f"{least}" if least == most or len(targets) < least else f"{most}"
    return say("batch_fault.loss_takes", wanted=wanted, targets=[*targets])


def tensors_of(batch: Batch, parts: BatchParts, as_tensor: Callable[[Array], Any], label_dtype: str) -> dict[str, Any]:
    """The tensors of a batch by name, in lists, tuples and dicts as the arrays are; what is no array stays as it is.

    Integers get the dtype in which the framework's losses take labels, but those that the model takes as they are.
    """

    def tensor(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        return as_tensor(leaf if name in parts.inputs and name not in parts.targets else _label(leaf, label_dtype))

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
    found = [one for one in parts if _is_number(one) and is_float(np.asarray(one).dtype.name)]
    if not found or (len(found) > 1 and parts[0] is not found[0]):
        fault = "step_loss.several_numbers" if found else "step_loss.no_single_number"
        raise CannotRunError.of(fault, kinds=[_kind(one) for one in parts])
    return found[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.size(value) == 1


def _kind(value: Any) -> str:
    return f"array of {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
