"""What hyperparameters are called, what they do to a loss, and what trainers take by default.

`mappings/hyperparameters/parameters.toml` lists them in that order; each other file there is a trainer with its own
names, the signs that it is known by, and its defaults with a public address. The heads of the files explain the keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from align.core.align_sequences import grouped
from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder, read_rules
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ParameterKind = Literal[
    "number", "choice", "own name", "switch", "numbers", "shares", "text", "place", "policy", "pixels"
]
FOLDER: Final = "hyperparameters"
PARAMETERS, WITHOUT_EFFECT, OPTIMIZERS = "parameters.toml", "without_effect.toml", "optimizers.toml"


@dataclass(frozen=True, slots=True)
class SpelledName:
    """A name of a parameter; `*` stands for any part. What the fields say stands in the head of `parameters.toml`."""

    name: str
    means: str = "plain"
    gives: str = ""
    only: str = ""
    like: str = ""
    unsure: bool = False
    where: Mapping[str, object] = field(default_factory=dict)
    unless: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """A name of a policy in a text `name-part-part`: what it is the `same` as, and numbers of parts not given.

    Parts that are `flags` say yes by standing there, whatever their number is.
    """

    name: str
    same: str
    parts: Mapping[str, float]
    source: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyperparameter, whatever it is called; `order` counts them by what they do to a loss."""

    id: str
    title: str
    group: str
    kind: ParameterKind
    names: tuple[SpelledName, ...]
    why: str
    order: int
    part: bool = False
    classes: bool = False
    off: tuple[object, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    policies: tuple[Policy, ...] = ()
    beside: str = ""
    background: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerDefaults:
    """What the optimizers of a library take by default, by optimizer; `spelled` are how its classes begin."""

    source: str
    spelled: tuple[str, ...]
    defaults: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class DefaultCase:
    """Defaults that hold if all parameters of `when` fit their patterns."""

    when: Mapping[str, str]
    defaults: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer: the signs that it is known by, its own names, the defaults that hold if nothing is given.

    `implied` are defaults of what its program has no option for; `cases` are other defaults that hold if parameters fit
    patterns, and "" says that there is none then; `library` says whose optimizers it makes, with their defaults.
    `drives` are trainers whose settings it reads besides its own; `transforms` are patterns of what it does to data.
    Of what `overrides` says, what is given makes others count for nothing.
    """

    id: str
    title: str
    source: str
    signs: tuple[str, ...]
    names: Mapping[str, tuple[SpelledName, ...]]
    defaults: Mapping[str, object]
    sources: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]
    off: Mapping[str, tuple[object, ...]]
    ignored: tuple[str, ...]
    alike: Mapping[str, str]
    like: str = ""
    implied: frozenset[str] = frozenset()
    cases: tuple[DefaultCase, ...] = ()
    library: str = ""
    drives: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class HyperparameterRules:
    """All parameters in their order, the trainers, and names that no loss depends on."""

    parameters: tuple[Parameter, ...]
    groups: tuple[str, ...]
    unsettling: frozenset[str]
    sections: frozenset[str]
    trainers: tuple[Trainer, ...]
    without_effect: tuple[str, ...]
    optimizers: Mapping[str, OptimizerDefaults]
    within: Mapping[str, frozenset[str]]
    neutral: frozenset[str]
    apart: frozenset[str]

    @cached_property
    def by_name(self) -> Mapping[str, tuple[tuple[int, Parameter, SpelledName], ...]]:
        """Each parameter by its names, with the rank of the name; those with `*` are left out."""
        names = grouped((one[2].name, one) for one in self._ranked())
        return {name: tuple(ranked) for name, ranked in names.items() if "*" not in name}

    @cached_property
    def patterns(self) -> tuple[tuple[int, Parameter, SpelledName], ...]:
        """The names with `*`, with their parameters and ranks."""
        return tuple(one for one in self._ranked() if "*" in one[2].name)

    def _ranked(self) -> Iterator[tuple[int, Parameter, SpelledName]]:
        for parameter in self.parameters:
            yield from ((rank, parameter, spelled) for rank, spelled in enumerate(parameter.names))

    def parameter(self, name: str) -> Parameter:
        """The parameter of an id."""
        return next(one for one in self.parameters if one.id == name)


@cache
def hyperparameter_rules() -> HyperparameterRules:
    """The rules of `mappings/hyperparameters/`; raises MappingRuleError for a malformed file.

    >>> hyperparameter_rules().parameter("learning_rate").group
    'learning rate'
    """
    folder = mappings_folder() / FOLDER
    others = sorted(path for path in folder.glob("*.toml") if path.name not in (PARAMETERS, WITHOUT_EFFECT, OPTIMIZERS))
    head, parameters = read_rules(folder / PARAMETERS, _parameters)
    names = {one.id for one in parameters}
    own = [_checked(path, read_rules(path, _trainer), names) for path in others]
    trainers = tuple(_like(one, own) for one in own)
    without = read_rules(folder / WITHOUT_EFFECT, lambda document: tuple(map(plain_name, document["names"])))
    return HyperparameterRules(
        parameters,
        tuple(head["groups"]),
        frozenset(head["unsettling"]),
        frozenset(head["sections"]),
        trainers,
        without,
        read_rules(folder / OPTIMIZERS, _optimizers),
        {group: frozenset(words) for group, words in head["within"].items()},
        frozenset(head["neutral"]),
        frozenset(head["apart"]),
    )


def plain_name(name: str) -> str:
    """A name without what spellings differ by: case, and `-` for `_`.

    >>> plain_name("--Learning-Rate")
    'learning_rate'
    """
    return spelled_name(name).lower()


def spelled_name(name: str) -> str:
    """A name with its case, without what starts an option.

    >>> spelled_name("--Learning-Rate")
    'Learning_Rate'
    """
    return name.lstrip("-").replace("-", "_")


def plain_choice(text: str) -> str:
    """A value's name without case and separators, so that `AdamW`, `adam_w` and `adam-w` are one.

    >>> plain_choice("Adam-W")
    'adamw'
    """
    return "".join(letter for letter in text.lower() if letter.isalnum())


def fits_name(name: str, pattern: str) -> bool:
    """Tell whether a plain name fits a pattern; `*` stands for anything."""
    return name == pattern or ("*" in pattern and _expression((pattern,)).match(name) is not None)


def fits_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a plain name fits one of several patterns, in one look."""
    return bool(patterns) and _expression(patterns).match(name) is not None


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


def _parameters(document: dict[str, Any]) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    tables = document.pop("parameter")
    return document, tuple(_parameter(order, table) for order, table in enumerate(tables))


def _parameter(order: int, table: dict[str, Any]) -> Parameter:
    same = {plain_choice(other): value for value, others in table.pop("same", {}).items() for other in (value, *others)}
    needs = {name: tuple(values) for name, values in table.pop("needs", {}).items()}
    names = tuple(map(_spelled, table.pop("names")))
    policies = tuple(Policy(**{**one, "flags": tuple(one.get("flags", ()))}) for one in table.pop("policies", ()))
    off = tuple(table.pop("off", ()))
    return Parameter(**table, off=off, names=names, same=same, needs=needs, policies=policies, order=order)


def _spelled(given: str | dict[str, Any]) -> SpelledName:
    if isinstance(given, str):
        return SpelledName(plain_name(given))
    table = dict(given)
    where = {**table.pop("where", {}), **table.pop("beside", {})}
    return SpelledName(plain_name(table.pop("name")), only=table.pop("if", ""), where=where, **table)


def _trainer(document: dict[str, Any]) -> Trainer:
    names = {name: tuple(map(_spelled, given)) for name, given in document.get("names", {}).items()}
    synonyms = {plain_name(name): plain_name(other) for name, other in document.get("alike", {}).items()}
    return Trainer(
        document["id"],
        document["title"],
        document["source"],
        tuple(map(spelled_name, document["signs"])),
        names,
        document.get("defaults", {}),
        document.get("sources", {}),
        document.get("values", {}),
        {name: tuple(values) for name, values in document.get("off", {}).items()},
        tuple(map(plain_name, document.get("ignored", {}).get("names", ()))),
        synonyms,
        document.get("like", ""),
        frozenset(document.get("implied", ())),
        tuple(DefaultCase(one.pop("if"), one) for one in document.get("cases", ())),
        document.get("library", ""),
        tuple(document.get("drives", ())),
        tuple(map(plain_name, document.get("transforms", ()))),
        {name: tuple(others) for name, others in document.get("overrides", {}).items()},
    )


def _optimizers(document: dict[str, Any]) -> dict[str, OptimizerDefaults]:
    return {
        library: OptimizerDefaults(table.pop("source"), tuple(table.pop("spelled")), table)
        for library, table in document.items()
    }


def _like(trainer: Trainer, trainers: list[Trainer]) -> Trainer:
    """A trainer with what it has of another one: names that it has no own of, and values that mean: not set."""
    if not trainer.like:
        return trainer
    other = next(one for one in trainers if one.id == trainer.like)
    names, off = {**other.names, **trainer.names}, {**other.off, **trainer.off}
    return replace(trainer, names=names, off=off, ignored=(*other.ignored, *trainer.ignored))


def _checked(path: Path, trainer: Trainer, known: set[str]) -> Trainer:
    named = {*trainer.names, *trainer.defaults, *trainer.values, *trainer.off, *trainer.sources, *trainer.implied}
    named |= {name for one, others in trainer.overrides.items() for name in (one, *others)}
    named |= {name for case in trainer.cases for name in (*case.when, *case.defaults)}
    if strange := sorted(named - known):
        raise MappingRuleError(path, say("rule_file.unknown_parameters", names=strange))
    return trainer
