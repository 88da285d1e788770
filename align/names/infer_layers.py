"""One layer of a checkpoint: which rules explain the attributes under its prefix, and what they make of them.

A rule explains a layer if one of its file forms fits exactly. Where none does, but attributes are there that layers
usually have (a subclass with one more parameter, a weight that weight_norm has split), the layer is odd: rules that
explain most of it are offered, and the user decides. A module whose children have other names in the target is known by
what lies below it; but people write such a class themselves under the same names, and then a port keeps them, so each
one is open until the user says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from align.core.name_map import LayerChoice
from align.core.transforms import IDENTITY, Reshape, Transform
from align.rules.layer_rules import PARAMETRIZED, SPLIT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence, Set

    from align.core.parameters import Shape
    from align.rules.layer_rules import DirectedRule, FileForm


AS_IS = "as-is"
# A parameter of one's own is called so too (the bias of a language model's head), and no layer has it alone.
NOT_TELLING = frozenset({"bias"})
# What becomes of one attribute: its new name and transform, or the reason to drop it.
AttributeChange = tuple[str, Transform] | str
AttributeChanges = dict[str, AttributeChange]
CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """The tensors directly under one prefix: their shapes by attribute, and their names in the file."""

    prefix: str
    shapes: dict[str, Shape] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def path(self, attribute: str) -> str:
        """Name of an attribute in the file."""
        return f"{self.prefix}.{attribute}" if self.prefix else attribute


@dataclass(frozen=True, slots=True)
class Outcome:
    """What rules of these ids make of a layer; with `lifted`, its parameters go one level up."""

    ids: tuple[str, ...]
    changes: AttributeChanges
    filled: dict[str, int]
    lifted: bool = False

    def is_like(self, other: Outcome) -> bool:
        """Tell whether names and transforms are the same, and what is dropped, whatever the reason."""
        mine, theirs = ({a: isinstance(c, str) or c for a, c in one.changes.items()} for one in (self, other))
        return (mine, self.filled, self.lifted) == (theirs, other.filled, other.lifted)


@dataclass(frozen=True)
class LayerReading:
    """A group with the rules that can be meant and the choice that narrowed them; `odd` if none of them explains it."""

    group: PrefixGroup
    rules: tuple[DirectedRule, ...]
    choice: LayerChoice | None
    odd: bool

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Different outcomes among the rules, each with the ids that lead to it; that of no rule keeps the names."""
        group = self.group
        rules = sorted(self.rules, key=lambda rule: _is_rare(group, rule))
        results = [
            Outcome((rule.id,), _attribute_changes(group, rule), _filled_by(group, rule), bool(rule.inner))
            for rule in rules
        ]
        if not rules or (self.odd and not self.choice):
            unchanged: AttributeChanges = {attribute: (attribute, IDENTITY) for attribute in group.shapes}
            results.insert(0, Outcome((AS_IS,) if self.odd else (), unchanged, {}))
        outcomes: list[Outcome] = []
        for outcome in results:
            same = next((place for place, other in enumerate(outcomes) if outcome.is_like(other)), None)
            if same is None:
                outcomes.append(outcome)
            else:
                ids = dict.fromkeys([*outcomes[same].ids, *outcome.ids])
                outcomes[same] = replace(outcomes[same], ids=tuple(ids))
        return outcomes


@dataclass(frozen=True, slots=True)
class FileContext:
    """What else the file holds: the numbers of axes of its tensors, and whether any kernel is two rows high."""

    axes: frozenset[int]
    tall: bool


def read_groups(
    shapes: Mapping[str, Shape],
    rules: Sequence[DirectedRule],
    choices: Sequence[LayerChoice],
    known_kinds: Mapping[str, Sequence[str]],
) -> list[LayerReading]:
    """What each group of the file can be, in the file's order, by its form and the last choice that speaks of it.

    `known_kinds` maps prefixes to kinds, which count less than the choices.
    """
    groups: dict[str, PrefixGroup] = {}
    for name, shape in shapes.items():
        prefix, _, attribute = name.rpartition(".")
        if (group := groups.get(prefix)) is None:
            group = groups[prefix] = PrefixGroup(prefix)
        group.shapes[attribute] = shape
        group.names.append(name)
    beside = _file_context(shapes)
    known = {name for rule in rules for form in rule.forms for name in (*form.attributes, *form.optional)}
    telling = (known - NOT_TELLING) | SPLIT
    fitting = _Fitting(rules, beside)
    return [
        _reading(group, rules, fitting, choices_for(group.prefix, choices, known_kinds), telling)
        for group in groups.values()
    ]


