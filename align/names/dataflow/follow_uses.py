"""Runs in which every use of a parameter is seen: of the first side as it is, of the second beside it.

While the second side runs, each use is looked up by the rows that go in, and its parameter gets the first side's value
at once: what comes behind it then sees the right rows too, so that one run settles a whole chain of layers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations, product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.names.dataflow.cut_products import Features, PartsOfBoth, UseKey, UseSink, added_to, key_of, unlikeness
from align.names.dataflow.first_side import TakenUses, added_by_feature, each_has_its_own, terms_paired
from align.names.dataflow.operator_uses import Answer
from align.names.dataflow.seen_rows import see_rows
from align.names.thresholds import MOST_CUTS, MOST_LEAVES, MOST_ORDERS_OF_A_TIE, MOST_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.piece_transforms import Share, Sum
    from align.core.transforms import Transform
    from align.names.dataflow.cut_products import Arrangement
    from align.names.dataflow.first_side import FirstSide, Term
    from align.names.dataflow.operator_uses import Use
    from align.names.dataflow.seen_rows import PieceIndex

Part = tuple["Use", Features | None]
TieKey = frozenset[Any] | UseKey  # of the uses of a tie, or of the use that has a window to choose


# Where one side divides by what the other multiplies by, its value is the inverse.
INVERSES = {
    "scale": ("divide", "inverse"), "divide": ("scale", "inverse"), "shift": ("subtract", "negative"),
    "subtract": ("shift", "negative"),
}  # fmt: skip


OWN_PARTS = "own parts"  # names the order of parts of one layer, where its class has another
ELEMENTWISE_KINDS = ("scale", "divide", "shift", "subtract")


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

    span: tuple[int, int] | None = None  # which features of the second side's rows are those of the first side's
    term: tuple[int, int] | None = None  # of what is added: which of its terms is which of the first side's
    step: Sum | Share | None = None  # where several of one side are one of the other
    free: bool = False  # whether any term may be any: only their sum has an effect

    def within(self, value: Array) -> Array:
        """The part of the second side's value, or of the places of it, that this is about."""
        return value if self.span is None else value[slice(*self.span)]

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


