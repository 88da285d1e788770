"""Tasks of benchmarks/batch.py: the module that workers import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align.batch.job import Task


def run_task(task: Task) -> dict[str, Any]:
    """Compare two dumps; a task without paths is empty."""
    return compared(*task.paths) if task.paths else {}


def compared(reference: str, candidate: str) -> dict[str, Any]:
    """The outcome of two dumps, and how many tensors they have."""
    import align

    result = align.compare_trace_folders(Path(reference), Path(candidate))
    return {"outcome": result.verdict.outcome.value, "tensors": len(result.layers)}
