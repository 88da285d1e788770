"""Which way round a matrix stands, as (out, in) or transposed, where its class does not tell.

Three situations leave that open. *Crossed*: (16, 8) and (8, 16) stand side by side on both sides, and fit as they stand
and crosswise transposed. *Square*, of a class of one's own: those of the class that are not square tell. *In a file*:
a bias tells, as it is as long as the outputs, and layers of one name stand alike. What names, classes and biases do not
tell, or tell both ways, is open; and a pair that is turned so is never sure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity, Pairing
from align.names.matching.fused_layers import ATTENTION, match_fused, named_groups, reserve_fused
from align.names.matching.match_layers import PairedModules, match_layers
from align.names.matching.repeated_blocks import group_links
from align.names.matching.weigh_exchanges import PairEvidence
from align.names.read_layers import (
    is_turned,
    likeness,
    may_pair,
    number_order,
    numbered,
    remaining,
    transform_between,
    with_shapes,
    words,
)
from align.names.thresholds import (
    CLEAR_BENEFIT,
    CONFIDENCE_OF_FLATTENED,
    CONFIDENCE_OF_FORM,
    CONFIDENCE_OF_NUMBERED_PIECES,
    CONFIDENCE_OF_TURNED,
    LIKENESS_OF_FORMS,
)
from align.names.user_rules import NUMBER
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from align.core.parameters import ParameterSet, Shape
    from align.names.matching.fused_layers import Group
    from align.names.matching.repeated_blocks import OpenGroup
    from align.names.read_layers import Layer, Pair

    _Form = Callable[[Layer], Layer | None]
    _Members = dict[int, Layer]


Sure = tuple["Pair", float]
Sides = tuple["ParameterSet", "ParameterSet"]
BY_NAME = sentence("pair_note.by_name_against_shape")
_CROSSED_REASON = sentence("open_reason.either_way")
_SQUARE_REASON = sentence("open_reason.square_unknown")
_EITHER = frozenset({False, True})
UNTOLD = sentence("pair_note.square_untold")
_FILE_REASON = sentence("open_reason.square_in_file")


@dataclass(frozen=True, slots=True)
class Orientations:
    """The pairs, some exchanged or turned; what is open, with the paths of its sources; notes by a source's name."""

    pairs: list[Sure] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)
    open_paths: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)


def settle_orientations(pairs: Sequence[Sure], sides: Sides, named: Set[str]) -> Orientations:
    """Return the pairs with their matrices as names, classes and biases tell; none that the user has `named`."""
    crossed = _settle_crossed(pairs, sides, named)
    square = _settle_square(crossed, sides)
    return _settle_in_files(square, sides, named)


def _settle_crossed(pairs: Sequence[Sure], sides: Sides, named: Set[str]) -> Orientations:
    """Exchange the matrices side by side for which only their shapes speak."""
    rivals = _rivals([pair for pair, _ in pairs if pair[0].roles.get("weight") and _weight_name(pair[0]) not in named])
    if not rivals:
        return Orientations(list(pairs))
    in_doubt = {pair[0].path for both in rivals for pair in both}
    speaks = _witness([one for one in pairs if one[0][0].path not in in_doubt], sides)
    weighed = [(both, speaks(*both)) for both in rivals]
    orientations = Orientations()
    exchanged: dict[str, Layer] = {}
    better = _better([both for both, benefit in weighed if benefit < 0])
    for group in group_links([both for both, benefit in weighed if benefit <= 0]):
        paths = {layer.path for side, layer in group.members if side == "source"}
        if paths <= better.keys():
            exchanged.update({path: better[path] for path in paths})
        elif _fits_turned(group):
            orientations.open_paths.update(paths)
            orientations.ambiguous.append(_crossed_group(group))
    for (a, b), sure in pairs:
        if a.path in exchanged:
            orientations.notes[_weight_name(a)] = BY_NAME
            orientations.pairs.append((_exchanged_pair(a, exchanged[a.path]), min(sure, CONFIDENCE_OF_TURNED)))
        else:
            orientations.pairs.append(((a, b), sure))
    return orientations


