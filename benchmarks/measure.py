"""All figures of a comparison against reading the arrays once, and against the usual NumPy formulas in float32.

Two float32 arrays of `--mb` each; ratios of the best of several runs taken in turn. Nothing is asserted.
Run: python benchmarks/measure.py --mb 256 --runs 3
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np

from align.steps.measure import measure

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = "np.array_equal of equal arrays"


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    reference = generator.standard_normal(arguments.mb << 18, dtype=np.float32)
    candidate = reference * np.float32(1 + 1e-6)
    twin = reference.copy()
    ways: dict[str, Callable[[], object]] = {
        BASE: lambda: np.array_equal(reference, twin),
        "align.steps.measure": lambda: measure(reference, candidate),
        "align.steps.measure of equal arrays": lambda: measure(reference, twin),
        "NumPy, one formula after the other": lambda: formulas(reference, candidate),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(arguments.runs):
        best = {name: min(best[name], seconds(way)) for name, way in ways.items()}
    for name, way in ways.items():
        print(
            f"{name:38} {best[name] / best[BASE]:6.1f} x   extra memory {extra(way) / reference.nbytes:5.3f} x an array"
        )


def formulas(x: Any, y: Any) -> tuple[float, ...]:
    """The same figures, each by its own passes over whole arrays."""
    difference = np.abs(x - y)
    with np.errstate(invalid="ignore"):
        relative = difference / np.abs(x)
    norms = np.sqrt((x * x).sum()) * np.sqrt((y * y).sum())
    moved = difference[difference > 0]
    np.histogram(np.log10(moved), bins=32, range=(-16, 16))
    odd = [np.isnan(x).sum(), np.isnan(y).sum(), np.isinf(x).sum(), np.isinf(y).sum()]
    means = difference.mean(), np.sqrt((difference * difference).mean()), np.linalg.norm(difference) / np.linalg.norm(x)
    return float(difference.max()), float(np.nanmax(relative)), float((x * y).sum() / norms), *map(float, means), *odd


def seconds(way: Callable[[], object]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def extra(way: Callable[[], object]) -> int:
    """Peak of the memory that one run takes, in bytes."""
    tracemalloc.start()
    way()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
