"""One layer of a torch checkpoint: which rules explain the attributes under its prefix, and what they make of them.

A rule explains a layer if one of its file forms fits exactly. Where none does, but attributes are there that layers
usually have (a subclass with one more parameter, a weight that weight_norm has split), the layer is odd: rules that
explain most of it are offered, and the user decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.core.transforms import IDENTITY, Reshape, Transform

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence, Set

    from align.core.mappings import FileForm, LayerRule
    from align.core.names import LayerChoice
    from align.core.parameters import Shape

AS_IS = "as-is"
# What torch.nn.utils makes of a weight: weight_norm, spectral_norm, prune, and `parametrizations` of the newer kind.
SPLIT = frozenset({"weight_g", "weight_v", "weight_orig", "weight_u", "weight_mask", "bias_orig", "bias_mask"})
PARAMETRIZED = "parametrizations"
# A parameter of one's own is called so too (the bias of a language model's head), and no layer has it alone.
NOT_TELLING = frozenset({"bias"})

# What becomes of one attribute: its new name and transform, or the reason to drop it.
Fate = tuple[str, Transform] | str
Fates = dict[str, Fate]


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors directly under one prefix."""

    prefix: str
    shapes: dict[str, Shape] = field(default_factory=dict)

    def path(self, attribute: str) -> str:
        """Name of an attribute in the file."""
        return f"{self.prefix}.{attribute}" if self.prefix else attribute


@dataclass(frozen=True, slots=True)
class Reading:
    """A group with the rules that can be meant and the choice that narrowed them; `odd` if none of them explains it."""

    group: Group
    rules: tuple[LayerRule, ...]
    choice: LayerChoice | None
    odd: bool


def read_groups(
    shapes: Mapping[str, Shape], rules: Sequence[LayerRule], choices: Sequence[LayerChoice]
) -> list[Reading]:
    """What each group of the file can be, in the file's order, by its form and the last choice that speaks of it."""
    groups: dict[str, Group] = {}
    for name, shape in shapes.items():
        prefix, _, attribute = name.rpartition(".")
        groups.setdefault(prefix, Group(prefix)).shapes[attribute] = shape
    axes = axes_of(shapes)
    known = {name for rule in rules for form in rule.files for name in (*form.attributes, *form.optional)}
    telling = (known - NOT_TELLING) | SPLIT
    return [_reading(group, rules, axes, choices, telling) for group in groups.values()]


def axes_of(shapes: Mapping[str, Shape]) -> set[int]:
    """The numbers of axes that tensors of the file have."""
    return {len(shape) for shape in shapes.values()}


def fates_of(group: Group, rule: LayerRule, family: str, *, alone: bool) -> Fates:
    """What the rule makes of the group; what it does not know, and a layer that the family lacks, keeps its name."""
    target = next((layers for name, layers in rule.families.items() if name == family), None)
    roles = {attribute: role for role, attribute in rule.families["torch"].parameters.items()}
    fates: Fates = {}
    for attribute, shape in group.shapes.items():
        role = roles.get(attribute)
        if target is None or role is None:
            fates[attribute] = (attribute, IDENTITY)
        elif role in target.dropped:
            fates[attribute] = target.dropped[role]
        else:
            axis = target.insert_axis.get(role)
            transform = IDENTITY if axis is None else Reshape((*shape[:axis], 1, *shape[axis:]))
            names = target.parameters | target.alone if alone else target.parameters
            fates[attribute] = (names.get(role, attribute), transform)
    return fates


def kept(group: Group) -> Fates:
    """Every attribute under its own name."""
    return {attribute: (attribute, IDENTITY) for attribute in group.shapes}


def could_be_deeper(group: Group, rules: Iterable[LayerRule], axes: Set[int]) -> list[LayerRule]:
    """Rules whose form fits but for the tensor of so many axes that should stand beside it."""
    return [rule for rule in rules if not _fits_one(group, rule, axes) and _fits_one(group, rule, None)]


def is_rare(group: Group, rule: LayerRule) -> bool:
    """Whether the form by which the rule fits is a rare one."""
    return any(form.rare and _fits(group.shapes, form, None) for form in rule.files)


def _reading(
    group: Group, rules: Sequence[LayerRule], axes: Set[int], choices: Sequence[LayerChoice], telling: Set[str]
) -> Reading:
    fitting = [rule for rule in rules if _fits_one(group, rule, axes)]
    odd = not fitting and bool(telling & group.shapes.keys() or PARAMETRIZED in group.prefix.split("."))
    offered = fitting or (_nearest(group, rules, axes) if odd else [])
    for choice in reversed(choices):
        if fnmatchcase(group.prefix, choice.pattern):
            if choice.kind == AS_IS:
                return Reading(group, (), choice, odd)
            if chosen := _chosen(group, rules, offered, choice, axes):
                return Reading(group, tuple(chosen), choice, odd)
    return Reading(group, tuple(offered), None, odd)


def _chosen(
    group: Group, rules: Sequence[LayerRule], offered: Collection[LayerRule], choice: LayerChoice, axes: Set[int]
) -> list[LayerRule]:
    """Rules of the chosen kind or id that the group can be.

    A pattern without wildcards is taken at its word if the rule knows all attributes. One with wildcards only
    reaches layers that look like the kind, so that `*=embedding` leaves a convolution alone.
    """
    named = [rule for rule in rules if choice.kind in (rule.id, rule.kind)]
    named = [rule for rule in named if _knows(rule, group) or rule in offered]
    kinds = {rule.kind for rule in named}
    of_kind = [rule for rule in rules if rule.kind in kinds and rule.files]
    if of_kind and set(choice.pattern) & set("*?["):
        alike = [rule for rule in of_kind if rule in offered or _fits_one(group, rule, None)]
        named = [rule for rule in named if rule in alike or (alike and not rule.files)]
    by_id = [rule for rule in named if rule.id == choice.kind]
    with_forms = [rule for rule in named if rule in offered or _fits_one(group, rule, axes)]
    return by_id or with_forms or named


def _nearest(group: Group, rules: Iterable[LayerRule], axes: Set[int]) -> list[LayerRule]:
    """Rules with a form that explains a part of the group, those that explain most of it."""
    found: dict[int, list[LayerRule]] = {}
    for rule in rules:
        if "torch" in rule.families:
            known = set(rule.families["torch"].parameters.values())
            part = {name: shape for name, shape in group.shapes.items() if name in known}
            if part and any(_fits(part, form, axes) for form in rule.files):
                found.setdefault(len(part), []).append(rule)
    return found[max(found)] if found else []


def _knows(rule: LayerRule, group: Group) -> bool:
    torch = rule.families.get("torch")
    return torch is not None and group.shapes.keys() <= set(torch.parameters.values())


def _fits_one(group: Group, rule: LayerRule, axes: Set[int] | None) -> bool:
    return any(_fits(group.shapes, form, axes) for form in rule.files)


def _fits(shapes: Mapping[str, Shape], form: FileForm, axes: Set[int] | None) -> bool:
    """Whether these attributes look like the form; `axes` is None where what stands beside them does not matter."""
    present, required = shapes.keys(), set(form.attributes)
    if not required <= present or not present <= required | set(form.optional):
        return False
    if any(len(shapes[name]) not in numbers for name, numbers in form.ndim.items() if name in present):
        return False
    first = {shapes[name][:1] for name in form.same_first if name in present}
    whole = {shapes[name] for name in form.same_shape if name in present}
    beside = axes is None or form.beside_ndim is None or form.beside_ndim in axes
    return len(first) <= 1 and len(whole) <= 1 and beside
