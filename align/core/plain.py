"""Values turned into plain JSON data, the form in which run folders keep them and `--json` prints them."""

from __future__ import annotations

import dataclasses
import enum
import math
from pathlib import Path
from typing import Any

import numpy as np

from align.core.transforms import Cast, Identity, Permute, Reshape


def to_plain(value: Any) -> Any:
    """Return dicts, lists, strings, numbers, booleans and None only.

    NaN and the infinities, which JSON lacks, become the strings "NaN", "Infinity" and "-Infinity"; `float()` reads
    them back. Dataclasses become objects of their fields, without fields that are kept out of their repr.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _non_finite(value)
        case Identity() | Reshape() | Permute() | Cast():
            return value.as_table()
        case enum.Enum():
            return to_plain(value.value)
        case np.generic():
            return to_plain(value.item())
        case Path():
            return str(value)
        case dict():
            return {str(key): to_plain(item) for key, item in value.items()}
        case list() | tuple():
            return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    msg = f"no plain form for {type(value).__name__}"
    raise TypeError(msg)


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
