"""What the user allows single layers, as the project file and the command line write it.

[limits]
"decoder.*.softmax" = 3.0                    # a multiple of the measured limit
"head" = { max_abs = 1e-3, rmse = 1e-4 }     # absolute, in the layer's units

[[accepted]]
layer = "*.tanh"
reason = "the kernel on the CPU is off by 1e-4 where |x| > 5"
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from align.errors import UsageError
from align.forward.allowances import AcceptedDeviation, Allowances, LayerLimit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BOUNDS = {"max_abs", "rmse"}


def read_allowances(document: dict[str, Any]) -> Allowances:
    """Return the tables `limits` and `accepted` of a document without faults."""
    limits = tuple(
        LayerLimit(glob, **value) if isinstance(value, dict) else LayerLimit(glob, factor=float(value))
        for glob, value in document.get("limits", {}).items()
    )
    return Allowances(limits, tuple(AcceptedDeviation(one["layer"], one["reason"]) for one in _accepted(document)))


def allowance_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield all that is wrong with the tables."""
    limits = document.get("limits", {})
    if not isinstance(limits, dict):
        yield "[limits] must be a table"
    else:
        for glob, value in limits.items():
            yield from (f"[limits] {glob!r} {fault}" for fault in _limit_faults(value))
    yield from _accepted_faults(document)


def read_limits(texts: Sequence[str]) -> tuple[LayerLimit, ...]:
    """Read `GLOB=VALUE`, a multiple of the measured limit each; raises UsageError listing those that are none."""
    wrong = [text for text in texts if not _is_bound(_multiple(text))]
    if wrong:
        hint = "write GLOB=VALUE with a multiple of the limit, such as 'decoder.*.softmax=3'"
        raise UsageError(f"--limit cannot be used: {', '.join(map(repr, wrong))}", hint)
    return tuple(LayerLimit(text.rpartition("=")[0], factor=_multiple(text)) for text in texts)


def _multiple(text: str) -> float | None:
    _, separator, value = text.rpartition("=")
    try:
        return float(value) if separator else None
    except ValueError:
        return None


def _limit_faults(value: object) -> Iterator[str]:
    if not isinstance(value, dict):
        if not _is_bound(value):
            yield f"must be a multiple above 0, or a table of max_abs and rmse, not {value!r}"
    elif not value or set(value) - BOUNDS:
        yield f"must hold max_abs, rmse or both, not {', '.join(value) or 'nothing'}"
    else:
        yield from (f"{key} must be a number above 0, not {one!r}" for key, one in value.items() if not _is_bound(one))


def _is_bound(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 < value < inf


def _accepted(document: dict[str, Any]) -> list[Any]:
    tables = document.get("accepted", [])
    return tables if isinstance(tables, list) else [tables]


def _accepted_faults(document: dict[str, Any]) -> Iterator[str]:
    for number, table in enumerate(_accepted(document), 1):
        if not isinstance(table, dict) or set(table) != {"layer", "reason"}:
            yield f"[[accepted]] number {number} must hold layer and reason, and nothing else"
            continue
        if not isinstance(table["layer"], str):
            yield f"[[accepted]] number {number}: layer must be text, not {table['layer']!r}"
        if not isinstance(table["reason"], str) or not table["reason"].strip():
            yield f"[[accepted]] number {number}: reason must say why, not {table['reason']!r}"