class FollowedUses(UseSink):
    """A run of the second side in which each use gets the value of the first side's use that stands at its place."""

    def __init__(
        self,
        index: PieceIndex,
        first: FirstSide,
        second_uses: Mapping[UseKey, Use],
        orders: Mapping[TieKey, int],
        known: tuple[Mapping[str, Sequence[str]], Mapping[str, tuple[str, Transform]]],
        family: Callable[[str], tuple[str, ...]],
    ) -> None:
        super().__init__(index)
        self._first = first
        self._own = second_uses
        self._partitions = {key: use.leaves for key, use in second_uses.items()}
        self._biased = {key for key, use in second_uses.items() if use.bias or _has_own(use)}
        self._orders, self._family = orders, family
        self._hints, self._given = known
        self.followed: dict[UseKey, Followed] = {}
        self.ties: dict[TieKey, int] = {}
        self.soft_ties: dict[TieKey, int] = {}  # whose first order is taken for right where nothing speaks against it
        self.likely_ties: set[TieKey] = set()  # of all others, those whose first order is likely to be right
        self._arrangements: dict[TieKey, list[Arrangement]] = {}
        self._own_orders: dict[TieKey, TieKey] = {}  # of each class of layers: the first one
        self.arranged: dict[UseKey, TieKey] = {}  # uses whose parts may stand in several orders, and what is added
        self.choices: dict[TieKey, UseKey] = {}  # the use at which each was made first
        sources = {source for source, _ in self._given.values()}
        self._taken = TakenUses(use for use in first.uses if use.piece.names[0] in sources)
        self._rows_taken: dict[int, int] = {}
        self._columns_taken: set[tuple[int, Features, Features | None]] = set()
        self._cut_alike: dict[tuple[int, int], TieKey] = {}  # the tie of the first matrix of several in one tensor
        self._halves: set[UseKey] = set()  # uses of which some columns have no place yet
        self._last = -1
        self.by_zeros: set[UseKey] = set()  # uses that only their rows of zeros, or those before them, gave a place
        self.helped = False  # whether something was put in its place that the model did not compute

    def take(self, use: Use) -> Answer | None:
        """Find the place of a use at its first call; return the value that it is to have."""
        key = key_of(use)
        done = self.followed.get(key)
        if done is None:
            if use.kind == "product" and not use.rows.varies and (use.rows.marks.any() or key not in self._biased):
                return None  # as the first state of a recurrent layer: the next one tells more
            given = len(use.piece.names) == 1 and use.piece.names[0] in self._given
            done = Followed(use, [], "given") if given else self._place(use)
            use.order = len(self.followed)
            self.followed[key] = done
        elif key in self._halves:
            self._add_columns(done, use)
        elif key in self.by_zeros and all(match.use.rows.same(use.rows) for match in done.matches):
            self.by_zeros.remove(key)
        if use.multiplies:
            self._products = [*self._products[-MOST_LEAVES:], use]
        if not done.matches:
            is_extra = use.kind == "shift" and done.by in ("after", "forced") and added_to(use.rows, self._products)
            return Answer(np.zeros_like(use.value)) if is_extra else None
        value = _assembled(done.matches, use)
        forced = None
        if done.by == "forced" and use.product is not None and len(done.matches) == 1:
            theirs = done.matches[0].use.product
            if theirs is not None and theirs.size == use.product.size:
                forced = theirs.reshape(use.product.shape)
                self.helped = True
        return Answer(value, forced)

    def _place(self, use: Use) -> Followed:
        key = key_of(use)
        if (seen := self._own.get(key)) is not None:
            use.after, use.leaves, use.becomes = seen.after, seen.leaves, seen.becomes
        done = self._place_shift(use) if use.kind == "shift" else None
        if done is not None:
            return done
        for alike in self._fed_alike(use):
            tied = [one for one in alike if not self._taken.has_all(one)]
            done = self._chosen(use, tied) if tied else None
            if done is not None:
                done = self._part_by_part(done)
                self.by_zeros |= set() if use.rows.varies else {key_of(use)}
                break
        else:
            done = self._otherwise(use) or self._beside_in_sum(use) or self._by_columns(use) or self._forced(use)
        for match in done.matches:
            if match.columns is None or len(match.columns) == match.use.rows.width:
                self._taken.add(match.use, match.features)
            self._last = max(self._last, match.use.order)
        return done

    def _fed_alike(self, use: Use) -> Iterator[list[Use]]:
        """The uses that the same rows go into, then those that share rows, as far as one looks."""
        first = self._first
        looks = [first.alike, first.among, first.fed_zeros]
        if use.beside > 1:  # as many experts rather than the one that all tokens see
            yield from sorted((look(use.kind, use.rows) for look in looks), key=lambda alike: len(alike) < use.beside)
            looks = []
        for look in (*looks, first.overlapping):
            yield look(use.kind, use.rows)

    def _place_shift(self, use: Use) -> Followed | None:
        """Match what is added to a product, or to the sum of several, that has a place; None of anything else."""
        if (found := self._of_a_sum(use)) is not None:
            return found
        before = added_to(use.rows, self._products)
        if before is None:
            return None
        owner = self.followed[key_of(before)]
        self.by_zeros |= {key_of(use)} if key_of(before) in self.by_zeros else set()
        if owner.matches:
            return self._after(use, owner)
        return Followed(use, [], "forced") if owner.by == "forced" else None

    def _beside_in_sum(self, use: Use) -> Followed | None:
        """Match a product with the one that is added to what it is added to, too: as of a state to that of an input."""
        left = self._left_in_sum(use)
        functions = {name for names in use.becomes.values() for name in names if name != "added" and name[:3] != "by_"}
        if len(left) != 1 or not functions:  # what is added to a stream of many layers may be any layer
            return None
        return self._part_by_part(Followed(use, [_matched(use, None, left[0], None)], "place"))

    def _by_columns(self, use: Use) -> Followed | None:
        """Match a product of rows that were joined of several with the products that the first side adds up instead."""
        found = Followed(use, [], "place")
        self._add_columns(found, use)
        return found if found.matches else None

    def _add_columns(self, done: Followed, use: Use) -> None:
        """Match those columns that have no place yet: by their rows, or as what is left of the first side's sum."""
        if use.data is None:
            return
        spans = set(self.cuts.joined(use.data))
        for span in sorted(spans - {match.span for match in done.matches}):
            width, rows = span[1] - span[0], see_rows(use.data[..., slice(*span)])
            first = self._first
            looks = (look("product", rows) for look in (first.alike, first.among, first.overlapping))
            ones = [near for look in looks for near in look] if rows.varies else []
            ones += [near for match in done.matches for near in match.use.summed if near.rows.width == width]
            ones = [near for near in ones if near.features == use.features and not self._taken.has_all(near)]
            if ones:
                whole = Match(None, ones[0], None)
                done.matches += [replace(near, span=span) for near in self._rearranged(use, whole)[1]]
                self._take_all(done.matches)
        self._halves.discard(key_of(use))
        if done.matches and spans - {match.span for match in done.matches}:
            self._halves.add(key_of(use))

    def _left_in_sum(self, use: Use) -> list[Use]:
        """Of the first side's sum that a placed product of a use's sum is in, those of its shape that are left."""
        seen = self._own.get(key_of(use))
        placed = [self.followed.get(key_of(one)) for one in seen.summed] if seen is not None else []
        matched = [one.matches[0].use for one in placed if one is not None and one.matches and one.by != "forced"]
        left = [
            one for other in matched for one in other.summed if one.fans == use.fans and not self._taken.has_all(one)
        ]
        return list(dict.fromkeys(left))

    def _otherwise(self, use: Use) -> Followed | None:
        """Match a use with one that says the same in another way."""
        if use.kind == "table":
            return self._among_tables(use)
        if use.kind in INVERSES:
            kind, change = INVERSES[use.kind]
            for near in self._first.alike(kind, use.rows):  # with the marks of the same kind
                if (
                    near.fans == use.fans
                    and not self._taken.has_all(near)
                    and (near.piece.derived or use.piece.derived)
                ):
                    return Followed(use, [Match(None, near, None, None, change)], "place")
        if use.kind == "scale" or (use.kind == "product" and use.features == 1):
            kind = "product" if use.kind == "scale" else "scale"  # multiplied, and then summed
            for near in self._first.uses:
                rows = [other.plain or other.rows for other in (near, use)]
                fits = near.kind == kind and near.value.size == use.value.size and rows[0].same(rows[1])
                if fits and not self._taken.has_all(near):
                    return Followed(use, [Match(None, near, None)], "place")
        return self._side_by_side_rows(use)

    def _side_by_side_rows(self, use: Use) -> Followed | None:
        """Match a use with a part of the features of a larger one, or with those that its own features belong to."""
        if not use.follows_features:
            return self._among_columns(use) if use.multiplies else None
        joined = self._first.joined
        if (part := joined.whole(use, self._is_free)) is not None:
            return Followed(use, [Match(None, part[0], part[1])], "place")
        parts = joined.parts(use, self._is_free)
        if parts is None or any(one.value.shape[:-1] != use.value.shape[:-1] for one, _ in parts):
            return None
        return Followed(use, [Match(features, one, None) for one, features in parts], "place")

    def _is_free(self, one: Use, features: Features | None) -> bool:
        """Tell whether these features of a use that follows those of its rows are left."""
        return one.follows_features and not self._taken.has(one, features) and not self._taken.has_all(one)

    def _among_columns(self, use: Use) -> Followed | None:
        """Match a product with a part of the rows of a larger one, and of its features: of what is added up."""

        def left(near: Use, columns: Features | None) -> list[Features | None]:
            return [
                part for part in _parts_as_wide(near, use) if (near.order, columns, part) not in self._columns_taken
            ]

        found = self._first.joined.whole(use, lambda near, columns: bool(left(near, columns)))
        if found is None:
            return None
        near, columns = found
        parts = sorted(left(near, columns), key=lambda part: unlikeness(use, None, near, part))
        tie: TieKey = frozenset((near.order, columns, part) for part in parts)
        if len(parts) > 1:
            self._note_tie(tie, use, [unlikeness(use, None, near, part) for part in parts])
        part = parts[self._orders.get(tie, 0) % len(parts)]
        self._columns_taken.add((near.order, columns, part))
        made = self._rearranged(use, Match(None, near, part, columns))[1]
        return Followed(use, made, "choice" if len(parts) > 1 else "place", tie if len(parts) > 1 else frozenset())

    def _among_tables(self, use: Use) -> Followed | None:
        """Match a table with the next rows of a larger one, whose numbers go on where this one's begin."""
        for first in self._first.uses:
            if first.kind != "table" or first.fans[1:] != use.fans[1:] or first.fans[0] <= use.fans[0]:
                continue
            start = self._rows_taken.get(first.order, 0)
            numbers = set((use.rows.marks + start).tolist())
            if start + use.fans[0] <= first.fans[0] and numbers <= set(first.rows.marks.tolist()):
                self._rows_taken[first.order] = start + use.fans[0]
                return Followed(use, [Match(None, first, None, tuple(range(start, start + use.fans[0])))], "place")
        return None

    def _after(self, use: Use, owner: Followed) -> Followed:
        """What is added to a product is what is added to the products that it was matched with."""
        by: How = "forced" if owner.by == "forced" else "after"
        biased = [match for match in owner.matches if match.use.bias is not None]
        if len(biased) < len(owner.matches):  # or added to products of other features, too
            beside = self._side_by_side_rows(use)
            if beside is not None or not biased:
                return beside or Followed(use, [], by)
        self._note_arranged(use, owner)
        matches = [Match(match.own, match.use.bias, match.features) for match in biased if match.use.bias]
        self._take_all(matches)
        return Followed(use, matches, by, owner.tie)

    def _of_a_sum(self, use: Use) -> Followed | None:
        """Match what is added to a sum of products with what is added there on the first side, whatever to.

        Only the sum of all has an effect. Where one side adds one tensor and the other several, it is their sum.
        """
        seen = self._own.get(key_of(use))
        placed = [(one, self.followed.get(key_of(one))) for one in seen.added_to] if seen is not None else []
        product, owner = next(((one, own) for one, own in placed if own is not None and own.matches), (None, None))
        if seen is None or product is None or owner is None or not seen.terms:
            return None
        first = owner.matches[0].use
        is_alone = not product.sums and not first.sums and len(seen.terms) == len(first.biases) == 1
        if is_alone or all(map(each_has_its_own, (product, first))):
            return None
        if any(match.use not in (first, *first.summed) for match in owner.matches):
            return None
        matches = self._added_alike(seen, product, [match for match in owner.matches if match.use is first])
        if not matches:
            return None
        self._take_all(matches)
        self._note_arranged(use, owner)
        return Followed(use, matches, "forced" if owner.by == "forced" else "after", owner.tie)

    def _note_arranged(self, use: Use, owner: Followed) -> None:
        if (tie := self.arranged.get(key_of(owner.use))) is not None:
            self.arranged[key_of(use)] = tie

    def _added_alike(self, use: Use, product: Use, placed: Sequence[Match]) -> list[Match]:
        """What is added to features of a product as the terms that are added to theirs, feature by feature."""
        mine, theirs = added_by_feature(product), added_by_feature(placed[0].use)
        groups: dict[tuple[tuple[Term, ...], ...], list[tuple[list[int], list[int]]]] = defaultdict(list)
        for match in placed:
            pairs = zip(match.own or range(len(mine)), match.features or range(len(theirs)), strict=True)
            for both in ((mine[item], theirs[other]) for item, other in pairs):
                key = tuple(tuple(term for term, _ in terms) for terms in both)
                if any(item is use for item, _ in key[0]):
                    groups[key].append(([place for _, place in both[0]], [place for _, place in both[1]]))
        done = []
        for (left, others), places in groups.items():
            if len(left) > 1 < len(others) and len(left) != len(others):
                return []
            for at, number, step in terms_paired(left, others, self._hints):
                if left[at][0] is use:
                    features = [tuple(item[side][n] for item in places) for side, n in ((0, at), (1, number))]
                    is_free = len(left) == len(others) > 1
                    bias, term = others[number]
                    done.append(
                        Match(features[0], bias, features[1], term=(left[at][1], term), step=step, free=is_free)
                    )
        return done

    def _take_all(self, matches: Sequence[Match]) -> None:
        for match in matches:
            self._taken.add(match.use, match.features)

    def _chosen(self, use: Use, tied: Sequence[Use]) -> Followed | None:
        """Match a use with one of those that the same rows go into, or its features with those of several."""
        same = self._window(use, [near for near in tied if near.fans == use.fans])
        if not same and use.kind in ELEMENTWISE_KINDS:  # laid out with its axes in another order
            same = self._window(use, [near for near in tied if near.value.size == use.value.size])
        if same:
            same = [near for near in self._left_in_sum(use) if near in same] or same
            return self._by_order(use, [None], [(near, None) for near in same])
        if not use.multiplies:
            return None
        window = self._window(use, tied)
        for parts in self._partitions.get(key_of(use)) or [_blocks(use, near) for near in window[:1]]:
            if parts and (done := self._by_order(use, parts, [(near, None) for near in window])):
                return done
        for level in range(MOST_CUTS):
            pool = [
                (near, features)
                for near in window
                for features in _parts_of(near, use, level)
                if not self._taken.has(near, features)
            ]
            ways: list[Sequence[Features | None]] = [[None], *self._partitions.get(key_of(use), [])]
            for way in ways if pool else ():
                if done := self._by_order(use, way, pool):
                    return done
        return self._side_by_side(use, window)

    def _part_by_part(self, done: Followed) -> Followed:
        """A match of products in which parts that stand in another order are matched one by one."""
        if not done.use.multiplies:
            return done
        arranged = [self._rearranged(done.use, match) for match in done.matches]
        ties = [tie for tie, _ in arranged if tie]
        if not ties:
            return done
        by: How = "forced" if done.by == "forced" else "choice"
        return Followed(done.use, [one for _, own in arranged for one in own], by, done.tie or ties[0])

    def _rearranged(self, use: Use, match: Match) -> tuple[TieKey, list[Match]]:
        """A match part by part, and the tie of their order; the match itself where each part is in its own place.

        All layers of a class have their parts in one order, which is tried where rows behind them are wrong.
        """
        if match.own is not None and match.features is not None:
            return frozenset(), [match]
        parts = PartsOfBoth(use, match.own, match.use, match.features)
        if not parts.mine:
            return frozenset(), [match]
        tie, order = self._arrangement(use, parts)
        self.arranged[key_of(use)] = tie
        if parts.is_as_it_stands(order):
            return frozenset(), [match]
        return tie, [replace(match, own=parts.mine[n], features=parts.theirs[at]) for n, at in enumerate(order)]

    def _arrangement(self, use: Use, parts: PartsOfBoth) -> tuple[TieKey, Arrangement]:
        """The order of parts that is tried for all layers of a class, or for one that is seen to have another."""
        name = use.piece.names[0]
        tie: TieKey = ("parts", *self._family(name), *map(len, parts.mine))
        if is_first := tie not in self._arrangements:
            self._arrangements[tie] = parts.arrangements()
        orders = self._arrangements[tie]
        order = orders[self._orders.get(tie, 0) % len(orders)]
        self.soft_ties.setdefault(tie, len(orders))
        self.choices.setdefault(tie, key_of(use))
        own_order: TieKey = (OWN_PARTS, name.rpartition(".")[0], *map(len, parts.mine))
        if is_first or self._own_orders.get(tie) == own_order:
            self._own_orders.setdefault(tie, own_order)
            return tie, order
        self.soft_ties.setdefault(own_order, len(orders))
        self.choices.setdefault(own_order, key_of(use))
        if own_order not in self._orders and parts.unlike(order) <= parts.least_unlike:
            return tie, order
        if own_order not in self._arrangements:
            self._arrangements[own_order] = parts.arrangements()
        orders = self._arrangements[own_order]
        if own_order in self._orders or parts.unlike(order) > parts.unlike(orders[0]):
            return own_order, orders[self._orders.get(own_order, 0) % len(orders)]
        return tie, order

    def _side_by_side(self, use: Use, window: Sequence[Use]) -> Followed | None:
        """Match a product that is not seen to be cut with several that are as wide together: behind what follows it."""
        if len(window) < 2 or sum(first.features for first in window) != use.features:
            return None
        hints = self._hints.get(use.piece.names[0], ())
        window = sorted(window, key=lambda first: _rank(first, use, hints))
        tie, ways = (frozenset(first.order for first in window), [*islice(permutations(window), MOST_ORDERS_OF_A_TIE)])
        self.ties.setdefault(tie, len(ways))
        self.choices.setdefault(tie, key_of(use))
        matches, start = list[Match](), 0
        for first in ways[self._orders.get(tie, 0) % len(ways)]:
            matches.append(_matched(use, tuple(range(start, start + first.features)), first, None))
            start += first.features
        return Followed(use, matches, "choice", tie)

    def _window(self, use: Use, tied: Sequence[Use]) -> list[Use]:
        """Of those that the same rows go into: those with no other product between them that is to come.

        There may be several such rows of uses, as of branches: first the one behind which the same shapes follow, then
        the first one. Of a product that is wider than each of them, all: what it makes is used in several places.
        """
        if len(tied) < 2:
            return list(tied)
        taken = self._taken.orders
        orders = {first.order for first in tied}
        windows: list[list[Use]] = [[tied[0]]]
        for before, first in pairwise(tied):
            between = self._first.uses[before.order + 1 : first.order]
            apart = any(other.order not in orders | taken and other.heavy for other in between)
            windows.append([first]) if apart else windows[-1].append(first)
        if use.multiplies and all(sum(first.features for first in within) < use.features for within in windows):
            return list(tied)
        key = ("window", *key_of(use))
        if len(windows) > 1:
            windows.sort(key=lambda within: min(_likeness(first, use) for first in within))
            self.ties.setdefault(key, min(len(windows), MOST_WINDOWS))
            self.choices[key] = key_of(use)
        return windows[self._orders.get(key, 0) % len(windows)]

    def _by_order(
        self, use: Use, parts: Sequence[Features | None], pool: Sequence[tuple[Use, Features | None]]
    ) -> Followed | None:
        """Fill the parts from the pool, in the order that is tried for this tie."""
        sizes = [_width(use, part) for part in parts]
        by_size: dict[int, list[tuple[Use, Features | None]]] = defaultdict(list)
        for near, features in pool:
            if near.value.shape[:-1] == use.value.shape[:-1] or not use.multiplies:
                by_size[_width(near, features)].append((near, features))
        if any(len(by_size[size]) < sizes.count(size) for size in sizes):
            return None
        hints = self._hints.get(use.piece.names[0], ())
        for ones in by_size.values():
            ones.sort(key=lambda near: _rank(near[0], use, hints))
        tie: TieKey = frozenset(near.order if features is None else (near.order, features) for near, features in pool)
        if use.beside > 1 and len(pool) == len(parts):  # matrices of one tensor are cut alike
            by_size = {size: sorted(ones, key=lambda near: near[0].order) for size, ones in by_size.items()}
            tie = self._cut_alike.setdefault((use.piece.number, len(parts)), tie)
        several = {size: ones for size, ones in by_size.items() if size in sizes and len(ones) > 1}
        if several:
            ways = _assignments(use, parts, several)
            self._note_tie(tie, use, [unlike for unlike, _ in ways])
            for size, order in ways[self._orders.get(tie, 0) % len(ways)][1].items():
                by_size[size] = list(order)
        matches = [_matched(use, part, *by_size[size].pop(0)) for part, size in zip(parts, sizes, strict=True)]
        if several:
            return Followed(use, matches, "choice", tie)
        mine = {matches[0].use.order, (matches[0].use.order, matches[0].features)}
        left = (ones for ones in self.ties if isinstance(ones, frozenset) and not ones.isdisjoint(mine))
        return Followed(use, matches, "place", next(left, frozenset()))  # the last one of a tie hangs on the others

    def _note_tie(self, tie: TieKey, use: Use, unlike: Sequence[int]) -> None:
        """Note an order that is chosen at a use; the first one is likely if what is done tells it from all others."""
        self.ties.setdefault(tie, len(unlike))
        self.choices.setdefault(tie, key_of(use))
        if self.choices[tie] == key_of(use) and unlike[0] < unlike[1]:
            self.likely_ties.add(tie)

    def _forced(self, use: Use) -> Followed:
        """Without a place: what names say, else the next use of the first side if it is of the same kind and shape."""
        hints = self._hints.get(use.piece.names[0], ())
        left = [
            first
            for first in self._first.uses
            if first.kind == use.kind and first.fans == use.fans and not self._taken.has_all(first)
        ]
        chosen = [first for first in left if first.piece.names[0] in hints][:1]
        if not chosen:
            later = [first for first in self._first.uses[self._last + 1 :] if not self._taken.has_all(first)]
            following = next((first for first in later if first.heavy == use.heavy), None)
            chosen = [first for first in left if first is following]
        return self._part_by_part(Followed(use, [Match(None, first, None) for first in chosen], "forced"))


