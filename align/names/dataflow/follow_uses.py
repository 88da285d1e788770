"""Runs in which every use of a parameter is seen: of the first side as it is, of the second beside it.

While the second side runs, each use is looked up by the rows that go in, and its parameter gets the first side's value
at once: what comes behind it then sees the right rows too, so that one run settles a whole chain of layers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise, permutations, product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.names.dataflow.operator_uses import Answer, SeenRows, Use, distance, joined_rows, read_uses
from align.names.thresholds import (
    AGREEING_DISTANCE,
    MOST_CUTS,
    MOST_FOLLOWING_USES,
    MOST_LEAVES,
    MOST_ORDERS_OF_A_TIE,
    MOST_WINDOWS,
    REORDERED_SUM_DISTANCE,
)
from align.names.trial_sides import agree, see_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture, OperatorCall
    from align.core.transforms import Transform
    from align.names.dataflow.weight_pieces import PieceIndex
    from align.names.trial_sides import SeenTensor

    Returned = list[tuple[str, SeenTensor]]  # by what they are called in what the model returned

Features = tuple[int, ...]
UseKey = tuple[Any, ...]
TieKey = frozenset[int] | UseKey  # of the uses of a tie, or of the use that has a window to choose


# Where one side divides by what the other multiplies by, its value is the inverse.
INVERSES = {
    "scale": ("divide", "inverse"), "divide": ("scale", "inverse"), "shift": ("subtract", "negative"),
    "subtract": ("shift", "negative"),
}  # fmt: skip


ELEMENTWISE_KINDS = ("scale", "divide", "shift", "subtract")


class ReturnedTensors:
    """A sink that keeps what the model returned."""

    def __init__(self) -> None:
        self.outputs: Returned = []

    def add(self, capture: Capture, value: Array) -> None:
        """Keep what the model itself returned."""
        if not capture.module:
            self.outputs.append((capture.output, see_tensor(value)))


def returned_alike(one: Returned, two: Returned) -> bool:
    """Tell whether two models returned the same: by name where both name all of it alike, else by place."""
    named = dict(two)
    if {name for name, _ in one} == named.keys() and len(named) == len(one) == len(two):
        two = [(name, named[name]) for name, _ in one]
    return agree(*([seen for _, seen in own] for own in (one, two)))


class UseSink(ReturnedTensors):
    """An OperatorSink that is handed every use of a parameter, and keeps what the model returned.

    It also sees how the features of a product are cut into parts: what an operator returns may consist of elements of
    the product alone.
    """

    def __init__(self, index: PieceIndex) -> None:
        super().__init__()
        self.index = index
        self._products: list[Use] = []
        self._cut: dict[float, _Cut] = {}
        self._leaves: dict[UseKey, dict[Features, None]] = defaultdict(dict)

    def operator(self, call: OperatorCall) -> Any:
        """Make a call, use by use."""
        reader = read_uses(call, self.index)
        answer: Answer | None = None
        made_of: list[Use] = []
        while True:
            try:
                use = reader.send(answer)
            except StopIteration as end:
                self._look(call, end.value, made_of)
                return end.value
            answer = self.take(use)
            if use.kind == "product":
                made_of.append(use)
            elif use.kind == "shift" and (before := added_to(use.rows, self._products)) is not None:
                made_of += [before] if all(before is not one for one in made_of) else []

    def take(self, use: Use) -> Answer | None:
        """Take one use; return what is to be in its place."""
        raise NotImplementedError

    def _look(self, call: OperatorCall, made: Any, made_of: Sequence[Use]) -> None:
        """See whether a call returned a product, or some features of one that were returned before."""
        if not made_of and not self._cut:
            return
        # What an index takes is seen where it is used.
        shown = [*([] if made_of else call.tensors), *call.outputs(made)]
        for value in shown:
            if value.dtype.kind != "f" or value.size < 2:
                continue
            if made_of:
                self._note_rows(value, made_of)
            elif (cut := self._cut.get(float(value[(0,) * value.ndim]))) is not None:
                self._note_leaf(value, cut)

    def _note_rows(self, value: Array, made_of: Sequence[Use]) -> None:
        features = made_of[0].features
        if features < 2 or value.size % (features * len(made_of)):
            return
        axis = next((axis for axis in (-1, 1) if value.ndim > 1 and value.shape[axis] == features), None)
        if axis is None:
            return
        rows = np.moveaxis(value, axis, -1).reshape(len(made_of), -1, features)
        for use, own in zip(made_of, rows, strict=True):
            cut = _Cut([key_of(one) for one in made_of], key_of(use), own[0], len(own))
            self._cut |= dict.fromkeys(own[0].tolist(), cut)

    def _note_leaf(self, value: Array, cut: _Cut) -> None:
        size, own = len(cut.row), self._leaves[cut.key]
        if value.size >= size * cut.count * len(cut.beside) or value.size % cut.count or len(own) >= MOST_LEAVES:
            return
        flat = value.reshape(-1)
        at = np.searchsorted(cut.known, flat).clip(0, size - 1)
        found = cut.order[at[cut.known[at] == flat]]
        order, first = np.unique(found, return_index=True)
        features = tuple(int(one) for one in order[np.argsort(first)])
        if len(features) == size:
            return
        if len(features) * cut.count == value.size:
            own.setdefault(features)
        elif len(features) * cut.count * len(cut.beside) == value.size:
            for key in cut.beside:
                self._leaves[key].setdefault(features)

    def partitions(self, key: UseKey, size: int) -> list[list[Features]]:
        """The ways in which the features of a product were cut, the coarsest first."""
        leaves = list(self._leaves.get(key, ()))
        found: list[list[Features]] = []
        parts = _cover(tuple(range(size)), leaves)
        while parts is not None and parts not in found and len(found) < MOST_CUTS:
            found.append(parts)
            finer = (_cover(one, [leaf for leaf in leaves if len(leaf) < len(one)]) or [one] for one in parts)
            parts = list(chain.from_iterable(finer))
        return found


class _Cut:
    """The first row of a product, by its values, the number of rows, and the products of the same call."""

    def __init__(self, beside: list[UseKey], key: UseKey, row: Array, count: int) -> None:
        self.beside, self.key, self.row, self.count = beside, key, row, count
        self.order = np.argsort(row)
        self.known = row[self.order]


def _cover(whole: Features, leaves: Iterable[Features]) -> list[Features] | None:
    """The first leaves that have no feature in common and together have all; None if these are not all."""
    left, taken = set(whole), []
    for leaf in leaves:
        if left.issuperset(leaf):
            taken.append(leaf)
            left.difference_update(leaf)
    return taken if taken and not left else None


def key_of(use: Use) -> UseKey:
    """What tells one use from all others of its side: a piece that several calls use alike has one."""
    piece = use.piece
    return use.kind, piece.number, piece.offset, piece.shape, piece.strides


class SeenUses(UseSink):
    """The uses of the first side in the order of their first calls, each with the rows of all of its calls."""

    def __init__(self, index: PieceIndex) -> None:
        super().__init__(index)
        self._found: dict[UseKey, tuple[Use, list[SeenRows]]] = {}

    def take(self, use: Use) -> None:
        """Note a use, and what is added to what a product came to."""
        found = self._found.get(key_of(use))
        if found is None:
            use.order = len(self._found)
            use.value = np.array(use.value)
            self._found[key_of(use)] = found = use, []
        found[1].append(use.rows)
        if use.kind == "product":
            self._products = [*self._products[-MOST_LEAVES:], use]
        if use.kind == "shift" and (before := added_to(use.rows, self._products)) is not None:
            self._found[key_of(before)][0].bias = found[0]

    def uses(self) -> list[Use]:
        """All uses, each once."""
        for key, (use, rows) in self._found.items():
            use.rows = joined_rows(rows)
            if use.kind == "product" and not use.leaves:
                use.leaves = self.partitions(key, use.features)
        found = [use for use, _ in self._found.values()]
        heavy = [use for use in found if use.heavy]
        for at, use in enumerate(heavy):
            use.after = tuple(one.fans for one in heavy[at + 1 : at + 1 + MOST_FOLLOWING_USES])
        return found


def added_to(rows: SeenRows, products: Sequence[Use]) -> Use | None:
    """The latest product to whose outcome something is added."""
    for one in reversed(products):
        out = one.out
        fits = out is not None and out.width == rows.width and out.count == rows.count
        if out is None or not fits:
            continue
        if not (out.marks.any() or rows.marks.any()) or distance(out.marks, rows.marks) < REORDERED_SUM_DISTANCE:
            return one
    return None


How = Literal["place", "choice", "after", "given", "forced"]


@dataclass(frozen=True, slots=True)
class Match:
    """Some features of a use of the second side, and those of the first side's use that they are; None for all.

    `columns` says which of the first side's each feature of the rows is; None where they stand alike.
    """

    own: Features | None
    use: Use
    features: Features | None
    columns: tuple[int, ...] | None = None
    change: str = ""  # what is done to the value where the operators are each other's inverses

    def of(self, value: Array) -> Array:
        """What the second side has of what the first side has, laid out as the first side's value is."""
        if self.columns is not None:
            at = self.use.inside
            if at is None:
                value = value.reshape(-1)[list(self.columns)]
                value = value.reshape(self.use.value.shape) if value.size == self.use.value.size else value
            else:
                value = np.take(value, list(self.columns), at)
        if self.features is None:
            return value
        return value.reshape(-1)[list(self.features)] if self.use.kind == "shift" else value[..., list(self.features)]


