"""Figures of many pairs of stored tensors, read block by block in two threads.

Large tensors are cut into parts, so that both threads have work whatever the sizes; each thread has one kernel and
buffers of its own, so memory does not grow with the files. Files are read, not mapped: mapped pages count as memory.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.core.checkpoints import Extent
from align.core.dtypes import numpy_dtype
from align.core.progress import Progress, silent
from align.measure.choose_kernel import Kernels
from align.measure.running_sums import RunningSums
from align.measure.thresholds import SHARED_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array

PART = 1 << 22  # elements
THREADS = 2  # more of them wait for each other where NumPy works, and for the memory where numba does

Pair = tuple["StoredTensor", "StoredTensor"]


def measure_pairs(pairs: Sequence[Pair], progress: Progress = silent) -> list[RunningSums]:
    """Return the sums of each pair of equal shapes, reference first; dtypes may differ.

    Raises NotACheckpointError if a file has become shorter since it was opened.
    """
    total = sum(ours.nbytes + theirs.nbytes for ours, theirs in pairs)
    work = _Work(deque(_parts(pairs)), Kernels(total), _Counter(progress, total))
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            done = [future.result() for future in [pool.submit(work.run) for _ in range(THREADS)]]
        finally:
            work.parts.clear()  # after a failure or an interrupt the other thread ends with its part
    results = [RunningSums() for _ in pairs]
    for part, sums in sorted((item for own in done for item in own), key=lambda item: (item[0].pair, item[0].start)):
        results[part.pair].merge(sums)
    return results


@dataclass(frozen=True, slots=True)
class _Part:
    """Some consecutive elements of a pair, from the flat index `start`."""

    pair: int
    start: int
    size: int
    reference: StoredTensor
    candidate: StoredTensor


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left to do; every thread takes from it."""

    parts: deque[_Part]
    kernels: Kernels
    tell: _Counter

    def run(self) -> list[tuple[_Part, RunningSums]]:
        """Measure parts until none is left."""
        done = []
        kernel, fused = self.kernels.make(), self.kernels.fused
        while self.parts:
            try:
                part = self.parts.popleft()
            except IndexError:  # the other thread was quicker
                break
            if self.kernels.fused and not fused:
                kernel, fused = self.kernels.make(), True
            sums = RunningSums()
            for start, left, right in _blocks(part):
                kernel.add(sums, left, right, start)
            done.append((part, sums))
            self.tell(part.reference.nbytes + part.candidate.nbytes)
        return done


class _Counter:
    """Tells the progress of all threads together."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        """Count and tell."""
        with self._lock:
            self._done += nbytes
            self._progress("comparing", self._done, self._total)


def _parts(pairs: Sequence[Pair]) -> Iterator[_Part]:
    for index, (reference, candidate) in enumerate(pairs):
        size = prod(reference.shape)
        step = PART if reference.extent and candidate.extent else max(size, 1)
        for start in range(0, size, step):
            count = min(step, size - start)
            yield _Part(index, start, count, *(_cut(tensor, start, count) for tensor in (reference, candidate)))


def _cut(tensor: StoredTensor, start: int, count: int) -> StoredTensor:
    if tensor.extent is None:
        return tensor
    size = numpy_dtype(tensor.dtype).itemsize
    extent = Extent(tensor.extent.path, tensor.extent.offset + start * size, count * size)
    return replace(tensor, shape=(count,), extent=extent)


def _blocks(part: _Part) -> Iterator[tuple[int, Array, Array]]:
    """Blocks of both sides, cut where either side's blocks end."""
    streams = _arrays(part.reference), _arrays(part.candidate)
    left = right = np.empty(0)
    done = 0
    while done < part.size:
        left = left if left.size else next(streams[0])
        right = right if right.size else next(streams[1])
        size = min(left.size, right.size)
        yield part.start + done, left[:size], right[:size]
        left, right, done = left[size:], right[size:], done + size


def _arrays(tensor: StoredTensor) -> Iterator[Array]:
    dtype = numpy_dtype(tensor.dtype)
    for block in byte_blocks(tensor, SHARED_BLOCK * dtype.itemsize):
        yield np.frombuffer(block, dtype)
