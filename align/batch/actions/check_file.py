"""A checkpoint read from end to end: whether that works, and whether it holds NaN or Inf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from align.batch.actions.fingerprints import stored_print
from align.checkpoints.extents import byte_blocks, check_whole, require_unchanged
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.dtypes import numpy_dtype
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.core.checkpoints import StoredTensor


def check_file(paths: list[Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read all tensors of a checkpoint; one with NaN or Inf is not aligned."""
    found = open_checkpoint(paths[0], options.get("key"))
    check_whole(found)
    odd = {name: count for name, tensor in found.tensors.items() if (count := _not_finite(tensor))}
    reason = say("batch_task.read", count=len(found.tensors))
    if odd:
        reason = say("batch_task.not_finite", count=len(odd), names=[*odd])
    prints = [[name, None, stored_print(tensor)] for name, tensor in found.tensors.items()]
    require_unchanged(found)
    return {
        "outcome": "not aligned" if odd else "aligned",
        "reason": reason,
        "compared": len(found.tensors),
        "rows": [[name, "not aligned" if name in odd else "aligned", odd.get(name)] for name in found.tensors],
        "prints": prints,
    }


def _not_finite(tensor: StoredTensor) -> int:
    """How many elements are NaN or Inf."""
    dtype = numpy_dtype(tensor.dtype)
    if dtype.kind in "iub":
        return 0
    with np.errstate(all="ignore"):
        return sum(int(np.count_nonzero(~np.isfinite(np.frombuffer(block, dtype)))) for block in byte_blocks(tensor))
