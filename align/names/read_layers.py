"""Parameters grouped into layers, the units of matching: a layer's class gives each of its parameters a role.

Roles and class kinds, not names, are what two frameworks share. A module of unknown class counts as one layer if all
its parameters have usual names (`gamma`, `weight`, ...); otherwise each of its parameters stands alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from align.core.transforms import turned_and_reshaped
from align.names.thresholds import AGAINST_ORDER_SHARE, LIKENESS_OF_PARTS
from align.rules.layer_rules import PARAMETRIZED, SPLIT, STATISTICS, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from align.core.parameters import Module, Parameter, ParameterSet, Shape
    from align.core.transforms import Transform


# Attribute names that layers written by hand give to the same roles.
USUAL_ROLES = {
    "weight": "weight", "gamma": "weight", "w": "weight", "scale": "weight", "kernel": "weight",
    "embedding_table": "weight", "gain": "weight", "g": "weight",
    "bias": "bias", "beta": "bias", "b": "bias", "offset": "bias", "shift": "bias",
    "running_mean": "mean", "moving_mean": "mean", "running_var": "variance", "moving_variance": "variance",
    "num_batches_tracked": "batches",
}  # fmt: skip
# A count of batches is bookkeeping: it never tells two layers apart.
UNTOLD_ROLES = frozenset({"batches"})
# Words for parts beside the model proper, which repeat its layers: never counterparts of the model's own.
ASIDE = frozenset({"aux", "auxiliary", "average", "averaged", "ema", "shadow", "teacher"})
_LIKE_ASIDE = re.compile("|".join(sorted(ASIDE)), re.IGNORECASE)
_AXES = re.compile(r"([123]d)$")
Signature = tuple[tuple[str, "Shape"], ...]
Pair = tuple["Layer", "Layer"]
Names = tuple[set[str], set[str]]  # of the source and of the target
Roles = dict[str, tuple["Layer", str]]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: `kind` is "" where no rule knows its class; `shapes` are those of the roles, as torch has them.

    `signature` lists the (role, shape) that a counterpart must have. `position` counts the parameters before it on its
    side. `inputs_first` is True where the weight stands as (in, out), None where nobody knows. `ran` is False where a
    run did not show its module, so that its position tells nothing. `axes` is what the name of its class ends in, `2d`
    of BatchNorm2d, "" where it does not say.
    """

    path: str
    position: int
    kind: str
    roles: dict[str, Parameter]
    shapes: dict[str, Shape]
    signature: Signature
    dropped: dict[str, str]
    inputs_first: bool | None = False
    ran: bool = True
    axes: str = ""

    @property
    def aside(self) -> bool:
        """Whether it stands below an auxiliary head or in a second copy of the model."""
        return _is_aside(self.path)


def may_pair(a: Layer, b: Layer) -> bool:
    """Tell whether two layers may correspond: equal shapes by role, no two known kinds, both or neither aside."""
    return a.signature == b.signature and of_one_kind(a, b)


def of_one_kind(a: Layer, b: Layer) -> bool:
    """Tell whether two layers may correspond if their shapes allow it."""
    return a.aside == b.aside and (a.kind == b.kind or not a.kind or not b.kind)


def crosses(one: Pair, two: Pair) -> bool:
    """Tell whether two pairs stand in one order on the one side and in the other on the other."""
    return (one[0].position < two[0].position) != (one[1].position < two[1].position)


def is_turned(layer: Layer, role: str) -> bool:
    """Tell whether a parameter is a matrix that stands as (in, out)."""
    return bool(layer.inputs_first) and role == "weight" and len(layer.roles[role].shape) == 2


def transform_between(source: Layer, target: Layer, role: str, other: str = "") -> Transform:
    """Turn a source's parameter into the target's, which as torch has them are of one shape.

    `other` is its role there if that is called otherwise.
    """
    before, wanted = source.roles[role].shape, target.roles[other or role].shape
    return turned_and_reshaped(before, wanted, is_turned(source, role) != is_turned(target, other or role))


