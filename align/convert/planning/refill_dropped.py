"""The inverse of a drop: the value that a record kept, else the default that a layer rule states, else nothing."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.names_in_file import is_count
from align.core.name_map import Fill
from align.names.user_rules import literal_name
from align.rules.layer_rules import defaults
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array

STEPS = "global_step"  # MindSpore's optimizers count their steps under this name
BATCHES = "num_batches_tracked"
KEPT = sentence("fill.kept")


def refilled(drops: Iterable[str], values: Mapping[str, Array], named: Set[str]) -> tuple[list[Fill], list[str]]:
    """Fill what was dropped, as far as a value or a default is known; return also what stays lost.

    `drops` are names or globs, `values` what a record kept of them, `named` the names that are there in any case.
    """
    fills: dict[str, Fill] = {}
    lost = []
    for glob in drops:
        names = _names_of(glob, named)
        lost += [] if names else [glob]
        for name in names:
            kept = Fill(name, values[name], KEPT) if name in values else None
            if name not in named and (fill := kept or default_fill(name)):
                fills[name] = fill
            elif name not in named:
                lost.append(name)
    return list(fills.values()), lost


def default_fill(name: str) -> Fill | None:
    """Fill a parameter whose attribute has a default; None if it has not."""
    found = defaults().get(name.rpartition(".")[2])
    return None if found is None else Fill(name, np.array(found[0], np.int64), sentence("fill.default", value=found[0]))


def with_counted_steps(fills: Iterable[Fill], tensors: Mapping[str, StoredTensor]) -> tuple[Fill, ...]:
    """Fill counters of batches with the number of steps that the file tells, in the place of their default.

    `tensors` are those beside the weights. A batch norm counts the batches that it was trained on, which is one a step.
    A value that a record kept stays.
    """
    steps = _steps(tensors)
    return tuple(
        replace(fill, value=np.array(steps, np.int64), reason=sentence("fill.steps_of_file", name=STEPS, steps=steps))
        if steps is not None and fill.name.rpartition(".")[2] == BATCHES and fill.reason != KEPT
        else fill
        for fill in fills
    )


def _steps(tensors: Mapping[str, StoredTensor]) -> int | None:
    """The one whole number of that name, at the end of any path; None if there is none or there are several."""
    found = [one for name, one in tensors.items() if name.rpartition(".")[2] == STEPS]
    if len(found) != 1 or not is_count(found[0]):
        return None
    steps = int(found[0].load().reshape(()))
    return steps if steps > 0 else None


def _names_of(glob: str, named: Iterable[str]) -> list[str]:
    """The name that a drop means, or for a pattern the names beside which an attribute with a default belongs."""
    if (name := literal_name(glob)) is not None:
        return [name]
    names = (
        f"{name.removesuffix(beside)}{attribute}"
        for attribute, (_, beside) in defaults().items()
        for name in named
        if name.rpartition(".")[2] == beside
    )
    return sorted(name for name in names if fnmatchcase(name, glob))