def choices_for(
    prefix: str, choices: Sequence[LayerChoice], known_kinds: Mapping[str, Sequence[str]]
) -> tuple[LayerChoice, ...]:
    """What is said of the layer at a prefix, what counts least first."""
    if not choices and not known_kinds:
        return ()
    said = (LayerChoice(prefix, kind) for kind in known_kinds.get(prefix, ()))
    return (*said, *(choice for choice in choices if fnmatchcase(prefix, choice.pattern)))


@dataclass(frozen=True, slots=True)
class OtherReadings:
    """Rule -> layers that were decided as something else only for what stands beside them in the file.

    `deeper` by the number of dimensions, where no convolution tells it; `flat` by the height of kernels.
    """

    deeper: dict[str, list[str]]
    flat: dict[str, list[str]]


def read_otherwise(
    readings: Sequence[LayerReading], rules: Sequence[DirectedRule], shapes: Mapping[str, Shape]
) -> OtherReadings:
    """Return what decided layers could be as well, if other layers stood beside them."""
    beside = _file_context(shapes)
    deep = [] if beside.axes & {3, 4} else [rule for rule in rules if any(form.beside_ndim for form in rule.forms)]
    flat = [rule for rule in rules if any(form.unit_axis for form in rule.forms)]
    return OtherReadings(_could_be(readings, deep, beside), _could_be(readings, flat, beside))


def _could_be(
    readings: Iterable[LayerReading], rules: Sequence[DirectedRule], beside: FileContext
) -> dict[str, list[str]]:
    """Rules whose form fits layers but for what should stand beside them in the file."""
    by_rule: dict[str, list[str]] = {}
    for reading in readings:
        group = reading.group
        if rules and reading.rules and not reading.choice and not reading.odd:
            decided = reading.rules[0]
            names = _attribute_changes(group, decided), decided.inner
            for rule in rules:
                fits = not _fits_one(group, rule, beside) and _fits_one(group, rule, None)
                if fits and (_attribute_changes(group, rule), rule.inner) != names:
                    by_rule.setdefault(rule.id, []).append(group.prefix)
    return by_rule


def _file_context(shapes: Mapping[str, Shape]) -> FileContext:
    """What the whole file tells of each of its layers."""
    kernels = [shape[2:] for shape in shapes.values() if len(shape) == 4]
    return FileContext(frozenset(len(shape) for shape in shapes.values()), any(height > 1 for height, _ in kernels))


def _attribute_changes(group: PrefixGroup, rule: DirectedRule) -> AttributeChanges:
    """What the rule makes of the group; what it does not know, and a layer that the family lacks, keeps its name."""
    target = rule.target
    roles = {attribute: role for role, attribute in rule.source.parameters.items()}
    changes: AttributeChanges = {}
    for attribute, shape in group.shapes.items():
        role = roles.get(attribute)
        if target is None or role is None:
            changes[attribute] = (attribute, IDENTITY)
        elif role in target.dropped:
            changes[attribute] = target.dropped[role]
        else:
            new = _other_shape(shape, rule.source.insert_axis.get(role), target.insert_axis.get(role))
            transform = IDENTITY if new == shape else Reshape(new, shape)
            changes[attribute] = (target.parameters.get(role, attribute), transform)
    return changes


def _filled_by(group: PrefixGroup, rule: DirectedRule) -> dict[str, int]:
    """Attributes of the target that the file's family never has, with the number that each is filled with."""
    target = rule.target
    if target is None or not set(rule.source.parameters.values()) & group.shapes.keys():
        return {}
    return {target.parameters[role]: value for role, value in target.fill.items() if role in rule.source.dropped}


def _other_shape(shape: Shape, removed: int | None, inserted: int | None) -> Shape:
    if removed is not None and shape[removed : removed + 1] == (1,):
        shape = (*shape[:removed], *shape[removed + 1 :])
    return shape if inserted is None else (*shape[:inserted], 1, *shape[inserted:])


