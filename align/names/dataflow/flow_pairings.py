"""The pairings that matched uses come to: which element of which source each element of a target is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations, product
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.align_sequences import grouped
from align.core.name_map import FlowPlace, Pairing
from align.core.piece_transforms import Part, Share, Slice, Sum, apart_from_cut, apart_from_whole, join_fault
from align.core.transforms import IDENTITY, Permute, Reshape, chained
from align.names.dataflow.cut_products import returned_alike
from align.names.dataflow.follow_uses import OWN_PARTS
from align.names.matching.fused_layers import with_rows_of_zeros
from align.names.thresholds import MOST_ORDERS_OF_A_TIE, MOST_RUNS_OF_A_TENSOR
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.parameters import ParameterSet, Shape
    from align.core.transforms import Transform
    from align.names.dataflow.cut_products import Returned, UseKey
    from align.names.dataflow.follow_uses import Followed, FollowedUses, Match, TieKey
    from align.names.dataflow.seen_rows import Piece, PieceIndex
    from align.names.equal_values import TrialSide

    Made = tuple[str, Sum | Share | None]  # a source, and how it is a term of a sum, or what is made of it
    Tried = tuple[dict[TieKey, int], FollowedUses]
    Places = NDArray[np.int64]


class FlowPairings:
    """Which element of which source each element of a target is."""

    def __init__(self, sides: tuple[TrialSide, TrialSide], indexes: tuple[PieceIndex, PieceIndex]) -> None:
        first, second = sides
        self._indexes = indexes
        self._shapes = tuple({p.name: p.shape for p in side.parameters.parameters} for side in (first, second))
        self._places: dict[str, dict[Made, Places]] = defaultdict(dict)
        self._whole: dict[tuple[str, str], Transform] = {}
        self._how: dict[tuple[str, str], Status] = {}
        self.places: dict[tuple[str, str], FlowPlace] = {}
        self._clash: set[str] = set()

    def add(self, followed: Followed, match: Match, how: Status) -> None:
        """Note that a piece of a target is a piece of a source, and where it was seen."""
        for source in match.use.piece.names:
            for target in followed.use.piece.names:
                if (source, target) not in self.places:
                    self.places[source, target] = _place(source, target, followed, match)
        if match.term is None:
            self._add_pieces(followed, match, (match.use.piece, followed.use.piece), how)
        else:
            mine, theirs = self._indexes[1].terms(followed.use.piece)[match.term[0]], match.use.terms[match.term[1]][0]
            self._add_pieces(followed, match, (theirs, mine), "free" if match.free and how != "open" else how)

    def _add_pieces(self, followed: Followed, match: Match, pieces: tuple[Piece, Piece], how: Status) -> None:
        mine, theirs = (index.origins(piece) for index, piece in zip(self._indexes, pieces, strict=True))
        if match.change or not mine or not theirs:
            both_plain, both_computed = bool(mine and theirs), not mine and not theirs
            if both_computed or (match.change == "inverse" and not both_plain):  # what is computed, only outputs prove
                self._add_derived(match.use.piece.names, followed.use.piece.names, "free" if how == "free" else "open")
            return
        for source, places in mine.items():
            given = match.of(places).reshape(-1)
            for target, own in theirs.items():
                laid = own.reshape(-1) if followed.use.kind == "shift" else match.within(own)
                kept = (laid if match.own is None else laid[..., list(match.own)]).reshape(-1)
                both = (given >= 0) & (kept >= 0)
                if both.any():
                    self.join((source, match.step), target, given[both], kept[both], how)

    def join(self, made_of: Made, target: str, given: Places, kept: Places, how: Status) -> None:
        """Note that these elements of a target are those of a source, or terms of sums with them."""
        places, (source, step) = self._places[target], made_of
        for other, known in places.items():
            is_added = isinstance(step, Sum) and isinstance(other[1], Sum) and step.term != other[1].term
            if other != made_of and not is_added and (known[kept] >= 0).any():
                self._clash.add(target)
        size = int(np.prod(self._shapes[1][target], dtype=int))
        made = places.setdefault(made_of, np.full(size, -1, np.int64))
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
            same_sizes = [name for name in targets if sorted(bare_shape(right[name])) == sizes]
            change = form_between(left[source], right[same_sizes[0]]) if len(same_sizes) == len(rivals) == 1 else None
            if change is not None:
                square = len(set(sizes)) < len(sizes)
                self._whole[source, same_sizes[0]] = change
                self._note(source, same_sizes[0], "open" if square and how == "sure" else how)

    def pairings(self) -> list[Pairing]:
        """All pairs, of those targets that are of one mind."""
        by_target: dict[str, list[Pairing]] = defaultdict(list)
        partly: set[str] = set()
        for (source, target), change in self._whole.items():
            by_target[target].append(self._pairing(source, target, change))
        for target, sources in self._places.items():
            if target in self._clash:
                continue
            shape = self._shapes[1][target]
            of_target: list[Pairing] = []
            for (source, step), places in sources.items():
                steps = transforms_of(places.reshape(shape), self._shapes[0][source])
                if steps is None:
                    of_target = []
                    break
                of_target += [self._pairing(source, target, _with_step(change, step)) for change in steps]
            has_all = np.logical_or.reduce([places >= 0 for places in sources.values()]).all()
            is_sum = any(isinstance(step, Sum) for _, step in sources)
            if of_target and not (is_sum and join_fault([one.transform for one in of_target])):
                by_target[target] = of_target
                partly |= set() if has_all else {target}
        whole = with_rows_of_zeros([pairing for of_target in by_target.values() for pairing in of_target], self._shapes)
        groups = grouped((pairing.target, pairing.transform) for pairing in whole if pairing.target in partly)
        lacking = {target for target, changes in groups.items() if join_fault(changes)}
        return [pairing for pairing in whole if pairing.target not in lacking]

    def _pairing(self, source: str, target: str, change: Transform) -> Pairing:
        how = self._how[source, target]
        note = sentence("pair_note.either_is_right") if how == "free" else ""
        return Pairing(source, target, "dataflow", 0.0 if how == "open" else 1.0, change, note)


def _with_step(change: Transform, step: Sum | Share | None) -> Transform:
    """A transform with the step that makes it one of a term: a sum stands in its part, a share behind what is cut."""
    if isinstance(step, Share):
        cut, rest = apart_from_cut(change)
        return chained(cut, step, rest)
    before, place = apart_from_whole(change)
    return chained(before, step or IDENTITY, place or IDENTITY)


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
    for first in left:
        for two in right:
            there = set[str]().union(*(targets[name] for name in first.paired))
            if there == two.paired and first.paired == set[str]().union(*(sources[name] for name in there)):
                ways[first.names, two.names].setdefault(_moved(pairings, first, two), first.like.rstrip("."))
    copied: list[Pairing] = []
    for own, several in ways.items():  # the largest first
        rivals = [other for other in ways if own[0] == other[0] or own[1] == other[1]]
        if len(rivals) == len(several) == 1 and own[0].isdisjoint(pair.source for pair in copied):
            for moved, like in several.items():
                copied += [replace(pair, note=sentence("pair_note.copy_of_module", module=like)) for pair in moved]
    return copied, set[str]().union(*(first.names for first in (*left, *right)))


def _moved(pairings: Sequence[Pairing], first: _Copy, two: _Copy) -> tuple[Pairing, ...]:
    """The pairings of what runs, as those of both copies."""
    return tuple(
        replace(
            pair,
            source=first.prefix + pair.source.removeprefix(first.like),
            target=two.prefix + pair.target.removeprefix(two.like),
        )
        for pair in pairings
        if pair.source in first.paired
    )


def _copies(side: ParameterSet, paired: Mapping[str, set[str]]) -> list[_Copy]:
    """Modules of several layers that are not paired, each with all that are like it; the largest first."""
    shapes = {item.name: item.shape for item in side.parameters}
    below: dict[str, list[str]] = defaultdict(list, {"": [*shapes]})
    for name in shapes:
        for at in (at for at, letter in enumerate(name, 1) if letter == "."):
            below[name[:at]].append(name)
    copies = []
    for prefix, names in below.items():
        if not paired.keys().isdisjoint(names) or len({name.rpartition(".")[0] for name in names}) < 2:
            continue
        rests = [name.removeprefix(prefix) for name in names]
        for like in (name.removesuffix(rests[0]) for name in shapes if name.endswith(rests[0])):
            own = frozenset(paired.keys() & below.get(like, ()))
            alike = all(shapes.get(like + rest) == shapes[prefix + rest] for rest in rests)
            if own and alike and own <= {like + rest for rest in rests}:
                copies.append(_Copy(prefix, like, frozenset(names), own))
    return sorted(copies, key=lambda item: (-len(item.names), item.prefix))


# Orders of uses that the same rows go into: tried until all that comes behind them has the right rows.
#
# A use with wrong rows blames the ties before it, back to the last such use. As what it should have returned is put
# in its place, each region is tried on its own, and all regions in one run.

Status = Literal["sure", "free", "open"]


@dataclass(slots=True)
class _Region:
    """Ties between two uses that have wrong rows: one of the ties is in a wrong order, or something else is wrong."""

    start: int
    wrong: int
    ties: tuple[TieKey, ...]


def _region(start: int, wrong: int, ties: Mapping[TieKey, tuple[int, int]]) -> _Region:
    here = [tie for tie, (place, _) in ties.items() if start <= place < wrong]
    return _Region(start, wrong, tuple(sorted(here, key=lambda tie: ties[tie][0])))


class OrderSearch:
    """The orders that are tried: of ties before a use with wrong rows, until its rows are right."""

    def __init__(self) -> None:
        self.orders: dict[TieKey, int] = {}
        self.last: dict[TieKey, int] | None = None
        self._keys: list[UseKey] = []
        self._good: list[bool] = []
        self._ties: dict[TieKey, tuple[int, int]] = {}  # where it is made, and its number of orders
        self._soft: dict[TieKey, tuple[int, int]] = {}  # others, of which the first order is tried first
        self._likely: set[TieKey] = set()
        self._tested: dict[tuple[TieKey, ...], set[tuple[int, ...]]] = defaultdict(set)
        self._dead: dict[TieKey, set[int]] = defaultdict(set)

    def start(self, run: FollowedUses, outputs: Returned) -> None:
        """Take the first run; `outputs` are what should come out, as rows of the last use of all."""
        self._outputs = outputs
        self._keys = list(run.followed)
        self._good = self._goods(run)
        self._note_ties(run)
        self.last = {}

    def _goods(self, run: FollowedUses) -> list[bool]:
        """Tell of each use whether its rows are right, and at last of what comes out.

        What scales or shifts may do so sooner or later than on the other side: then the next product tells.
        """
        good = [not run.helped and returned_alike(self._outputs, run.outputs)]
        next_product = good[0]
        for key in reversed(self._keys):
            one = run.followed.get(key)
            right = one is not None and one.by != "forced"
            if one is None or one.use.heavy:
                next_product = right
            good.append(right or next_product)
        return good[::-1]

    def _note_ties(self, run: FollowedUses) -> None:
        places = {key: at for at, key in enumerate(self._keys)}
        for known, ties in ((self._ties, run.ties), (self._soft, run.soft_ties)):
            for tie, ways in ties.items():
                at = places.get(run.choices[tie])
                if at is not None and ways > 1:
                    known[tie] = at, ways
        self._likely |= run.likely_ties

    def _regions(self) -> list[_Region]:
        """The ties before each use with wrong rows; where they were tried, those whose order was likely to be right."""
        regions_kept = []
        for start, wrong in self._spans():
            open_ties = {tie: own for tie, own in self._ties.items() if tie not in self._likely}
            likely = {tie: own for tie, own in {**self._ties, **self._soft}.items() if tie not in open_ties}
            of_classes = {tie: own for tie, own in likely.items() if isinstance(tie, frozenset) or tie[0] != OWN_PARTS}
            regions = [_region(start, wrong, ties) for ties in (open_ties, of_classes, likely)]
            open_ones = (one for one in regions if one.ties and self._untested(one) is not None)
            regions_kept += [next(open_ones, None) or regions[0]]
        return [one for one in regions_kept if one.ties]

    def _spans(self) -> list[tuple[int, int]]:
        """From each use with wrong rows, or the first use, to the next one."""
        wrong = [at for at, good in enumerate(self._good) if not good]
        return list(pairwise([0, *wrong]))

    def next_orders(self) -> dict[TieKey, int] | None:
        """The orders of the next run: in each region others; None where there are none left."""
        orders, changed = dict(self.orders), False
        regions = self._regions()
        inner = [region for region in regions if region.wrong < len(self._keys) and self._untested(region) is not None]
        for region in inner or regions:  # what comes out hangs on all: its own ties are changed alone
            now = tuple(self.orders.get(tie, 0) for tie in region.ties)
            self._tested[region.ties].add(now)
            other = self._untested(region)
            if other is not None:
                self._tested[region.ties].add(other)
                orders |= dict(zip(region.ties, other, strict=True))
                changed = True
        return orders if changed else None

    def _untested(self, region: _Region) -> tuple[int, ...] | None:
        """Other orders of the ties of a region: first of the last one, of windows last."""
        ties = sorted(region.ties, key=lambda tie: not isinstance(tie, tuple))
        ways, known = [], {**self._ties, **self._soft}
        for tie in ties:
            now = self.orders.get(tie, 0)
            ways.append([now, *(way for way in range(known[tie][1]) if way != now and way not in self._dead[tie])])
        for chosen in islice(product(*ways), MOST_ORDERS_OF_A_TIE):  # the last one changes first
            named = dict(zip(ties, chosen, strict=True))
            found = tuple(named[tie] for tie in region.ties)
            if found not in self._tested[region.ties]:
                return found
        return None

    def note(self, orders: dict[TieKey, int], run: FollowedUses) -> None:
        """Take what a run showed: keep the orders of those regions in which rows are right for longer."""
        self.last = orders
        good = self._goods(run)
        for start, wrong in self._spans():
            ties = _region(start, wrong, {**self._ties, **self._soft}).ties
            changed = [tie for tie in ties if orders.get(tie, 0) != self.orders.get(tie, 0)]
            if not changed:
                continue
            reached = next((at for at in range(start + 1, len(good)) if not good[at]), len(good))
            if reached > wrong:
                self.orders |= {tie: orders[tie] for tie in changed}
                self._good[start + 1 : reached] = good[start + 1 : reached]
                self._good[reached : reached + 1] = [False] * (reached < len(good))
            elif reached < wrong and len(changed) == 1:
                self._dead[changed[0]].add(orders[changed[0]])
        self._note_ties(run)

    def unshown(self, run: FollowedUses) -> set[UseKey]:
        """Uses whose parts may stand in another order, if the next layer behind theirs has wrong rows, too."""
        good = self._goods(run)
        unshown = set()
        for key, at in {key: at for at, key in enumerate(self._keys) if key in run.arranged}.items():
            owners = {_owner(name) for name in run.followed[key].use.piece.names}
            later = (
                number
                for number in range(at + 1, len(self._keys))
                if (one := run.followed.get(self._keys[number])) is not None
                and one.use.heavy
                and owners.isdisjoint(map(_owner, one.use.piece.names))
            )
            unshown |= set() if good[next(later, -1)] else {key}
        return unshown

    @property
    def doubts(self) -> int:
        """How many runs show whether ties have an effect."""
        return min(2, len(self._ties))

    def doubted(self, runs: int) -> list[dict[TieKey, int]]:
        """Another order for every second tie, and for the others, which are to show that it has an effect.

        Where only one run is left, all have another one at once.
        """
        ties = sorted(self._ties, key=lambda tie: self._ties[tie][0])
        count = max(1, min(self.doubts, runs))
        halves = (ties[half::count] for half in range(count))
        return [{**self.orders, **dict(map(self._other, half))} for half in halves if half]

    def _other(self, tie: TieKey) -> tuple[TieKey, int]:
        ways = self._ties[tie][1]
        return tie, (self.orders.get(tie, 0) + max(1, ways // 2)) % ways

    def status(self, run: FollowedUses, others: Sequence[Tried], *, proven: bool) -> dict[TieKey, Status]:
        """What each tie is: sure, free where another order changes nothing, or open.

        Where all is `proven`, none is open; else one is sure if another order has wrong rows behind it sooner.
        """
        statuses: dict[TieKey, Status] = dict.fromkeys(self._ties, "sure" if proven else "open")
        mine = self._goods(run)
        for orders, other in others:
            theirs = self._goods(other)
            for tie in (tie for tie in self._ties if tie in run.ties and orders.get(tie, 0) != self.orders.get(tie, 0)):
                at, ways = self._ties[tie]
                if not theirs[at]:
                    continue
                if self._shown(at, (run, other), (mine, theirs)):
                    statuses[tie] = "sure" if proven or ways == 2 or not isinstance(tie, tuple) else statuses[tie]
                elif proven and not self._moves(at, run, other):
                    statuses[tie] = "free"
        return statuses

    def _shown(self, at: int, runs: tuple[FollowedUses, FollowedUses], goods: tuple[list[bool], list[bool]]) -> bool:
        """Tell whether the first use behind a tie that moves with it has the right rows in the first run alone."""
        for number in range(at + 1, len(self._keys)):
            one, two = (run.followed.get(self._keys[number]) for run in runs)
            if one is not None and two is not None and one.use.rows.moved(two.use.rows):
                return goods[0][number] and not goods[1][number]
        return goods[0][-1] and not goods[1][-1]

    def _moves(self, at: int, run: FollowedUses, other: FollowedUses) -> bool:
        """Tell whether anything behind a use has other rows in another run."""
        for key in self._keys[at + 1 :]:
            one, two = run.followed.get(key), other.followed.get(key)
            if one is None or two is None or one.by == "after":  # what is added to what was exchanged is exchanged, too
                continue
            if one.use.rows.moved(two.use.rows):
                return True
        return not returned_alike(run.outputs, other.outputs)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


# From elements to transforms: which elements of the source a target consists of, as steps that a map can hold.


def transforms_of(places: Places, shape: Shape) -> list[Transform] | None:
    """The transforms that make a target of a source of this shape; None if none of those that a map knows does.

    `places` has the target's shape, and in it the flat place in the source of each element, -1 where it is made of
    something else. There are several transforms where parts of the target are made one by one.
    """
    filled = places >= 0
    if filled.all() and (whole := _of_region(places, shape)) is not None:
        return [whole]
    for axis in range(places.ndim):
        others = tuple(one for one in range(places.ndim) if one != axis)
        have = filled.all(others) if others else filled
        if not np.array_equal(have, filled.any(others) if others else filled):
            continue
        found = _runs(places, shape, axis, have)
        if found is not None:
            return found
    return _nested(places, shape)


def _nested(places: Places, shape: Shape) -> list[Transform] | None:
    """Parts within parts: within those of an axis that are filled alike, else within each place of the first axis."""
    for axis, size in enumerate(places.shape):
        alike = np.moveaxis(places >= 0, axis, 0).reshape(size, -1)
        starts = [0, *(np.flatnonzero((alike[1:] != alike[:-1]).any(1)) + 1).tolist(), size]
        if 2 < len(starts) <= MOST_RUNS_OF_A_TENSOR:
            return _within(places, shape, axis, [*pairwise(starts)])
    axis = next((axis for axis, size in enumerate(places.shape) if size > 1), places.ndim)
    if axis >= places.ndim - 1 or places.shape[axis] > MOST_RUNS_OF_A_TENSOR:
        return None
    return _within(places, shape, axis, [(at, at + 1) for at in range(places.shape[axis])])


def _within(places: Places, shape: Shape, axis: int, spans: Sequence[tuple[int, int]]) -> list[Transform] | None:
    """The parts within each span of an axis."""
    runs: list[Transform] = []
    for start, stop in spans:
        inner = places[(slice(None),) * axis + (slice(start, stop),)]
        if (inner >= 0).any():
            parts = transforms_of(inner, shape)
            if parts is None or len(runs) + len(parts) > MOST_RUNS_OF_A_TENSOR:
                return None
            runs += [chained(one, Part(axis, start, stop, places.shape)) for one in parts]
    return runs


def _runs(places: Places, shape: Shape, axis: int, have: NDArray[np.bool_]) -> list[Transform] | None:
    """One transform for each run along an axis that one transform makes."""
    runs: list[Transform] = []
    rows = np.flatnonzero(have)
    start = 0
    while start < len(rows):
        stop = _end_of_run(places, rows, start, axis)
        region_steps = None
        while stop > start and region_steps is None:
            first, last = int(rows[start]), int(rows[stop - 1]) + 1
            region = places[(slice(None),) * axis + (slice(first, last),)]
            region_steps = _of_region(region, shape)
            if region_steps is None:
                stop = start + (stop - start) // 2
        if region_steps is None or len(runs) >= MOST_RUNS_OF_A_TENSOR:
            return None
        whole = first == 0 and last == places.shape[axis]
        runs.append(chained(region_steps, *([] if whole else [Part(axis, first, last, places.shape)])))
        start = stop
    return runs


def _end_of_run(places: Places, rows: NDArray[np.int64], start: int, axis: int) -> int:
    """How far rows follow each other in the target, and as regularly in the source as the first two do."""
    heads = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1)[:, 0]
    stop = start + 1
    step = heads[rows[stop]] - heads[rows[start]] if stop < len(rows) else 0
    while stop < len(rows) and rows[stop] == rows[stop - 1] + 1 and heads[rows[stop]] - heads[rows[stop - 1]] == step:
        stop += 1
    return stop


def _of_region(region: Places, shape: Shape) -> Transform | None:
    """The transform that makes a whole array of these places: the source or a slice of it, turned and shaped."""
    flat = region.reshape(-1)
    if len(flat) == prod(shape):
        return _turned(region - 0, shape) if flat.min() == 0 else None
    for before in _groupings(shape):
        for axis, size in enumerate(before):
            stride = prod(before[axis + 1 :])
            along = (flat // stride) % size
            start, stop = int(along.min()), int(along.max()) + 1
            cut = (*before[:axis], stop - start, *before[axis + 1 :])
            if prod(cut) != len(flat):
                continue
            outer, inner = flat // (stride * size), flat % stride
            local = (outer * (stop - start) + along - start) * stride + inner
            turned = _turned(local.reshape(region.shape), cut)
            if turned is not None:
                return chained(_shaped(shape, before), Slice(axis, start, stop, before), turned)
    return _of_block(region, shape)


def _of_block(region: Places, shape: Shape) -> Transform | None:
    """The transform that makes an array of a block that is cut out of the source along several axes."""
    indices = np.unravel_index(region.reshape(-1), shape)
    spans = [(int(along.min()), int(along.max()) + 1) for along in indices]
    sizes = tuple(stop - start for start, stop in spans)
    if prod(sizes) != region.size:
        return None
    local = np.ravel_multi_index(tuple(own - start for own, (start, _) in zip(indices, spans, strict=True)), sizes)
    turned = _turned(local.reshape(region.shape), sizes)
    if turned is None:
        return None
    cuts: list[Transform] = []
    left = shape
    for axis, (start, stop) in enumerate(spans):
        if stop - start < shape[axis]:
            cuts.append(Slice(axis, start, stop, left))
            left = (*left[:axis], stop - start, *left[axis + 1 :])
    return chained(*cuts, turned)


def _groupings(shape: Shape) -> Iterator[Shape]:
    """The shape itself, and those in which first axes are one: a slice of two axes is one of their product."""
    yield shape
    for axes in range(2, len(shape) + 1):
        yield (prod(shape[:axes]), *shape[axes:])


def _turned(places: Places, shape: Shape) -> Transform | None:
    """The reshape and the permutation between two arrays of one size: axes that are cut may stand in another order."""
    numbers = np.arange(prod(shape)).reshape(shape)
    wanted = places.reshape(-1)
    if np.array_equal(numbers.reshape(-1), wanted):
        return _shaped(shape, places.shape)
    axes = [axis for size, line in _lines(places) if size > 1 for axis in _cut_axis(line)]
    order = sorted(range(len(axes)), key=lambda at: -axes[at][1])
    before = tuple(axes[at][0] for at in order)
    if prod(before) != len(wanted):
        return None
    turn = tuple(int(one) for one in np.argsort(order))
    if len(before) <= len(shape) and (same := _permuted(shape, wanted)) is not None:
        before, turn = shape, same
    turned = numbers.reshape(before).transpose(turn)
    if not np.array_equal(turned.reshape(-1), wanted):
        return None
    return chained(_shaped(shape, before), Permute(turn), _shaped(turned.shape, places.shape))


def _shaped(before: Shape, after: Shape) -> Transform:
    return IDENTITY if before == after else Reshape(after, before)


def _permuted(shape: Shape, wanted: Places) -> tuple[int, ...] | None:
    """The order of a tensor's own axes in which its elements are these."""
    own = np.arange(prod(shape)).reshape(shape)
    orders = permutations(range(len(shape)))
    return next((order for order in orders if np.array_equal(own.transpose(order).reshape(-1), wanted)), None)


