"""The inverse of a drop: the value that a record kept, else the default that a layer rule states, else nothing."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import Fill
from align.names.user_rules import literal_name
from align.rules.layer_rules import defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from align.core.dtypes import Array


def refilled(drops: Iterable[str], values: Mapping[str, Array], spoken: Set[str]) -> tuple[list[Fill], list[str]]:
    """Fill what was dropped, as far as a value or a default is known; return also what stays lost.

    `drops` are names or globs, `values` what a record kept of them, `spoken` the names that are there in any case.
    """
    fills: dict[str, Fill] = {}
    lost = []
    for glob in drops:
        names = _names_of(glob, spoken)
        lost += [] if names else [glob]
        for name in names:
            kept = Fill(name, values[name], "its value was kept in the record") if name in values else None
            if name not in spoken and (fill := kept or default_fill(name)):
                fills[name] = fill
            elif name not in spoken:
                lost.append(name)
    return list(fills.values()), lost


def default_fill(name: str) -> Fill | None:
    """Fill a parameter whose attribute has a default; None if it has not."""
    found = defaults().get(name.rpartition(".")[2])
    return None if found is None else Fill(name, np.array(found[0], np.int64), f"{found[0]} is the default")


def _names_of(glob: str, spoken: Iterable[str]) -> list[str]:
    """The name that a drop means, or for a pattern the names beside which an attribute with a default belongs."""
    if (name := literal_name(glob)) is not None:
        return [name]
    names = (
        f"{name.removesuffix(beside)}{attribute}"
        for attribute, (_, beside) in defaults().items()
        for name in spoken
        if name.rpartition(".")[2] == beside
    )
    return sorted(name for name in names if fnmatchcase(name, glob))