@dataclass(slots=True)
class Followed:
    """A use of the second side: what it was matched with, and by what: its place, a choice or, without it, a guess."""

    use: Use
    matches: list[Match]
    by: How
    tie: TieKey = frozenset()


@dataclass(slots=True)
class FirstSide:
    """The uses of the first side, looked up by the rows that go in."""

    uses: list[Use]
    _by_kind: dict[tuple[str, int], list[Use]] = field(init=False)
    _sizes: dict[tuple[str, int], list[float]] = field(init=False)

    def __post_init__(self) -> None:
        grouped: dict[tuple[str, int], list[tuple[float, int, Use]]] = defaultdict(list)
        for use in self.uses:
            grouped[use.kind, use.rows.width].append((use.rows.size, use.order, use))
        self._by_kind = {key: [one[2] for one in sorted(own, key=lambda one: one[:2])] for key, own in grouped.items()}
        self._sizes = {key: [one.rows.size for one in own] for key, own in self._by_kind.items()}

    def alike(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that the same rows go into, in their order."""
        known, sizes = self._by_kind.get((kind, rows.width), []), self._sizes.get((kind, rows.width), [])
        margin = 2 * AGREEING_DISTANCE * rows.size
        near = known[bisect_left(sizes, rows.size - margin) : bisect_right(sizes, rows.size + margin)]
        found = [use for use in near if use.rows.count == rows.count and use.rows.same(rows)]
        return sorted(found, key=lambda use: use.order)

    def among(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that some of these rows go into, or these and others, in their order."""
        known = self._by_kind.get((kind, rows.width), [])
        found = [use for use in known if use.rows.count != rows.count and use.rows.same(rows)]
        return sorted(found, key=lambda use: use.order)

    def fed_zeros(self, kind: str, rows: SeenRows) -> list[Use]:
        """Uses of a kind that rows of zeros go into, as first states are, if these are such; in their order."""
        known = () if rows.marks.any() else self._by_kind.get((kind, rows.width), ())
        return sorted((use for use in known if not use.rows.marks.all()), key=lambda use: use.order)


class FollowedUses(UseSink):
    """A run of the second side in which each use gets the value of the first side's use that stands at its place."""

    def __init__(
        self,
        index: PieceIndex,
        first: FirstSide,
        own: Mapping[UseKey, Use],
        orders: Mapping[TieKey, int],
        known: tuple[Mapping[str, Sequence[str]], Mapping[str, tuple[str, Transform]]],
    ) -> None:
        super().__init__(index)
        self._first = first
        self._partitions = {key: use.leaves for key, use in own.items()}
        self._afters = {key: use.after for key, use in own.items()}
        self._biased = {key for key, use in own.items() if use.bias is not None}
        self._orders = orders
        self._hints, self._given = known
        self.followed: dict[UseKey, Followed] = {}
        self.ties: dict[TieKey, int] = {}
        self.choices: dict[TieKey, UseKey] = {}  # the use at which each was made first
        sources = {source for source, _ in self._given.values()}
        self._taken: set[tuple[int, Features | None]] = {
            (use.order, None) for use in first.uses if use.piece.names[0] in sources
        }
        self._rows_taken: dict[int, int] = {}
        self._cut_alike: dict[tuple[int, int], TieKey] = {}  # the tie of the first matrix of several in one tensor
        self._last = -1
        self.by_zeros: set[UseKey] = set()  # uses that only their rows of zeros, or those before them, gave a place
        self.helped = False  # whether something was put in its place that the model did not compute

    def take(self, use: Use) -> Answer | None:
        """Find the place of a use at its first call; return the value that it is to have."""
        key = key_of(use)
        found = self.followed.get(key)
        if found is None:
            if use.kind == "product" and not use.rows.varies and (use.rows.marks.any() or key not in self._biased):
                return None  # as the first state of a recurrent layer: the next one tells more
            given = len(use.piece.names) == 1 and use.piece.names[0] in self._given
            found = Followed(use, [], "given") if given else self._place(use)
            use.order = len(self.followed)
            self.followed[key] = found
        elif key in self.by_zeros and all(match.use.rows.same(use.rows) for match in found.matches):
            self.by_zeros.remove(key)
        if use.kind == "product":
            self._products = [*self._products[-MOST_LEAVES:], use]
        if not found.matches:
            is_extra = use.kind == "shift" and found.by in ("after", "forced") and added_to(use.rows, self._products)
            return Answer(np.zeros_like(use.value)) if is_extra else None
        value = _assembled(found.matches, use)
        forced = None
        if found.by == "forced" and use.product is not None and len(found.matches) == 1:
            theirs = found.matches[0].use.product
            if theirs is not None and theirs.size == use.product.size:
                forced = theirs.reshape(use.product.shape)
                self.helped = True
        return Answer(value, forced)

    def _place(self, use: Use) -> Followed:
        use.after = self._afters.get(key_of(use), ())
        if use.kind == "shift" and (before := added_to(use.rows, self._products)) is not None:
            owner = self.followed[key_of(before)]
            self.by_zeros |= {key_of(use)} if key_of(before) in self.by_zeros else set()
            if owner.matches:
                return self._after(use, owner)
            if owner.by == "forced":
                return Followed(use, [], "forced")
        found = None
        looks = [look(use.kind, use.rows) for look in (self._first.alike, self._first.among, self._first.fed_zeros)]
        if use.beside > 1:  # as many experts rather than the one that all tokens see
            looks.sort(key=lambda alike: len(alike) < use.beside)
        for alike in looks:
            tied = [one for one in alike if not self._is_taken(one)]
            found = self._chosen(use, tied) if tied else None
            if found is not None:
                self.by_zeros |= set() if use.rows.varies else {key_of(use)}
                break
        else:
            found = self._otherwise(use) or self._forced(use)
        for match in found.matches:
            if match.columns is None or len(match.columns) == match.use.rows.width:
                self._taken.add((match.use.order, match.features))
            self._last = max(self._last, match.use.order)
        return found

    def _otherwise(self, use: Use) -> Followed | None:
        """Match a use with one that says the same in another way."""
        if use.kind == "table":
            return self._among_tables(use)
        if use.kind in INVERSES:
            kind, change = INVERSES[use.kind]
            for one in self._first.alike(kind, use.rows):  # with the marks of the same kind
                if one.fans == use.fans and not self._is_taken(one) and (one.piece.derived or use.piece.derived):
                    return Followed(use, [Match(None, one, None, None, change)], "place")
        if use.kind == "scale" or (use.kind == "product" and use.features == 1):
            kind = "product" if use.kind == "scale" else "scale"  # multiplied, and then summed
            for one in self._first.uses:
                rows = [other.plain or other.rows for other in (one, use)]
                fits = one.kind == kind and one.value.size == use.value.size and rows[0].same(rows[1])
                if fits and not self._is_taken(one):
                    return Followed(use, [Match(None, one, None)], "place")
        return self._among_columns(use) if use.kind == "product" else None

    def _among_columns(self, use: Use) -> Followed | None:
        """Match a product with a part of the features of a larger one: of what the other side joins, and adds up."""
        for one in self._first.uses:
            if one.kind == "product" and one.features == use.features and (at := one.rows.begins(use.rows)) is not None:
                columns = tuple(range(at, at + use.rows.width))
                if (one.order, columns) not in self._taken:
                    self._taken.add((one.order, columns))
                    return Followed(use, [Match(None, one, None, columns)], "place")
        return None

    def _among_tables(self, use: Use) -> Followed | None:
        """Match a table with the next rows of a larger one, whose numbers go on where this one's begin."""
        for one in self._first.uses:
            if one.kind != "table" or one.fans[1:] != use.fans[1:] or one.fans[0] <= use.fans[0]:
                continue
            start = self._rows_taken.get(one.order, 0)
            numbers = set((use.rows.marks + start).tolist())
            if start + use.fans[0] <= one.fans[0] and numbers <= set(one.rows.marks.tolist()):
                self._rows_taken[one.order] = start + use.fans[0]
                return Followed(use, [Match(None, one, None, tuple(range(start, start + use.fans[0])))], "place")
        return None

    def _after(self, use: Use, owner: Followed) -> Followed:
        """What is added to a product is what is added to the products that it was matched with."""
        by: How = "forced" if owner.by == "forced" else "after"
        if any(match.use.bias is None for match in owner.matches):
            return Followed(use, [], by)
        matches = [Match(match.own, match.use.bias, match.features) for match in owner.matches if match.use.bias]
        self._taken |= {(match.use.order, match.features) for match in matches}
        return Followed(use, matches, by, owner.tie)

    def _is_taken(self, use: Use) -> bool:
        if (use.order, None) in self._taken:
            return True
        parts = [features for order, features in self._taken if order == use.order and features]
        return sum(map(len, parts)) >= use.features > 1

    def _chosen(self, use: Use, tied: Sequence[Use]) -> Followed | None:
        """Match a use with one of those that the same rows go into, or its features with those of several."""
        same = self._window(use, [one for one in tied if one.fans == use.fans])
        if not same and use.kind in ELEMENTWISE_KINDS:  # laid out with its axes in another order
            same = self._window(use, [one for one in tied if one.value.size == use.value.size])
        if same:
            return self._by_order(use, [None], [(one, None) for one in same])
        if use.kind != "product":
            return None
        window = self._window(use, tied)
        for parts in self._partitions.get(key_of(use)) or [_blocks(use, one) for one in window[:1]]:
            if parts and (found := self._by_order(use, parts, [(one, None) for one in window])):
                return found
        for level in range(MOST_CUTS):
            pool = [
                (one, features)
                for one in window
                for features in _parts_of(one, use, level)
                if (one.order, features) not in self._taken
            ]
            ways: list[Sequence[Features | None]] = [[None], *self._partitions.get(key_of(use), [])]
            for way in ways if pool else ():
                if found := self._by_order(use, way, pool):
                    return found
        return self._side_by_side(use, window)

    def _side_by_side(self, use: Use, window: Sequence[Use]) -> Followed | None:
        """Match a product that is not seen to be cut with several that are as wide together: behind what follows it."""
        if len(window) < 2 or sum(one.features for one in window) != use.features:
            return None
        hints = self._hints.get(use.piece.names[0], ())
        window = sorted(window, key=lambda one: _rank(one, use, hints))
        tie, ways = frozenset(one.order for one in window), [*islice(permutations(window), MOST_ORDERS_OF_A_TIE)]
        self.ties.setdefault(tie, len(ways))
        self.choices.setdefault(tie, key_of(use))
        matches, start = list[Match](), 0
        for one in ways[self._orders.get(tie, 0) % len(ways)]:
            matches.append(_matched(use, tuple(range(start, start + one.features)), one, None))
            start += one.features
        return Followed(use, matches, "choice", tie)

    def _window(self, use: Use, tied: Sequence[Use]) -> list[Use]:
        """Of those that the same rows go into: those with no other product between them that is to come.

        There may be several such rows of uses, as of branches: first the one behind which the same shapes follow, then
        the first one. Of a product that is wider than each of them, all: what it makes is used in several places.
        """
        if len(tied) < 2:
            return list(tied)
        taken = {order for order, _ in self._taken}
        orders = {one.order for one in tied}
        windows: list[list[Use]] = [[tied[0]]]
        for before, one in pairwise(tied):
            between = self._first.uses[before.order + 1 : one.order]
            apart = any(other.order not in orders | taken and other.heavy for other in between)
            windows.append([one]) if apart else windows[-1].append(one)
        if use.kind == "product" and all(sum(one.features for one in own) < use.features for own in windows):
            return list(tied)
        key = ("window", *key_of(use))
        if len(windows) > 1:
            windows.sort(key=lambda own: min(_likeness(one, use) for one in own))
            self.ties.setdefault(key, min(len(windows), MOST_WINDOWS))
            self.choices[key] = key_of(use)
        return windows[self._orders.get(key, 0) % len(windows)]

    def _by_order(
        self, use: Use, parts: Sequence[Features | None], pool: Sequence[tuple[Use, Features | None]]
    ) -> Followed | None:
        """Fill the parts from the pool, in the order that is tried for this tie."""
        sizes = [_width(use, part) for part in parts]
        by_size: dict[int, list[tuple[Use, Features | None]]] = defaultdict(list)
        for one, features in pool:
            if one.value.shape[:-1] == use.value.shape[:-1] or use.kind != "product":
                by_size[_width(one, features)].append((one, features))
        if any(len(by_size[size]) < sizes.count(size) for size in sizes):
            return None
        hints = self._hints.get(use.piece.names[0], ())
        for own in by_size.values():
            own.sort(key=lambda one: _rank(one[0], use, hints))
        tie: TieKey = frozenset(one.order for one, _ in pool)
        if use.beside > 1 and len(pool) == len(parts):  # matrices of one tensor are cut alike
            by_size = {size: sorted(own, key=lambda one: one[0].order) for size, own in by_size.items()}
            tie = self._cut_alike.setdefault((use.piece.number, len(parts)), tie)
        several = {size: own for size, own in by_size.items() if size in sizes and len(own) > 1}
        at = self._orders.get(tie, 0)
        if several:
            ways = list(
                islice(
                    product(*(permutations(own, sizes.count(size)) for size, own in several.items())),
                    MOST_ORDERS_OF_A_TIE,
                )
            )
            self.ties.setdefault(tie, len(ways))
            self.choices.setdefault(tie, key_of(use))
            for size, order in zip(several, ways[at % len(ways)], strict=True):
                by_size[size] = list(order)
        matches = [_matched(use, part, *by_size[size].pop(0)) for part, size in zip(parts, sizes, strict=True)]
        if several:
            return Followed(use, matches, "choice", tie)
        left = (own for own in self.ties if isinstance(own, frozenset) and matches[0].use.order in own)
        return Followed(use, matches, "place", next(left, frozenset()))  # the last one of a tie hangs on the others

    def _forced(self, use: Use) -> Followed:
        """Without a place: what names say, else the next use of the first side if it is of the same kind and shape."""
        hints = self._hints.get(use.piece.names[0], ())
        left = [
            one for one in self._first.uses if one.kind == use.kind and one.fans == use.fans and not self._is_taken(one)
        ]
        chosen = [one for one in left if one.piece.names[0] in hints][:1]
        if not chosen:
            later = [one for one in self._first.uses[self._last + 1 :] if not self._is_taken(one)]
            following = next((one for one in later if one.heavy == use.heavy), None)
            chosen = [one for one in left if one is following]
        return Followed(use, [Match(None, one, None) for one in chosen], "forced")


def _width(use: Use, features: Features | None) -> int:
    """How many numbers are matched: the features of a product, all numbers of what is done one by one."""
    if features is not None:
        return len(features)
    return use.features if use.kind == "product" else use.value.size


def _parts_of(one: Use, use: Use, level: int) -> Sequence[Features | None]:
    """The parts into which a product is cut; the whole of one that is not."""
    return one.leaves[level] if level < len(one.leaves) else _blocks(one, use, level) or (None,)


def _blocks(one: Use, use: Use, level: int = 0) -> list[Features]:
    """Of features that nothing was seen to cut: blocks of as many as another product has."""
    size, whole = use.features, one.features
    if one.leaves or level or whole % size or whole == size:
        return []
    return [tuple(range(start, start + size)) for start in range(0, whole, size)]


def _matched(use: Use, part: Features | None, one: Use, features: Features | None) -> Match:
    columns, change = one.rows.columns(use.rows), ""
    if columns is None and use.kind in ("scale", "divide") and not one.rows.alike(use.rows):
        columns = one.rows.columns(use.rows.negated)
        change = "negative" if columns is not None or one.rows.alike(use.rows.negated) else ""
    return Match(part, one, features, None if columns is None else tuple(columns.tolist()), change)


def _rank(one: Use, use: Use, hints: Sequence[str]) -> tuple[int, int, int]:
    """Where a use stands among those of a tie: first what names say, then what follows it, then the order of calls."""
    name = one.piece.names[0]
    return (hints.index(name) if name in hints else len(hints)), *_likeness(one, use)


def _likeness(one: Use, use: Use) -> tuple[int, int]:
    """How little of what follows a use has the same shapes, and its place."""
    common = next((n for n, (a, b) in enumerate(zip(one.after, use.after, strict=False)) if a != b), len(use.after))
    return -common, one.order


def _assembled(matches: Sequence[Match], use: Use) -> Array:
    value = np.array(use.value)
    for match in matches:
        theirs = match.of(match.use.value)
        theirs = 1.0 / theirs if match.change == "inverse" else -theirs if match.change == "negative" else theirs
        if match.own is None:
            return np.array(theirs.reshape(value.shape))
        features = value.reshape(-1) if use.kind == "shift" else value  # a view
        features[..., list(match.own)] = theirs
    return value