def _has_own(product: Use) -> bool:
    """Tell whether something is added to features of a product alone, in no sum with others."""
    return any(bias.added_to == [product] for bias, _ in product.biases)


def _width(use: Use, features: Features | None) -> int:
    """How many numbers are matched: the features of a product, all numbers of what is done one by one."""
    if features is not None:
        return len(features)
    return use.features if use.multiplies else use.value.size


def _assignments(
    use: Use, parts: Sequence[Features | None], several: Mapping[int, Sequence[Part]]
) -> list[tuple[int, dict[int, tuple[Part, ...]]]]:
    """The ways to fill parts of each size, the most alike first, each with how unlike what is done with them is."""
    of_size = {size: [part for part in parts if _width(use, part) == size] for size in several}

    def unlike(way: tuple[tuple[Part, ...], ...]) -> int:
        return sum(
            unlikeness(use, part, *theirs)
            for size, order in zip(several, way, strict=True)
            for part, theirs in zip(of_size[size], order, strict=True)
        )

    orders = product(*(permutations(own, len(of_size[size])) for size, own in several.items()))
    ways = sorted(((unlike(way), way) for way in islice(orders, MOST_ORDERS_OF_A_TIE)), key=lambda way: way[0])
    return [(number, dict(zip(several, way, strict=True))) for number, way in ways]


