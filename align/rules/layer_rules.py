"""The rules under `mappings/`, found beside the package in a checkout and inside it in a wheel.

A rule is data: an id, a reason, and examples that must hit and must miss. A file that breaks the schema is
refused with the reason; nothing is guessed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from align.core.about import CHECKOUT, user_mappings
from align.core.load_code import beside_package
from align.errors import MappingRuleError
from align.words.catalogue import say, sentence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from align.core.parameters import Parameter

MOST_STACKED_LAYERS: Final = 32
"""What `*` in an attribute stands for: weight_ih_l0 ... weight_ih_l31 of a stacked LSTM.
Choice: fewer leave the deepest layers of a net without a role; more only make the tables of rules longer."""

T = TypeVar("T")
FamilyName = Literal["torch", "nn", "mint"]
STATISTICS = frozenset({"mean", "variance", "batches"})
FAMILIES: tuple[FamilyName, ...] = ("torch", "nn", "mint")


@dataclass(frozen=True, slots=True)
class LayerFamily:
    """How one framework's layers of a kind name their parameters.

    `parameters` maps role -> attribute path (`weight` -> `gamma`, `weight` -> `bn2d.gamma`); `insert_axis` says at
    which axis a role's tensor has an extra axis of length 1 against torch's; `dropped` maps a role that has no
    counterpart to the reason; `children` maps torch's name of a child module to this family's. `always` lists roles
    that the layer has whatever its settings, where torch's may lack them; `alone` maps a role to its name in a layer
    that is the whole net; `fill` maps a role that another family lacks to the whole number (int64, 0-d) that it is
    filled with; `may_lack` maps a role that the layer has only on request to what a user should know of it. In a file,
    `*` in a role and its attribute stands for the number of a stacked layer; read, the numbers are written out.
    """

    classes: tuple[str, ...]
    parameters: dict[str, str] = field(default_factory=dict)
    insert_axis: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    always: tuple[str, ...] = ()
    alone: dict[str, str] = field(default_factory=dict)
    fill: dict[str, int] = field(default_factory=dict)
    may_lack: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a layer of this kind looks like in a torch checkpoint: exactly these attributes under one prefix.

    `optional` attributes may be missing; in a file `*` stands for numbers as above. `ndim` gives the number of axes
    of an attribute, or the numbers that it may have, `same_shape` lists attributes of one common shape, `same_first`
    those whose first axes are equally long, `unit_axis` the axis of an attribute that has length 1, `gates` how many
    times longer an attribute's first axis is than its second; with `beside_ndim`
    the form counts only in a file that also holds a tensor of so many axes. Where the forms of several rules fit that
    would name or shape the target differently, the file alone cannot decide and the layer is open; a `rare` form is
    then named last. Attributes of children (`self_attn.in_proj_weight`) make the form of a module whose `children` are
    renamed.
    """

    attributes: tuple[str, ...]
    optional: tuple[str, ...] = ()
    ndim: dict[str, tuple[int, ...]] = field(default_factory=dict)
    same_shape: tuple[str, ...] = ()
    same_first: tuple[str, ...] = ()
    beside_ndim: int | None = None
    rare: bool = False
    unit_axis: dict[str, int] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerRule:
    """One layer class in all its families. Layers of equal `kind` may correspond."""

    id: str
    kind: str
    reason: str
    families: dict[FamilyName, LayerFamily]
    files: tuple[FileForm, ...] = ()
    hits: tuple[dict[str, str], ...] = ()
    misses: tuple[str, ...] = ()


def mappings_folder() -> Path:
    """Folder of the rule files; raises MappingRuleError if the installation lacks it."""
    if folder := beside_package("mappings", "layers"):
        return folder
    raise MappingRuleError(CHECKOUT / "mappings", say("rule_file.missing"))


def rule_files(folder: Path) -> list[Path]:
    """The rule files of a folder of the package, whose name is their kind (`layers`), then the user's own."""
    return [*sorted(folder.glob("*.toml")), *user_mappings(folder.name)]


