"""Which way round the matrices of a checkpoint stand, which has no classes that would tell.

A bias tells, as it is as long as the outputs; so does a shape, unless a layer beside it has that shape turned and no
name tells the two apart. Layers of one name stand alike, so these tell of the squares among them. What tells nothing
of a square's namesakes tells little of it: it is taken as it stands only if all that is told in the file stands so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from align.core.folding import NUMBER
from align.core.names import Ambiguity
from align.steps.ambiguity import group_links
from align.steps.evidence import SETTLED, exchange_benefit, learn
from align.steps.forms import is_turned
from align.steps.paths import number_order, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from align.core.parameters import ParameterSet
    from align.steps.ambiguity import OpenGroup
    from align.steps.evidence import Learnt, Pair
    from align.steps.layers import Layer

Sure = tuple["Pair", float]
Sides = tuple["ParameterSet", "ParameterSet"]
UNTOLD = "a square matrix, and nothing in the file tells whether it stands as (out, in)"
# By its namesakes; never sure, as that any matrix stands as (in, out).
_TURNED = 0.7
_CROSSED = (
    "a checkpoint has no classes: each of these fits as it stands or transposed, and no name tells which is which"
)
_SQUARE = (
    "a square matrix of a checkpoint of which some matrices are transposed, or may be: nothing tells whether it is"
)


@dataclass(frozen=True, slots=True)
class FileMatrices:
    """Pairs with squares turned as their namesakes are, what is open, and weights that are taken as they stand."""

    pairs: list[Sure]
    ambiguous: list[Ambiguity] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)


def doubt_file_matrices(pairs: Sequence[Sure], sides: Sides, spoken: Set[str]) -> FileMatrices:
    """Return the pairs with what their matrices' orientation leaves open, where a side is a checkpoint.

    Nothing is said of the sources that the user has `spoken` of.
    """
    files = [side.order == "file" for side in sides]
    matrices = [pair for pair, _ in pairs if _may_be_turned(pair, files, spoken)]
    if not matrices:
        return FileMatrices(list(pairs))
    crossed = _crossed(matrices, [pair for pair, _ in pairs])
    open_paths = {layer.path for group in crossed for side, layer in group.members if side == "source"}
    told = _Told(files, mixed=bool(crossed))
    for pair in matrices:
        if not _is_square(pair) and pair[0].path not in open_paths:
            told.add(pair)
    found = FileMatrices([], [_ambiguity(group) for group in crossed])
    squares = {pair[0].path for pair in matrices if _is_square(pair)}
    for pair, sure in pairs:
        if pair[0].path in squares:
            _settle(pair, sure, told.of(pair), found, files)
        else:
            found.pairs.append((pair, sure))
    return found


def _settle(pair: Pair, sure: float, ways: set[bool], found: FileMatrices, files: list[bool]) -> None:
    """Take in a square of which is told that it stands alike on both sides (False), turned (True), both, or neither."""
    a, b = pair
    names = a.roles["weight"].name, b.roles["weight"].name
    if ways == {True}:
        pair = (a, replace(b, inputs_first=not a.inputs_first)) if files[1] else (replace(a, inputs_first=True), b)
        sure = min(sure, _TURNED)
    found.pairs.append((pair, sure))
    if len(ways) > 1:
        found.ambiguous.append(Ambiguity(names[:1], names[1:], _SQUARE))
    elif not ways:
        found.untold.add(names[0])


class _Told:
    """Which matrices of the files are known to stand turned, by the last word of their paths and on the whole.

    `mixed` says that some are open. `_unlike` tells of matrices of which only this is known: whether the two sides'
    stand unlike.
    """

    def __init__(self, files: list[bool], *, mixed: bool) -> None:
        self._files, self._mixed = files, mixed
        self._named: dict[tuple[int, str], set[bool]] = defaultdict(set)
        self._all: tuple[set[bool], set[bool]] = (set(), set())
        self._unlike: set[bool] = set()

    def add(self, pair: Pair) -> None:
        """Take in a pair of matrices that are no squares."""
        unlike = is_turned(pair[0], "weight") != is_turned(pair[1], "weight")
        ways = [_own_way(layer, from_file=file) for layer, file in zip(pair, self._files, strict=True)]
        if ways == [None, None]:
            self._unlike.add(unlike)
            return
        for side, way in enumerate(ways):
            if self._files[side]:
                told = way if way is not None else unlike != ways[1 - side]
                self._named[side, _last_word(pair[side].path)].add(told)
                self._all[side].add(told)

    def of(self, pair: Pair) -> set[bool]:
        """What is told of a square: that both sides stand alike (False), do not (True), may do either, or nothing."""
        ways = [self._ways(layer, side) for side, layer in enumerate(pair)]
        if all(ways):
            return {one != other for one in ways[0] for other in ways[1]}
        if self._mixed or True in self._unlike or any(True in way for way in ways):
            return {True, False}
        return self._unlike

    def _ways(self, layer: Layer, side: int) -> set[bool]:
        """How a layer of this side may stand; empty where nothing tells."""
        if not self._files[side]:
            return {bool(layer.inputs_first)} if layer.kind else set()
        named, whole = self._named[side, _last_word(layer.path)], self._all[side]
        if named or not whole:
            return named
        return {False} if whole == {False} and not self._mixed else {True, False}


def _own_way(layer: Layer, *, from_file: bool) -> bool | None:
    """Whether a matrix stands as (in, out), as its class or its bias tells; None where neither does."""
    if not from_file:
        return bool(layer.inputs_first) if layer.kind else None
    if "bias" not in layer.roles:
        return None
    return layer.roles["weight"].shape[0] != layer.roles["bias"].shape[0]


def _last_word(path: str) -> str:
    parts = [part.rstrip("0123456789_") for part in path.split(".")]
    return next(filter(None, reversed(parts)), "")


def _may_be_turned(pair: Pair, files: Sequence[bool], spoken: Set[str]) -> bool:
    """Tell whether both are matrices, of layers that may be linear, and one comes from a file."""
    shapes = [layer.shapes.get("weight", ()) for layer in pair]
    if not any(files) or any(len(shape) != 2 for shape in shapes) or {a.kind for a in pair} - {"", "linear"}:
        return False
    if pair[0].roles["weight"].name in spoken:
        return False
    return any(from_file and layer.inputs_first is not False for layer, from_file in zip(pair, files, strict=True))


def _is_square(pair: Pair) -> bool:
    rows, columns = pair[0].shapes["weight"]
    return rows == columns


def _crossed(matrices: Sequence[Pair], pairs: Iterable[Pair]) -> list[OpenGroup]:
    """Groups of layers side by side that would fit as well if all of them were turned and paired crosswise."""
    open_pairs = [
        pair for pair in matrices if not _is_square(pair) and not _has_bias(pair) and pair[0].path != pair[1].path
    ]
    places: dict[object, list[Pair]] = defaultdict(list)
    for pair in open_pairs:
        shape = frozenset(pair[0].shapes["weight"])
        places[_place(pair[0].path), _place(pair[1].path), shape].append(pair)
    rivals = [
        (one, two)
        for beside in places.values()
        for one, two in combinations(beside, 2)
        if one[0].shapes["weight"] != two[0].shapes["weight"]
    ]
    in_doubt = {pair[0].path for both in rivals for pair in both}
    if not rivals:
        return []
    learnt = learn((pair for pair in pairs if pair[0].path not in in_doubt), ordered=False)
    told: dict[object, bool] = {}
    links = []
    for both in rivals:
        like = tuple(_in_any_block(layer.path) for pair in both for layer in pair)
        if like not in told:
            told[like] = _told_apart(*both, learnt)
        if not told[like]:
            links.append(both)
    return [group for group in group_links(links) if _fits_turned(group)]


def _in_any_block(path: str) -> str:
    """The path with the numbers of the blocks left open: what names tell in one, they tell in all."""
    block, dot, last = path.rpartition(".")
    return NUMBER.sub("#", block) + dot + last


def _told_apart(one: Pair, two: Pair, learnt: Learnt) -> bool:
    numbers = number_order(one[0].path, two[0].path) * number_order(one[1].path, two[1].path)
    return (numbers or exchange_benefit(one, two, learnt)) >= SETTLED


def _has_bias(pair: Pair) -> bool:
    return all("bias" in layer.roles for layer in pair)


def _place(path: str) -> str:
    """The nearest numbered block around a layer."""
    blocks = [block for _, _, block in numbered(path.rpartition(".")[0])]
    return blocks[-1] if blocks else ""


def _fits_turned(group: OpenGroup) -> bool:
    """Tell whether there are as many matrices of each shape on one side as of the transposed on the other."""
    shapes = Counter(layer.shapes["weight"] for side, layer in group.members if side == "source")
    turned = Counter(layer.shapes["weight"][::-1] for side, layer in group.members if side == "target")
    return shapes == turned


def _ambiguity(group: OpenGroup) -> Ambiguity:
    names = [
        tuple(layer.roles["weight"].name for side, layer in group.members if side == one)
        for one in ("source", "target")
    ]
    return Ambiguity(names[0], names[1], _CROSSED)