def _lines(places: Places) -> Iterator[tuple[int, Places]]:
    """The places along each axis, from the first element on."""
    for axis, size in enumerate(places.shape):
        yield size, places[(0,) * axis + (slice(None),) + (0,) * (places.ndim - axis - 1)]


def _cut_axis(line: Places) -> list[tuple[int, int]]:
    """An axis as axes of one stride each, the outermost first: (size, stride)."""
    cuts: list[tuple[int, int]] = []
    while len(line) > 1:
        steps = np.diff(line)
        run = int(np.argmax(steps != steps[0])) + 1 if (steps != steps[0]).any() else len(line)
        if steps[0] <= 0 or len(line) % run:
            return [(0, 0)]
        cuts.insert(0, (run, int(steps[0])))
        line = line[::run]
    return cuts


def form_between(before: Shape, after: Shape) -> Transform | None:
    """The one way in which a tensor has the other's shape: as it is, or turned."""
    first, two = bare_shape(before), bare_shape(after)
    if first == two:
        return _shaped(before, after)
    if sorted(first) != sorted(two) or len(set(first)) < len(first):
        return None
    turn = Permute(tuple(first.index(size) for size in two))
    return chained(_shaped(before, first), turn, _shaped(two, after))


def bare_shape(shape: Shape) -> Shape:
    """The shape without axes of length 1."""
    return tuple(n for n in shape if n != 1)
