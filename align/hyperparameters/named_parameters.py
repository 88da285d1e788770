"""The parameters that the settings of one side stand for, by the tables of names; what stands in none is left over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from align.hyperparameters.setting_values import (
    RATE,
    Held,
    as_number,
    held_value,
    is_given,
    listed_values,
    same_value,
    shown_value,
)
from align.hyperparameters.thresholds import LEAST_OPTIONS, LONGEST_VALUE, RANK_OF_A_GENERAL_NAME
from align.rules.hyperparameter_rules import fits_name, fits_one_of, hyperparameter_rules, plain_choice, plain_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from align.hyperparameters.settings_format import Setting, Value
    from align.rules.hyperparameter_rules import HyperparameterRules, Parameter, SpelledName, Trainer


SCHEDULE = "lr_schedule"
DECAYING = ("cosine", "linear", "polynomial", "exponential")
AUTO = "auto"  # in a JSON of DeepSpeed: what its trainer says
OPTIMIZERS = ("optimizer", "optim", "opt")  # names of a setting that chooses one


@dataclass(slots=True)
class Meaning:
    """What one side says: parameters by id, and settings that no table of names knows, by plain name.

    `by_end` are settings that a parameter was taken from by what their names end with.
    `lacking` are parameters that the side's program has no option for, if it lists its options.
    """

    trainer: Trainer | None
    held: dict[str, Held] = field(default_factory=dict)
    others: dict[str, Setting] = field(default_factory=dict)
    without_effect: dict[str, Setting] = field(default_factory=dict)
    by_end: dict[str, dict[str, Setting]] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()

    def number(self, name: str) -> float | None:
        """The number of a parameter; None if it has none."""
        found = self.held.get(name)
        return as_number(found.value) if found is not None else None

    def place(self, name: str) -> str:
        """Where a parameter is given."""
        return self.held[name].place if name in self.held else ""


def read_meaning(settings: list[Setting], trainer: Trainer | None) -> Meaning:
    """Give each setting its parameter; of several settings of one parameter the table's first name counts."""
    meaning = Meaning(trainer)
    by_name = _last_of_each(settings)
    left = _hold_by_names(by_name, meaning)
    hold_transforms(by_name, trainer, meaning.held)
    taken = _take_by_ends([name for name in left if not _has_no_effect(name, trainer)], by_name, meaning)
    for name in left:
        if name not in taken:
            _leave_over(name, by_name[name], meaning)
    _override(meaning)
    _scale_by_rate(meaning)
    _see_constant_rate(meaning)
    if sum(one.option for one in by_name.values()) >= LEAST_OPTIONS:
        meaning.lacking = _without_option(by_name.keys(), trainer)
    return meaning


def _last_of_each(settings: list[Setting]) -> dict[str, Setting]:
    """The settings by plain name, the last of each; one that is `auto` leaves it to what stands before."""
    found: dict[str, Setting] = {}
    for one in settings:
        name = plain_name(one.name)
        if name not in found or str(one.value).lower() != AUTO:
            found[name] = one
    return found


def _hold_by_names(by_name: Mapping[str, Setting], meaning: Meaning) -> list[str]:
    """Hold what whole names give, the best rank first; returns the names that no table knows."""
    ranks: dict[str, int] = {}
    rivals: dict[str, list[tuple[Setting, Held]]] = {}
    left: list[str] = []
    for name, setting in by_name.items():
        fits = [*_parameters_of(name, by_name, meaning.trainer)]
        for rank, parameter, spelled in fits:
            held = held_value(setting, parameter, spelled, meaning.trainer)
            if held is not None and rank <= ranks.get(parameter.id, rank):
                ranks[parameter.id] = rank
                meaning.held[parameter.id] = held
            if (
                held is not None
                and rank >= RANK_OF_A_GENERAL_NAME
                and not setting.option
                and parameter.kind == "number"
            ):
                rivals.setdefault(parameter.id, []).append((setting, held))
        if not fits and is_given(setting.value):
            left.append(name)
    for ident, several in rivals.items():
        if ranks[ident] >= RANK_OF_A_GENERAL_NAME:
            meaning.held[ident] = _with_rivals(meaning.held[ident], several)
    return left


