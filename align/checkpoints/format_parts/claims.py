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
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from align.core.parameters import Shape

LEAST_BYTES = {b"{": 40, b"[": 20, b":": 20, b",": 12}


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raises ValueError for damage, a name given twice, too many values and too deep ones."""
    if any(raw.count(mark) > SPARE_JSON_MARKS + len(raw) // least for mark, least in LEAST_BYTES.items()):
        raise ValueError(say("json_file.too_many_values", count=len(raw)))
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise ValueError(say("json_file.too_deep")) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(say("json_file.name_twice"))
    return table


def sound_shape(path: Path, name: str, dims: Sequence[int]) -> Shape:
    """Return the dims as a shape; raises HostileFileError, naming the tensor, if no array can have it."""
    if len(dims) > MOST_AXES:
        raise HostileFileError(path, say("checkpoint_file.too_many_axes", name=name, count=len(dims), most=MOST_AXES))
    if min(dims, default=0) < 0 or prod([dim or 1 for dim in dims]) > MOST_ARRAY_ELEMENTS:
        raise HostileFileError(path, say("checkpoint_file.no_such_shape", name=name, shape=str(tuple(dims))))
    return tuple(dims)
