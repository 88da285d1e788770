"""Layer rules read in one direction: what a layer looks like in the file, and what the other side calls its parameters.

The rules are written for torch files. How the same layers look in a MindSpore file follows from how its families name
them: the forms are those of torch with other names, other shapes, and the parameters that MindSpore always has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from align.rules.layer_rules import FileForm, LayerFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.rules.layer_rules import LayerRule

TargetFamily = Literal["nn", "mint", "torch"]


@dataclass(frozen=True, slots=True)
class DirectedRule:
    """One layer rule from the file's family to the target's, which is None where the target has no such layer.

    `children` maps the file's name of a child to the target's. With `inner` the layer's parameters lie in a child of
    that name, which the target does not have.
    """

    id: str
    kind: str
    source: LayerFamily
    target: LayerFamily | None
    forms: tuple[FileForm, ...]
    children: dict[str, str]
    inner: str = ""


def directed_rules(rules: Iterable[LayerRule], family: TargetFamily, *, alone: bool) -> list[DirectedRule]:
    """The rules for files whose target is of this family; for "torch" the files are MindSpore's, of either family.

    Rules of layers that leave nothing in a file are left out. `alone` says that the file holds one layer that is no
    part of a net, for which MindSpore has other names.
    """
    if family == "torch":
        both = [back for rule in rules for back in _from_mindspore(rule, alone=alone)]
    else:
        both = list(_from_torch(rules, family, alone=alone))
    return [one for one in both if one.source.parameters or one.forms]


def _from_torch(rules: Iterable[LayerRule], family: TargetFamily, *, alone: bool) -> Iterator[DirectedRule]:
    for rule in rules:
        if "torch" in rule.families:
            target = _with_lone_names(rule.families.get(family), alone=alone)
            children = target.children if target else {}
            yield DirectedRule(rule.id, rule.kind, rule.families["torch"], target, rule.files, children)


def _with_lone_names(family: LayerFamily | None, *, alone: bool) -> LayerFamily | None:
    return replace(family, parameters=family.parameters | family.alone) if family and alone else family


def _from_mindspore(rule: LayerRule, *, alone: bool) -> Iterator[DirectedRule]:
    known: list[LayerFamily] = []
    for name in ("nn", "mint"):
        source = _with_lone_names(next((f for key, f in rule.families.items() if key == name), None), alone=alone)
        if source is None or "torch" not in rule.families or any(_are_named_alike(source, other) for other in known):
            continue
        known.append(source)
        inner = next((path.rpartition(".")[0] for path in source.parameters.values() if "." in path), "")
        if inner:
            parameters = {role: path.removeprefix(f"{inner}.") for role, path in source.parameters.items()}
            source = replace(source, parameters=parameters)
        torch = rule.families["torch"]
        forms = tuple(_form_of(form, torch, source) for form in rule.files)
        children = {new: old for old, new in source.children.items()}
        yield DirectedRule(rule.id, rule.kind, source, torch, forms, children, inner)


def _are_named_alike(one: LayerFamily, other: LayerFamily) -> bool:
    return (one.parameters, one.insert_axis, one.children) == (other.parameters, other.insert_axis, other.children)


def _form_of(form: FileForm, torch: LayerFamily, family: LayerFamily) -> FileForm:
    """What torch's form looks like in the family's file."""
    if any("." in attribute for attribute in form.attributes):
        heads = dict.fromkeys(attribute.partition(".")[0] for attribute in form.attributes)
        return FileForm(tuple(family.children.get(head, head) for head in heads))
    roles = {attribute: role for role, attribute in torch.parameters.items()}
    names = {attribute: family.parameters[role] for attribute, role in roles.items() if role in family.parameters}
    always = [family.parameters[role] for role in family.always]
    required = tuple(dict.fromkeys([*(names[a] for a in form.attributes if a in names), *always]))
    return FileForm(
        attributes=required,
        optional=tuple(names[a] for a in form.optional if a in names and names[a] not in required),
        ndim={
            names[a]: tuple(n + (roles[a] in family.insert_axis) for n in form.ndim[a]) for a in names if a in form.ndim
        },
        same_shape=(*(names[a] for a in form.same_shape if a in names), *always),  # one number a channel, each of them
        same_first=tuple(names[a] for a in form.same_first if a in names),
        beside_ndim=form.beside_ndim,
        rare=form.rare,
        gates={names[a]: count for a, count in form.gates.items() if a in names},
        unit_axis={names[a]: family.insert_axis[roles[a]] for a in names if roles[a] in family.insert_axis},
    )


# What torch.nn.utils makes of a weight: weight_norm, spectral_norm, prune, and `parametrizations` of the newer kind.
SPLIT = frozenset({"weight_g", "weight_v", "weight_orig", "weight_u", "weight_mask", "bias_orig", "bias_mask"})


PARAMETRIZED = "parametrizations"
