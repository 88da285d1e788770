"""What operators of both frameworks do with parameters: `mappings/operators.toml`, whose head explains the keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "operators.toml"


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """What the operators of a group do; `places` are those of both factors and of what is added, of a product."""

    does: str
    names: tuple[str, ...]
    reason: str
    places: tuple[int, int, int] = (0, 1, 2)
    channels: bool = False
    transposed: bool = False


@cache
def operator_rules() -> Mapping[str, OperatorRule]:
    """The rule of each operator by its name; raises MappingRuleError for a malformed file.

    >>> operator_rules()["addmm"].places
    (1, 2, 0)
    """
    return read_rules(mappings_folder() / FILE, _by_name)


def _by_name(document: dict[str, Any]) -> dict[str, OperatorRule]:
    rules = [_rule(**one) for one in document["operators"]]
    found = {name: rule for rule in rules for name in rule.names}
    if len(found) < sum(len(rule.names) for rule in rules):
        raise ValueError("an operator is listed twice")
    return found


def _rule(does: str, names: list[str], reason: str, places: tuple[int, ...] = (0, 1, 2), **flags: bool) -> OperatorRule:
    left, right, added = places
    return OperatorRule(does, tuple(names), reason, (left, right, added), **flags)
