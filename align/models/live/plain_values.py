"""What models return that is no tensor, array or object: numbers, texts, bytes, members of Enums, sets and ranges.

All become one array each, which is held against the other side's exactly (floats within their limits).
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_numeric
from align.models.nested_values import leaves
from align.models.thresholds import LONGEST_DECIMAL_BITS, LONGEST_RANGE

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.trace_metadata import PartKind

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_TEXT_DTYPES = "USTO"  # kinds of dtypes of NumPy's that may hold texts


def plain_array(value: Any, floats: str) -> tuple[Array, PartKind] | None:
    """An array that stands for a plain value, and of what kind that is; None for anything else.

    `floats` is the dtype of Python's floats. Texts are their bytes, several texts those of a JSON list; sets are
    sorted. Whole numbers that no integer dtype holds are texts too, so that each digit counts.
    """
    raw = _raw(value)
    if raw is not None:
        return np.frombuffer(raw, np.uint8), "text"
    numbers = _numbers(value)
    if numbers is None:
        return None
    if (whole := _whole_numbers(value, numbers)) is not None:
        return np.frombuffer(whole.encode(), np.uint8), "text"
    if numbers.dtype == np.float64:
        numbers = _rounded(numbers, floats)
    elif numbers.dtype == np.complex128:
        numbers = _rounded(numbers, "complex128" if floats == "float64" else "complex64")
    return (numbers, "number") if is_numeric(numbers.dtype.name) else None


def plain_values(leaf: Any, name: str, other: Array) -> dict[str, Any]:
    """What takes the place of a plain value called `name`, of its type, by the names of its leaves; {} if it stays."""
    if isinstance(leaf, Enum):
        return _member(leaf, name, other)
    if (numbers := _numbers(leaf)) is not None and _whole_numbers(leaf, numbers) is not None:
        return {}
    if isinstance(leaf, (str, bytes, bytearray)):
        raw = bytes(other.tolist())
        return {name: raw.decode("utf-8", "replace") if isinstance(leaf, str) else type(leaf)(raw)}
    if isinstance(leaf, (set, frozenset)):
        return {name: type(leaf)(other.tolist())} if _all(leaf, _NUMBERS) else {}
    if isinstance(leaf, (range, np.ndarray)):
        return {name: other.tolist()} if isinstance(leaf, range) else {}
    pairs = zip(leaves(leaf, name), other.reshape(-1).tolist(), strict=True)
    return {inner: old if isinstance(old, Enum) else type(old)(new) for (inner, old), new in pairs}


def _member(leaf: Enum, name: str, other: Array) -> dict[str, Any]:
    """The member of the same Enum of that name, or of that number; it stays where there is none."""
    members = {raw: one for one in type(leaf) if (raw := _raw(one)) is not None}
    found = members.get(bytes(other.tolist())) if other.ndim else None
    return {} if found is None else {name: found}


def _raw(value: Any) -> bytes | None:
    """The bytes of a text, of bytes, of a member's name, and of several texts; None for anything else."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, Enum) and not isinstance(value, (str, *_NUMBERS)):
        return str(value.name or value).encode("utf-8", "surrogatepass")
    if isinstance(value, np.ndarray) and value.dtype.kind in _TEXT_DTYPES and not value.ndim:
        return _raw(value.item())
    text = value if isinstance(value, str) else _listed(value)
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _listed(value: Any) -> str | None:
    """Several texts as a JSON list: those of a set sorted, those of an array nested by its shape."""
    if isinstance(value, (set, frozenset)) and value and _all(value, (str, bytes, Enum)) and not _all(value, _NUMBERS):
        return json.dumps(sorted(map(_word, value)), ensure_ascii=False)
    if isinstance(value, np.ndarray) and value.dtype.kind in _TEXT_DTYPES and _all(value.flat, (str, bytes)):
        return json.dumps(value.tolist(), ensure_ascii=False, default=_word)
    return None


def _word(value: Any) -> str:
    raw = _raw(value)
    return "" if raw is None else raw.decode("utf-8", "surrogateescape")


def _numbers(value: Any) -> Array | None:
    """A number, and numbers in lists of equal lengths, sets and ranges, as an array of their own dtype."""
    if isinstance(value, range):
        steps = (value.stop - value.start) // value.step
        return np.asarray(value, None if value else np.int64) if steps <= LONGEST_RANGE else None
    if isinstance(value, (set, frozenset)):
        if not value:
            return np.empty(0, np.int64)
        return np.sort(np.asarray([*value])) if _all(value, _NUMBERS) else None
    return None if _shape(value) is None else np.asarray(value)


def _whole_numbers(value: Any, numbers: Array) -> str | None:
    """The digits of whole numbers of Python's of which one is too large for the array; None for all others."""
    if numbers.dtype.kind in "biu":
        return None
    listed = sorted(value) if isinstance(value, (set, frozenset)) else [*value] if isinstance(value, range) else value
    return _digits(listed) if all(isinstance(one, (int, np.integer)) for _, one in leaves(listed)) else None


def _digits(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_digits, value))}]"
    whole = int(value)
    return str(whole) if whole.bit_length() <= LONGEST_DECIMAL_BITS else hex(whole)


def _all(values: Any, kinds: tuple[type, ...]) -> bool:
    return all(isinstance(one, kinds) for one in values)


def _rounded(array: Array, dtype: str) -> Array:
    """Numbers of Python carry the rounding of the tensors that they were made from; what is too large stays."""
    with np.errstate(over="ignore"):
        rounded = array.astype(dtype)
    return rounded if np.array_equal(np.isfinite(rounded), np.isfinite(array)) else array


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of numbers in lists and tuples of equal lengths; None for anything else, and for empty lists."""
    if isinstance(value, _NUMBERS):
        return ()
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields") or not value:
        return None
    shapes = {_shape(item) for item in value}
    shape = shapes.pop()
    return None if shapes or shape is None else (len(value), *shape)
