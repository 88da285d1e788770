"""Target names out of a torch checkpoint alone: what the file can decide, and what it leaves open.

The attributes under one prefix (`bn1.weight`, `bn1.running_mean` ...) and their shapes are held against the file forms
of all layer rules. Where every rule that fits gives the same names and shapes, that is the answer; where they differ,
the layer is open until the user says which it is. Nothing is chosen by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from align.core.names import Dropped, Evidence, LayerChoice, NameMap, Pairing
from align.core.transforms import IDENTITY, Reshape, Transform
from align.steps.infer_children import CUSTOM, Container, find_containers, renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.mappings import FileForm, LayerRule
    from align.core.parameters import Shape

TargetFamily = Literal["nn", "mint"]
AS_IS = "as-is"
MOST_LISTED = 3


@dataclass(frozen=True, slots=True)
class OpenLayer:
    """A layer that the file does not decide: each alternative's rule ids and the names that it would give."""

    prefix: str
    shapes: dict[str, Shape]
    alternatives: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class InferredNames:
    """The map as far as it is decided; `faults` are choices that name no known kind or fit no layer."""

    name_map: NameMap
    open: tuple[OpenLayer, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """The tensors directly under one prefix."""

    prefix: str
    shapes: dict[str, Shape] = field(default_factory=dict)

    def path(self, attribute: str) -> str:
        return f"{self.prefix}.{attribute}" if self.prefix else attribute


# What becomes of one attribute: its new name and transform, or the reason to drop it.
_Fate = tuple[str, Transform] | str
_Fates = dict[str, _Fate]


def infer_names(
    shapes: Mapping[str, Shape],
    rules: Sequence[LayerRule],
    family: TargetFamily,
    choices: Sequence[LayerChoice] = (),
) -> InferredNames:
    """Decide the target's name of every tensor of a torch checkpoint for layers of `mindspore.nn` or `mint.nn`.

    `shapes` maps the file's names, in its order, to shapes.
    """
    axes = {len(shape) for shape in shapes.values()}
    known = {kind for rule in rules for kind in (rule.kind, rule.id)} | {AS_IS, CUSTOM}
    containers = find_containers(shapes, rules, family, choices)
    unused = {choice for choice in choices if choice.kind in known} - {c.choice for c in containers}
    fates: dict[str, tuple[_Fate, Evidence, str]] = {}
    open_layers = [_open_container(container) for container in containers if container.choice is None]
    odd = []
    for group in _groups(shapes):
        candidates, choice = _candidates(group, rules, axes, choices)
        unused -= {choice}
        outcomes = _outcomes(group, candidates, family)
        if len(outcomes) > 1:
            open_layers.append(_open_layer(group, outcomes))
            continue
        ids, decided = outcomes[0] if outcomes else ("", _kept(group))
        if not ids and not choice and _is_odd(group, rules):
            odd.append(group.prefix)
        evidence: Evidence = "user" if choice else "rule" if ids else "file"
        fates |= {group.path(attribute): (fate, evidence, ids) for attribute, fate in decided.items()}
    return InferredNames(
        _name_map(shapes, fates, family, {old: new for c in containers for old, new in c.renames.items()}),
        tuple(open_layers),
        (*(_unknown_kind(c, known) for c in choices if c.kind not in known), *sorted(map(_unused, unused))),
        tuple(_warnings(shapes, odd)),
    )


def _groups(shapes: Mapping[str, Shape]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for name, shape in shapes.items():
        prefix, _, attribute = name.rpartition(".")
        groups.setdefault(prefix, _Group(prefix)).shapes[attribute] = shape
    return list(groups.values())


def _candidates(
    group: _Group, rules: Sequence[LayerRule], axes: set[int], choices: Sequence[LayerChoice]
) -> tuple[list[LayerRule], LayerChoice | None]:
    """The rules that fit the group, and the choice that narrowed them; the last choice wins."""
    for choice in reversed(choices):
        if fnmatchcase(group.prefix, choice.pattern):
            if choice.kind == AS_IS:
                return [], choice
            if fitting := _chosen(group, rules, axes, choice):
                return fitting, choice
    return [rule for rule in rules if any(_fits(group, form, axes) for form in rule.files)], None


def _chosen(group: _Group, rules: Sequence[LayerRule], axes: set[int], choice: LayerChoice) -> list[LayerRule]:
    """Rules of the chosen kind or id that the group can be.

    A pattern without wildcards is taken at its word if the rule knows all attributes. One with wildcards only
    reaches layers that look like the kind, so that `*=embedding` leaves a convolution alone.
    """
    named = [rule for rule in rules if choice.kind in (rule.id, rule.kind) and _knows(rule, group)]
    forms = [form for rule in rules for form in rule.files if rule.kind in {one.kind for one in named}]
    if forms and set(choice.pattern) & set("*?["):
        named = [rule for rule in named if any(_fits(group, form, None) for form in rule.files or forms)]
    by_id = [rule for rule in named if rule.id == choice.kind]
    with_forms = [rule for rule in named if any(_fits(group, form, axes) for form in rule.files)]
    return by_id or with_forms or named


def _knows(rule: LayerRule, group: _Group) -> bool:
    torch = rule.families.get("torch")
    return torch is not None and group.shapes.keys() <= set(torch.parameters.values())


def _fits(group: _Group, form: FileForm, axes: set[int] | None) -> bool:
    """Whether the group looks like this; `axes` are those of all tensors of the file, None if they do not matter."""
    present, required = group.shapes.keys(), set(form.attributes)
    if not required <= present or not present <= required | set(form.optional):
        return False
    if any(len(group.shapes[name]) != n for name, n in form.ndim.items() if name in present):
        return False
    first = {group.shapes[name][:1] for name in form.same_first if name in present}
    whole = {group.shapes[name] for name in form.same_shape if name in present}
    beside = axes is None or form.beside_ndim is None or form.beside_ndim in axes
    return len(first) <= 1 and len(whole) <= 1 and beside


def _outcomes(group: _Group, rules: Iterable[LayerRule], family: TargetFamily) -> list[tuple[str, _Fates]]:
    """Different outcomes among the rules, each with the ids that lead to it."""
    outcomes: list[tuple[list[str], _Fates]] = []
    for rule in rules:
        fates = _fates(group, rule, family)
        same = next((ids for ids, other in outcomes if _told(other) == _told(fates)), None)
        if same is None:
            outcomes.append(([rule.id], fates))
        else:
            same.append(rule.id)
    return [(", ".join(ids), fates) for ids, fates in outcomes]


def _fates(group: _Group, rule: LayerRule, family: TargetFamily) -> _Fates:
    """What the rule makes of the group; a layer that the target's family lacks keeps its names."""
    torch, target = rule.families["torch"], rule.families.get(family)
    roles = {attribute: role for role, attribute in torch.parameters.items()}
    fates: _Fates = {}
    for attribute, shape in group.shapes.items():
        role = roles.get(attribute, attribute)
        if target is None:
            fates[attribute] = (attribute, IDENTITY)
        elif role in target.dropped:
            fates[attribute] = target.dropped[role]
        else:
            axis = target.insert_axis.get(role)
            transform = IDENTITY if axis is None else Reshape((*shape[:axis], 1, *shape[axis:]))
            fates[attribute] = (target.parameters.get(role, attribute), transform)
    return fates


def _told(fates: _Fates) -> dict[str, object]:
    """What tells outcomes apart: names and transforms, and that something is dropped, not why."""
    return {attribute: isinstance(fate, str) or fate for attribute, fate in fates.items()}


def _kept(group: _Group) -> _Fates:
    return {attribute: (attribute, IDENTITY) for attribute in group.shapes}


def _is_odd(group: _Group, rules: Iterable[LayerRule]) -> bool:
    """Whether a group that no rule fits has attributes that some rule knows."""
    known = {name for rule in rules for form in rule.files for name in (*form.attributes, *form.optional)}
    return bool(known & group.shapes.keys())


def _open_layer(group: _Group, outcomes: Iterable[tuple[str, _Fates]]) -> OpenLayer:
    alternatives = []
    for ids, fates in outcomes:
        names = tuple(_in_words(attribute, fate) for attribute, fate in fates.items())
        alternatives.append((ids, names))
    return OpenLayer(group.prefix, group.shapes, tuple(alternatives))


def _in_words(attribute: str, fate: _Fate) -> str:
    if isinstance(fate, str):
        return f"{attribute} dropped"
    name, transform = fate
    return f"{name} {transform.shape}" if isinstance(transform, Reshape) else name


def _open_container(container: Container) -> OpenLayer:
    old, new = tuple(container.children), tuple(container.children.values())
    return OpenLayer(container.prefix, {}, ((", ".join(container.ids), new), (CUSTOM, old)))


def _name_map(
    shapes: Mapping[str, Shape], fates: dict[str, tuple[_Fate, Evidence, str]], family: str, renames: dict[str, str]
) -> NameMap:
    pairings, dropped = [], []
    for name in shapes:
        if name not in fates:
            continue
        fate, evidence, ids = fates[name]
        if isinstance(fate, str):
            dropped.append(Dropped(name, "source", fate))
        else:
            prefix, dot, _ = name.rpartition(".")
            pairings.append(Pairing(name, f"{renamed(prefix, renames)}{dot}{fate[0]}", evidence, 1.0, fate[1], ids))
    return NameMap("torch file", f"mindspore {family}", tuple(pairings), tuple(dropped))


def _unknown_kind(choice: LayerChoice, known: Iterable[str]) -> str:
    return f"{choice}: no layer rule is called {choice.kind!r}; known: {', '.join(sorted(known))}"


def _unused(choice: LayerChoice) -> str:
    return f"{choice}: no layer of the file matches the pattern and looks like that kind"


def _warnings(shapes: Mapping[str, Shape], odd: Sequence[str]) -> list[str]:
    warnings = []
    if odd:
        listed = ", ".join(odd[:MOST_LISTED]) + (", ..." if len(odd) > MOST_LISTED else "")
        warnings.append(f"{len(odd)} layers look like no known layer and keep their names: {listed}")
    if shapes and all(name.startswith("module.") for name in shapes):
        warnings.append("every name starts with 'module.' (saved from DataParallel), and so will every target's name")
    return warnings
