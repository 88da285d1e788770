"""What a call returned, part by part: tensors, and what else can be held against another one's.

Of inner modules arrays count beside tensors. What the model itself returns is what its user gets: numbers, texts, sets
of them and what public attributes of objects hold are taken too, each as one array; all that cannot be is listed.
A module often returns what the last one inside it returned: the very same tensor, which need not be looked at again.
That takes a framework that counts how often a tensor was written to, as torch does (but for writes through `.data`);
MindSpore's `_version` stays 0.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import is_numeric
from align.models.nested_values import inside, items_of, leaves
from align.models.thresholds import DEEPEST_OBJECT, LONGEST_DECIMAL_BITS, LONGEST_RANGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.trace_metadata import ContainerKind, PartKind
    from align.core.traces import Capture

INNER = ""  # in the place of the dtype of numbers: only tensors and arrays count
Writes = Callable[[Any], int | None]
"""How often a tensor was written to, None where nobody counts."""


@dataclass(frozen=True, slots=True)
class Returned:
    """One part: the array that stands for it, and what the model returned; `kind` is None for a tensor.

    What is in an object may be a tensor or not: `is_tensor`.
    """

    name: str
    array: Array
    leaf: Any
    kind: PartKind | None = None
    is_tensor: bool = True


@dataclass
class ReturnedValues:
    """All parts in order; what was left out by name, with what it is (`a Config object`, `None`); the containers."""

    found: list[Returned] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    containers: dict[str, ContainerKind] = field(default_factory=dict)

    def kinds(self) -> dict[str, PartKind]:
        """The kinds of all parts that are no tensors."""
        return {one.name: one.kind for one in self.found if one.kind is not None}


def taken_apart(value: Any, to_array: Callable[[Any], Array | None], floats: str) -> ReturnedValues:
    """Take what a call returned apart; `floats` is the dtype of Python's floats, INNER where only arrays count."""
    parts = _Parts(to_array, floats)
    if floats == INNER:
        for name, leaf in leaves(value):
            parts.add_array(name, leaf)
    else:
        parts.add(value, "", ())
    return parts.values


def given_back(part: Returned, other: Array, from_array: Callable[[Array, Any], Any]) -> dict[str, Any]:
    """What takes the place of a part, of the same kind, by the names of its leaves; nothing inside an object."""
    leaf = part.leaf
    if part.kind is None:
        return {part.name: from_array(other, leaf)}
    if part.kind == "array":
        return {part.name: np.asarray(other, leaf.dtype)}
    if part.kind in ("text", "number"):
        return plain_values(leaf, part.name, other)
    return {}


class _Parts:
    def __init__(self, to_array: Callable[[Any], Array | None], floats: str) -> None:
        self._to_array, self._floats = to_array, floats
        self.values = ReturnedValues()

    def add_array(self, name: str, value: Any, kind: PartKind | None = None) -> bool:
        """Take a tensor or an array; return whether it is one."""
        array = self._to_array(value)
        is_tensor = array is not None
        if array is None and isinstance(value, np.ndarray) and is_numeric(value.dtype.name):
            array, kind = value, kind or "array"
        if array is not None:
            self.values.found.append(Returned(name, array, value, kind, is_tensor))
        return array is not None

    def add(self, value: Any, name: str, around: tuple[int, ...], kind: PartKind | None = None) -> None:
        """Take all that is in a value; `around` are the ids of what it stands in, `kind` is of parts of objects."""
        items = items_of(type(value))  # type: ignore[arg-type]  # mypy takes no class for hashable
        if items is None and self.add_array(name, value, kind):
            return
        plain = None if kind == "cache" else plain_array(value, self._floats)
        if plain is not None:
            array, own = plain
            self.values.found.append(Returned(name, array, value, own if kind is None else kind, is_tensor=False))
            return
        inner, kind = (items(value), kind) if items is not None else _attributes(value, kind)
        if inner is None or id(value) in around or len(around) >= DEEPEST_OBJECT:
            if kind != "cache":
                self.values.left_out[name] = _called(value)
            return
        self.values.containers[name] = _container(value, kind, name, self.values.containers)
        for key, item in inner:
            self.add(item, inside(name, key), (*around, id(value)) if items is None else around, kind)


def _attributes(value: Any, kind: PartKind | None) -> tuple[list[tuple[str, Any]] | None, PartKind]:
    """The public attributes that an object holds itself (no property is asked), None for what is no plain object.

    Of a cache of keys and values the tensors count alone, whatever it keeps beside them.
    """
    cache = kind == "cache" or any("Cache" in base.__name__ for base in type(value).__mro__)
    part: PartKind = "cache" if cache else "attribute"
    if callable(value) or hasattr(type(value), "__next__") or isinstance(value, io.IOBase):
        return None, part
    held = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if not slot.startswith("_") and hasattr(value, slot):
                held.setdefault(slot, getattr(value, slot))
    public = [(key, item) for key, item in held.items() if not key.startswith("_")]
    return public or None, part


def _container(value: Any, kind: PartKind | None, name: str, known: Mapping[str, ContainerKind]) -> ContainerKind:
    """What a value is that holds others; of what is inside a cache none is called one."""
    if isinstance(value, (tuple, list)):
        return "list"
    within = any(held == "cache" and (not one or name.startswith(f"{one}.")) for one, held in known.items())
    return "cache" if kind == "cache" and not within else "object"


def _called(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return f"{'a class' if isinstance(value, type) else 'a function'}, {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name} object"


def no_write_count(_tensor: Any) -> int | None:
    """Nobody counts."""
    return None


class LatestTensors:
    """The tensors of the call that ended last; they stay alive meanwhile, so that none is mistaken for another."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._known: list[tuple[Any, int, Capture]] = []
        self._new: list[tuple[Any, int, Capture]] = []

    def same(self, tensor: Any) -> Capture | None:
        """The capture of the last call that is this tensor, not written to since; None if there is none."""
        for known, before, capture in self._known:
            if known is tensor and before == self._writes(tensor):
                return capture
        return None

    def note(self, tensor: Any, capture: Capture) -> None:
        """Take a tensor of the call that is about to end."""
        count = self._writes(tensor)
        if count is not None:
            self._new.append((tensor, count, capture))

    def finish(self) -> None:
        """From now on, what was noted is what the last call returned."""
        self._known, self._new = self._new, []


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
