"""Two checkpoints of any formats compared: names, shapes, dtypes, and the values of every pair in one pass.

Stored tensors are read block by block in two threads. Large ones are cut into parts, so that both threads have work
whatever the sizes; each thread has one kernel and buffers of its own, so memory does not grow with the files. Files are
read, not mapped: mapped pages count as memory.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from align.checkpoints.extents import require_unchanged
from align.checkpoints.names_in_file import training_notes
from align.convert.diff.pair_checkpoints import (
    judge_diff,
    judge_pair,
    one_file,
    open_for_diff,
    pair_checkpoints,
    two_way_map,
    without_prefixes,
)
from align.convert.diff.update_sums import array_blocks
from align.convert.diff_result import CheckpointDiff
from align.convert.thresholds import PART_ELEMENTS, READING_THREADS
from align.core.dtypes import numpy_dtype
from align.core.progress import Progress, silent
from align.measure.choose_kernel import Kernels
from align.measure.measure_arrays import RunningSums
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.convert.diff.pair_checkpoints import TensorPairs
    from align.convert.diff_result import TensorDifference
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.name_map import NameMap


Pair = tuple["StoredTensor", "StoredTensor"]


def diff_checkpoints(  # noqa: PLR0913 - the options of one command
    reference: Path | str,
    candidate: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    reference_key: str | None = None,
    candidate_key: str | None = None,
    strip: Iterable[str] = (),
    trust_pickle: bool = False,
    unchanged: bool = False,
    progress: Progress = silent,
) -> CheckpointDiff:
    """Compare two checkpoints; each tensor is read once, in blocks, whatever its size.

    `name_map` is a map between the names of both, its file or the record of a conversion, and is applied with its
    transforms in the direction that fits; without it, equal names pair, or of two frameworks those that the map of both
    files pairs. The keys name the entries of nested files,
    `strip` prefixes to take off the names of whichever side has them. With `unchanged` the result lists what is equal
    bit for bit. `trust_pickle` lets torch run what a file pickles. Raises what opening the files raises, UsageError
    for prefixes and MapError.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> numpy.savez(folder / "before.npz", w=numpy.ones(3), b=numpy.zeros(2))
    >>> numpy.savez(folder / "after.npz", w=numpy.ones(3) + 0.5, b=numpy.zeros(2))
    >>> diff = diff_checkpoints(folder / "before.npz", folder / "after.npz", unchanged=True)
    >>> diff.verdict.outcome.value, diff.unchanged
    ('not aligned', ('b',))
    >>> [(one.reference, one.measurement.max_abs) for one in diff.tensors if one.outcome != "equal"]
    [('w', 0.5)]
    """
    strip = tuple(strip)
    ours = open_for_diff(reference, reference_key, "--key-a", trust_pickle)
    theirs = open_for_diff(candidate, candidate_key, "--key-b", trust_pickle)
    ours, theirs = without_prefixes((ours, theirs), strip)
    said = (*_beside(ours), *_beside(theirs))
    same = one_file(reference, candidate, (reference_key, candidate_key))
    ours, theirs, map_warnings, pairs = pair_checkpoints(ours, theirs, two_way_map(name_map))
    for checkpoint in (ours, theirs):
        if checkpoint.check is not None:
            checkpoint.check()
    tensors = _measured(pairs, progress)
    for checkpoint in (ours, theirs):
        require_unchanged(checkpoint)
    warnings = (*ours.notes, *theirs.notes, *map_warnings, *said)
    return CheckpointDiff(
        reference=str(reference),
        candidate=str(candidate),
        reference_format=ours.format,
        candidate_format=theirs.format,
        tensors=tensors,
        missing=_described(ours.tensors, pairs.missing),
        extra=_described(theirs.tensors, pairs.extra),
        dropped=pairs.dropped,
        warnings=warnings,
        verdict=judge_diff(tensors, pairs, same),
        unchanged=tuple(tensor.reference for tensor in tensors if tensor.identical) if unchanged else None,
        strip=strip,
    )


def _measured(pairs: TensorPairs, progress: Progress) -> tuple[TensorDifference, ...]:
    sums = iter(measure_pairs([both for pair in pairs.pairs if (both := pair.comparable)], progress))
    return tuple(judge_pair(pair, next(sums) if pair.comparable else None) for pair in pairs.pairs)


def _described(tensors: Mapping[str, StoredTensor], names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{tensors[name].dtype} {tensors[name].shape}" for name in names}


def _beside(checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each kind of what is no weight, and each entry of a nested file that was not compared."""
    yield from (f"{checkpoint.path.name}: {note}" for note in training_notes(checkpoint))
    for name, count in checkpoint.other_tensors.items():
        facts = {"file": checkpoint.path.name, "name": name, "kind": checkpoint.other[name]}
        yield sentence("diff_warning.beside", count=count, **facts)


def measure_pairs(pairs: Sequence[Pair], progress: Progress = silent) -> list[RunningSums]:
    """Return the sums of each pair of equal shapes, reference first; dtypes may differ.

    Raises NotACheckpointError if a file has become shorter since it was opened.
    """
    total = sum(ours.nbytes + theirs.nbytes for ours, theirs in pairs)
    work = _Work(deque(_parts(pairs)), Kernels(total), _Counter(progress, total))
    with ThreadPoolExecutor(READING_THREADS) as pool:
        try:
            done = [future.result() for future in [pool.submit(work.run) for _ in range(READING_THREADS)]]
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
    reference: StoredTensor
    candidate: StoredTensor


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left to do; every thread takes from it."""

    parts: deque[_Part]
    kernels: Kernels
    tell: _Counter

    def run(self) -> list[tuple[_Part, RunningSums]]:
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
            start = part.start
            for left, right in array_blocks((part.reference, part.candidate)):
                kernel.add(sums, left, right, start)
                start += left.size
            done.append((part, sums))
            self.tell(part.reference.nbytes + part.candidate.nbytes)
        return done


class _Counter:
    """Tells the progress of all threads together."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            self._progress("comparing", self._done, self._total)


def _parts(pairs: Sequence[Pair]) -> Iterator[_Part]:
    for index, (reference, candidate) in enumerate(pairs):
        size = prod(reference.shape)
        step = PART_ELEMENTS if reference.extent and candidate.extent else max(size, 1)
        for start in range(0, size, step):
            count = min(step, size - start)
            yield _Part(index, start, *(_cut(tensor, start, count) for tensor in (reference, candidate)))


def _cut(tensor: StoredTensor, start: int, count: int) -> StoredTensor:
    if tensor.extent is None:
        return tensor
    size = numpy_dtype(tensor.dtype).itemsize
    extent = replace(tensor.extent, offset=tensor.extent.offset + start * size, nbytes=count * size)
    return replace(tensor, shape=(count,), extent=extent)
