"""Parameters grouped into layers, the units of matching: a layer's class gives each of its parameters a role.

Roles and class kinds, not names, are what two frameworks share. A module of unknown class counts as one layer if all
its parameters have usual names (`gamma`, `weight`, ...); otherwise each of its parameters stands alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from align.core.transforms import turned_and_reshaped
from align.names.layers.path_words import tokens
from align.rules.directed_rules import PARAMETRIZED, SPLIT
from align.rules.layer_rules import STATISTICS, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

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
    position = 0
    split = {module.path.partition(f".{PARAMETRIZED}")[0] for module in side.modules if PARAMETRIZED in module.path}
    for module in side.modules:
        own = [side.by_name[name] for name in module.parameters if name not in skip]
        found = _layers_of(module, own, position, whole=module.path not in split) if own else ()
        layers += found if module.ran else (replace(layer, ran=False) for layer in found)
        position += len(module.parameters)
    if side.order == "file":  # which has no classes that would tell
        return [replace(layer, inputs_first=None) if layer.kind == "linear" else layer for layer in layers]
    return layers


def cut_alike(left: list[Layer], right: list[Layer]) -> tuple[list[Layer], list[Layer]]:
    """Both sides, with those layers cut into lone parameters that are so on the other side under the same full names.

    Such a layer is of a class that a rule knows on one side only: a recurrent layer of one's own, one whose weight is
    normalised. Its parts keep its kind.
    """
    one, two = ({layer.path: layer.signature for layer in side} for side in (left, right))
    return _cut(left, two), _cut(right, one)


def _cut(layers: list[Layer], others: dict[str, Signature]) -> list[Layer]:
    found: list[Layer] = []
    for layer in layers:
        likely = any(f"{layer.path}.{parameter.attribute}" in others for parameter in layer.roles.values())
        parts = _parts(layer) if likely else []
        found += parts if any(others.get(part.path) == part.signature for part in parts) else [layer]
    return found


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
    found: dict[tuple[str, frozenset[str]], Layer] = {}
    for layer in layers:
        signature = tuple(entry for entry in layer.signature if _essential(entry[0]))
        if layer.kind and signature:
            tensors = frozenset(layer.roles[role].tied_to or layer.roles[role].name for role, _ in signature)
            found.setdefault((layer.kind, tensors), replace(layer, signature=signature))
    return list(found.values())


def remaining(layers: Iterable[Layer], gone: Set[str]) -> list[Layer]:
    """Return the layers without the parameters that are gone, and without those that have no others."""
    if not gone:
        return list(layers)
    found = []
    for layer in layers:
        if gone.isdisjoint([parameter.name for parameter in layer.roles.values()]):
            found.append(layer)
        elif kept := {role: one for role, one in layer.roles.items() if one.name not in gone}:
            found.append(with_shapes(replace(layer, roles=kept), {role: layer.shapes[role] for role in kept}))
    return found


def _essential(role: str) -> bool:
    return "bias" not in role and role not in STATISTICS


def _layers_of(module: Module, own: list[Parameter], position: int, *, whole: bool) -> Iterator[Layer]:
    known = _known_class(module.classes) if whole else None
    if known is not None and all(parameter.attribute in known.roles for parameter in own):
        by_role = {known.roles[parameter.attribute]: parameter for parameter in own}
        yield _layer(module.path, position, by_role, known)
        return
    usual = {USUAL_ROLES.get(parameter.attribute, ""): parameter for parameter in own}
    if len(own) == len(usual) == 2 and "" in usual and own[0].shape == own[1].shape and _is_vector(own[0]):
        told = next(filter(None, usual))  # the vector beside one that scales shifts, and the other way round
        usual = {role or ("bias" if told == "weight" else "weight"): one for role, one in usual.items()}
    if whole and "" not in usual and len(usual) == len(own):
        yield _with_layout(_layer(module.path, position, usual), module)
        return
    for offset, parameter in enumerate(own):
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
        return replace(layer, inputs_first=None)
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


def _layer(path: str, position: int, roles: dict[str, Parameter], known: _KnownClass | None = None) -> Layer:
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
        axes=known.axes if known else "",
    )


@lru_cache(maxsize=1 << 17)
def _is_aside(path: str) -> bool:
    return bool(_LIKE_ASIDE.search(path)) and not ASIDE.isdisjoint(tokens(path))


def _torch_shape(shape: Shape, inserted: int | None) -> Shape:
    if inserted is None or len(shape) <= inserted or shape[inserted] != 1:
        return shape
    return shape[:inserted] + shape[inserted + 1 :]
