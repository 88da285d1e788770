"""Rules of advice (`mappings/advice/`): which evidence means that a training is slow in something, and what to write.

A rule asks for one kind of evidence, with conditions on its values, and says from which share of the time it is worth
telling. Rules of messages ask for a line of a log. The head of `first_step.toml` explains the keys. What operators do,
whatever a profiler calls them, stands in `operators.toml`.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AdviceTopic = Literal["memory", "first step", "data", "compute", "tail"]
AdviceLevel = Literal["error", "warning", "note"]
EvidenceKind = Literal[
    "message", "first step", "slow as the first step", "compiled again", "data wait", "decoding",
    "periodic slow steps", "slow steps", "slow first steps of epochs", "growing steps", "growing memory", "empty queue",
    "host reads", "prints", "float64", "copies", "casts", "layout changes", "changing shapes", "first use of shapes",
    "optimizer", "backward", "host time", "device idle", "small kernels", "float32 matrix products",
    "unaligned shapes", "pageable copies", "slow processor operators", "dynamic operators", "exposed communication",
    "waiting for a rank", "bubble", "device allocations",
]  # fmt: skip
Values = dict[str, float | str]
FOLDER: Final = "advice"
OPERATORS: Final = "operators.toml"
COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """One rule; `first_step.toml` explains the fields. `told` and `advised` are shares of the time.

    Where it holds, the rules that it `covers` say nothing more.
    """

    id: str
    topic: AdviceTopic
    evidence: EvidenceKind
    title: str
    change: Mapping[str, str]
    brings: str
    check: str
    source: str
    examples: Mapping[str, Any]
    when: Mapping[str, Any] = field(default_factory=dict)
    told: float = 0.0
    advised: float = 0.0
    saves: float = 0.0
    level: AdviceLevel = "warning"
    pattern: re.Pattern[str] | None = None
    covers: tuple[str, ...] = ()

    def holds(self, values: Mapping[str, float | str | None]) -> bool:
        """Tell whether evidence with these values (and `share`, where it has one) is what the rule asks for.

        >>> rule = next(one for one in advice_rules() if one.id == "batches-in-main-process")
        >>> rule.holds({"workers": 0, "share": 0.5}), rule.holds({"workers": 4, "share": 0.5})
        (True, False)
        """
        share = values.get("share")
        if isinstance(share, (int, float)) and share < self.told:
            return False
        return all(_fits(wanted, values.get(name)) for name, wanted in self.when.items())

    def level_of(self, share: float | None) -> AdviceLevel:
        """How much it weighs: a note below the share from which it is advice."""
        return "note" if share is not None and share < self.advised else self.level

    def line(self, framework: str) -> str:
        """What to write, for a framework where that is known."""
        return self.change.get(framework) or self.change.get("any") or next(iter(self.change.values()))


def _fits(wanted: Any, value: float | str | None) -> bool:
    if value is None:
        return False
    if isinstance(wanted, list):
        return value in wanted
    sign, _, limit = str(wanted).partition(" ")
    if sign not in COMPARISONS:
        return bool(value == wanted)
    return isinstance(value, (int, float)) and COMPARISONS[sign](value, float(limit))


@cache
def advice_rules() -> tuple[AdviceRule, ...]:
    """All rules, file by file; raises MappingRuleError for one that is malformed."""
    paths = sorted((mappings_folder() / FOLDER).glob("*.toml"))
    return tuple(rule for path in paths if path.name != OPERATORS for rule in read_rules(path, _rules))


def _rules(document: dict[str, Any]) -> list[AdviceRule]:
    return [_rule(document["topic"], table) for table in document["rule"]]


def _rule(topic: AdviceTopic, table: dict[str, Any]) -> AdviceRule:
    pattern = re.compile(table["pattern"]) if "pattern" in table else None
    rule = AdviceRule(**{"topic": topic, **table, "pattern": pattern, "covers": tuple(table.get("covers", ()))})
    levels = rule.topic in get_args(AdviceTopic) and rule.level in get_args(AdviceLevel)
    if (
        not levels
        or rule.evidence not in get_args(EvidenceKind)
        or (rule.evidence == "message") != (pattern is not None)
    ):
        raise ValueError(f"{rule.id}: {rule.evidence!r}, {rule.level!r}")
    return rule


# What an operator does, by the first pattern that finds it.

UNKNOWN_OPERATOR: Final = "other"


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """A kind of operator, and what names of such ones hold."""

    id: str
    names: re.Pattern[str]


@cache
def operator_kinds() -> tuple[OperatorKind, ...]:
    """All kinds, in the order in which they are asked."""
    return tuple(
        read_rules(mappings_folder() / FOLDER / OPERATORS, lambda document: [_kind(one) for one in document["kind"]])
    )


def _kind(table: dict[str, Any]) -> OperatorKind:
    return OperatorKind(table["id"], re.compile("|".join(table["names"]), re.IGNORECASE))


@cache
def kind_of_operator(name: str) -> str:
    """What an operator of this name does.

    >>> [kind_of_operator(name) for name in ("aten::addmm", "MatMulV2", "hcom_allReduce__12", "sgemm_128x64_nn")]
    ['matrix product', 'matrix product', 'communication', 'matrix product']
    """
    return next((kind.id for kind in operator_kinds() if kind.names.search(name)), UNKNOWN_OPERATOR)
