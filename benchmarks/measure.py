"""All figures of a comparison against memcmp, and against the usual NumPy formulas in float32.

Two float32 arrays of `--mb` each, values differing everywhere, by both kernels; ratios of the medians of several runs
taken in turn, and the temporary memory of each way. Then 10,000 pairs of small arrays, one after the other.
Run: python benchmarks/measure.py --mb 512 --runs 5
Bars, with 512 MB: NumPy's kernel 3 x as fast as the formulas, the compiled one 2.5 x memcmp, 16 MB; 3 s for the pairs.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from align.measure.measure_arrays import CompiledKernel, RunningSums, load_loops, measure

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = "memcmp of equal arrays"
PAIRS = 10_000


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    reference = generator.standard_normal(arguments.mb << 18, dtype=np.float32)
    candidate = reference * np.float32(1 + 1e-6)
    twin = reference.copy()
    loops = load_loops()
    ways: dict[str, Callable[[], object]] = {
        BASE: lambda: memcmp(reference, twin),
        "compiled kernel": lambda: CompiledKernel(loops).add(RunningSums(), reference, candidate),
        "compiled kernel, two threads": lambda: in_threads(loops, reference, candidate),
        "compiled kernel, equal arrays": lambda: CompiledKernel(loops).add(RunningSums(), reference, twin),
        "NumPy's kernel": lambda: measure(reference, candidate),
        "NumPy's kernel, equal arrays": lambda: measure(reference, twin),
        "NumPy, one formula after the other": lambda: formulas(reference, candidate),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.runs):
        for name, way in ways.items():
            times[name].append(seconds(way))
    base = statistics.median(times[BASE])
    for name, way in ways.items():
        print(f"{name:36} {statistics.median(times[name]) / base:6.1f} x   {extra(way) / 2**20:6.1f} MiB")
    small = [generator.standard_normal((16, 64), dtype=np.float32) for _ in range(100)]
    spent = seconds(lambda: [measure(small[i % 100], small[i * 7 % 100]) for i in range(PAIRS)])
    print(f"{PAIRS:,} pairs of 1024 elements: {spent:.2f} s")


def memcmp(x: Any, y: Any) -> int:
    """Compare the bytes of both arrays, as the C library does."""
    count = ctypes.c_size_t(x.nbytes)
    return ctypes.CDLL(None).memcmp(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), count)


def in_threads(loops: Any, reference: Any, candidate: Any) -> RunningSums:
    """Both halves at once, as `align diff` takes parts."""
    half = reference.size // 2
    parts = [RunningSums(), RunningSums()]
    with ThreadPoolExecutor(2) as pool:
        for start, sums in ((0, parts[0]), (half, parts[1])):
            part = slice(start, start + half)
            pool.submit(CompiledKernel(loops).add, sums, reference[part], candidate[part], start)
    parts[0].merge(parts[1])
    return parts[0]


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
