"""The pairings that matched uses come to: which element of which source each element of a target is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import FlowPlace, Pairing
from align.names.dataflow.made_of import bare_shape, form_between, transforms_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.parameters import ParameterSet
    from align.core.transforms import Transform
    from align.names.dataflow.follow_uses import Followed, Match
    from align.names.dataflow.made_of import Places
    from align.names.dataflow.search_orders import Status
    from align.names.dataflow.weight_pieces import PieceIndex
    from align.names.trial_parts.trial_sides import TrialSide


class FlowPairings:
    """Which element of which source each element of a target is."""

    def __init__(self, sides: tuple[TrialSide, TrialSide], indexes: tuple[PieceIndex, PieceIndex]) -> None:
        first, second = sides
        self._indexes = indexes
        self._shapes = tuple({p.name: p.shape for p in side.parameters.parameters} for side in (first, second))
        self._places: dict[str, dict[str, Places]] = defaultdict(dict)
        self._whole: dict[tuple[str, str], Transform] = {}
        self._how: dict[tuple[str, str], Status] = {}
        self.places: dict[tuple[str, str], FlowPlace] = {}
        self._clash: set[str] = set()

    def add(self, one: Followed, match: Match, how: Status) -> None:
        """Note that a piece of a target is a piece of a source, and where it was seen."""
        for source in match.use.piece.names:
            for target in one.use.piece.names:
                if (source, target) not in self.places:
                    self.places[source, target] = _place(source, target, one, match)
        mine, theirs = self._indexes[0].origins(match.use.piece), self._indexes[1].origins(one.use.piece)
        if match.change or not mine or not theirs:
            both_plain, both_computed = bool(mine and theirs), not mine and not theirs
            if both_computed or (match.change == "inverse" and not both_plain):  # what is computed, only outputs prove
                self._add_derived(match.use.piece.names, one.use.piece.names, "free" if how == "free" else "open")
            return
        for source, places in mine.items():
            given = match.of(places).reshape(-1)
            for target, own in theirs.items():
                laid = own.reshape(-1) if one.use.kind == "shift" else own
                kept = (laid if match.own is None else laid[..., list(match.own)]).reshape(-1)
                both = (given >= 0) & (kept >= 0)
                if both.any():
                    self.join(source, target, given[both], kept[both], how)

    def join(self, source: str, target: str, given: Places, kept: Places, how: Status) -> None:
        """Note that these elements of a target are those of a source."""
        places = self._places[target]
        for other, known in places.items():
            if other != source and (known[kept] >= 0).any():
                self._clash.add(target)
        size = int(np.prod(self._shapes[1][target], dtype=int))
        made = places.setdefault(source, np.full(size, -1, np.int64))
        if ((made[kept] >= 0) & (made[kept] != given)).any():
            self._clash.add(target)
        made[kept] = given
        self._note(source, target, how)

    def give(self, source: str, target: str, change: Transform) -> None:
        """Note a pair that only the outputs can prove."""
        self._whole[source, target] = change
        self._note(source, target, "open")

    def _note(self, source: str, target: str, how: Status) -> None:
        before = self._how.get((source, target), how)
        self._how[source, target] = min(before, how, key=("open", "free", "sure").index)

    def _add_derived(self, sources: Sequence[str], targets: Sequence[str], how: Status) -> None:
        """Of a tensor that was computed from parameters: those that alone have one shape."""
        left, right = self._shapes
        for source in sources:
            sizes = sorted(bare_shape(left[source]))
            rivals = [name for name in sources if sorted(bare_shape(left[name])) == sizes]
            alike = [name for name in targets if sorted(bare_shape(right[name])) == sizes]
            change = form_between(left[source], right[alike[0]]) if len(alike) == len(rivals) == 1 else None
            if change is not None:
                square = len(set(sizes)) < len(sizes)
                self._whole[source, alike[0]] = change
                self._note(source, alike[0], "open" if square and how == "sure" else how)

    def pairings(self) -> list[Pairing]:
        """All pairs, of those targets that are of one mind."""
        found: dict[str, list[Pairing]] = defaultdict(list)
        for (source, target), change in self._whole.items():
            found[target].append(self._pairing(source, target, change))
        for target, sources in self._places.items():
            if target in self._clash:
                continue
            shape = self._shapes[1][target]
            own: list[Pairing] = []
            for source, places in sources.items():
                made = transforms_of(places.reshape(shape), self._shapes[0][source])
                if made is None:
                    own = []
                    break
                own += [self._pairing(source, target, change) for change in made]
            if own and sum((places >= 0).sum() for places in sources.values()) == np.prod(shape, dtype=int):
                found[target] = own
        return [pairing for own in found.values() for pairing in own]

    def _pairing(self, source: str, target: str, change: Transform) -> Pairing:
        how = self._how[source, target]
        note = sentence("pair_note.either_is_right") if how == "free" else ""
        return Pairing(source, target, "dataflow", 0.0 if how == "open" else 1.0, change, note)


def _place(source: str, target: str, one: Followed, match: Match) -> FlowPlace:
    """What a match rests on."""
    uses, rows = (match.use.order, one.use.order), one.use.rows
    return FlowPlace(source, target, one.use.kind, uses, rows.count, rows.width, one.by, len(one.tie))


@dataclass(frozen=True, slots=True)
class _Copy:
    """A module of which nothing runs, and one that is like it: their prefixes, and the tensors that tell it."""

    prefix: str
    like: str
    names: frozenset[str]
    paired: frozenset[str]  # of the one that runs


def copies_of_modules(
    pairings: Sequence[Pairing], sides: tuple[ParameterSet, ParameterSet]
) -> tuple[list[Pairing], set[str]]:
    """Pair modules that never run, as moving averages: as those are paired that they are copies of.

    Of several copies of one module none is paired. The names of all that stand in copies are returned, too.
    """
    targets, sources = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for pair in pairings:
        targets[pair.source].add(pair.target)
        sources[pair.target].add(pair.source)
    left, right = _copies(sides[0], targets), _copies(sides[1], sources)
    ways: dict[tuple[frozenset[str], frozenset[str]], dict[tuple[Pairing, ...], str]] = defaultdict(dict)
    for one in left:
        for two in right:
            there = set[str]().union(*(targets[name] for name in one.paired))
            if there == two.paired and one.paired == set[str]().union(*(sources[name] for name in there)):
                ways[one.names, two.names].setdefault(_moved(pairings, one, two), one.like.rstrip("."))
    found: list[Pairing] = []
    for own, several in ways.items():  # the largest first
        rivals = [other for other in ways if own[0] == other[0] or own[1] == other[1]]
        if len(rivals) == len(several) == 1 and own[0].isdisjoint(pair.source for pair in found):
            for moved, like in several.items():
                found += [replace(pair, note=sentence("pair_note.copy_of_module", module=like)) for pair in moved]
    return found, set[str]().union(*(one.names for one in (*left, *right)))


def _moved(pairings: Sequence[Pairing], one: _Copy, two: _Copy) -> tuple[Pairing, ...]:
    """The pairings of what runs, as those of both copies."""
    return tuple(
        replace(
            pair,
            source=one.prefix + pair.source.removeprefix(one.like),
            target=two.prefix + pair.target.removeprefix(two.like),
        )
        for pair in pairings
        if pair.source in one.paired
    )


def _copies(side: ParameterSet, paired: Mapping[str, set[str]]) -> list[_Copy]:
    """Modules of several layers that are not paired, each with all that are like it; the largest first."""
    shapes = {one.name: one.shape for one in side.parameters}
    below: dict[str, list[str]] = defaultdict(list, {"": [*shapes]})
    for name in shapes:
        for at in (at for at, letter in enumerate(name, 1) if letter == "."):
            below[name[:at]].append(name)
    found = []
    for prefix, names in below.items():
        if not paired.keys().isdisjoint(names) or len({name.rpartition(".")[0] for name in names}) < 2:
            continue
        rests = [name.removeprefix(prefix) for name in names]
        for like in (name.removesuffix(rests[0]) for name in shapes if name.endswith(rests[0])):
            own = frozenset(paired.keys() & below.get(like, ()))
            alike = all(shapes.get(like + rest) == shapes[prefix + rest] for rest in rests)
            if own and alike and own <= {like + rest for rest in rests}:
                found.append(_Copy(prefix, like, frozenset(names), own))
    return sorted(found, key=lambda one: (-len(one.names), one.prefix))
