"""What a model is given: one batch of named arrays, or several that it is run on one after another.

Several batches stand in one file under names of their own, `batch2/x`: what was written can be read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs

_NAME = re.compile(r"batch(?P<number>[1-9][0-9]*)/(?P<name>.+)", re.DOTALL)


def batches_of(inputs: Inputs) -> tuple[Batch, ...]:
    """The batches in the order of the run; a mapping is one."""
    return (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)


def named_arrays(inputs: Inputs) -> dict[str, Array]:
    """All arrays by name: as they are called where there is one batch, else as `batch1/x`, `batch2/x`."""
    batches = batches_of(inputs)
    if len(batches) == 1:
        return dict(batches[0])
    return {f"batch{number}/{name}": value for number, one in enumerate(batches, 1) for name, value in one.items()}


def batches_from_names(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], ...]:
    """Undo `named_arrays`; arrays that are not all named so, with every number from 1 on, are one batch."""
    found = [(_NAME.fullmatch(name), value) for name, value in arrays.items()]
    batches: dict[int, dict[str, Array]] = {}
    for match, value in found:
        if match is None:
            return (dict(arrays),)
        batches.setdefault(int(match["number"]), {})[match["name"]] = value
    if not batches or set(batches) != set(range(1, len(batches) + 1)):
        return (dict(arrays),)
    return tuple(batches[number] for number in sorted(batches))
