"""The rules under `mappings/`, found beside the package in a checkout and inside it in a wheel.

A rule is data: an id, a reason, and examples that must hit and must miss. A file that breaks the schema is
refused with the reason; nothing is guessed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from align.core.about import CHECKOUT, beside_package
from align.errors import MappingRuleError
from align.rules.thresholds import MOST_STACKED_LAYERS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


@cache
def layer_rules() -> tuple[LayerRule, ...]:
    """All layer rules, sorted by id."""
    rules: dict[str, tuple[LayerRule, Path]] = {}
    for path in sorted((mappings_folder() / "layers").glob("*.toml")):
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
        raise MappingRuleError(path, f"not TOML: {error}") from error
    tables = document.pop("layer", None)
    if document or not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise MappingRuleError(path, say("rule_file.other_tables", names=sorted(document)))
    return [_layer_rule(path, table) for table in tables]


@cache
def rules_by_class() -> dict[str, tuple[LayerRule, FamilyName]]:
    """Public class name -> its rule and family; raises MappingRuleError if two rules claim one class."""
    found: dict[str, tuple[LayerRule, FamilyName]] = {}
    for rule in layer_rules():
        for name, family in rule.families.items():
            for class_name in family.classes:
                if class_name in found:
                    claims = f"{found[class_name][0].id!r} and {rule.id!r}"
                    raise MappingRuleError(
                        mappings_folder(), say("rule_file.claimed_twice", class_name=class_name, claims=claims)
                    )
                found[class_name] = (rule, name)
    return found


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
        raise MappingRuleError(path, f"rule {name!r} {fault}")
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
