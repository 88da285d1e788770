"""A run in which every use of a parameter is seen, and what becomes of the features of each product.

A tensor is known by the first row of its features. What adds to it or applies a function to each element makes a row
that stands for the same features, so that the gates of a cell are seen behind the sum of two products.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import chain, pairwise, permutations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.names.dataflow.operator_uses import read_uses
from align.names.dataflow.seen_rows import distance, joined_rows
from align.names.equal_values import agree, see_tensor
from align.names.thresholds import (
    MOST_ARRANGED_PARTS,
    MOST_CUTS,
    MOST_DERIVED_CUTS,
    MOST_FOLLOWING_USES,
    MOST_LEAVES,
    MOST_ORDERS_OF_A_TIE,
    MOST_SUMMED_PRODUCTS,
    REORDERED_SUM_DISTANCE,
)
from align.rules.ascend_rules import operator_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.parameters import Array
    from align.core.traces import Capture, OperatorCall
    from align.names.dataflow.operator_uses import Answer, Use
    from align.names.dataflow.seen_rows import PieceIndex, SeenRows
    from align.names.equal_values import SeenTensor

    Arrangement = tuple[int, ...]
    Returned = list[tuple[str, SeenTensor]]  # by what they are called in what the model returned

Features = tuple[int, ...]
UseKey = tuple[Any, ...]


def key_of(use: Use) -> UseKey:
    """What tells one use from all others of its side: a piece that several calls use alike has one."""
    piece = use.piece
    return use.kind, piece.number, piece.offset, piece.shape, piece.strides


class CutProducts:
    """The products of a run, the parts of their features, and what is done with each part."""

    def __init__(self) -> None:
        self._known: dict[float, _Cut] = {}
        self._derived: deque[_Cut] = deque()
        self._leaves: dict[UseKey, dict[Features, None]] = defaultdict(dict)
        self._becomes: dict[UseKey, dict[Features, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._sums: dict[UseKey, dict[UseKey, None]] = defaultdict(dict)
        self._sums_of: dict[UseKey, dict[Features, dict[UseKey, None]]] = defaultdict(lambda: defaultdict(dict))
        self._joined: dict[tuple[float, int], list[int]] = {}  # the widths of those that stand side by side
        self._functions: dict[float, str] = {}  # which made the tensor that begins with a number

    def look_at(self, call: OperatorCall) -> list[Given]:
        """See which tensors that a call is given have features of products, and return those.

        This is before the call is made, which may write into them.
        """
        if not self._known:
            return []
        parts = []
        for at, value in enumerate(call.tensors):
            cut = self._cut_of(value)
            if cut is not None:
                self._note_leaf(value, cut)
                if not cut.beside and (part := _part_of(value, cut, at)) is not None:
                    parts.append(part)
        if parts and does(call) == "scale":
            self._note_factors(parts, call.tensors)
        return parts

    def _cut_of(self, value: Array) -> _Cut | None:
        if value.dtype.kind != "f" or value.size < 2:
            return None
        return self._known.get(_first(value))

    def _note_factors(self, given: Sequence[Given], tensors: Sequence[Array]) -> None:
        """Note by what each part is multiplied: by features of a product, what a function made, or anything else."""
        for factor in given:
            for value in _others(factor, tensors):
                first = _first(value)
                by = "product" if first in self._known else self._functions.get(first, "others")
                self._note_becoming(factor.cut, f"by_{by}")

    def note_call(self, call: OperatorCall, outputs: Sequence[Array], given: Sequence[Given]) -> None:
        """See what a call without products made: parts of one, or what has the same features as it was `given`."""
        for value in outputs:
            cut = self._cut_of(value)
            if cut is not None:
                self._note_leaf(value, cut)
        kind = does(call)
        if not outputs or outputs[0].dtype.kind != "f" or outputs[0].size < 2:
            return
        output = outputs[0]
        if kind == "join":
            self._note_joined(call.tensors, output)
        if kind == "function":
            name = call.name.rstrip("_").lower()
            self._functions[_first(output)] = name
            for own in given[:1]:
                self._note_becoming(own.cut, name)
        if kind == "shift" and len(given) == 1 and _others(given[0], call.tensors):
            self._note_becoming(given[0].cut, "added")
        is_scaled = kind == "scale" and len(given) == 1 and not _others(given[0], call.tensors)
        if given and (kind in ("function", "shift") or is_scaled):
            self._derive(given, output)

    def _note_joined(self, tensors: Sequence[Array], output: Array) -> None:
        beside = [value for value in tensors if value.shape[:-1] == output.shape[:-1] and value.ndim]
        widths = [value.shape[-1] for value in beside]
        if len(widths) == len(tensors) > 1 and sum(widths) == output.shape[-1]:
            self._joined[_first(output), output.shape[-1]] = widths

    def joined(self, rows: Array) -> list[tuple[int, int]]:
        """From where to where the features of rows lie that were joined of several tensors; [] if they were not."""
        widths = self._joined.get((_first(rows), rows.shape[-1]), [])
        ends = np.cumsum([0, *widths]).tolist()
        return list(pairwise(ends))

    def _note_becoming(self, cut: _Cut, name: str) -> None:
        for key in cut.keys:
            self._becomes[key][cut.names].add(name)

    def _derive(self, given: Sequence[Given], output: Array) -> None:
        """Know a tensor that has the same features as those that it was made of, each for itself."""
        main, keys = given[0], tuple(dict.fromkeys(key for other in given for key in other.cut.keys))
        if len(keys) > MOST_SUMMED_PRODUCTS:
            return
        for key in keys if len(given) > 1 else ():
            self._sums[key] |= dict.fromkeys(keys)
        if output.shape != main.shape or any(other.cut.names != main.cut.names for other in given):
            return
        for key in keys if len(given) > 1 else ():
            self._sums_of[key][main.cut.names] |= dict.fromkeys(keys)
        row = np.moveaxis(output, main.axis, -1).reshape(-1, output.shape[main.axis])[0]
        cut = _Cut(keys, main.cut.names, row, output.size // len(row))
        self._know(cut)
        self._derived.append(cut)
        if len(self._derived) > MOST_DERIVED_CUTS:
            self._forget(self._derived.popleft())

    def _know(self, cut: _Cut) -> None:
        if (cut.known[1:] == cut.known[:-1]).any():  # as of zeros: they tell no feature from another
            return
        self._known |= dict.fromkeys(cut.row.tolist(), cut)

    def _forget(self, cut: _Cut) -> None:
        for value in cut.row.tolist():
            if self._known.get(value) is cut:
                del self._known[value]

    def note_products(self, value: Array, made_of: Sequence[Use]) -> None:
        """Know a tensor that a call made of products: the first row of each, and that of the last step."""
        features, count = made_of[0].features, len(made_of)
        if features < 2 or value.dtype.kind != "f" or value.size % (features * count) or value.ndim < 2:
            return
        if made_of[0].by_channels and value.shape[1] == features * count:
            rows = np.moveaxis(value, 1, -1).reshape(-1, count, features).swapaxes(0, 1)
        else:
            axis = next((axis for axis in (-1, 1) if value.shape[axis] == features), None)
            if axis is None:
                return
            rows = np.moveaxis(value, axis, -1).reshape(count, -1, features)
        keys = [key_of(one) for one in made_of]
        steps = {0, value.shape[-2] - 1} if value.ndim == 3 and count == 1 else {0}
        for key, own in zip(keys, rows, strict=True):
            beside = keys if count > 1 else []
            for step in sorted(steps, reverse=True):
                self._know(_Cut((key,), tuple(range(features)), own[step % len(own)], len(own), beside))

    def _note_leaf(self, value: Array, cut: _Cut) -> None:
        size, beside = len(cut.row), max(len(cut.beside), 1)
        if value.size >= size * cut.count * beside or value.size % cut.count:
            return
        flat = value.reshape(-1)
        at = np.searchsorted(cut.known, flat).clip(0, size - 1)
        found = cut.order[at[cut.known[at] == flat]]
        order, first = np.unique(found, return_index=True)
        features = tuple(cut.names[one] for one in order[np.argsort(first)])
        if len(features) == size:
            return
        if len(features) * cut.count == value.size:
            self._keep(cut.keys, features)
        elif len(features) * cut.count * beside == value.size:
            self._keep(cut.beside, features)

    def _keep(self, keys: Iterable[UseKey], features: Features) -> None:
        for key in keys:
            own = self._leaves[key]
            if len(own) < MOST_LEAVES:
                own.setdefault(features)

    def partitions(self, key: UseKey, size: int) -> list[list[Features]]:
        """The ways in which the features of a product were cut, the coarsest first."""
        leaves = list(self._leaves.get(key, ()))
        partitions: list[list[Features]] = []
        parts = _cover(tuple(range(size)), leaves)
        while parts is not None and parts not in partitions and len(partitions) < MOST_CUTS:
            partitions.append(parts)
            finer = (_cover(one, [leaf for leaf in leaves if len(leaf) < len(one)]) or [one] for one in parts)
            parts = list(chain.from_iterable(finer))
        return partitions

    def summed(self, key: UseKey) -> list[UseKey]:
        """The products that are added to a product, and itself, in the order in which they were."""
        return list(self._sums.get(key, ()))

    def sums(self, key: UseKey) -> list[tuple[Features, list[UseKey]]]:
        """The products that are added to some features of a product each, and itself."""
        return [(features, list(keys)) for features, keys in self._sums_of.get(key, {}).items()]

    def becomes(self, key: UseKey) -> dict[Features, frozenset[str]]:
        """What is done with features of a product."""
        return {features: frozenset(names) for features, names in self._becomes.get(key, {}).items()}


class _Cut:
    """A row of features of products, by its values, and how many rows there are.

    `names` are the numbers of the features, `beside` all products of a call that makes several.
    """

    def __init__(
        self, keys: tuple[UseKey, ...], names: Features, row: Array, count: int, beside: Sequence[UseKey] = ()
    ) -> None:
        self.keys, self.names, self.row, self.count, self.beside = keys, names, np.array(row), count, beside
        self.order = np.argsort(self.row)
        self.known = self.row[self.order]


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that a call is given, by its number: which features it has, in its order, and along which axis."""

    cut: _Cut
    at: int
    axis: int
    shape: tuple[int, ...]


