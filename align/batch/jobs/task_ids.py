"""Ids of tasks: file names of a run folder that say action, step and rank, and that no two tasks share by chance."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 160  # format: a file name may have 255 bytes, with the suffix and what writing it adds
_DIGITS: Final = 6  # format: of the hash that tells apart what is spelled alike after odd signs are gone


def task_id(begin: str, rank: int | None, step: int | None, name: str) -> str:
    """The id of a task; what a file name cannot hold is replaced, and told apart by a hash.

    >>> task_id("diff", 3, 10, "")
    'diff-step10-rank3'
    """
    numbers = (f"{what}{number}" for what, number in (("step", step), ("rank", rank)) if number is not None)
    whole = "-".join(filter(None, (begin, *numbers, name)))
    plain = _ODD.sub("_", whole)[:_LONGEST]
    if plain == whole:
        return whole
    return f"{plain}-{hashlib.sha256(whole.encode(errors='surrogateescape')).hexdigest()[:_DIGITS]}"
