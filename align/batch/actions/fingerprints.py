"""Fingerprints of tensors: equal bits have equal ones, on whatever machine they are made."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.core.parameters import Shape

DIGEST_BYTES = 8  # format: 16 digits tell tensors of one job apart
CONSTANT = "="


def stored_print(tensor: StoredTensor) -> str:
    """The fingerprint of a stored tensor, read in blocks."""
    return _print(tensor.shape, tensor.dtype, byte_blocks(tensor), tensor.nbytes)


def array_print(value: Array) -> str:
    """The fingerprint of an array."""
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return _print(value.shape, str(value.dtype), [flat.data] if flat.size else [], flat.size)


def _print(shape: Shape, dtype: str, blocks: Iterable[memoryview], nbytes: int) -> str:
    """Shape, dtype and a hash of the bytes; one of a constant begins with `=`, for it says nothing about ranks."""
    digest = hashlib.blake2b(f"{tuple(shape)} {dtype} ".encode(), digest_size=DIGEST_BYTES)
    count = max(int(np.prod(shape, dtype=np.int64)), 1)
    size = max(nbytes // count, 1)
    first = b""
    constant = True
    for block in blocks:
        raw = bytes(block[:size]) if not first else b""
        first = first or raw
        if constant:
            constant = _repeats(block, first)
        digest.update(block)
    return f"{CONSTANT if constant else ''}{'x'.join(map(str, shape))}:{digest.hexdigest()}"


def _repeats(block: memoryview, element: bytes) -> bool:
    """Whether a block is one element over and over: it is equal to itself, moved by an element."""
    values = np.frombuffer(block, np.uint8)
    size = len(element)
    return bytes(values[:size]) == element and bool(np.array_equal(values[size:], values[:-size]))
