"""Orders of uses that the same rows go into: tried until all that comes behind them has the right rows.

A use with wrong rows blames the ties before it, back to the last such use. As what it should have returned is put in
its place, each region is tried on its own, and all regions in one run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Literal

from align.names.dataflow.follow_uses import returned_alike
from align.names.thresholds import MOST_ORDERS_OF_A_TIE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.names.dataflow.follow_uses import FollowedUses, Returned, TieKey, UseKey

    Tried = tuple[dict[TieKey, int], FollowedUses]

Status = Literal["sure", "free", "open"]


@dataclass(slots=True)
class _Region:
    """Ties between two uses that have wrong rows: one of the ties is in a wrong order, or something else is wrong."""

    start: int
    wrong: int
    ties: tuple[TieKey, ...]


class OrderSearch:
    """The orders that are tried: of ties before a use with wrong rows, until its rows are right."""

    def __init__(self) -> None:
        self.orders: dict[TieKey, int] = {}
        self.last: dict[TieKey, int] | None = None
        self._keys: list[UseKey] = []
        self._good: list[bool] = []
        self._ties: dict[TieKey, tuple[int, int]] = {}  # where it is made, and its number of orders
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
        for tie, ways in run.ties.items():
            at = places.get(run.choices[tie])
            if at is not None:
                self._ties[tie] = at, ways

    def _regions(self) -> list[_Region]:
        found, start = [], 0
        for at, good in enumerate(self._good):
            if not good:
                ties = [tie for tie, (place, _) in self._ties.items() if start <= place < at]
                if ties:
                    found.append(_Region(start, at, tuple(sorted(ties, key=lambda tie: self._ties[tie][0]))))
                start = at
        return found

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
        ways = []
        for tie in ties:
            now = self.orders.get(tie, 0)
            ways.append([now, *(way for way in range(self._ties[tie][1]) if way != now and way not in self._dead[tie])])
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
        for region in self._regions():
            changed = [tie for tie in region.ties if orders.get(tie, 0) != self.orders.get(tie, 0)]
            if not changed:
                continue
            reached = next((at for at in range(region.start + 1, len(good)) if not good[at]), len(good))
            if reached > region.wrong:
                self.orders |= {tie: orders[tie] for tie in changed}
                self._good[region.start + 1 : reached] = good[region.start + 1 : reached]
                self._good[reached : reached + 1] = [False] * (reached < len(good))
            elif reached < region.wrong and len(changed) == 1:
                self._dead[changed[0]].add(orders[changed[0]])
        self._note_ties(run)

    def doubted(self, half: int) -> dict[TieKey, int]:
        """Another order for every second tie, which is to show that it has an effect."""
        ties = sorted(self._ties, key=lambda tie: self._ties[tie][0])
        other = {
            tie: (self.orders.get(tie, 0) + max(1, self._ties[tie][1] // 2)) % self._ties[tie][1]
            for tie in ties[half::2]
        }
        return {**self.orders, **other}

    def status(self, run: FollowedUses, others: Sequence[Tried], *, proven: bool) -> dict[TieKey, Status]:
        """What each tie is: sure, free where another order changes nothing, or open.

        Where all is `proven`, none is open; else one is sure if another order has wrong rows behind it sooner.
        """
        found: dict[TieKey, Status] = dict.fromkeys(self._ties, "sure" if proven else "open")
        mine = self._goods(run)
        for orders, other in others:
            theirs = self._goods(other)
            for tie in (tie for tie in self._ties if tie in run.ties and orders.get(tie, 0) != self.orders.get(tie, 0)):
                at, ways = self._ties[tie]
                if not theirs[at]:
                    continue
                if self._shown(at, (run, other), (mine, theirs)):
                    found[tie] = "sure" if proven or ways == 2 or not isinstance(tie, tuple) else found[tie]
                elif proven and not self._moves(at, run, other):
                    found[tie] = "free"
        return found

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