def _is_rare(group: PrefixGroup, rule: DirectedRule) -> bool:
    """Whether the form by which the rule fits is a rare one."""
    return any(form.rare and _fits(group.shapes, form, None) for form in rule.forms)


class _Fitting:
    """The rules that fit a group; groups of like form, as repeated blocks have them, are looked at once."""

    def __init__(self, rules: Sequence[DirectedRule], beside: FileContext) -> None:
        self.beside = beside
        self._rules = rules
        self._inner = {rule.inner for rule in rules}
        self._known: dict[object, tuple[DirectedRule, ...]] = {}

    def of(self, group: PrefixGroup) -> tuple[DirectedRule, ...]:
        """The rules of which a form fits."""
        last = group.prefix.rpartition(".")[2]
        key = tuple(group.shapes.items()), last if last in self._inner else ""
        if key not in self._known:
            self._known[key] = tuple(rule for rule in self._rules if _fits_one(group, rule, self.beside))
        return self._known[key]


def _reading(
    group: PrefixGroup,
    rules: Sequence[DirectedRule],
    fits: _Fitting,
    choices: Sequence[LayerChoice],
    telling: Set[str],
) -> LayerReading:
    fitting, beside = fits.of(group), fits.beside
    odd = not fitting and bool(telling & group.shapes.keys() or PARAMETRIZED in group.prefix.split("."))
    odd = odd or (bool(fitting) and _spreads_by_itself(group))
    offered = fitting or (_nearest(group, rules, beside) if odd else [])
    for choice in reversed(choices):
        if choice.kind == AS_IS:
            return LayerReading(group, (), choice, odd)
        if chosen := _chosen(group, rules, offered, choice, beside):
            return LayerReading(group, tuple(chosen), choice, odd)
    return LayerReading(group, tuple(offered), None, odd)


def _spreads_by_itself(group: PrefixGroup) -> bool:
    """Whether scale and shift keep axes of one in front, (1, 1, 1, C), as those of GRN: no norm of a library does."""
    shapes = {*group.shapes.values()} if group.shapes.keys() == {"gamma", "beta"} else set()
    return any(len(shape) > 1 and set(shape[:-1]) == {1} for shape in shapes)


def _chosen(
    group: PrefixGroup,
    rules: Sequence[DirectedRule],
    offered: Collection[DirectedRule],
    choice: LayerChoice,
    beside: FileContext,
) -> list[DirectedRule]:
    """Rules of the chosen kind or id that the group can be.

    A pattern without wildcards is taken at its word if the rule knows all attributes. One with wildcards only
    reaches layers that look like the kind, so that `*=embedding` leaves a convolution alone.
    """
    named = [rule for rule in rules if choice.kind in (rule.id, rule.kind)]
    named = [rule for rule in named if _knows(rule, group) or rule in offered]
    kinds = {rule.kind for rule in named}
    of_kind = [rule for rule in rules if rule.kind in kinds and rule.forms]
    if of_kind and set(choice.pattern) & set("*?["):
        alike = [rule for rule in of_kind if rule in offered or _fits_one(group, rule, None)]
        named = [rule for rule in named if rule in alike or (alike and not rule.forms)]
    by_id = [rule for rule in named if rule.id == choice.kind]
    with_forms = [rule for rule in named if rule in offered or _fits_one(group, rule, beside)]
    return [rule for rule in by_id if _fits_one(group, rule, None)] or by_id or with_forms or named


def _nearest(group: PrefixGroup, rules: Iterable[DirectedRule], beside: FileContext) -> list[DirectedRule]:
    """Rules with a form that explains a part of the group, those that explain most of it."""
    by_length: dict[int, list[DirectedRule]] = {}
    for rule in rules:
        known = set(rule.source.parameters.values())
        part = {name: shape for name, shape in group.shapes.items() if name in known}
        loose = replace(rule, forms=tuple(replace(form, gates={}) for form in rule.forms))  # an LSTM may project
        if part and _fits_one(PrefixGroup(group.prefix, part), loose, beside):
            by_length.setdefault(len(part), []).append(rule)
    return by_length[max(by_length)] if by_length else []


