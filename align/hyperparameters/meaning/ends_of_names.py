"""Parameters by what their names end with, where no table knows the whole name: `solver.base_lr`, `model.optim.betas`.

The part that a name stands under must be one that the parameter's group may stand under, and no part may speak of
something beside the training (`eval`, `teacher`). What stands at several places with unlike values is none of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from align.hyperparameters.meaning.name_conditions import has_value, holds
from align.hyperparameters.meaning.setting_values import same_value
from align.rules.hyperparameter_rules import fits_name, hyperparameter_rules, plain_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.hyperparameters.settings_format import Setting
    from align.rules.hyperparameter_rules import HyperparameterRules, Parameter, SpelledName

CHOOSING = ("optimizer", "lr_schedule")
_WORD = re.compile(r"[a-z]+")
_CALLED_CONFIG = re.compile(r"(?<=[a-z])(config|conf|cfg|params|args|options|settings)$")  # of `OptimConfig`


class Ending(NamedTuple):
    """A name that ends as one of a parameter does, and the rank of that one."""

    rank: int
    name: str
    parameter: Parameter
    spelled: SpelledName


def endings(names: Iterable[str], beside: Mapping[str, Setting]) -> Iterator[list[Ending]]:
    """For each parameter the names that end as it is called, best rank first; those of one rank have one value."""
    rules = hyperparameter_rules()
    found: dict[str, list[Ending]] = {}
    made = {name.rpartition(".")[0] for name in names if _is_made(name, beside[name], rules)}
    made |= {plain_name(str(one.value)) for name, one in beside.items() if _chooses(name, rules)}
    for name in names:
        if not _parts_words(name) & rules.apart:
            for one in _endings_of(name, beside, made, rules):
                found.setdefault(one.parameter.id, []).append(one)
    for several in found.values():
        agreeing = sorted((one for one in several if _agree(one, several, beside)), key=lambda one: one.rank)
        if agreeing:
            yield agreeing


def _agree(one: Ending, several: list[Ending], beside: Mapping[str, Setting]) -> bool:
    value = beside[one.name].value
    return all(same_value(beside[other.name].value, value) for other in several if other.rank == one.rank)


def _endings_of(
    name: str, beside: Mapping[str, Setting], made: set[str], rules: HyperparameterRules
) -> Iterator[Ending]:
    """What a name may speak of; of two parts, such as `optimizer.type`, the end says enough."""
    for folder, tail, whole in _ends(name):
        for rank, parameter, spelled in rules.by_name.get(tail, ()):
            fits = whole or _stands_within(folder, parameter, made, rules)
            if fits and holds(spelled, parameter, name, beside) and ("." in name or parameter.kind == "number"):
                yield Ending(rank, name, parameter, spelled)
    for rank, parameter, spelled in rules.patterns:
        if spelled.like and fits_name(name, spelled.name) and holds(spelled, parameter, name, beside):
            yield Ending(rank, name, parameter, spelled)


def _ends(name: str) -> Iterator[tuple[str, str, bool]]:
    """What a name stands under, what it ends with, and whether that end says all: `optimizer.type` does.

    Of a name without parts its words are: `optimizer_adam_beta2` stands under `optimizer`.
    """
    folder, _, last = name.rpartition(".")
    if folder:
        yield folder, f"{folder.rpartition('.')[2]}.{last}", True
        yield folder, last, False
        return
    words = name.split("_")
    yield from (("_".join(words[:at]), "_".join(words[at:]), False) for at in range(1, len(words)))


def _chooses(name: str, rules: HyperparameterRules) -> bool:
    """Tell a name that chooses an optimizer or a schedule: the part called like what is chosen has its settings."""
    found = rules.by_name.get(name.rpartition(".")[2], ())
    return any(parameter.id in CHOOSING for _, parameter, _ in found)


def _is_made(name: str, setting: Setting, rules: HyperparameterRules) -> bool:
    """Tell what makes an optimizer, by its value: what stands beside it are settings of one."""
    return any(
        parameter.group == "optimizer" and fits_name(name, spelled.name) and has_value(spelled, parameter, setting)
        for _, parameter, spelled in rules.patterns
    )


def _stands_within(folder: str, parameter: Parameter, made: set[str], rules: HyperparameterRules) -> bool:
    """Tell whether the nearest part that says anything is one that the parameter's group stands under."""
    within = rules.within.get(parameter.group, frozenset())
    if folder in made or folder.rpartition(".")[2] in made:
        return "optimizer" in within
    for part in reversed(folder.split(".")):
        words = {*_WORD.findall(_CALLED_CONFIG.sub("", part))}
        if words - rules.neutral:
            return words <= within | rules.neutral
    return False


def _parts_words(name: str) -> set[str]:
    """All words of the parts that a name stands under; of a name without parts its own."""
    return {*_WORD.findall(name.rpartition(".")[0] or name)}
