"""Two checkpoints of any formats compared: names, shapes, dtypes, and the values of every pair in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.open_trusted import open_trusted
from align.checkpoints.training_state import state_beside_weights, training_notes
from align.checkpoints.wrapper_prefixes import (
    matched_without_wrappers,
    without_prefixes_of_all,
    without_wrappers,
    wrapper_words,
)
from align.convert.diff.pair_tensors import judge_diff, judge_pair, naming_warning, pair_tensors
from align.convert.diff.stored_pairs import measure_pairs
from align.convert.diff_result import CheckpointDiff
from align.core.message_words import counted
from align.core.progress import Progress, silent
from align.errors import CannotRunError, MapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.convert.diff.pair_tensors import TensorPairs
    from align.convert.diff_result import TensorDifference
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.name_map import NameMap

MATCHED = "names are matched without what a wrapper put there"


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
    ours = _opened(reference, reference_key, "--key-a", trust_pickle)
    theirs = _opened(candidate, candidate_key, "--key-b", trust_pickle)
    ours, theirs = _stripped((ours, theirs), strip)
    ours, theirs, map_warnings, pairs = _paired(ours, theirs, name_map)
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


def _opened(path: Path | str, key: str | None, option: str, trust_pickle: bool) -> Checkpoint:
    """Open one side; a hint names the option that chooses the entry of this side."""
    try:
        return (open_trusted if trust_pickle else open_checkpoint)(path, key)
    except CannotRunError as error:
        error.hint = error.hint.replace("--key", option)
        raise


def _stripped(sides: Sequence[Checkpoint], strip: Sequence[str]) -> list[Checkpoint]:
    """Both sides with their tensors under the names without the prefixes."""
    if not strip:
        return list(sides)
    names = without_prefixes_of_all([side.tensors for side in sides], strip)
    return [
        replace(side, tensors={new: replace(side.tensors[was], name=new) for new, was in own.items()})
        for side, own in zip(sides, names, strict=True)
    ]


def _paired(
    ours: Checkpoint, theirs: Checkpoint, name_map: NameMap | Path | str | None
) -> tuple[Checkpoint, Checkpoint, Sequence[str], TensorPairs]:
    """Both sides under the names that they pair by, what there is to say of these, and the pairs."""
    if name_map is None:
        ours, said = _as_named_by(ours, theirs)
        pairs = pair_tensors(ours.tensors, theirs.tensors)
        return ours, theirs, tuple(filter(None, [said, naming_warning(pairs)])), pairs
    from align.convert.diff.map_between import map_between
    from align.convert.planning.given_map import read_given_map

    two_way = read_given_map(name_map)
    try:
        way = map_between(two_way, ours.tensors, theirs.tensors)
    except MapError:
        ours, theirs, said = _unwrapped(ours, theirs)
        if not said:
            raise
        way = map_between(two_way, ours.tensors, theirs.tensors)
        way = replace(way, warnings=(said, *way.warnings))
    return ours, theirs, way.warnings, pair_tensors(ours.tensors, theirs.tensors, way.name_map)


def _as_named_by(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, str]:
    """The reference under the candidate's names, where these differ by what wrappers put there, and what that is."""
    parts = zip(_weights_and_state(ours), _weights_and_state(theirs), strict=True)
    names = {was: new for own, other in parts for was, new in matched_without_wrappers(own, other).items()}
    words = wrapper_words(names)
    return (_renamed(ours, names), f"{MATCHED}: {words}") if words else (ours, "")


def _unwrapped(ours: Checkpoint, theirs: Checkpoint) -> tuple[Checkpoint, Checkpoint, str]:
    both = [
        {name: name for name in state} | without_wrappers(weights, inner=True)
        for weights, state in map(_weights_and_state, (ours, theirs))
    ]
    words = ", ".join(filter(None, map(wrapper_words, both)))
    return _renamed(ours, both[0]), _renamed(theirs, both[1]), f"{MATCHED}: {words}" if words else ""


def _weights_and_state(side: Checkpoint) -> tuple[list[str], list[str]]:
    """The names of its weights and of what stands beside them, where a count hides no wrapper."""
    state = state_beside_weights(side)
    return [name for name in side.tensors if name not in state], list(state)


def _renamed(side: Checkpoint, names: Mapping[str, str]) -> Checkpoint:
    return replace(side, tensors={names[name]: replace(one, name=names[name]) for name, one in side.tensors.items()})


def _measured(pairs: TensorPairs, progress: Progress) -> tuple[TensorDifference, ...]:
    sums = iter(measure_pairs([both for pair in pairs.pairs if (both := pair.comparable)], progress))
    return tuple(judge_pair(pair, next(sums) if pair.comparable else None) for pair in pairs.pairs)


def _described(tensors: Mapping[str, StoredTensor], names: tuple[str, ...]) -> dict[str, str]:
    return {name: f"{tensors[name].dtype} {tensors[name].shape}" for name in names}


def _beside(checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each kind of what is no weight, and each entry of a nested file that was not compared."""
    yield from (f"{checkpoint.path.name}: {note}" for note in training_notes(checkpoint))
    for name, count in checkpoint.other_tensors.items():
        held = counted(count, "tensor")
        yield f"{checkpoint.path.name}: {name} ({checkpoint.other[name]}) holds {held}: NOT COMPARED"