@cache
def layer_rules() -> tuple[LayerRule, ...]:
    """All layer rules, sorted by id."""
    rules: dict[str, tuple[LayerRule, Path]] = {}
    for path in rule_files(mappings_folder() / "layers"):
        for rule in read_layer_rules(path):
            if rule.id in rules:
                raise MappingRuleError(path, say("rule_file.id_twice_in", name=rule.id, other=rules[rule.id][1]))
            rules[rule.id] = rule, path
    return tuple(rules[name][0] for name in sorted(rules))


def read_rules(path: Path, make: Callable[[dict[str, Any]], T], fault: str = "rule_file.malformed") -> T:
    """What `make` makes of the table of a rule file; raises MappingRuleError, worded by `fault`, if it is malformed."""
    try:
        return make(tomllib.loads(path.read_text(encoding="utf-8")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, say(fault, error=error)) from error


def read_layer_rules(path: Path) -> list[LayerRule]:
    """Read one rule file; raises MappingRuleError naming the rule and the fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, say("document_fault.no_toml", error=error)) from error
    tables = document.pop("layer", None)
    if document or not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise MappingRuleError(path, say("rule_file.other_tables", names=sorted(document)))
    return [_layer_rule(path, table) for table in tables]


@cache
def rules_by_class() -> dict[str, tuple[LayerRule, FamilyName]]:
    """Public class name -> its rule and family; raises MappingRuleError if two rules claim one class."""
    by_class: dict[str, tuple[LayerRule, FamilyName]] = {}
    for rule in layer_rules():
        for name, family in rule.families.items():
            for class_name in family.classes:
                if class_name in by_class:
                    claims = f"{by_class[class_name][0].id!r} and {rule.id!r}"
                    raise MappingRuleError(
                        mappings_folder(), say("rule_file.claimed_twice", class_name=class_name, claims=claims)
                    )
                by_class[class_name] = (rule, name)
    return by_class


def rule_for(classes: tuple[str, ...]) -> tuple[LayerRule, FamilyName] | None:
    """Rule and family of a class given with its bases, most derived first; None if no rule knows any of them."""
    known = rules_by_class()
    return next((known[name] for name in classes if name in known), None)


def role_of(classes: tuple[str, ...], attribute: str) -> str | None:
    """Role of a parameter by layer class and attribute (`gamma` of a BatchNorm2d is the `weight`), None if unknown."""
    if known := rule_for(classes):
        parameters = known[0].families[known[1]].parameters
        return next((role for role, name in parameters.items() if name == attribute), None)
    return None


@cache
def defaults() -> dict[str, tuple[int, str]]:
    """Attributes of torch's layers that MindSpore's lack -> what they are filled with, and what stands beside them.

    >>> defaults()["num_batches_tracked"]
    (0, 'running_mean')
    """
    torch = [rule.families["torch"] for rule in layer_rules() if "torch" in rule.families]
    return {
        layers.parameters[role]: (value, layers.parameters["mean"])
        for layers in torch
        for role, value in layers.fill.items()
    }


def is_statistic(classes: tuple[str, ...], attribute: str) -> bool:
    """Tell whether a parameter holds a running statistic, which torch keeps as a buffer."""
    return role_of(classes, attribute) in STATISTICS


def _layer_rule(path: Path, table: dict[str, Any]) -> LayerRule:
    fields = dict(table)
    name = fields.get("id", "?")
    try:
        examples = fields.pop("examples", {})
        rule = LayerRule(
            id=_text(fields.pop("id")),
            kind=_text(fields.pop("kind")),
            reason=_text(fields.pop("reason")),
            families={key: _family(fields.pop(key)) for key in FAMILIES if key in fields},
            files=tuple(_file_form(form) for form in fields.pop("file", [])),
            hits=tuple(_texts_by_name(hit) for hit in examples.pop("hits", [])),
            misses=_texts(examples.pop("misses", [])),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, say("rule_file.malformed_rule", name=name, error=error)) from error
    if unknown := sorted([*fields, *examples]):
        raise MappingRuleError(path, say("rule_file.unknown_keys_of_rule", name=name, keys=unknown))
    if fault := _fault(rule):
        raise MappingRuleError(path, say("rule_error.of_rule", name=name, fault=fault))
    return rule


def _fault(rule: LayerRule) -> str:
    """What makes a well-formed rule useless, or ""."""
    if not any(family.classes for family in rule.families.values()):
        return say("layer_rule_fault.no_class", families=FAMILIES)
    if not rule.hits or not rule.misses:
        return say("layer_rule_fault.no_examples")
    if strange := sorted({name for hit in rule.hits for name in hit} - rule.families.keys()):
        return say("layer_rule_fault.examples_without_table", strange=strange)
    roles = {role for family in rule.families.values() for role in family.parameters}
    mentioned = {role for family in rule.families.values() for role in [*family.insert_axis, *family.dropped]}
    families = rule.families.values()
    foreign = {r for f in families for r in (*f.always, *f.alone, *f.fill, *f.may_lack) if r not in f.parameters}
    if strange := sorted(mentioned - roles | foreign):
        return say("layer_rule_fault.unknown_roles", strange=strange)
    return _form_fault(rule)


def _form_fault(rule: LayerRule) -> str:
    torch = rule.families.get("torch")
    known = set(torch.parameters.values()) if torch else set()
    for form in rule.files:
        listed = {name for name in (*form.attributes, *form.optional) if "." not in name}
        if strange := sorted(listed - known):
            return say("layer_rule_fault.form_beyond_layer", strange=strange)
        if strange := sorted({*form.ndim, *form.gates, *form.same_shape, *form.same_first} - listed):
            return say("layer_rule_fault.form_not_listed", strange=strange)
    return ""


def _family(table: dict[str, Any]) -> LayerFamily:
    parameters = _texts_by_name(table.get("parameters", {}))
    numbered = [
        pair for role, name in parameters.items() for pair in zip(_numbered(role), _numbered(name), strict=True)
    ]
    return LayerFamily(
        **{
            **table,
            "classes": _texts(table["classes"]),
            "parameters": dict(numbered),
            "dropped": _texts_by_name(table.get("dropped", {})),
            "children": _texts_by_name(table.get("children", {})),
            "always": _texts(table.get("always", [])),
            "alone": _texts_by_name(table.get("alone", {})),
            "may_lack": _texts_by_name(table.get("may_lack", {})),
            "fill": {role: _whole_number(value) for role, value in table.get("fill", {}).items()},
        }
    )


def _file_form(table: dict[str, Any]) -> FileForm:
    fields: dict[str, Any] = {key: _texts(value) if isinstance(value, list) else value for key, value in table.items()}
    fields["optional"] = tuple(name for pattern in fields.get("optional", ()) for name in _numbered(pattern))
    fields["ndim"] = {name: _axes(numbers) for name, numbers in table.get("ndim", {}).items()}
    return FileForm(**fields)


def _whole_number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(say("rule_file.no_whole_number", value=value))
    return value


def _axes(numbers: object) -> tuple[int, ...]:
    listed = numbers if isinstance(numbers, list) else [numbers]
    if not listed or not all(type(number) is int and number >= 0 for number in listed):
        raise TypeError(say("rule_file.no_axes", value=numbers))
    return tuple(listed)


def _numbered(pattern: str) -> list[str]:
    return [pattern.replace("*", str(n)) for n in range(MOST_STACKED_LAYERS)] if "*" in pattern else [pattern]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(say("rule_file.no_text", value=value))
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(say("rule_file.no_texts", value=values))
    return tuple(_text(value) for value in values)


def _texts_by_name(table: dict[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in table.items()}


# Layer rules read in one direction: what a layer looks like in the file, and what the other side calls its
# parameters.
#
# The rules are written for torch files. How the same layers look in a MindSpore file follows from how its families
# name them: the forms are those of torch with other names, other shapes, and the parameters that MindSpore always
# has.

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


# What is known of layers beside how they name their parameters: layouts of matrices, and constants.
#
# No shape tells which way round a square matrix is kept. The rules under `mappings/layers/layouts` name the classes
# beyond torch's and MindSpore's own for which it is known, and the attribute of a live layer that settles it where
# the class alone does not. Masks, indices and tables of positions are computed from settings alone: what the rules
# under `mappings/layers/constants` name, and no optimizer changes, need not be on both sides; nor need indices and
# flags in a layer of no known class. Other whole numbers may be quantized weights.


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """Whether a class keeps its weight as (in, out): always, or if the attribute `outputs_first_if` is false."""

    class_name: str
    reason: str
    inputs_first: bool = False
    outputs_first_if: str = ""


def inputs_first(classes: tuple[str, ...], layer: object) -> bool | None:
    """Tell whether a live layer of these classes (itself first) keeps its weight as (in, out); None if unknown."""
    known = linear_layouts()
    layout = next((known[name] for name in classes if name in known), None)
    if layout is None or not layout.outputs_first_if:
        return layout.inputs_first if layout else None
    outputs_first = getattr(layer, layout.outputs_first_if, None)
    return None if outputs_first is None else not outputs_first


@cache
def linear_layouts() -> dict[str, LinearLayout]:
    """All layouts by class; raises MappingRuleError naming a malformed file."""
    files = sorted((mappings_folder() / "layers" / "layouts").glob("*.toml"))
    return {layout.class_name: layout for path in files for layout in read_linear_layouts(path)}


def read_linear_layouts(path: Path) -> list[LinearLayout]:
    """Read one file; raises MappingRuleError naming what is malformed."""
    return read_rules(path, lambda document: [_layout(table) for table in document["layout"]])


def _layout(table: dict[str, Any]) -> LinearLayout:
    fields = dict(table)
    layout = LinearLayout(fields.pop("class"), fields.pop("reason"), **fields)
    if layout.inputs_first == bool(layout.outputs_first_if) or not layout.reason.strip():
        raise ValueError(say("rule_file.no_layout", class_name=layout.class_name))
    return layout


_WHOLE = frozenset({"bool", "uint8", "int32", "int64"})
_INDICES = frozenset({"bool", "int64"})
_UNNAMED = sentence("dropped_reason.constants")


def constant_reason(parameter: Parameter, *, known_layer: bool) -> str:
    """Why a tensor may be left out that only one side has, "" if nothing says that it is a constant.

    `known_layer` says that a layer rule knows the class that holds it.
    """
    fixed = parameter.buffer or parameter.trainable is False
    named = constants().get(parameter.attribute, "")
    if named and (fixed or (parameter.trainable is None and parameter.dtype in _WHOLE)):
        return named
    return _UNNAMED if fixed and not known_layer and parameter.dtype in _INDICES and parameter.shape else ""


@cache
def constants() -> dict[str, str]:
    """Reason by attribute; raises MappingRuleError naming a malformed file."""
    files = sorted((mappings_folder() / "layers" / "constants").glob("*.toml"))
    return {name: reason for path in files for name, reason in read_constants(path).items()}


def read_constants(path: Path) -> dict[str, str]:
    """Read one file; raises MappingRuleError naming what is malformed."""
    rules = read_rules(
        path, lambda document: [(one["attributes"], one["reason"], len(one)) for one in document["constant"]]
    )
    if any(keys > 2 or not isinstance(names, list) or not str(reason).strip() for names, reason, keys in rules):
        raise MappingRuleError(path, say("rule_file.malformed_constant"))
    return {name: reason for names, reason, _ in rules for name in names}