@dataclass(frozen=True)
class LayeredSides:
    """Both sides of a map with their layers, which are read once."""

    parameters: tuple[ParameterSet, ParameterSet]

    @cached_property
    def roles(self) -> tuple[Roles, Roles]:
        """The layer of each parameter of a side, and its role there."""
        return roles_by_name(self.parameters[0]), roles_by_name(self.parameters[1])

    @cached_property
    def of_known_class(self) -> tuple[set[str], set[str]]:
        """The paths of the modules of each side whose class a layer rule knows."""
        left, right = ({one.path for one in side.modules if rule_for(one.classes)} for side in self.parameters)
        return left, right


def read_layers(side: ParameterSet, skip: Set[str] = frozenset()) -> list[Layer]:
    """Layers of one side in the order of its modules, without the parameters named in `skip`."""
    layers: list[Layer] = []
    position, has_classes = 0, side.order != "file"  # a file has no classes that would tell how a matrix stands
    split = {module.path.partition(f".{PARAMETRIZED}")[0] for module in side.modules if PARAMETRIZED in module.path}
    for module in side.modules:
        own = [side.by_name[name] for name in module.parameters if name not in skip]
        found = (
            _layers_of(module, own, position, whole=module.path not in split, has_classes=has_classes) if own else ()
        )
        layers += found if module.ran else (replace(layer, ran=False) for layer in found)
        position += len(module.parameters)
    return layers


def cut_alike(left: list[Layer], right: list[Layer]) -> tuple[list[Layer], list[Layer]]:
    """Both sides, with those layers cut into lone parameters that are so on the other side under the same full names.

    Such a layer is of a class that a rule knows on one side only: a recurrent layer of one's own, one whose weight is
    normalised. Its parts keep its kind.
    """
    one, two = ({layer.path: layer.signature for layer in side} for side in (left, right))
    return _cut(left, two), _cut(right, one)


def _cut(layers: list[Layer], others: dict[str, Signature]) -> list[Layer]:
    cut: list[Layer] = []
    for layer in layers:
        likely = any(f"{layer.path}.{parameter.attribute}" in others for parameter in layer.roles.values())
        parts = _parts(layer) if likely else []
        cut += parts if any(others.get(part.path) == part.signature for part in parts) else [layer]
    return cut


def _parts(layer: Layer) -> list[Layer]:
    """The parameters of a layer as layers of their own."""
    return [
        replace(_alone(layer.path, layer.position, parameter), kind=layer.kind) for parameter in layer.roles.values()
    ]


def _alone(module: str, position: int, parameter: Parameter) -> Layer:
    """A parameter as a layer of unknown kind; a part of a weight has a role of its own, to be taken for no whole."""
    path = f"{module}.{parameter.attribute}".removeprefix(".")
    role = parameter.attribute if whole_of(parameter) else "weight"
    return _layer(path, position, {role: parameter})


def whole_of(parameter: Parameter) -> str:
    """The name of the weight of which a parameter is a part (`fc.weight_g`: `fc.weight`), "" if it is no part."""
    module, parametrized, attribute = parameter.module.partition(f"{PARAMETRIZED}.")
    if parametrized:
        return f"{module}{attribute}"
    if parameter.attribute in SPLIT:
        return parameter.name.rpartition("_")[0]
    return ""


def roles_by_name(side: ParameterSet) -> Roles:
    """Return the layer of each parameter, and its role there."""
    return {p.name: (layer, role) for layer in read_layers(side) for role, p in layer.roles.items()}


def without_optional_roles(layers: Iterable[Layer]) -> list[Layer]:
    """Return the layers as what they hold beside biases and statistics, which one side may lack.

    Of layers of one kind that hold the same tensors under several names, the first is taken.
    """
    plain: dict[tuple[str, frozenset[str]], Layer] = {}
    for layer in layers:
        signature = tuple(entry for entry in layer.signature if _essential(entry[0]))
        if layer.kind and signature:
            tensors = frozenset(layer.roles[role].tied_to or layer.roles[role].name for role, _ in signature)
            plain.setdefault((layer.kind, tensors), replace(layer, signature=signature))
    return list(plain.values())


