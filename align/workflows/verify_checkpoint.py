"""Reading back what was written: every tensor against what it was to be, bit for bit, in blocks."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from align.core.extents import byte_blocks
from align.errors import NotACheckpointError, UnsupportedCheckpointError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from align.core.checkpoints import StoredTensor
    from align.core.progress import Progress
    from align.core.protocols import CheckpointFormat


def verify_written(
    expected: Sequence[StoredTensor], plugin: CheckpointFormat, written: Path, destination: Path, progress: Progress
) -> dict[str, str]:
    """Return the SHA-256 of each tensor's bytes by name; raises VerificationError, about `destination`, listing all."""
    try:
        found = plugin.read(written).tensors
    except (NotACheckpointError, UnsupportedCheckpointError) as error:
        raise VerificationError(destination, [error.message]) from error
    problems = [f"{name}: unexpected" for name in sorted(found.keys() - {tensor.name for tensor in expected})]
    hashes: dict[str, str] = {}
    done, total = 0, sum(tensor.nbytes for tensor in expected)
    for tensor in expected:
        other = found.get(tensor.name)
        problem = _difference(tensor, other) if other is not None else "missing"
        if problem or other is None:
            problems.append(f"{tensor.name}: {problem}")
            continue
        equal, hashes[tensor.name] = _compare(byte_blocks(tensor), byte_blocks(other))
        if not equal:
            problems.append(f"{tensor.name}: the bytes differ")
        done += tensor.nbytes
        progress("verifying", done, total)
    if problems:
        raise VerificationError(destination, problems)
    return hashes


def _difference(expected: StoredTensor, found: StoredTensor) -> str:
    if expected.shape != found.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if expected.dtype != found.dtype:
        return f"dtype {found.dtype}, expected {expected.dtype}"
    return ""


def _compare(expected: Iterable[memoryview], found: Iterable[memoryview]) -> tuple[bool, str]:
    """Tensors of equal shape and dtype come in blocks of equal lengths.

    NumPy compares the blocks: `memoryview` does it item by item, 17 times slower.
    """
    digest = hashlib.sha256()
    equal = True
    for ours, theirs in zip(expected, found, strict=True):
        equal = equal and np.array_equal(np.frombuffer(ours, np.uint8), np.frombuffer(theirs, np.uint8))
        digest.update(theirs)
    return equal, digest.hexdigest()