def _parts_as_wide(first: Use, use: Use) -> list[Features | None]:
    """The whole of a product that makes as many features as another one, or its parts that do."""
    if first.features == use.features:
        return [None]
    ways = (parts for parts in first.leaves if any(len(part) == use.features for part in parts))
    return [part for part in next(ways, _blocks(first, use)) if len(part) == use.features]


def _parts_of(one: Use, use: Use, level: int) -> Sequence[Features | None]:
    """The parts into which a product is cut; the whole of one that is not."""
    return one.leaves[level] if level < len(one.leaves) else _blocks(one, use, level) or (None,)


def _blocks(one: Use, use: Use, level: int = 0) -> list[Features]:
    """Of features that nothing was seen to cut: blocks of as many as another product has."""
    size, whole = use.features, one.features
    if one.leaves or level or whole % size or whole == size:
        return []
    return [tuple(range(start, start + size)) for start in range(0, whole, size)]


def _matched(use: Use, part: Features | None, first: Use, features: Features | None) -> Match:
    columns, change = first.rows.columns(use.rows), ""
    if columns is None and use.kind in ("scale", "divide") and not first.rows.alike(use.rows):
        columns = first.rows.columns(use.rows.negated)
        change = "negative" if columns is not None or first.rows.alike(use.rows.negated) else ""
    return Match(part, first, features, None if columns is None else tuple(columns.tolist()), change)


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
    if any(match.term is not None for match in matches):
        value = np.zeros_like(use.value)
    for match in matches:
        theirs = match.of(match.use.value if match.term is None else match.use.terms[match.term[1]][1])
        theirs = 1.0 / theirs if match.change == "inverse" else -theirs if match.change == "negative" else theirs
        features = value.reshape(-1) if use.kind == "shift" else match.within(value)
        columns = slice(None) if match.own is None else list(match.own)
        if match.term is not None:
            features[..., columns] += theirs.reshape(-1) if match.step is None else match.step.apply(theirs.reshape(-1))
        elif match.own is None and match.span is None:
            return np.array(theirs.reshape(value.shape))
        else:
            features[..., columns] = theirs
    return value