def _part_of(value: Array, cut: _Cut, at: int) -> Given | None:
    """The features of a cut that a tensor has along an axis, by its first row."""
    for axis in dict.fromkeys((value.ndim - 1, min(1, value.ndim - 1))):
        size = value.shape[axis]
        if value.ndim < 2 or not 1 < size <= len(cut.row):
            continue
        row = np.moveaxis(value, axis, -1).reshape(-1, size)[0]
        places = np.searchsorted(cut.known, row).clip(0, len(cut.row) - 1)
        if np.array_equal(cut.known[places], row):
            names = tuple(cut.names[one] for one in cut.order[places])
            return Given(_Cut(cut.keys, names, row, value.size // size), at, axis, value.shape)
    return None


def _others(own: Given, tensors: Sequence[Array]) -> list[Array]:
    """The tensors beside one that are as large."""
    return [value for at, value in enumerate(tensors) if at != own.at and value.size >= prod(own.shape)]


def does(call: OperatorCall) -> str:
    """What an operator does, as `mappings/operators.toml` calls it."""
    rule = operator_rules().get(call.name.rstrip("_"))
    return "" if rule is None else rule.does


def _first(value: Array) -> float:
    return float(value[(0,) * value.ndim]) if value.size else 0.0


def _cover(whole: Features, leaves: Iterable[Features]) -> list[Features] | None:
    """The first leaves that have no feature in common and together have all; None if these are not all."""
    left, taken = set(whole), []
    for leaf in leaves:
        if left.issuperset(leaf):
            taken.append(leaf)
            left.difference_update(leaf)
    return taken if taken and not left else None


# The order of parts: of gates, of query, key and value, of any features that one side joins in another order.


def unlikeness(use: Use, part: Features | None, other: Use, features: Features | None) -> int:
    """How much of what is done with some features is done to those of another product alone; 0 if nothing is known."""
    if not use.becomes or not other.becomes:
        return 0
    return len(_becomes(use, part) ^ _becomes(other, features))


def _becomes(use: Use, part: Features | None) -> frozenset[str]:
    wanted = set(range(use.features) if part is None else part)
    return frozenset().union(*(names for features, names in use.becomes.items() if wanted <= set(features)))


class PartsOfBoth:
    """The parts of some features of a product, all where none are named, and of as many of another one's.

    They stand in their order; there are none where neither product is seen to be cut, or nothing tells which is which.
    """

    def __init__(self, use: Use, own: Features | None, one: Use, features: Features | None) -> None:
        self._uses = use, one
        self._wholes = own or tuple(range(use.features)), features or tuple(range(one.features))
        ways = [_ways(product, whole) for product, whole in zip(self._uses, self._wholes, strict=True)]
        self.mine, self.theirs = next(
            (
                (mine, theirs)
                for mine in ways[0]
                for theirs in ways[1]
                if sorted(map(len, mine)) == sorted(map(len, theirs))
            ),
            _in_equal_blocks(ways, self._wholes),
        )

    def arrangements(self) -> list[Arrangement]:
        """Orders of the parts: first those in which the same is done with each, and what is alike keeps its order."""
        mine, theirs = self.mine, self.theirs
        unlike = [[unlikeness(self._uses[0], own, self._uses[1], other) for other in theirs] for own in mine]
        alike = [[_becomes(self._uses[1], one) == _becomes(self._uses[1], other) for other in theirs] for one in theirs]

        def rank(order: Arrangement) -> tuple[int, int, int]:
            turned = sum(alike[b][a] for n, a in enumerate(order) for b in order[n + 1 :] if b < a)
            return (
                sum(unlike[n][at] for n, at in enumerate(order)),
                turned,
                sum(n != at for n, at in enumerate(order)),
            )

        fitting = (
            order
            for order in permutations(range(len(theirs)))
            if all(len(theirs[at]) == len(mine[n]) for n, at in enumerate(order))
        )
        return sorted(fitting, key=rank)[:MOST_ORDERS_OF_A_TIE]

    @property
    def least_unlike(self) -> int:
        """What no order is below."""
        uses = self._uses
        return sum(min(unlikeness(uses[0], own, uses[1], other) for other in self.theirs) for own in self.mine)

    def unlike(self, order: Arrangement) -> int:
        """How much is done with parts that is not done with those at their places in an order."""
        pairs = zip(self.mine, (self.theirs[at] for at in order), strict=True)
        return sum(unlikeness(self._uses[0], own, self._uses[1], other) for own, other in pairs)

    def is_as_it_stands(self, order: Arrangement) -> bool:
        """Tell whether in an order each feature is that of its own place."""
        wholes = [
            tuple(chain(*parts)) == whole for parts, whole in zip((self.mine, self.theirs), self._wholes, strict=True)
        ]
        return list(order) == sorted(order) and (all(wholes) or self.mine == self.theirs)


def _ways(product: Use, whole: Features) -> list[list[Features]]:
    """The ways in which some features were cut, into not too many parts."""
    within = set(whole)
    cut = [sorted(part for part in parts if within.issuperset(part)) for parts in product.leaves]
    return [parts for parts in cut if 1 < len(parts) <= MOST_ARRANGED_PARTS and sum(map(len, parts)) == len(whole)]


def _in_equal_blocks(
    ways: Sequence[list[list[Features]]], wholes: tuple[Features, Features]
) -> tuple[list[Features], list[Features]]:
    """The most parts of equal size that either was cut into, as blocks of the other one."""
    equal = [parts for parts in (*ways[0], *ways[1]) if len({len(part) for part in parts}) == 1]
    most = max((len(parts) for way in ways for parts in way), default=0)
    if not equal or (all(ways) and len(equal[-1]) < most):
        return [], []
    size = len(equal[-1][0])
    blocks = [[whole[start : start + size] for start in range(0, len(whole), size)] for whole in wholes]
    mine, theirs = (
        way[-1] if way and len(way[-1]) == len(block) else block for way, block in zip(ways, blocks, strict=True)
    )
    return mine, theirs


# A run in which every use of a parameter is seen, with what its product is cut into behind it.


class ReturnedTensors:
    """A sink that keeps what the model returned."""

    def __init__(self) -> None:
        self.outputs: Returned = []

    def add(self, capture: Capture, value: Array) -> None:
        """Keep what the model itself returned."""
        if not capture.module:
            self.outputs.append((capture.output, see_tensor(value)))


def returned_alike(first: Returned, two: Returned) -> bool:
    """Tell whether two models returned the same: by name where both name all of it alike, else by place."""
    named = dict(two)
    if {name for name, _ in first} == named.keys() and len(named) == len(first) == len(two):
        two = [(name, named[name]) for name, _ in first]
    return agree(*([seen for _, seen in own] for own in (first, two)))


class UseSink(ReturnedTensors):
    """An OperatorSink that is handed every use of a parameter, and keeps what the model returned.

    It also sees how the features of a product are cut into parts: what an operator returns may consist of elements of
    the product alone.
    """

    def __init__(self, index: PieceIndex) -> None:
        super().__init__()
        self.index = index
        self._products: list[Use] = []
        self.cuts = CutProducts()

    def operator(self, call: OperatorCall) -> Any:
        """Make a call, use by use."""
        given = self.cuts.look_at(call)
        reader = read_uses(call, self.index)
        answer: Answer | None = None
        made_of: list[Use] = []
        while True:
            try:
                use = reader.send(answer)
            except StopIteration as end:
                self._note_made(call, call.outputs(end.value), given, made_of)
                return end.value
            answer, use.data = self.take(use), None
            if use.multiplies:
                made_of.append(use)
            elif use.kind == "shift":
                before = added_to(use.rows, self._products)
                is_sum = does(call) == "shift" and not made_of
                sums = (part.cut for part in given if len(part.cut.names) == use.value.size)
                places = [(key, cut.names) for cut in sums for key in cut.keys] if is_sum else []
                if not places and before is not None:
                    places = [(key_of(before), tuple(range(before.features)))]
                self.note_addition(use, places)
                made_of += [before] if before is not None and before not in made_of else []

    def take(self, use: Use) -> Answer | None:
        """Take one use; return what is to be in its place."""
        raise NotImplementedError

    def note_addition(self, use: Use, products: Sequence[tuple[UseKey, Features]]) -> None:
        """See that something is added to features of a product, or of the sum of several."""

    def _note_made(
        self, call: OperatorCall, outputs: Sequence[Array], given: Sequence[Given], made_of: Sequence[Use]
    ) -> None:
        if not made_of:
            self.cuts.note_call(call, outputs, given)
        for value in outputs if made_of else ():
            self.cuts.note_products(value, made_of)


class SeenUses(UseSink):
    """The uses of the first side in the order of their first calls, each with the rows of all of its calls."""

    def __init__(self, index: PieceIndex) -> None:
        super().__init__(index)
        self._found: dict[UseKey, tuple[Use, list[SeenRows]]] = {}

    def take(self, use: Use) -> None:
        """Note a use, and what is added to what a product came to."""
        kept = self._found.get(key_of(use))
        if kept is None:
            use.order = len(self._found)
            use.value = np.array(use.value)
            self._found[key_of(use)] = kept = use, []
        kept[1].append(use.rows)
        if use.multiplies:
            self._products = [*self._products[-MOST_LEAVES:], use]
        if use.kind == "shift" and (before := added_to(use.rows, self._products)) is not None:
            self._found[key_of(before)][0].bias = kept[0]

    def note_addition(self, use: Use, products: Sequence[tuple[UseKey, Features]]) -> None:
        """Keep what is added to each product."""
        use = self._found[key_of(use)][0]
        use.terms = use.terms or [(piece, np.array(self.index.value(piece))) for piece in self.index.terms(use.piece)]
        for key, features in products:
            product = self._found[key][0]
            if use not in (one for one, _ in product.biases):
                product.biases.append((use, features))
                use.added_to.append(product)

    def uses(self) -> list[Use]:
        """All uses, each once."""
        for key, (use, rows) in self._found.items():
            use.rows = joined_rows(rows)
            if use.multiplies and not use.leaves:
                use.leaves, use.becomes = self.cuts.partitions(key, use.features), self.cuts.becomes(key)
                use.summed = [self._found[item][0] for item in self.cuts.summed(key)]
                use.sums = [(part, [self._found[item][0] for item in keys]) for part, keys in self.cuts.sums(key)]
        uses = [use for use, _ in self._found.values()]
        heavy = [use for use in uses if use.heavy]
        for at, use in enumerate(heavy):
            use.after = tuple(item.fans for item in heavy[at + 1 : at + 1 + MOST_FOLLOWING_USES])
        return uses


def added_to(rows: SeenRows, products: Sequence[Use]) -> Use | None:
    """The latest product to whose outcome something is added."""
    for product in reversed(products):
        out = product.out
        fits = out is not None and out.width == rows.width and out.count == rows.count
        if out is None or not fits:
            continue
        if not (out.marks.any() or rows.marks.any()) or distance(out.marks, rows.marks) < REORDERED_SUM_DISTANCE:
            return product
    return None
