"""Two checkpoints of any formats compared: names, shapes, dtypes, and the values of every pair in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.comparisons import CheckpointDiff
from align.core.progress import Progress, silent
from align.core.words import counted
from align.steps.diff import judge_diff, judge_pair, naming_warning, pair_tensors
from align.workflows.measure_pairs import measure_pairs
from align.workflows.open_checkpoint import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.comparisons import TensorDifference
    from align.core.names import NameMap
    from align.steps.diff import TensorPairs


def diff_checkpoints(  # noqa: PLR0913 - the options of one command
    reference: Path | str,
    candidate: Path | str,
    *,
    name_map: NameMap | Path | str | None = None,
    reference_key: str | None = None,
    candidate_key: str | None = None,
    unchanged: bool = False,
    progress: Progress = silent,
) -> CheckpointDiff:
    """Compare two checkpoints; each tensor is read once, in blocks, whatever its size.

    `name_map` is a map from the reference's names to the candidate's, or its file, and is applied with its
    transforms; without it, equal names pair. The keys name the entries of nested files. With `unchanged` the result
    lists what is equal bit for bit. Raises what opening the files raises, and MapError.

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
    ours, theirs = open_checkpoint(reference, reference_key), open_checkpoint(candidate, candidate_key)
    if isinstance(name_map, (str, Path)):
        from align.runs.mapfile import read_map  # a twentieth of the time that a small diff takes

        name_map = read_map(Path(name_map), list(ours.tensors), None)
    pairs = pair_tensors(ours.tensors, theirs.tensors, name_map)
    for checkpoint in (ours, theirs):
        if checkpoint.check is not None:
            checkpoint.check()
    tensors = _measured(pairs, progress)
    warnings = [naming_warning(pairs) if name_map is None else "", *_beside(ours), *_beside(theirs)]
    return CheckpointDiff(
        reference=str(reference),
        candidate=str(candidate),
        reference_format=ours.format,
        candidate_format=theirs.format,
        tensors=tensors,
        missing=_described(ours.tensors, pairs.missing),
        extra=_described(theirs.tensors, pairs.extra),
        dropped=pairs.dropped,
        warnings=tuple(filter(None, warnings)),
        verdict=judge_diff(tensors, pairs),
        unchanged=tuple(tensor.reference for tensor in tensors if tensor.identical) if unchanged else None,
    )


def _measured(pairs: TensorPairs, progress: Progress) -> tuple[TensorDifference, ...]:
    sums = iter(measure_pairs([both for pair in pairs.pairs if (both := pair.comparable)], progress))
    return tuple(judge_pair(pair, next(sums) if pair.comparable else None) for pair in pairs.pairs)


def _described(tensors: Mapping[str, StoredTensor], names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{tensors[name].dtype} {tensors[name].shape}" for name in names}


def _beside(checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each entry of a nested file that holds tensors and was not compared."""
    for name, count in checkpoint.other_tensors.items():
        held = counted(count, "tensor")
        yield f"{checkpoint.path.name}: {name} ({checkpoint.other[name]}) holds {held}: NOT COMPARED"
