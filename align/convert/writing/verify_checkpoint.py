"""Reading back what was written: every tensor against what it was to be, bit for bit, in blocks.

Two threads take tensors in turn: reading, comparing and hashing all leave the interpreter free, and the hash alone
would otherwise cost more than the rest of a conversion.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from align.checkpoints.extents import equal_blocks, paired_blocks
from align.errors import NotACheckpointError, UnsupportedCheckpointError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from align.core.checkpoints import StoredTensor
    from align.core.progress import Progress
    from align.core.protocols import CheckpointFormat

THREADS = 2


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
    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = pool.map(lambda tensor: _verified(tensor, found.get(tensor.name)), expected)
        for tensor, (problem, digest) in zip(expected, outcomes, strict=True):
            hashes[tensor.name] = digest
            if problem:
                problems.append(f"{tensor.name}: {problem}")
            done += tensor.nbytes
            progress("verifying", done, total)
    if problems:
        raise VerificationError(destination, problems)
    return hashes


def _verified(expected: StoredTensor, found: StoredTensor | None) -> tuple[str, str]:
    """What is wrong with a tensor, "" if nothing is, and the SHA-256 of its bytes."""
    if found is None:
        return "missing", ""
    if expected.shape != found.shape:
        return f"shape {found.shape}, expected {expected.shape}", ""
    if expected.dtype != found.dtype:
        return f"dtype {found.dtype}, expected {expected.dtype}", ""
    equal, digest = True, hashlib.sha256()
    for ours, theirs in paired_blocks(expected, found):
        equal = equal and equal_blocks(ours, theirs)
        digest.update(theirs)
    problem = "" if equal else "the bytes differ"
    return problem, digest.hexdigest()
