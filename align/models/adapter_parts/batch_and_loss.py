"""What a training step is given and returns: the tensors of a batch, and the number of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_float
from align.errors import CannotRunError
from align.models.nested_values import with_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.core.training import BatchParts


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
    found = [one for one in parts if _is_number(one) and is_float(np.asarray(one).dtype.name)]
    if not found or (len(found) > 1 and parts[0] is not found[0]):
        fault = "step_loss.several_numbers" if found else "step_loss.no_single_number"
        raise CannotRunError.of(fault, kinds=[_kind(one) for one in parts])
    return found[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray, np.generic)) and np.size(value) == 1


def _kind(value: Any) -> str:
    return f"array of {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
