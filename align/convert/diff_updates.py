"""What training did on two sides, compared: updates (values after less values before), not values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.convert.diff.judge_updates import (
    SAME_START,
    by_distance,
    common_factor,
    judge_update,
    judge_updates,
    unlike_shapes,
    without_influence,
)
from align.convert.diff.pair_checkpoints import open_for_diff, pair_checkpoints, without_prefixes
from align.convert.diff.update_sums import sum_updates
from align.convert.updates_result import UpdateDifference, UpdatesDiff
from align.core.dtypes import is_complex
from align.core.message_words import counted, first_few
from align.core.progress import silent
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from align.convert.diff.pair_tensors import TensorPair, TensorPairs
    from align.core.checkpoints import Checkpoint
    from align.core.name_map import NameMap
    from align.core.progress import Progress

    Files = tuple[Path | str, Path | str]


def diff_updates(  # noqa: PLR0913 - the options of one command
    reference: Files,
    candidate: Files,
    *,
    name_map: NameMap | Path | str | None = None,
    keys: tuple[str | None, str | None] = (None, None),
    strip: Iterable[str] = (),
    trust_pickle: bool = False,
    progress: Progress = silent,
) -> UpdatesDiff:
    """Compare what training moved on two sides; each side is two checkpoints, before and after.

    The reference's values go through the map with its transforms before they are subtracted. `keys` name the entries of
    nested files on either side; `name_map`, `strip` and `trust_pickle` are as for `align.diff_checkpoints`. Each tensor
    is read once, in blocks. Raises UsageError for two files of a side with other names or shapes, and, without a map,
    for sides with other names; and what opening files raises.

    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> start, gradient = numpy.linspace(1, 2, 50), numpy.sin(numpy.arange(50.0))
    >>> files = [folder / f"{name}.npz" for name in ("before", "after", "after_port")]
    >>> for file, rate in zip(files, (0.0, 0.1, 0.2)):
    ...     numpy.savez(file, w=start - rate * gradient)
    >>> diff = diff_updates((files[0], files[1]), (files[0], files[2]))
    >>> diff.tensors[0].outcome, round(diff.factor, 6)
    ('one factor apart', 2.0)
    """
    strip = tuple(strip)
    ours = _opened(reference, keys[0], "--key-a", trust_pickle)
    theirs = _opened(candidate, keys[1], "--key-b", trust_pickle)
    before, after = (without_prefixes(both, strip) for both in zip(ours, theirs, strict=True))
    for side in zip(before, after, strict=True):
        _require_same_names(*side)
    warnings, pairs = _paired(before, name_map)
    _, later = _paired(after, name_map)
    twins = {(one.reference.name, one.candidate.name): one for one in later.pairs}
    found = []
    for number, pair in enumerate(pairs.pairs):
        progress("updates", number, len(pairs.pairs))
        found.append(_measured(pair, twins[pair.reference.name, pair.candidate.name]))
    progress("updates", len(pairs.pairs), len(pairs.pairs))
    tensors = tuple(sorted(without_influence(found), key=by_distance))
    factor = common_factor(tensors)
    return UpdatesDiff(
        reference=(str(reference[0]), str(reference[1])),
        candidate=(str(candidate[0]), str(candidate[1])),
        tensors=tensors,
        factor=factor,
        missing=pairs.missing,
        extra=pairs.extra,
        dropped=pairs.dropped,
        warnings=(*warnings, *_other_start(tensors)),
        verdict=judge_updates(tensors, pairs, factor),
    )


def _opened(files: Files, key: str | None, option: str, trust_pickle: bool) -> list[Checkpoint]:
    opened = [open_for_diff(path, key, option, trust_pickle) for path in files]
    for one in opened:
        if one.check is not None:
            one.check()
    return opened


def _require_same_names(before: Checkpoint, after: Checkpoint) -> None:
    """Raise UsageError for files that are not the same model before and after."""
    for one, other, when in ((before, after, "after"), (after, before, "before")):
        if lacking := [name for name in one.tensors if name not in other.tensors]:
            raise UsageError(
                f"{before.path} and {after.path} are not one model: {first_few(lacking)} "
                f"{'is' if len(lacking) == 1 else 'are'} not there {when}",
                "give two checkpoints of each side, before and after, in the order A0 A1 B0 B1",
            )
    unlike = [name for name, one in before.tensors.items() if one.shape != after.tensors[name].shape]
    if unlike:
        raise UsageError(
            f"{before.path} and {after.path} have other shapes in {first_few(unlike)}",
            "give two checkpoints of each side, before and after, in the order A0 A1 B0 B1",
        )


def _paired(sides: Sequence[Checkpoint], name_map: NameMap | Path | str | None) -> tuple[Sequence[str], TensorPairs]:
    ours, theirs, warnings, pairs = pair_checkpoints(sides[0], sides[1], name_map)
    if name_map is None and (unpaired := [*pairs.missing, *pairs.extra]):
        raise UsageError(
            f"{counted(len(unpaired), 'name')} of {ours.path} and {theirs.path} "
            f"{'is' if len(unpaired) == 1 else 'are'} on one side only: {first_few(unpaired)}",
            "give the map between both with --map: `align map` makes one",
        )
    return warnings, pairs


def _measured(before: TensorPair, after: TensorPair) -> UpdateDifference:
    both = before.comparable, after.comparable
    if both[0] is None or both[1] is None:
        made = before.made or before.reference
        return unlike_shapes(before, before.problem or f"{list(made.shape)} against {list(before.candidate.shape)}")
    tensors = both[0][0], both[1][0], both[0][1], both[1][1]
    if len({is_complex(one.dtype) for one in tensors}) > 1:
        return unlike_shapes(before, sentence("updates_note.complex"))
    return judge_update(before, sum_updates(tensors))


def _other_start(tensors: Sequence[UpdateDifference]) -> Iterator[str]:
    """Warn of values that were not the same before the step: their gradients need not be either."""
    if apart := [one.reference for one in tensors if one.start is not None and one.start > SAME_START]:
        yield sentence("updates_note.other_start", count=len(apart), names=apart)
