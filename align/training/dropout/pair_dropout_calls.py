"""Which calls of dropout of the port stand for which of the reference's, and those that stand on one side only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING

from align.training.thresholds import DROP_SHARE_DIGITS, SAME_NAMES_SHARE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from align.core.training import DropoutCall
    from align.training.dropout.dropout_masks import ListedCalls, Run

    Pair = tuple[DropoutCall, DropoutCall]


@dataclass(frozen=True, slots=True)
class PairedDropout:
    """Pairs of calls, and the calls that stand `alone` on one side; calls that drop nothing may be left out.

    They are `clear` if all pairs are of one shape and no other pairs could be meant.
    """

    pairs: tuple[Pair, ...]
    alone: tuple[tuple[DropoutCall, ...], tuple[DropoutCall, ...]] = ((), ())
    clear: bool = True

    @property
    def fit(self) -> bool:
        """Tell whether each call has its partner."""
        return self.clear and not any(self.alone)


def pair_dropout(reference: ListedCalls, candidate: ListedCalls) -> PairedDropout:
    """Pair the calls of both sides, run by run."""
    runs = reference.kinds, candidate.kinds
    found = [pair_runs(mine, theirs) for mine, theirs in zip(*runs, strict=False)]
    return PairedDropout(
        tuple(pair for one in found for pair in one.pairs),
        (tuple(call for one in found for call in one.alone[0]), tuple(call for one in found for call in one.alone[1])),
        len(runs[0]) == len(runs[1]) and all(one.clear for one in found),
    )


def pair_runs(reference: Run, candidate: Run) -> PairedDropout:
    """Pair the calls of one run by their order: in each module, if those that call are of the same names, else in all.

    So branches may run in another order. Layers that drop nothing count only if all calls fit with them.
    """
    dropping = tuple(one for one in reference if one.share), tuple(one for one in candidate if one.share)
    for mine, theirs in ((reference, candidate), dropping):
        if len(mine) == len(theirs):
            for pairs in (_by_parents(mine, theirs), (*zip(mine, theirs, strict=True),)):
                if pairs is not None and all(a.shape == b.shape for a, b in pairs):
                    return PairedDropout(pairs)
    return _nearest(*dropping)


def _by_parents(reference: Run, candidate: Run) -> tuple[Pair, ...] | None:
    """None unless modules of the same paths hold equally many of the calls."""
    mine, theirs = (
        dict(zip(_numbered(one.path.rpartition(".")[0] for one in calls), calls, strict=True))
        for calls in (reference, candidate)
    )
    return tuple((mine[name], theirs[name]) for name in mine) if mine.keys() == theirs.keys() else None


def _numbered(paths: Iterable[str]) -> list[Hashable]:
    """Each path with how often it came before."""
    seen: Counter[str] = Counter()
    numbered: list[Hashable] = []
    for path in paths:
        numbered.append((path, seen[path]))
        seen[path] += 1
    return numbered


def _sizes(calls: Iterable[DropoutCall]) -> list[Hashable]:
    """The size of each call's tensor, whatever its layout, and its share."""
    return [(prod(one.shape), round(one.share, DROP_SHARE_DIGITS)) for one in calls]


def _nearest(reference: Run, candidate: Run) -> PairedDropout:
    """Pair what is alike in order; where one side has nothing in between, the other's calls stand alone."""
    keys = _keys(reference, candidate)
    pairs: list[Pair] = []
    gaps = []
    for _, start, stop, first, last in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        mine, theirs = reference[start:stop], candidate[first:last]
        if len(mine) == len(theirs):
            pairs += zip(mine, theirs, strict=True)
        else:
            gaps.append((mine, theirs))
    sure = [(mine, theirs) for mine, theirs in gaps if not mine or not theirs]
    alone = tuple(one for mine, _ in sure for one in mine), tuple(one for _, theirs in sure for one in theirs)
    clear = len(sure) == len(gaps) and all(a.shape == b.shape for a, b in pairs)
    return PairedDropout(tuple(pairs), alone, clear and _are_distinct(alone, pairs))


def _are_distinct(alone: tuple[Run, Run], pairs: Sequence[Pair]) -> bool:
    """Tell whether calls stand alone by name or size, and not by chance among others of one size."""
    named = all(a.path == b.path for a, b in pairs)
    sizes = [{prod(pair[side].shape) for pair in pairs} for side in (0, 1)]
    return named or not any(prod(one.shape) in sizes[side] for side in (0, 1) for one in alone[side])


def _keys(reference: Run, candidate: Run) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    names = _numbered(one.path for one in reference), _numbered(one.path for one in candidate)
    common = set(names[0]) & set(names[1])
    if len(common) >= SAME_NAMES_SHARE * max(1, min(len(reference), len(candidate))):
        return names
    return _sizes(reference), _sizes(candidate)


def are_alike(pair: Pair) -> bool:
    """Tell whether two calls surely stand for each other, though the tensor may lie otherwise: by name or size."""
    return pair[0].path == pair[1].path or prod(pair[0].shape) == prod(pair[1].shape)


def unlike_shares(pair: Pair) -> bool:
    """Tell whether two calls drop another share."""
    return round(pair[0].share, DROP_SHARE_DIGITS) != round(pair[1].share, DROP_SHARE_DIGITS)


def unlike_kinds(pair: Pair) -> bool:
    """Tell whether one drops single values where the other drops whole channels; one that drops nothing is like any."""
    mine, theirs = pair
    return bool(mine.share and theirs.share and bool(mine.spatial) != bool(theirs.spatial))