def _rivals(pairs: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    """Pairs side by side that would fit as well if both were turned and their partners exchanged."""
    places: dict[object, list[Pair]] = defaultdict(list)
    for a, b in pairs:
        shape = a.shapes["weight"]
        biased = "bias" in a.roles and "bias" in b.roles
        if len(shape) == 2 and shape[0] != shape[1] and not biased and a.path != b.path:
            places[_block(a.path), _block(b.path), frozenset(shape)].append((a, b))
    return [
        (first, two)
        for beside in places.values()
        for first, two in combinations(beside, 2)
        if first[0].shapes["weight"] != two[0].shapes["weight"]
        and _may_turn(first[0], two[1])
        and _may_turn(two[0], first[1])
    ]


def _may_turn(a: Layer, b: Layer) -> bool:
    """Tell whether both may be linear, and the layout of one is known to nobody."""
    layers = a, b
    unknown = any(not layer.inputs_first and (not layer.kind or layer.inputs_first is None) for layer in layers)
    return unknown and {layer.kind for layer in layers} <= {"", "linear"}


def _exchanged_pair(a: Layer, b: Layer) -> Pair:
    """The pair with the matrix of that side as (in, out) whose layout nobody knows."""
    other = transposed_layer(b if b.kind else replace(b, inputs_first=None))
    if other:
        return a, other
    return transposed_layer(a if a.kind else replace(a, inputs_first=None)) or a, b


def _witness(pairs: Sequence[Sure], sides: tuple[ParameterSet, ParameterSet]) -> Callable[[Pair, Pair], int]:
    """Return what says of two rivals: 1 that they stand right, -1 that they are to be exchanged, 0 nothing."""
    evidence = PairEvidence((pair for pair, _ in pairs), ordered=False)
    ways = ClassOrientations(pairs, sides)
    known: dict[object, int] = {}

    def names(first: Pair, two: Pair) -> int:
        like = tuple(_in_any_block(layer.path) for pair in (first, two) for layer in pair)
        if like not in known:
            numbers = number_order(first[0].path, two[0].path) * number_order(first[1].path, two[1].path)
            benefit = numbers or evidence.exchange_benefit(first, two)
            known[like] = (benefit >= CLEAR_BENEFIT) - (benefit <= -CLEAR_BENEFIT)
        return known[like]

    def speaks(one: Pair, two: Pair) -> int:
        of_class = ways.of(one) | ways.of(two)
        return names(one, two) + (of_class == {False}) - (of_class == {True})

    return speaks


def _better(rivals: Sequence[tuple[Pair, Pair]]) -> dict[str, Layer]:
    """The better partner of each source by its path, where there is but one."""
    count = Counter(pair[0].path for both in rivals for pair in both)
    swaps = [swap for one, two in rivals for swap in ((one[0].path, two[1]), (two[0].path, one[1]))]
    return {path: partner for path, partner in swaps if count[path] == 1}


def _in_any_block(path: str) -> str:
    """The path with the numbers of the blocks left open: what names tell in one, they tell in all."""
    block, dot, last = path.rpartition(".")
    return NUMBER.sub("#", block) + dot + last


def _block(path: str) -> str:
    """The nearest numbered block around a layer."""
    blocks = [block for _, _, block in numbered(path.rpartition(".")[0])]
    return blocks[-1] if blocks else ""


def _fits_turned(group: OpenGroup) -> bool:
    """Tell whether there are as many matrices of each shape on one side as of the transposed on the other."""
    shapes = Counter(layer.shapes["weight"] for side, layer in group.members if side == "source")
    other = Counter(layer.shapes["weight"][::-1] for side, layer in group.members if side == "target")
    return shapes == other


def _crossed_group(group: OpenGroup) -> Ambiguity:
    sources, targets = (
        tuple(_weight_name(layer) for side, layer in group.members if side == one) for one in ("source", "target")
    )
    return Ambiguity(sources, targets, _CROSSED_REASON)


def _weight_name(layer: Layer) -> str:
    return layer.roles["weight"].name


class ClassOrientations:
    """Whether matrices of unknown classes stand turned to their counterparts, as those show that are not square.

    Those at `open_paths` may stand either way.
    """

    def __init__(self, pairs: Sequence[Sure], sides: Sides, open_paths: Set[str] = frozenset()) -> None:
        self._classes = [
            {module.path: name for module in side.modules if (name := module.class_name)} for side in sides
        ]
        self._seen: dict[object, set[bool]] = defaultdict(set)
        for pair, _ in pairs:
            key = self._key(pair)
            if key and not _is_square(pair):
                self._seen[key] |= _EITHER if pair[0].path in open_paths else {_way(pair)}

    def of(self, pair: Pair) -> Set[bool]:
        """The ways that matrices of these classes are seen to stand; all of them may be, or none."""
        return self._seen.get(self._key(pair), frozenset())

    def is_unsure(self, pair: Pair) -> bool:
        """Tell whether a pair is square, and of a class whose layout no rule knows."""
        return _are_matrices(pair) and _is_square(pair) and self._key(pair) is not None

    def _key(self, pair: Pair) -> object:
        """The unknown classes of a pair of matrices, with the names of their weights; None if there are none."""
        if (pair[0].kind and pair[1].kind) or not _are_matrices(pair):
            return None
        key: list[tuple[str, str] | None] = []
        for layer, classes in zip(pair, self._classes, strict=True):
            weight = layer.roles["weight"]
            if not layer.kind and weight.module not in classes:
                return None
            key.append(None if layer.kind else (classes[weight.module], weight.attribute))
        return tuple(key)


def _are_matrices(pair: Pair) -> bool:
    """Tell whether both have a matrix, and may be linear."""
    a, b = pair
    may_be = (a.kind or "linear") == (b.kind or "linear") == "linear"
    return may_be and len(a.shapes.get("weight", ())) == len(b.shapes.get("weight", ())) == 2


def _settle_square(before: Orientations, sides: Sides) -> Orientations:
    """Turn square matrices of classes that no rule knows as their classes show; open those for which nothing does."""
    ways = ClassOrientations(before.pairs, sides, before.open_paths)
    settled: list[Sure] = []
    unsure: list[Ambiguity] = []
    for (a, b), sure in before.pairs:
        ways_seen = ways.of((a, b)) if ways.is_unsure((a, b)) else {False}
        if ways_seen == {True}:
            turned = (a, replace(b, inputs_first=True)) if not b.kind else (replace(a, inputs_first=True), b)
            settled.append((turned, min(sure, CONFIDENCE_OF_TURNED)))
            continue
        settled.append(((a, b), sure))
        if len(ways_seen) > 1 or (not ways_seen and (a.kind or b.kind)):
            unsure.append(Ambiguity((a.roles["weight"].name,), (b.roles["weight"].name,), _SQUARE_REASON))
    return replace(before, pairs=settled, ambiguous=[*before.ambiguous, *unsure])


def _way(pair: Pair) -> bool:
    """Whether the matrix of an unknown class stands as (in, out); of two such, whether they stand unlike."""
    a, b = (None if layer.kind else bool(layer.inputs_first) for layer in pair)
    return bool(a) != bool(b)


def _settle_in_files(before: Orientations, sides: Sides, named: Set[str]) -> Orientations:
    """Turn square matrices of checkpoints as others of their names; open, or note, those for which nothing tells."""
    files = [side.order == "file" for side in sides]
    matrices = [pair for pair, _ in before.pairs if _may_be_turned(pair, files, named)]
    if not matrices:
        return before
    by_files = _SquareWays(files, mixed=bool(before.open_paths))
    for pair in matrices:
        if not _is_square(pair) and pair[0].path not in before.open_paths:
            by_files.add(pair)
    orientations = replace(before, pairs=[])
    square_paths = {pair[0].path for pair in matrices if _is_square(pair)}
    for pair, sure in before.pairs:
        if pair[0].path in square_paths:
            _settle(pair, sure, by_files.of(pair), orientations, files)
        else:
            orientations.pairs.append((pair, sure))
    return orientations


def _settle(pair: Pair, sure: float, ways: set[bool], orientations: Orientations, files: list[bool]) -> None:
    """Take in a square matrix, which stands alike on both sides (False), turned (True), both, or neither."""
    a, b = pair
    names = a.roles["weight"].name, b.roles["weight"].name
    if ways == {True}:
        pair = (a, replace(b, inputs_first=not a.inputs_first)) if files[1] else (replace(a, inputs_first=True), b)
        sure = min(sure, CONFIDENCE_OF_TURNED)
    orientations.pairs.append((pair, sure))
    if len(ways) > 1:
        orientations.ambiguous.append(Ambiguity(names[:1], names[1:], _FILE_REASON))
    elif not ways:
        orientations.notes[names[0]] = UNTOLD


class _SquareWays:
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
                turned = way if way is not None else unlike != ways[1 - side]
                self._named[side, _last_word(pair[side].path)].add(turned)
                self._all[side].add(turned)

    def of(self, pair: Pair) -> set[bool]:
        """What is known of a square matrix: both sides stand alike (False), unlike (True), either way, or nothing."""
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


def _may_be_turned(pair: Pair, files: Sequence[bool], named: Set[str]) -> bool:
    """Tell whether both are matrices, of layers that may be linear, and one comes from a file."""
    if not any(files) or not _are_matrices(pair) or pair[0].roles["weight"].name in named:
        return False
    return any(from_file and layer.inputs_first is not False for layer, from_file in zip(pair, files, strict=True))


def _is_square(pair: Pair) -> bool:
    rows, columns = pair[0].shapes["weight"]
    return rows == columns and pair[0].shapes["weight"] == pair[1].shapes["weight"]


# Layers that the ordinary stages leave over: those that one side only numbers, and those of another form.
#
# `q, k, v` against `dense1, dense2, dense3` share shapes, and no words: conventions of writing pair them, in one
# place of both models. A convolution of one position, or of all positions, against a linear layer, axes of length 1
# that one side has, the packed matrix of an attention layer, a hand-written layer that holds (in, out): such layers
# are written in one form and matched as always. But a form is a guess, so what stands around both must be paired to
# each other, or their names must be alike.

_PACKED = {"in_proj_weight": "weight", "in_proj_bias": "bias"}
_FLAT_NOTE = sentence("pair_note.flattened")


@dataclass(frozen=True, slots=True)
class OtherForms:
    """Pairs of layers of another form with their confidence, pairings of fused layers, and what stays open."""

    pairs: list[tuple[Pair, float]] = field(default_factory=list)
    pairings: list[Pairing] = field(default_factory=list)
    ambiguous: list[Ambiguity] = field(default_factory=list)


def match_other_forms(left: list[Layer], right: list[Layer], known: Sequence[Pair], ordered: bool) -> OtherForms:
    """Pair what is left of both sides; `known` are the pairs of layers so far, which teach."""
    other_forms, places = OtherForms(), PairedModules(known)
    left, right = [plain_layer(layer) for layer in left], [plain_layer(layer) for layer in right]
    whole = [remaining(side, names) for side, names in zip((left, right), reserve_fused(left, right), strict=True)]
    forms: tuple[tuple[_Form, _Form], ...] = ((_same, _same), (_same, transposed_layer), (transposed_layer, _same))
    for before, after in forms:
        converted, two = _in_form(whole[0], before, other_forms), _in_form(whole[1], after, other_forms)
        matched = match_layers(converted, two, [*known, *(pair for pair, _ in other_forms.pairs)], ordered)
        most = CONFIDENCE_OF_FORM if before is after else CONFIDENCE_OF_TURNED
        other_forms.pairs.extend((pair, min(sure, most)) for pair, sure in matched.pairs if _in_place(pair, places))
        if before is after:
            other_forms.ambiguous.extend(matched.ambiguous)
    fused = match_fused(_in_form(left, _same, other_forms), _in_form(right, _same, other_forms), places)
    other_forms.pairings.extend(fused.pairings)
    other_forms.ambiguous.extend(fused.ambiguous)
    for before, after in ((_flattened, _dense), (_dense, _flattened)):
        matched = match_layers(_in_form(left, before, other_forms), _in_form(right, after, other_forms), known, ordered)
        other_forms.pairings.extend(
            converted for pair, sure in matched.pairs if _in_place(pair, places) for converted in _pairings(pair, sure)
        )
    return other_forms


def plain_layer(layer: Layer) -> Layer:
    """The layer as one of the simplest kind that holds the same values: no axes of length 1, no packed roles."""
    if "in_proj_weight" in layer.roles and layer.roles.keys() <= _PACKED.keys():
        roles = {_PACKED[role]: parameter for role, parameter in layer.roles.items()}
        shapes = {_PACKED[role]: shape for role, shape in layer.shapes.items()}
        return with_shapes(replace(layer, kind="linear", roles=roles), shapes)
    weight = layer.shapes.get("weight", ())
    if layer.kind == "conv" and len(weight) > 2 and set(weight[2:]) == {1}:
        return with_shapes(replace(layer, kind="linear"), layer.shapes | {"weight": weight[:2]})
    if layer.kind == "conv" and weight[2:3] == (1,):  # over one axis, written as over two
        return with_shapes(layer, layer.shapes | {"weight": (*weight[:2], *weight[3:])})
    if layer.kind or not any(1 in shape for shape in layer.shapes.values()):
        return layer
    return with_shapes(layer, {role: _squeezed(shape) for role, shape in layer.shapes.items()})


def transposed_layer(layer: Layer) -> Layer | None:
    """A layer of unknown class as if its matrix stood as (in, out); None if it has no matrix, or its class is known."""
    weight = layer.shapes.get("weight", ())
    if layer.inputs_first is not None or len(weight) != 2:
        return None
    return replace(with_shapes(layer, layer.shapes | {"weight": weight[::-1]}), inputs_first=True)


def _flattened(layer: Layer) -> Layer | None:
    """A convolution of several channels and positions, as a linear layer behind a flattening.

    Of one channel it is as likely one of each channel alone.
    """
    weight = layer.shapes.get("weight", ())
    if layer.kind != "conv" or len(weight) < 3 or weight[1] == 1:
        return None
    return with_shapes(replace(layer, kind="linear"), layer.shapes | {"weight": (weight[0], prod(weight[1:]))})


def _dense(layer: Layer) -> Layer | None:
    """A layer that is linear by its class, and no convolution of one position."""
    is_dense = layer.kind == "linear" and "weight" in layer.roles and len(layer.roles["weight"].shape) == 2
    return layer if is_dense else None


def _pairings(pair: Pair, sure: float) -> Iterator[Pairing]:
    a, b = pair
    for role, mine in a.roles.items():
        change = transform_between(a, b, role)
        note = _FLAT_NOTE if a.shapes[role] == a.shapes.get("weight") else ""
        yield Pairing(mine.name, b.roles[role].name, "structure", min(sure, CONFIDENCE_OF_FLATTENED), change, note)


def _same(layer: Layer) -> Layer | None:
    return layer


def _squeezed(shape: Shape) -> Shape:
    return tuple(length for length in shape if length != 1) or shape[:1]


def _in_form(layers: Sequence[Layer], form: Callable[[Layer], Layer | None], other_forms: OtherForms) -> list[Layer]:
    """The layers that are free yet, in a form, as far as they have it."""
    taken = {id(p) for pair, _ in other_forms.pairs for layer in pair for p in layer.roles.values()}
    named = {name for group in other_forms.ambiguous for name in (*group.sources, *group.targets)}
    named |= {name for pairing in other_forms.pairings for name in (pairing.source, pairing.target)}
    free = [layer for layer in layers if all(id(p) not in taken and p.name not in named for p in layer.roles.values())]
    return [formed for layer in free if (formed := form(layer))]


def _in_place(pair: Pair, places: PairedModules) -> bool:
    """Tell whether something beside its shape speaks for a pair of another form."""
    a, b = pair
    return places.together(a, b) or likeness(words(a.path), words(b.path)) >= LIKENESS_OF_FORMS


@dataclass(frozen=True, slots=True)
class _Convention:
    """The signs of the named layers in the order that they are written in, and the numbered ones in that order."""

    signs: tuple[str, ...]
    chosen: Callable[[str, _Members], Group]


def match_numbered_projections(
    left: Sequence[Layer], right: Sequence[Layer], known: Sequence[Pair]
) -> list[tuple[Pair, float]]:
    """Pair free layers that one side names and the other numbers; the pairs that are `known` tell the places."""
    places = PairedModules(known)
    pairs: list[Pair] = []
    for convention in _CONVENTIONS:
        for named, listed in _triples(convention, (left, right), places, 0):
            pairs += zip(named, listed, strict=True)
        for named, listed in _triples(convention, (right, left), places, 1):
            pairs += zip(listed, named, strict=True)
    return [(pair, CONFIDENCE_OF_NUMBERED_PIECES) for pair in pairs]


def _triples(
    convention: _Convention, layers: tuple[Sequence[Layer], Sequence[Layer]], places: PairedModules, side: int
) -> Iterator[tuple[Group, Group]]:
    """Yield each named group with the numbered one that alone stands in its place; `side` is that of the named."""
    written = [group for group in named_groups(layers[0], convention.signs) if _in_order(group)]
    groups, lists = _by_place(written, places, side), _by_place(list(_listed(layers[1], convention)), places, 1 - side)
    for here in groups.values():
        others = [group for place in places.facing(here[0][0], side) for group in lists.get(place, ())]
        if len(here) == len(others) == 1 and all(may_pair(x, y) for x, y in zip(here[0], others[0], strict=True)):
            yield here[0], others[0]


def _by_place(groups: Sequence[Group], places: PairedModules, side: int) -> dict[str | None, list[Group]]:
    found: dict[str | None, list[Group]] = defaultdict(list)
    for group in groups:
        found[places.module(group[0], side)].append(group)
    return found


def _in_order(group: Group) -> bool:
    positions = [layer.position for layer in group]
    return positions == sorted(positions)


def _listed(layers: Sequence[Layer], convention: _Convention) -> Iterator[Group]:
    """Yield the layers that a convention chooses from each list of numbered matrices."""
    lists: dict[str, _Members] = defaultdict(dict)
    for layer in layers:
        found = numbered(layer.path)
        if len(layer.shapes.get("weight", ())) == 2 and found and found[-1][2] == layer.path:
            lists[found[-1][0]][int(found[-1][1])] = layer
    for stem, members in lists.items():
        if chosen := convention.chosen(stem.rpartition(".")[2], members):
            yield chosen


def _attending(_: str, members: _Members) -> Group:
    """The first three of three, or of four, of which the last is the projection of what they give."""
    numbers = sorted(members)
    if len(numbers) not in (3, 4) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ()
    return tuple(members[number] for number in numbers[:3])


def _gated(stem: str, members: _Members) -> Group:
    """`w1` and `w3`, whether or not `w2` is paired already."""
    return (members[1], members[3]) if stem == "w" and members.keys() | {2} == {1, 2, 3} else ()


_CONVENTIONS = (_Convention(ATTENTION, _attending), _Convention(("g", "u"), _gated))
