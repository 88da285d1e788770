"""Which way round the matrices of a checkpoint stand, which has no classes that would tell.

A bias tells, as it is as long as the outputs; so does a shape, unless it is open which layer of two it belongs to.
Layers of one name stand alike, so these tell of the square matrices among them. Where nothing tells of the matrices of
its name, a square one is taken as it stands only if all that is told in the file stands so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.layers.weight_transforms import is_turned

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair

Sure = tuple["Pair", float]
Sides = tuple["ParameterSet", "ParameterSet"]
UNTOLD = "a square matrix, and nothing in the file tells whether it stands as (out, in)"
# By the matrices of its name; never sure, as that any matrix stands as (in, out).
_TURNED = 0.7
_SQUARE = (
    "a square matrix of a checkpoint of which some matrices are transposed, or may be: nothing tells whether it is"
)


@dataclass(frozen=True, slots=True)
class FileMatrices:
    """Pairs with square matrices turned as others of their names, what is open, and weights taken as they stand."""

    pairs: list[Sure]
    ambiguous: list[Ambiguity] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)


def settle_file_matrices(pairs: Sequence[Sure], sides: Sides, spoken: Set[str], open_paths: Set[str]) -> FileMatrices:
    """Return the pairs with what their matrices' orientation leaves open, where a side is a checkpoint.

    Nothing is said of the sources that the user has `spoken` of. Those at `open_paths` are open already, and tell
    nothing.
    """
    files = [side.order == "file" for side in sides]
    matrices = [pair for pair, _ in pairs if _may_be_turned(pair, files, spoken)]
    if not matrices:
        return FileMatrices(list(pairs))
    told = _Told(files, mixed=bool(open_paths))
    for pair in matrices:
        if not _is_square(pair) and pair[0].path not in open_paths:
            told.add(pair)
    found = FileMatrices([])
    square_paths = {pair[0].path for pair in matrices if _is_square(pair)}
    for pair, sure in pairs:
        if pair[0].path in square_paths:
            _settle(pair, sure, told.of(pair), found, files)
        else:
            found.pairs.append((pair, sure))
    return found


def _settle(pair: Pair, sure: float, ways: set[bool], found: FileMatrices, files: list[bool]) -> None:
    """Take in a square matrix, told to stand alike on both sides (False), turned (True), both, or neither."""
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
        """Take in a pair of matrices that are not square."""
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
        """What is told of a square matrix: both sides stand alike (False), unlike (True), either way, or nothing."""
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