def remaining(layers: Iterable[Layer], gone: Set[str]) -> list[Layer]:
    """Return the layers without the parameters that are gone, and without those that have no others."""
    if not gone:
        return list(layers)
    left = []
    for layer in layers:
        if gone.isdisjoint([parameter.name for parameter in layer.roles.values()]):
            left.append(layer)
        elif kept := {role: one for role, one in layer.roles.items() if one.name not in gone}:
            left.append(with_shapes(replace(layer, roles=kept), {role: layer.shapes[role] for role in kept}))
    return left


def _essential(role: str) -> bool:
    return "bias" not in role and role not in STATISTICS


def _layers_of(
    module: Module, parameters: list[Parameter], position: int, *, whole: bool, has_classes: bool
) -> Iterator[Layer]:
    known = _known_class(module.classes) if whole else None
    if known is not None and all(parameter.attribute in known.roles for parameter in parameters):
        by_role = {known.roles[parameter.attribute]: parameter for parameter in parameters}
        yield _layer(
            module.path, position, by_role, known, None if known.kind == "linear" and not has_classes else False
        )
        return
    usual = {USUAL_ROLES.get(parameter.attribute, ""): parameter for parameter in parameters}
    if (
        len(parameters) == len(usual) == 2
        and "" in usual
        and parameters[0].shape == parameters[1].shape
        and _is_vector(parameters[0])
    ):
        named = next(filter(None, usual))  # the vector beside one that scales shifts, and the other way round
        usual = {role or ("bias" if named == "weight" else "weight"): one for role, one in usual.items()}
    if whole and "" not in usual and len(usual) == len(parameters):
        yield _with_layout(_layer(module.path, position, usual, None, None), module)
        return
    for offset, parameter in enumerate(parameters):
        yield _alone(module.path, position + offset, parameter)


def _is_vector(parameter: Parameter) -> bool:
    return max(parameter.shape, default=1) == parameter.count > 1


@dataclass(frozen=True, slots=True)
class _KnownClass:
    """What a layer rule says of a class: the role of each attribute, where an axis is inserted, what may be lacking.

    `axes` is what its name tells.
    """

    kind: str
    roles: dict[str, str]
    inserted: dict[str, int]
    dropped: dict[str, str]
    axes: str


@lru_cache(maxsize=1 << 12)
def _known_class(classes: tuple[str, ...]) -> _KnownClass | None:
    """What is known of a class, given with its bases; None if no rule knows any of them."""
    if (known := rule_for(classes)) is None:
        return None
    rule, name = known
    family = rule.families[name]
    axes = next((found[1] for one in classes if (found := _AXES.search(one))), "")
    roles = {attribute: role for role, attribute in family.parameters.items()}
    return _KnownClass(rule.kind, roles, family.insert_axis, family.may_lack | family.dropped, axes)


def _with_layout(layer: Layer, module: Module) -> Layer:
    """A layer of no known kind, as a linear one if a layout rule knows its class; shapes are then those of torch."""
    weight = layer.shapes.get("weight", ())
    if module.inputs_first is None or len(weight) != 2:
        return layer
    shapes = layer.shapes | {"weight": weight[::-1] if module.inputs_first else weight}
    signature = _signature(tuple(shapes.items()))
    return replace(layer, shapes=shapes, signature=signature, kind="linear", inputs_first=module.inputs_first)


def with_shapes(layer: Layer, shapes: dict[str, Shape]) -> Layer:
    """The layer with other shapes of its roles, and the signature that follows from them."""
    return replace(layer, shapes=shapes, signature=_signature(tuple(shapes.items())))


@lru_cache(maxsize=1 << 16)
def _signature(shapes: Signature) -> Signature:
    """What a counterpart must have; many layers have the same, which then is one tuple."""
    return tuple(sorted(entry for entry in shapes if entry[0] not in UNTOLD_ROLES))


def _layer(
    path: str,
    position: int,
    roles: dict[str, Parameter],
    known: _KnownClass | None = None,
    inputs_first: bool | None = False,
) -> Layer:
    inserted = known.inserted if known else {}
    shapes = {role: _torch_shape(p.shape, inserted.get(role)) for role, p in roles.items()}
    return Layer(
        path=path,
        position=position,
        kind=known.kind if known else "",
        roles=roles,
        shapes=shapes,
        signature=_signature(tuple(shapes.items())),
        dropped=known.dropped if known else {},
        inputs_first=inputs_first,
        axes=known.axes if known else "",
    )