def _with_rivals(held: Held, several: list[tuple[Setting, Held]]) -> Held:
    """What is held, with the settings of its file that give the same parameter another value."""
    file = held.place.rpartition(":")[0]
    alike = [(setting, other) for setting, other in several if other.place.rpartition(":")[0] == file]
    if all(same_value(other.value, held.value) for _, other in alike):
        return held
    return replace(held, rivals=tuple(f"{setting.name} = {other.text}" for setting, other in alike))


def _take_by_ends(names: list[str], beside: Mapping[str, Setting], meaning: Meaning) -> set[str]:
    """Hold the parameters that no whole name gave by what names end with; returns the names that are so explained."""
    taken: set[str] = set()
    for several in endings(names, beside):
        parameter = several[0].parameter
        for one in several:
            held = held_value(beside[one.name], parameter, one.spelled, meaning.trainer)
            known = meaning.held.get(parameter.id)
            if held is not None and (known is None or same_value(known.value, held.value)):
                meaning.held.setdefault(parameter.id, held)
                meaning.by_end.setdefault(parameter.id, {})[one.name] = beside[one.name]
                taken.add(one.name)
    return taken


def _has_no_effect(name: str, trainer: Trainer | None) -> bool:
    return fits_one_of(name, (*hyperparameter_rules().without_effect, *(trainer.ignored if trainer else ())))


def _without_option(names: Collection[str], trainer: Trainer | None) -> frozenset[str]:
    """The parameters of which no name is among these, and that the trainer does not imply."""
    own, implied = (trainer.names, trainer.implied) if trainer else ({}, frozenset())
    return frozenset(
        one.id
        for one in hyperparameter_rules().parameters
        if one.id not in implied
        and not any(fits_name(name, spelled.name) for spelled in (*one.names, *own.get(one.id, ())) for name in names)
    )


def _parameters_of(
    name: str, beside: Mapping[str, Setting], trainer: Trainer | None
) -> Iterator[tuple[int, Parameter, SpelledName]]:
    """All parameters that a setting speaks of, with the rank of its name; a trainer's names rule out general ones."""
    rules = hyperparameter_rules()
    own = False
    for ident, names in trainer.names.items() if trainer else ():
        for rank, spelled in enumerate(names):
            if fits_name(name, spelled.name):
                own = True
                if holds(spelled, rules.parameter(ident), name, beside):
                    yield rank, rules.parameter(ident), spelled
    if own:
        return
    for known in (name, *_without_sections(name, beside)):
        for rank, parameter, spelled in rules.by_name.get(known, ()):
            if holds(spelled, parameter, name, beside):
                yield RANK_OF_A_GENERAL_NAME + rank, parameter, spelled


def _without_sections(name: str, beside: Mapping[str, Setting]) -> Iterator[str]:
    """A name without the sections that it stands in; one may be called like the optimizer that is chosen."""
    chosen = {plain_name(str(beside[one].value)) for one in OPTIMIZERS if one in beside}
    while "." in name:
        head, _, name = name.partition(".")
        if head not in hyperparameter_rules().sections and head not in chosen:
            return
        yield name


def _override(meaning: Meaning) -> None:
    """Leave out what counts for nothing beside another parameter that is given: epochs beside steps."""
    for name, others in meaning.trainer.overrides.items() if meaning.trainer else ():
        if name in meaning.held:
            for other in others:
                meaning.held.pop(other, None)


def _scale_by_rate(meaning: Meaning) -> None:
    """Multiply what is given as a share of the learning rate; without one it is left out."""
    rate = meaning.number(RATE)
    for name, held in [*meaning.held.items()]:
        if held.how.endswith(f"× {RATE}"):
            share = as_number(held.value)
            if rate is None or share is None:
                del meaning.held[name]
            else:
                how = f"{shown_value(share)} × {shown_value(rate)}"
                rivals = meaning.held[RATE].rivals or held.rivals
                meaning.held[name] = Held(share * rate, held.text, held.place, "derived", how, share, rivals)


def _see_constant_rate(meaning: Meaning) -> None:
    """Call a schedule constant that ends at the learning rate that it begins with."""
    schedule, rate, lowest = meaning.held.get(SCHEDULE), meaning.number(RATE), meaning.number("min_learning_rate")
    if schedule is not None and schedule.value in DECAYING and rate is not None and rate == lowest:
        how = f"{schedule.text} from {shown_value(rate)} to {shown_value(lowest)}"
        meaning.held[SCHEDULE] = replace(schedule, value="constant", origin="derived", how=how)


