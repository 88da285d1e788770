"""Transforms read back from their table form, as map files and records hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.dtypes import dtype_name, is_numeric, numpy_dtype
from align.core.piece_transforms import Crop, Pad, Part, Reorder, Slice
from align.core.transforms import IDENTITY, Cast, Chain, Permute, Reshape, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def parse_transform(table: Mapping[str, Any]) -> Transform:
    """Read the table form back; raises ValueError naming what is wrong."""
    fields = dict(table)
    op = fields.pop("op", None)
    form = _FORMS.get(op) if isinstance(op, str) else None
    if form is None:
        msg = f"unknown transform op {op!r}; known: {', '.join(_FORMS)}"
        raise ValueError(msg)
    try:
        return form.make(**_arguments(str(op), form, fields))
    except ValueError as error:
        msg = f"transform {dict(table)} is malformed: {error}"
        raise ValueError(msg) from error


class _Form(NamedTuple):
    """What makes the transform of an op, and how each thing is read that its table must and may say."""

    make: Callable[..., Transform]
    needed: dict[str, Callable[[str, Any], Any]]
    optional: dict[str, Callable[[str, Any], Any]]


def _arguments(op: str, form: _Form, fields: Mapping[str, Any]) -> dict[str, Any]:
    known = form.needed | form.optional
    if unknown := sorted(fields.keys() - known):
        msg = f"{op} takes {', '.join(form.needed) or 'nothing else'}, not {', '.join(unknown)}"
        raise ValueError(msg)
    if missing := [name for name in form.needed if name not in fields]:
        msg = f"{op} needs {', '.join(missing)}"
        raise ValueError(msg)
    return {_KEYWORDS.get(name, name): known[name](name, value) for name, value in fields.items()}


def _steps(_: str, tables: object) -> tuple[Transform, ...]:
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        msg = f"steps must be a list of transforms; got {tables!r}"
        raise ValueError(msg)
    if any(table.get("op") == "chain" for table in tables):
        msg = "a chain holds single steps, no chains"
        raise ValueError(msg)
    ops = [table.get("op") for table in tables]
    if "part" in ops and set(ops[ops.index("part") :]) != {"part"}:
        msg = "a part must be the last step of a chain, or before other parts"
        raise ValueError(msg)
    return tuple(parse_transform(table) for table in tables)


def _count(what: str, value: object) -> int:
    if type(value) is not int or value < 0:
        msg = f"{what} must be a whole number that is not negative; got {value!r}"
        raise ValueError(msg)
    return value


def _counts(what: str, values: object) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or not all(type(n) is int and n >= 0 for n in values):
        msg = f"{what} must be a list of whole numbers, none of them negative; got {values!r}"
        raise ValueError(msg)
    return tuple(values)


def _permutation(what: str, values: object) -> tuple[int, ...]:
    numbers = _counts(what, values)
    if sorted(numbers) != list(range(len(numbers))):
        count, top = len(numbers), len(numbers) - 1
        msg = f"{what} must name each of {count} {what} once, from 0 to {top}; got {list(numbers)}"
        raise ValueError(msg)
    return numbers


def _blocks(what: str, values: object) -> tuple[int, ...]:
    if numbers := _permutation(what, values):
        return numbers
    msg = f"{what} must name at least one block"
    raise ValueError(msg)


def _dtype(_: str, name: object) -> str:
    try:
        canonical = dtype_name(numpy_dtype(name)) if isinstance(name, str) else ""
    except (TypeError, ValueError):
        canonical = ""
    if not is_numeric(canonical):
        msg = f"dtype must name numbers, such as float16; got {name!r}"
        raise ValueError(msg)
    return canonical


def _number(what: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        msg = f"{what} must be a number; got {value!r}"
        raise ValueError(msg)
    return float(value)


_KEYWORDS = {"from": "origin"}
_SPAN: dict[str, Callable[[str, Any], Any]] = {"axis": _count, "start": _count, "stop": _count}
_SIZE: dict[str, Callable[[str, Any], Any]] = {"axis": _count, "size": _count}
_FORMS = {
    "identity": _Form(lambda: IDENTITY, {}, {}),
    "reshape": _Form(Reshape, {"shape": _counts}, {"from": _counts}),
    "permute": _Form(Permute, {"axes": _permutation}, {}),
    "cast": _Form(Cast, {"dtype": _dtype}, {"from": _dtype}),
    "slice": _Form(Slice, _SPAN, {"from": _counts}),
    "part": _Form(Part, {**_SPAN, "shape": _counts}, {}),
    "crop": _Form(Crop, _SIZE, {"value": _number, "from": _count}),
    "pad": _Form(Pad, _SIZE, {"value": _number, "from": _count}),
    "reorder": _Form(Reorder, {"axis": _count, "blocks": _blocks}, {}),
    "chain": _Form(Chain, {"steps": _steps}, {}),
}