@lru_cache(maxsize=1 << 17)
def _is_aside(path: str) -> bool:
    return bool(_LIKE_ASIDE.search(path)) and not ASIDE.isdisjoint(tokens(path))


def _torch_shape(shape: Shape, inserted: int | None) -> Shape:
    if inserted is None or len(shape) <= inserted or shape[inserted] != 1:
        return shape
    return shape[:inserted] + shape[inserted + 1 :]


# What paths say: their words, abbreviations and numbers, and what two say about each other.
#
# Used only to choose among layers of equal class and shape; a name alone never pairs anything.

_DIGITS = re.compile(r"\d+")
_SEPARATORS = re.compile(r"[._\-\s]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# A part of a path that begins so is attention to what the encoder made.
_CROSS = re.compile(
    r"(?<![^.])(?:enc(?:oder)?_?(?:dec(?:oder)?_?)?att(?:n|ention)|crossatt(?:n|ention))", re.IGNORECASE
)
_INDEXED = re.compile(r"([A-Za-z]*)(\d+)")
# An index is a whole part of a path (`blocks.0`) or the number at the end of a word (`fc1`, `ln_1`): 9 digits at most.
_NUMBER = re.compile(r"[0-9]{1,9}")
_NUMBERED = re.compile(r"((?:.*[^\W\d])?_?)([0-9]{1,9})")

Tokens = tuple[str, ...]
# Words for the place of a layer beside others, the first before the last.
PLACES = {
    "input": 0, "pre": 1, "before": 1, "post": 2, "after": 2, "first": 1, "second": 2, "third": 3, "last": 4,
}  # fmt: skip
_OF = "·"
# What single letters stand for in the names of attention layers, by the beginning of the word.
LETTERS = {"q": "que", "k": "key", "v": "val", "o": "out"}
# The weights of attention layers are also called after the matrices of the formula, norms after what they norm.
_SHORT = {
    "wq": "q",
    "wk": "k",
    "wv": "v",
    "wo": "o",
    "ln": "norm",
    "bn": "norm",
    "attn": "attention",
    "ffw": "feedforward",
    "ffn": "feedforward",
}


@lru_cache(maxsize=1 << 16)
def tokens(path: str) -> Tokens:
    """Words and index numbers of a path in lower case: `layer1.0.downSample` -> layer, 1, 0, down, sample.

    A number counts as an index only at the end of a part; `branch5x5` and `conv2d` are words.
    """
    words: list[str] = []
    for part in filter(None, _SEPARATORS.split(_CROSS.sub("cross_attention", path))):
        if indexed := _INDEXED.fullmatch(part):
            words += [word.lower() for word in _CAMEL.findall(indexed[1])] + [indexed[2]]
        elif part.isalpha() and part.isascii():
            words += [word.lower() for word in _CAMEL.findall(part)]
        else:
            words.append(part.lower())
    return _placed([_SHORT.get(word, word) for word in words])


def _placed(found: list[str]) -> Tokens:
    """The words with what stands before or after something as one: the norm `post_attention` is not the attention's."""
    joined: list[str] = []
    for word in found:
        if joined and joined[-1] in PLACES and word.isalpha() and "norm" not in word:
            joined[-1] += _OF + word
        else:
            joined.append(word)
    return tuple(joined)


def numbered(path: str) -> tuple[tuple[str, str, str], ...]:
    """Each numbered list that a path goes through (`blocks.` of `blocks.0`, `fc` of `fc1`), the index, its child.

    The outermost comes first.
    """
    return _numbered(path if path[-1:].isdigit() else path.rpartition(".")[0])


@lru_cache(maxsize=1 << 17)
def _numbered(path: str) -> tuple[tuple[str, str, str], ...]:
    """The same; what has no number at its end is looked up with the module that holds it, once for all in there."""
    parts = path.split(".")
    return tuple(
        (".".join([*parts[:place], indexed[1]]), indexed[2], ".".join(parts[: place + 1]))
        for place, part in enumerate(parts)
        if part[-1:].isdigit() and (indexed := _NUMBERED.fullmatch(part))
    )


def is_number(token: str) -> bool:
    """Tell whether a token of a path is an index."""
    return _NUMBER.fullmatch(token) is not None


def modules_above(path: str) -> tuple[str, ...]:
    """Paths of the modules above, the nearest first, the root ("") last."""
    return _with_those_above(path.rpartition(".")[0])


@lru_cache(maxsize=1 << 16)
def _with_those_above(module: str) -> tuple[str, ...]:
    parts = module.split(".") if module else []
    return tuple(".".join(parts[:length]) for length in range(len(parts), -1, -1))


def words(path: str) -> Tokens:
    """Words of a path without its numbers: the same index at different levels of two paths is a coincidence."""
    return tuple(token for token in tokens(path) if not token.isdigit())


def word_likeness(a: str, b: str) -> float:
    """1 for equal words, LIKENESS_OF_PARTS if one begins or ends with the other (`emb`, `embedding`), else 0.

    A single letter begins too many words by chance: those that LETTERS knows are alike, no others.
    """
    if a == b:
        return 1.0
    if _OF in a or _OF in b:
        (place, _, word), (other_place, _, other) = a.partition(_OF), b.partition(_OF)
        return word_likeness(word, other) if place == other_place and word and other else 0.0
    short, long = sorted((a, b), key=len)
    if len(short) == 1:
        return LIKENESS_OF_PARTS if long.startswith(LETTERS.get(short, " ")) else 0.0
    return LIKENESS_OF_PARTS if long.startswith(short) or long.endswith(short) else 0.0


@lru_cache(maxsize=1 << 16)
def contained(a: Tokens, b: Tokens) -> float:
    """Share of the words of `a` that find a like one in `b`, in [0, 1]; 0 if `a` has no words."""
    return sum(max((word_likeness(x, y) for y in b), default=0.0) for x in a) / len(a) if a else 0.0


def likeness(a: Tokens, b: Tokens) -> float:
    """Share of the words of both that find a like one on the other side, in [0, 1]; symmetric."""
    total = len(a) + len(b)
    return (contained(a, b) * len(a) + contained(b, a) * len(b)) / total if total else 0.0


def difference(a: str, b: str) -> tuple[Tokens, Tokens]:
    """What remains of two paths without their common beginning and end."""
    x, y = tokens(a), tokens(b)
    start = 0
    while start < min(len(x), len(y)) and x[start] == y[start]:
        start += 1
    end = 0
    while end < min(len(x), len(y)) - start and x[-1 - end] == y[-1 - end]:
        end += 1
    return x[start : len(x) - end], y[start : len(y) - end]


@lru_cache(maxsize=1 << 17)
def unshared_words(a: str, b: str) -> tuple[Tokens, Tokens]:
    """Return the words of each of two paths that the other does not have."""
    x, y = words(a), words(b)
    return tuple(word for word in x if word not in y), tuple(word for word in y if word not in x)


@lru_cache(maxsize=1 << 17)
def number_order(a: str, b: str) -> int:
    """-1, 0 or 1: how two paths compare by the first place where they differ, 0 unless both have a number there."""
    x, y = difference(a, b)
    if x and y and is_number(x[0]) and is_number(y[0]):
        return (int(x[0]) > int(y[0])) - (int(x[0]) < int(y[0]))
    return 0


@lru_cache(maxsize=1 << 17)
def place_order(a: str, b: str) -> int:
    """-1, 0 or 1: how two paths compare whose only difference is a number, or a word for a place (`before`, `after`).

    `pre_attention` and `post_attention` compare, `pre_mlp` and `post_attention` do not; an input is before all.
    """
    x, y = difference(a, b)
    if len(x) != 1 or len(y) != 1:
        return number_order(a, b)
    (place, _, of), (other, _, other_of) = x[0].partition(_OF), y[0].partition(_OF)
    if place not in PLACES or other not in PLACES or (of != other_of and "input" not in (place, other)):
        return number_order(a, b)
    return (PLACES[place] > PLACES[other]) - (PLACES[place] < PLACES[other])


def compare_names(sources: tuple[str, str], targets: tuple[str, str], order: float) -> tuple[float, float]:
    """What the places and the other words of two paths on each side say for them, each with the one at its index.

    `order` is 1 if both stand in one order of registration, -1 if not. Both benefits lie in [-2, 2].
    """
    return _compare_places(sources, targets, order), _compare_words(sources, targets, order)


def _compare_places(sources: tuple[str, str], targets: tuple[str, str], order: float) -> float:
    """What words for places (`pre`, `post`) say beside others, or beside numbers.

    Numbers against the order of registration tell less: the first norm of a block may be the one behind its attention.
    """
    numbers = number_order(*sources), number_order(*targets)
    benefit = float(place_order(*sources) * place_order(*targets))
    return 0.0 if all(numbers) else benefit * (AGAINST_ORDER_SHARE if any(numbers) and benefit * order < 0 else 1)


def _compare_words(sources: tuple[str, str], targets: tuple[str, str], order: float) -> float:
    """What the words that tell the paths of a side apart say.

    Where the order of registration contradicts them, they count only if nothing but the better pairing is alike.
    """
    (x, x2), (y, y2) = unshared_words(*sources), unshared_words(*targets)
    kept, exchanged = (likeness(x, y), likeness(x2, y2)), (likeness(x, y2), likeness(x2, y))
    benefit = sum(kept) - sum(exchanged)
    worse, better = sorted((kept, exchanged), key=sum)
    clear = not max(worse) and (min(better) if benefit > 0 else max(better)) >= LIKENESS_OF_PARTS
    return benefit if clear or benefit * order > 0 else 0.0


def unlike_beyond_kind(words: tuple[Tokens, Tokens], kinds: tuple[str, str]) -> bool:
    """Tell whether the words that are `words` of two layers say more than their kinds, and nothing alike."""
    mine, theirs = (_beyond(kind, said) for kind, said in zip(kinds, words, strict=True))
    return bool(mine and theirs) and not likeness(mine, theirs)


def _beyond(kind: str, words: Tokens) -> Tokens:
    """The words that say more of a layer than its kind: all norms are called norms, and those of groups `gn`."""
    parts = kind.split("_")
    initials = "".join(word[:1] for word in parts)
    return tuple(word for word in words if len(word) > 1 and word not in {*parts, initials})


class DistinctiveWords:
    """The words that tell a path from the others of its side.

    Not those of modules whose other layers are settled, since every layer there has them, nor those that stand in
    several places (`dense`, `token`).
    """

    def __init__(self, sides: Sequence[Sequence[str]], settled: Sequence[tuple[str, str]]) -> None:
        self._common = [_common_words(paths) for paths in sides]
        self._held = [Counter(module for pair in settled for module in modules_above(pair[side])) for side in (0, 1)]
        self._settled = set(settled)
        self._ends: dict[Tokens, list[tuple[str, str]]] = defaultdict(list)
        for a, b in self._settled:
            for end in {words(a)[-1:], words(b)[-1:]}:
                self._ends[end].append((a, b))

    def of(self, a: str, b: str) -> tuple[Tokens, Tokens]:
        """The words that each of a source's path and a target's has for itself."""
        counted = int((a, b) in self._settled)
        return self._of(a, 0, counted), self._of(b, 1, counted)

    def share_an_end(self, a: str, b: str) -> bool:
        """Tell whether both end in a word that both sides use alike elsewhere: `mask_token` and `dist_token`."""
        mine, theirs = words(a), words(b)
        ends = self._ends.get(mine[-1:], []) if mine and mine[-1:] == theirs[-1:] else []
        others = [both for both in ends if both != (a, b)]
        return bool(others) and all(words(one)[-2:] == words(other)[-2:] for one, other in others)

    def _of(self, path: str, side: int, counted: int) -> Tokens:
        module = next((one for one in modules_above(path) if self._held[side][one] > counted), "")
        common = self._common[side]
        return tuple(
            word
            for word in words(path[len(module) :])
            if len(word) > 1 and not any(word_likeness(word, other) for other in common)
        )


def _common_words(paths: Iterable[str]) -> set[str]:
    """Words of several modules or layers; the numbers of lists make no difference."""
    places = set()
    for path in {_DIGITS.sub("#", path) for path in paths}:
        places.update({path, *modules_above(path)})
    count = Counter(word for place in places for word in set(words(place.rpartition(".")[2])))
    return {word for word, number in count.items() if number > 1}
