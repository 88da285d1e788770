"""Fused operators of torch_npu and MindSpore by their formula: `mappings/fused/`, whose head explains the keys.

They are data with sources: what an operator computes, what its arguments are called, and where calls go wrong.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from align.errors import UsageError
from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

When = Literal["always", "absent", "given", "below", "among"]
FOLDER: Final = "fused"
NOT_GIVEN: Final = object()


@dataclass(frozen=True, slots=True)
class FusedPitfall:
    """Where a call is easily wrong: `argument` names it, or several arguments that mean the same."""

    id: str
    argument: str
    when: When
    value: Any = None

    def holds(self, given: Mapping[str, object]) -> bool:
        """Tell whether a call that gives these arguments falls into it; values that are not known count as None."""
        names = [name for name in self.argument.split() if name in given]
        value = given[names[0]] if names else None
        if self.when == "below":
            return type(value) in (int, float) and value < self.value
        if self.when == "among":
            return type(value) is int and value in self.value
        return self.when == "always" or bool(names) is (self.when == "given")


@dataclass(frozen=True, slots=True)
class FusedOperator:
    """An operator: its names in code and in dumps, its arguments, and its formula; `torch` is that for the reader."""

    id: str
    names: tuple[str, ...]
    dumped: tuple[str, ...]
    framework: str
    formula: str
    signature: str
    roles: Mapping[str, str]
    torch: str
    mindspore: str
    pitfalls: tuple[str, ...]
    source: str
    without_effect: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, object]:
        """The arguments in their order with their defaults, `NOT_GIVEN` for what a call must give."""
        return _signature(self.signature)

    def bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """What a call gives, by the names of arguments; raises UsageError for other arguments, and for missing ones."""
        known = self.defaults
        surplus = [*[str(one) for one in args[len(known) :]], *(name for name in kwargs if name not in known)]
        given = {**dict(zip(known, args, strict=False)), **kwargs}
        if surplus:
            raise UsageError.of("formula_usage.other_arguments", operator=self.id, names=surplus, known=[*known])
        if missing := [name for name, value in known.items() if value is NOT_GIVEN and name not in given]:
            raise UsageError.of("formula_usage.missing_arguments", operator=self.id, names=missing)
        return given

    def outside_formula(self, given: Mapping[str, object]) -> list[str]:
        """The arguments of a call that the formula does not know, and that are not at their default."""
        known = self.defaults
        unread = [name for name in given if name not in self.roles and name not in self.without_effect]
        return [name for name in unread if not _is_default(given[name], known[name])]

    def pitfalls_of(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """The ids of the pitfalls that a call falls into, or is near."""
        known = fused_rules().pitfalls
        return tuple(name for name in self.pitfalls if known[name].holds(given))


@dataclass(frozen=True, slots=True)
class FusedRules:
    """All operators, pitfalls by id, and by formula and argument the other values to try."""

    operators: tuple[FusedOperator, ...]
    pitfalls: Mapping[str, FusedPitfall]
    tries: Mapping[str, Mapping[str, list[Any]]]

    def by_name(self) -> dict[str, FusedOperator]:
        """The operators by the names that code calls."""
        return {name: one for one in self.operators for name in one.names}

    def by_dumped(self, framework: str) -> dict[str, FusedOperator]:
        """The operators of a framework by what msprobe calls their calls."""
        return {name: one for one in self.operators if one.framework == framework for name in one.dumped}


@cache
def fused_rules() -> FusedRules:
    """All rules of the folder; raises MappingRuleError for a malformed file.

    >>> fused_rules().by_name()["torch_npu.npu_swiglu"].mindspore
    'mindspore.ops.swiglu'
    """
    operators: list[FusedOperator] = []
    pitfalls: dict[str, FusedPitfall] = {}
    tries: dict[str, Mapping[str, list[Any]]] = {}
    for path in sorted((mappings_folder() / FOLDER).glob("*.toml")):
        document = read_rules(path, _document)
        operators += document[0]
        pitfalls |= document[1]
        tries |= document[2]
    return FusedRules(tuple(operators), pitfalls, tries)


def _document(document: dict[str, Any]) -> tuple[list[FusedOperator], dict[str, FusedPitfall], dict[str, Any]]:
    operators = [_operator(table) for table in document["operator"]]
    pitfalls = {one["id"]: FusedPitfall(**one) for one in document.get("pitfall", ())}
    for one in pitfalls.values():
        if one.when not in get_args(When):
            raise ValueError(f"{one.id}: {one.when!r} is none of {get_args(When)}")
    return operators, pitfalls, document.get("tries", {})


def _operator(table: dict[str, Any]) -> FusedOperator:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    operator = FusedOperator(**given)
    if unknown := (operator.roles.keys() | set(operator.without_effect)) - operator.defaults.keys():
        raise ValueError(f"{operator.id}: {sorted(unknown)} are no arguments")
    required = {name: name for name, default in operator.defaults.items() if default is NOT_GIVEN}
    return replace(operator, roles={**required, **operator.roles})


@cache
def _signature(text: str) -> dict[str, object]:
    arguments = ast.parse(f"lambda {text}: 0", mode="eval").body.args  # type: ignore[attr-defined]
    names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
    required = len(arguments.args) - len(arguments.defaults)
    nodes = [*[None] * required, *arguments.defaults, *arguments.kw_defaults]
    values = [NOT_GIVEN if node is None else ast.literal_eval(node) for node in nodes]
    return dict(zip(names, values, strict=True))


def _is_default(value: object, default: object) -> bool:
    return value is None or value is default or (type(value) is type(default) and value == default)