def _knows(rule: DirectedRule, group: PrefixGroup) -> bool:
    """Whether the rule has all attributes of the group, and each with the axis of length 1 that it would take away."""
    axes = {rule.source.parameters[role]: axis for role, axis in rule.source.insert_axis.items()}
    return (
        _is_inside(rule, group)
        and group.shapes.keys() <= set(rule.source.parameters.values())
        and all(group.shapes[name][axis : axis + 1] == (1,) for name, axis in axes.items() if name in group.shapes)
    )


def _is_inside(rule: DirectedRule, group: PrefixGroup) -> bool:
    return not rule.inner or group.prefix.rpartition(".")[2] == rule.inner


def _fits_one(group: PrefixGroup, rule: DirectedRule, beside: FileContext | None) -> bool:
    return _is_inside(rule, group) and any(_fits(group.shapes, form, beside) for form in rule.forms)


def _fits(shapes: Mapping[str, Shape], form: FileForm, beside: FileContext | None) -> bool:
    """Whether these attributes look like the form; `beside` is None where what stands beside them does not matter."""
    present, required = shapes.keys(), set(form.attributes)
    if not required <= present or not present <= required | set(form.optional):
        return False
    if any(len(shapes[name]) not in numbers for name, numbers in form.ndim.items() if name in present):
        return False
    if any(shapes[name][0] != count * shapes[name][1] for name, count in form.gates.items() if name in present):
        return False
    first = {shapes[name][:1] for name in form.same_first if name in present}
    whole = {shapes[name] for name in form.same_shape if name in present}
    if len(first) > 1 or len(whole) > 1 or not _has_unit_axes(shapes, form, beside):
        return False
    return beside is None or form.beside_ndim is None or form.beside_ndim in beside.axes


def _has_unit_axes(shapes: Mapping[str, Shape], form: FileForm, beside: FileContext | None) -> bool:
    """A kernel of one row may be that of a 1-D convolution; one of a single element is so only among its like."""
    flat = [(shapes[name], axis) for name, axis in form.unit_axis.items() if name in shapes]
    if any(shape[axis : axis + 1] != (1,) for shape, axis in flat):
        return False
    return beside is None or not beside.tall or all(set(shape[axis:]) != {1} for shape, axis in flat)


@dataclass(frozen=True, slots=True)
class RenamedChildren:
    """A module that looks like the rules of these ids, which would rename its children so."""

    prefix: str
    ids: tuple[str, ...]
    children: dict[str, str]
    choice: LayerChoice | None

    @property
    def renames(self) -> dict[str, str]:
        """Path of a child -> its name in the target; nothing for a class of the user's own."""
        if self.choice is None or self.choice.kind == CUSTOM:
            return {}
        return {f"{self.prefix}.{old}" if self.prefix else old: new for old, new in self.children.items()}


def find_renamed_children(
    names: Collection[str],
    rules: Iterable[DirectedRule],
    choices: Sequence[LayerChoice],
    known_kinds: Mapping[str, Sequence[str]],
) -> list[RenamedChildren]:
    """All modules that look like one with renamed children, each with the last choice that speaks of it."""
    known = dict.fromkeys([*names, *(path for name in names for path in _modules_above(name))])
    by_renames: dict[tuple[str, tuple[tuple[str, str], ...]], list[DirectedRule]] = {}
    for rule in rules:
        for form in rule.forms if rule.children else ():
            first, *others = form.attributes
            for name in known:
                prefix = name.removesuffix(first)
                if prefix != name and prefix[-1:] in ("", ".") and all(prefix + other in known for other in others):
                    by_renames.setdefault((prefix[:-1], tuple(rule.children.items())), []).append(rule)
    return [
        _container(prefix, dict(renames), fitting, choices_for(prefix, choices, known_kinds))
        for (prefix, renames), fitting in by_renames.items()
    ]


def _modules_above(name: str) -> list[str]:
    parts = name.split(".")[:-1]
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _container(
    prefix: str, children: dict[str, str], rules: Sequence[DirectedRule], choices: Sequence[LayerChoice]
) -> RenamedChildren:
    words = {CUSTOM} | {word for rule in rules for word in (rule.id, rule.kind)}
    own = [choice for choice in choices if choice.kind in words]
    return RenamedChildren(prefix, tuple(rule.id for rule in rules), children, own[-1] if own else None)
