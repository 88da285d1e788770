"""What headers and indexes claim, held to what can be: shapes of arrays, and JSON without a name that stands twice.

A value of two bytes of JSON takes seventy in memory. Headers and indexes spend twelve bytes and more on each; those
with far more values are refused before they are parsed, so that parsing takes fifteen times their size at most.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from align.checkpoints.thresholds import MOST_ARRAY_ELEMENTS, SPARE_JSON_MARKS
from align.core.thresholds import MOST_AXES
from align.errors import HostileFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from align.core.parameters import Shape

LEAST_BYTES = {b"{": 40, b"[": 20, b":": 20, b",": 12}


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raises ValueError for damage, a name given twice, too many values and too deep ones."""
    if any(raw.count(mark) > SPARE_JSON_MARKS + len(raw) // least for mark, least in LEAST_BYTES.items()):
        msg = f"its {len(raw):,} bytes hold more values than any header or index"
        raise ValueError(msg)
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        msg = "it is nested too deep"
        raise ValueError(msg) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        msg = "a name stands there twice"
        raise ValueError(msg)
    return table


def sound_shape(path: Path, name: str, dims: Sequence[int]) -> Shape:
    """Return the dims as a shape; raises HostileFileError, naming the tensor, if no array can have it."""
    if len(dims) > MOST_AXES:
        raise HostileFileError(path, f"tensor {name!r} claims {len(dims)} axes, {MOST_AXES} are the most")
    if min(dims, default=0) < 0 or prod([dim or 1 for dim in dims]) > MOST_ARRAY_ELEMENTS:
        raise HostileFileError(path, f"tensor {name!r} claims the shape {tuple(dims)}")
    return tuple(dims)
