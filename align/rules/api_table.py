"""What MindSpore has for each class, function and method of torch (`mappings/api/*.toml`).

`benchmarks/make_api_tables.py` makes the table, from MindSpore's published mapping and from running both frameworks.
An entry lists counterparts, the best first. Which one counts depends on the target: many functions of `mindspore.mint`
have a kernel on Ascend only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from align.errors import UsageError
from align.rules.ascend_rules import MAKER, ascend_chips, ascend_target
from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.rules.ascend_rules import AscendTarget


Relation = Literal["same", "other default", "other name"]
Status = Literal["no counterpart", "no kernel", "other default", "other name", "unknown", "same"]
Certainty = Literal["tried here", "vendor's page", "vendor's docstring", "concluded"]
Platform = Literal["cpu", "gpu", "ascend"]
BY_EFFORT: Final = get_args(Status)


@dataclass(frozen=True, slots=True)
class OtherDefault:
    """A setting that is another one where nobody sets it; both values as written, "" for an absent one."""

    setting: str
    torch: str
    mindspore: str


@dataclass(frozen=True, slots=True)
class OtherCall:
    """What to write where a layer's `setting` is `value`, in the place of what is written for others."""

    setting: str
    value: str
    write: str


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What MindSpore has: its name, how it relates to torch's, and the platforms that have a kernel for it.

    `same` takes the same arguments and returns the same; `other default` does once the `settings` are given; `other
    name` has other arguments, or another name. `arguments` renames torch's arguments, to "" what is to be left out.
    `write` is the call as one writes it, `otherwise` that for settings that want another. `certainty` is of the
    relation: tried here means on a CPU. One that is not `documented` was tried on a CPU, and no page says on what else
    it runs.
    """

    name: str
    relation: Relation
    platforms: tuple[Platform, ...]
    certainty: Certainty
    settings: tuple[OtherDefault, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    write: str = ""
    otherwise: tuple[OtherCall, ...] = ()
    documented: bool = True

    def call_for(self, settings: Mapping[str, object]) -> OtherCall:
        """What to write for a layer with these settings, with the setting that decides it ("" for none)."""
        own = (one for one in self.otherwise if settings.get(one.setting) == one.value)
        return next(own, OtherCall("", "", self.write))


@dataclass(frozen=True, slots=True)
class ApiEntry:
    """A class, function or method of torch by its public name, and its counterparts, the best first.

    Without a counterpart, `write` says what to write instead; `instead` is the same as code that was run. `examples`
    are the calls that were tried, `F` standing for either name. `operators` are torch's operators by which an Ascend
    chip's rules know it. `source` is where the vendor says so, "" where no page does.
    """

    torch: str
    counterparts: tuple[Counterpart, ...] = ()
    write: str = ""
    certainty: Certainty = "tried here"
    examples: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    source: str = ""

    def answer(self, platform: Platform) -> tuple[Status, Counterpart | None]:
        """The status on a platform and the counterpart that counts: the first with a kernel there, else the first."""
        if not self.counterparts:
            return "no counterpart", None
        for one in self.counterparts:
            if platform in one.platforms:
                return one.relation if one.documented or platform == "cpu" else "unknown", one
        return "no kernel", self.counterparts[0]


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """What a port is to run on: a platform, and of Ascend the chip."""

    name: str
    platform: Platform
    chip: AscendTarget | None = None


def scan_target(name: str) -> ScanTarget:
    """The target that `cpu`, `gpu` or `ascend:CHIP` means; raises UsageError for any other.

    >>> scan_target("ascend:910B4").name
    'ascend:910b'
    """
    wanted = name.lower()
    if wanted.startswith(MAKER):
        chip = ascend_target(name)
        return ScanTarget(f"{MAKER}{chip.chip.id}", "ascend", chip)
    for platform in ("cpu", "gpu"):
        if wanted == platform:
            return ScanTarget(platform, platform)
    known = ["cpu", "gpu", *(f"{MAKER}{chip.id}" for chip in ascend_chips())]
    raise UsageError.of("scan_usage.unknown_target", name=name, known=known)


@cache
def api_entries() -> Mapping[str, ApiEntry]:
    """All entries by torch's name; raises MappingRuleError for a malformed file."""
    entries: dict[str, ApiEntry] = {}
    for path in sorted((mappings_folder() / "api").glob("*.toml")):
        for entry in read_rules(path, lambda document: [_entry(table) for table in document["api"]]):
            entries[entry.torch] = entry
    return entries


def _entry(table: dict[str, Any]) -> ApiEntry:
    own: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    counterparts = tuple(_counterpart(one) for one in own.pop("counterpart", ()))
    _check(own.get("certainty", "tried here"), Certainty)
    return ApiEntry(**own, counterparts=counterparts)


def _counterpart(table: dict[str, Any]) -> Counterpart:
    settings = tuple(OtherDefault(**one) for one in table.get("settings", ()))
    otherwise = tuple(OtherCall(**one) for one in table.get("otherwise", ()))
    _check(table["relation"], Relation)
    _check(table["certainty"], Certainty)
    for platform in table["platforms"]:
        _check(platform, Platform)
    own = {"settings": settings, "otherwise": otherwise, "platforms": tuple(table["platforms"])}
    return Counterpart(**{**table, **own})


def _check(value: str, words: Any) -> None:
    if value not in get_args(words):
        raise ValueError(f"{value!r} is none of {get_args(words)}")


# What operators of both frameworks do with parameters: `mappings/operators.toml`, whose head explains the keys.

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


# Which calls of a script set a training: `torch.optim.AdamW(..., lr=1e-4)`, `clip_grad_norm_(..., 1.0)`.
#
# `mappings/hyperparameters/calls/` lists them, a file for each library.

FOLDER: Final = ("hyperparameters", "calls")


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Calls of one kind: what they end with, the setting that is called like them, and those that arguments give."""

    calls: tuple[str, ...]
    named: str = ""
    keywords: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)


@cache
def script_calls() -> tuple[ScriptCall, ...]:
    """All calls of the tables; raises MappingRuleError for a malformed file.

    >>> any("optim.[A-Z]*" in one.calls for one in script_calls())
    True
    """
    files = sorted(mappings_folder().joinpath(*FOLDER).glob("*.toml"))
    return tuple(one for path in files for one in read_rules(path, _calls))


def _calls(document: dict[str, Any]) -> list[ScriptCall]:
    return [ScriptCall(**{**one, "calls": tuple(one["calls"])}) for one in document["call"]]
