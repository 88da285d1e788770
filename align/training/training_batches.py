"""Batches of training steps as people have them: arrays, nested lists, tuples and dicts of arrays, and plain values.

What is no array is an argument of the model, of the loss or of the step, and is given to it as it is: a word, a
number of Python, a switch, None. In a file the arrays stand by name, and what is around them is told beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_numeric, numpy_dtype
from align.errors import InputsError
from align.models.inputs import as_array, kind_of, named_values, read_batches, refuse_empty
from align.models.nested_values import inside, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.models.inputs import InputsSource

_PLAIN = (bool, int, float, str, type(None))


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
    if isinstance(value, _PLAIN):
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
    return is_numeric(leaf.dtype.name) if isinstance(leaf, np.ndarray) else isinstance(leaf, _PLAIN)


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
