"""JSON as headers and indexes are written: a name that stands twice in an object makes it unsound.

A value of two bytes takes seventy in memory. Headers and indexes spend twelve bytes and more on each; those
with far more values are refused before they are parsed, so that parsing takes fifteen times their size at most.
"""

from __future__ import annotations

import json
from typing import Any

MOST_SPARE = 1_000_000  # in the texts of a header's metadata
LEAST_BYTES = {b"{": 40, b"[": 20, b":": 20, b",": 12}


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raises ValueError for damage, a name given twice, too many values and too deep ones."""
    if any(raw.count(mark) > MOST_SPARE + len(raw) // least for mark, least in LEAST_BYTES.items()):
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
