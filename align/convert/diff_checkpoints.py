"""Two checkpoints of any formats compared: names, shapes, dtypes, and the values of every pair in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.checkpoints.training_state import training_notes
from align.convert.diff.pair_checkpoints import open_for_diff, pair_checkpoints, without_prefixes
from align.convert.diff.pair_tensors import judge_diff, judge_pair
from align.convert.diff.stored_pairs import measure_pairs
from align.convert.diff_result import CheckpointDiff
from align.core.progress import Progress, silent
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from align.convert.diff.pair_tensors import TensorPairs
    from align.convert.diff_result import TensorDifference
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.name_map import NameMap


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
    transforms in the direction that fits; without it, equal names pair. The keys name the entries of nested files,
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
    ours, theirs, map_warnings, pairs = pair_checkpoints(ours, theirs, name_map)
    for checkpoint in (ours, theirs):
        if checkpoint.check is not None:
            checkpoint.check()
    tensors = _measured(pairs, progress)
    warnings = (*ours.notes, *theirs.notes, *map_warnings, *_beside(ours), *_beside(theirs))
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
        verdict=judge_diff(tensors, pairs),
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
