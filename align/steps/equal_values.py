"""Ambiguous groups settled by values: two files of the same weights hold the same bytes, whatever they call them.

A value pairs two names only if it stands once on each side of their group, and if it is no constant: zeros and ones are
what every fresh layer holds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import numpy_dtype
from align.core.extents import byte_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.core.checkpoints import StoredTensor
    from align.core.names import Ambiguity

    Values = Mapping[str, StoredTensor]


def pair_equal_values(groups: Iterable[Ambiguity], source: Values, target: Values) -> dict[str, str]:
    """Return source name -> target name for what equal values settle; the values of the groups are read once each.

    Where dtypes differ, both are compared in the narrower one.
    """
    settled: dict[str, str] = {}
    for group in groups:
        members = [
            [side[name] for name in names if name in side]
            for side, names in ((source, group.sources), (target, group.targets))
        ]
        dtype = min((t.dtype for side in members for t in side), key=_width, default="")
        left, right = (_by_value(side, dtype) for side in members)
        pairs = {left[value]: right.get(value, "") for value in left}
        settled |= {mine: theirs for mine, theirs in pairs.items() if mine and theirs}
    return settled


def _width(dtype: str) -> int:
    return int(numpy_dtype(dtype).itemsize)


def _by_value(tensors: Iterable[StoredTensor], dtype: str) -> dict[bytes, str]:
    """Digest of the value -> its name, "" if several names have it."""
    found: dict[bytes, str] = {}
    for tensor in tensors:
        if not _is_constant(tensor):
            digest = _digest(tensor, dtype)
            found[digest] = "" if digest in found else tensor.name
    return found


def _is_constant(tensor: StoredTensor) -> bool:
    value = tensor.load().reshape(-1)
    return bool(value.size < 2 or (value == value[0]).all())


def _digest(tensor: StoredTensor, dtype: str) -> bytes:
    digest = hashlib.blake2b()
    if tensor.dtype == dtype:
        for block in byte_blocks(tensor):
            digest.update(block)
    else:
        with np.errstate(all="ignore"):
            digest.update(tensor.load().astype(numpy_dtype(dtype)).tobytes())
    return digest.digest()