def _leave_over(name: str, setting: Setting, meaning: Meaning) -> None:
    """Keep a setting under its plain name, or among those that no loss depends on."""
    trainer = meaning.trainer
    if _has_no_effect(name, trainer):
        meaning.without_effect[name] = setting
        return
    alike = trainer.alike if trainer else {}
    meaning.others[next((other for pattern, other in alike.items() if fits_name(name, pattern)), name)] = setting


# Parameters by what their names end with, where no table knows the whole name: `solver.base_lr`, `model.optim.betas`.
#
# The part that a name stands under must be one that the parameter's group may stand under, and no part may speak of
# something beside the training (`eval`, `teacher`). What stands at several places with unlike values is none of them.

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


# When a name means its parameter: the value that it asks for, and what stands beside it.

ANY = "*"
GROUPS_OF_SIZES = ("data", "model")


def holds(spelled: SpelledName, parameter: Parameter, name: str, beside: Mapping[str, Setting]) -> bool:
    """Tell whether the conditions of a name hold: its own value, and what stands beside it."""
    setting, folder = beside[name], name.rpartition(".")[0]

    def stands(key: str, value: object) -> bool:
        found = beside.get(plain_name(f"{folder}.{key}" if folder else key))
        given = found is not None and is_given(found.value)
        return given and (value == ANY or same_value(found.value, value))  # type: ignore[arg-type, union-attr]

    if not has_value(spelled, parameter, setting):
        return False
    wanted = all(
        stands(key, value) or (key == "by_epoch" and value and plain_name(f"{folder}.{key}") not in beside)
        for key, value in spelled.where.items()
    )
    return wanted and not any(stands(key, value) for key, value in spelled.unless.items())


def has_value(spelled: SpelledName, parameter: Parameter, setting: Setting) -> bool:
    """Tell whether a setting has a value that its name asks for; a mere yes, or a word, is no number."""
    if spelled.only and not same_value(setting.value, spelled.only):
        return False
    if spelled.like and not fits_name(str(setting.value).lower(), spelled.like):
        return False
    plain = parameter.kind == "number" and spelled.means == "plain" and not spelled.gives
    return not plain or _may_be_number(setting.value, several=parameter.group in GROUPS_OF_SIZES)


def _may_be_number(value: Value, *, several: bool) -> bool:
    """Tell a number, and what says no or leaves it open; `several` are the sides of an image."""
    if isinstance(value, bool | int | float):
        return value is not True
    listed = listed_values(value)
    single = len({*map(as_number, listed)}) == 1
    return not is_given(value) or ((single or several) and all(as_number(one) is not None for one in listed))


# What a program does to its data, one after the other: the names in a list of transforms, as one value.
#
# Each program has names of its own for them. So they are shown side by side, and differ within one program only.

TRANSFORMS = "transforms"


def hold_transforms(by_name: Mapping[str, Setting], trainer: Trainer | None, held: dict[str, Held]) -> None:
    """Hold the names in the first list of transforms of a trainer, where its settings have one."""
    lists: dict[str, dict[str, str]] = {}
    first: Setting | None = None
    for name, setting in by_name.items():
        if trainer is not None and fits_one_of(name, trainer.transforms):
            place, called = _entry(setting, trainer.transforms)
            lists.setdefault(place.rpartition(".")[0], {}).setdefault(place, called)
            first = first or setting
    if first is not None:
        called_so = next(iter(lists.values())).values()
        text = ", ".join(called_so)[:LONGEST_VALUE]
        held[TRANSFORMS] = Held(", ".join(map(plain_choice, called_so)), text, first.place)


def _entry(setting: Setting, patterns: tuple[str, ...]) -> tuple[str, str]:
    """The place in the list and the name there: `transforms.1.Flip.prob` and `pipeline.1.type = Flip` are such."""
    place, _, last = setting.name.rpartition(".")
    if any(one.endswith((f".{last.lower()}", f"*{last.lower()}")) for one in patterns):
        return place, str(setting.value)
    parts, depth = setting.name.split("."), max(one.count(".") for one in patterns) + 1
    return ".".join(parts[: depth - 1]), parts[depth - 1]
