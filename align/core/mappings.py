"""The rules under `mappings/`, found beside the package in a checkout and inside it in a wheel.

A rule is data: an id, a reason, and examples that must hit and must miss. A file that breaks the schema is
refused with the reason; nothing is guessed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import align
from align.errors import MappingRuleError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FamilyName = Literal["torch", "nn", "mint"]
STATISTICS = frozenset({"mean", "variance", "batches"})
FAMILIES: tuple[FamilyName, ...] = ("torch", "nn", "mint")


@dataclass(frozen=True, slots=True)
class LayerFamily:
    """How one framework's layers of a kind name their parameters.

    `parameters` maps role -> attribute path (`weight` -> `gamma`, `weight` -> `bn2d.gamma`); `insert_axis` says at
    which axis a role's tensor has an extra axis of length 1 against torch's; `dropped` maps a role that has no
    counterpart to the reason; `children` maps torch's name of a child module to this family's.
    """

    classes: tuple[str, ...]
    parameters: dict[str, str] = field(default_factory=dict)
    insert_axis: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a layer of this kind looks like in a torch checkpoint: exactly these attributes under one prefix.

    `ndim` gives the number of axes of an attribute, `same_shape` lists attributes of one common shape.
    """

    attributes: tuple[str, ...]
    optional: tuple[str, ...] = ()
    ndim: dict[str, int] = field(default_factory=dict)
    same_shape: tuple[str, ...] = ()


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
    package = Path(align.__file__).parent
    checkout = package.parent
    for folder, sound in (
        (package / "_mappings", True),
        (checkout / "mappings", (checkout / "pyproject.toml").is_file()),
    ):
        if sound and (folder / "layers").is_dir():
            return folder
    raise MappingRuleError(checkout / "mappings", "the rule files are missing; the installation is broken")


@cache
def layer_rules() -> tuple[LayerRule, ...]:
    """All layer rules, sorted by id."""
    rules: dict[str, LayerRule] = {}
    for path in sorted((mappings_folder() / "layers").glob("*.toml")):
        for rule in read_layer_rules(path):
            if rule.id in rules:
                raise MappingRuleError(path, f"two rules are called {rule.id!r}")
            rules[rule.id] = rule
    return tuple(rules[name] for name in sorted(rules))


def read_layer_rules(path: Path) -> list[LayerRule]:
    """Read one rule file; raises MappingRuleError naming the rule and the fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise MappingRuleError(path, f"not TOML: {error}") from error
    if unknown := sorted(document.keys() - {"layer"}):
        raise MappingRuleError(path, f"unknown tables {unknown}; expected [[layer]]")
    return [_layer_rule(path, table) for table in document.get("layer", [])]


@cache
def rules_by_class() -> dict[str, tuple[LayerRule, FamilyName]]:
    """Public class name -> its rule and family; raises MappingRuleError if two rules claim one class."""
    found: dict[str, tuple[LayerRule, FamilyName]] = {}
    for rule in layer_rules():
        for name, family in rule.families.items():
            for class_name in family.classes:
                if class_name in found and found[class_name][0] is not rule:
                    other = found[class_name][0].id
                    raise MappingRuleError(
                        mappings_folder(), f"rules {other!r} and {rule.id!r} both claim {class_name}"
                    )
                found.setdefault(class_name, (rule, name))
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


def is_statistic(classes: tuple[str, ...], attribute: str) -> bool:
    """Tell whether a parameter holds a running statistic, which torch keeps as a buffer."""
    return role_of(classes, attribute) in STATISTICS


def _layer_rule(path: Path, table: dict[str, Any]) -> LayerRule:
    fields = dict(table)
    name = str(fields.get("id", "?"))
    try:
        examples = fields.pop("examples", {})
        rule = LayerRule(
            id=str(fields.pop("id")),
            kind=str(fields.pop("kind")),
            reason=str(fields.pop("reason")),
            families={key: _family(fields.pop(key)) for key in FAMILIES if key in fields},
            files=tuple(_file_form(form) for form in fields.pop("file", [])),
            hits=tuple(dict(hit) for hit in examples.get("hits", [])),
            misses=tuple(examples.get("misses", [])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MappingRuleError(path, f"rule {name!r} is malformed: {error!r}") from error
    if fields:
        raise MappingRuleError(path, f"rule {name!r} has unknown keys {sorted(fields)}")
    if not rule.hits or not rule.misses:
        raise MappingRuleError(path, f"rule {name!r} needs examples that hit and examples that miss")
    return rule


def _family(table: dict[str, Any]) -> LayerFamily:
    return LayerFamily(**{**table, "classes": tuple(table["classes"])})


def _file_form(table: dict[str, Any]) -> FileForm:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return FileForm(**fields)
