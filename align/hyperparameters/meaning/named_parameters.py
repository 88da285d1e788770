"""The parameters that the settings of one side stand for, by the tables of names; what stands in none is left over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.meaning.augment_policy import plain_policy
from align.hyperparameters.meaning.ends_of_names import endings
from align.hyperparameters.meaning.name_conditions import holds
from align.hyperparameters.meaning.setting_values import (
    as_number,
    as_switch,
    in_one_form,
    is_given,
    listed_values,
    same_value,
    shown_value,
)
from align.hyperparameters.thresholds import LEAST_OPTIONS
from align.rules.hyperparameter_rules import fits_name, fits_one_of, hyperparameter_rules, plain_choice, plain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from align.hyperparameters.settings_format import Setting, Value
    from align.rules.hyperparameter_rules import Parameter, SpelledName, Trainer

Origin = Literal["given", "default", "derived"]
GENERAL = 100  # ranks of names that no trainer has for its own begin here
RATE, SCHEDULE = "learning_rate", "lr_schedule"
DECAYING = ("cosine", "linear", "polynomial", "exponential")
DEVICES = "world_size"
OPTIMIZERS = ("optimizer", "optim", "opt")  # names of a setting that chooses one


@dataclass(frozen=True, slots=True)
class Held:
    """The value of a parameter in its common form, as it was given, and where; `how` says how it was computed.

    `share` is of what is given as one of the learning rate. `rivals` are settings of the same file that may mean the
    same parameter and have another value. `computed` is what only the program knows, and
    `unsure` a batch whose name does not say whether it is that of one device or of all, or devices that may share it.
    """

    value: Value
    text: str
    place: str
    origin: Origin = "given"
    how: str = ""
    share: float | None = None
    rivals: tuple[str, ...] = ()
    computed: bool = False
    unsure: bool = False


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
    by_name = {plain_name(one.name): one for one in settings}
    ranks: dict[str, int] = {}
    left: list[str] = []
    given: dict[str, list[tuple[Setting, Held | None]]] = {}
    for name, setting in by_name.items():
        fits = [*_parameters_of(name, by_name, trainer)]
        for rank, parameter, spelled in fits:
            if rank <= ranks.get(parameter.id, rank):
                held = _held(setting, parameter, spelled, trainer)
                if held is not None:
                    ranks[parameter.id] = rank
                    meaning.held[parameter.id] = held
            if rank >= GENERAL and not setting.option and parameter.kind == "number":
                given.setdefault(parameter.id, []).append((setting, _held(setting, parameter, spelled, trainer)))
        if not fits and is_given(setting.value):
            left.append(name)
    for ident, several in given.items():
        if ident in meaning.held and ranks.get(ident, 0) >= GENERAL:
            meaning.held[ident] = _with_rivals(meaning.held[ident], several)
    taken = _take_by_ends([name for name in left if not _has_no_effect(name, trainer)], by_name, meaning)
    for name in left:
        if name not in taken:
            _leave_over(name, by_name[name], meaning)
    _scale_by_rate(meaning)
    _see_constant_rate(meaning)
    if sum(one.option for one in by_name.values()) >= LEAST_OPTIONS:
        meaning.lacking = _without_option(by_name.keys(), trainer)
    return meaning


def _with_rivals(held: Held, several: list[tuple[Setting, Held | None]]) -> Held:
    """What is held, with the settings of its file that give the same parameter another value."""
    file = held.place.rpartition(":")[0]
    alike = [
        (setting, other) for setting, other in several if other and other.place.rpartition(":")[0] == file
    ]
    if all(same_value(other.value, held.value) for _, other in alike):
        return held
    return replace(held, rivals=tuple(f"{setting.name} = {other.text}" for setting, other in alike))


def _take_by_ends(names: list[str], beside: Mapping[str, Setting], meaning: Meaning) -> set[str]:
    """Hold the parameters that no whole name gave by what names end with; returns the names that are so explained."""
    taken: set[str] = set()
    for several in endings(names, beside):
        parameter = several[0].parameter
        for one in several:
            held = _held(beside[one.name], parameter, one.spelled, meaning.trainer)
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
    known = {name, *_without_sections(name, beside)}
    for parameter in rules.parameters:
        for rank, spelled in enumerate(parameter.names):
            if spelled.name in known and holds(spelled, parameter, name, beside):
                yield GENERAL + rank, parameter, spelled


def _without_sections(name: str, beside: Mapping[str, Setting]) -> Iterator[str]:
    """A name without the sections that it stands in; one may be called like the optimizer that is chosen."""
    chosen = {plain_name(str(beside[one].value)) for one in OPTIMIZERS if one in beside}
    while "." in name:
        head, _, name = name.partition(".")
        if head not in hyperparameter_rules().sections and head not in chosen:
            return
        yield name


def _held(setting: Setting, parameter: Parameter, spelled: SpelledName, trainer: Trainer | None) -> Held | None:
    """The value that a setting gives a parameter; None where it leaves it to the program."""
    value, how = setting.value, ""
    if not is_given(value) or (parameter.id == DEVICES and setting.option and same_value(value, 1)):
        return None  # one device as an option's default is what a program has before its launcher says more
    if spelled.gives:
        if not spelled.only and as_switch(value) is False:
            return None
        value = spelled.gives
        how = f"{setting.name} = {shown_value(setting.value)}"
    elif spelled.means != "plain":
        value, how = _converted(value, spelled.means)
        if value is None:
            return None
    own = trainer.values.get(parameter.id, {}) if trainer else {}
    same = {**parameter.same, **{plain_choice(key): one for key, one in own.items()}}
    found = in_one_form(value, parameter.kind, same)
    if parameter.policies:
        found = plain_policy(str(found), parameter.policies)
    off = (*parameter.off, *(trainer.off.get(parameter.id, ()) if trainer else ()))
    if any(same_value(found, one) for one in off):  # type: ignore[arg-type]
        return None
    origin: Origin = "given" if not how else "derived"
    return Held(found, shown_value(setting.value), setting.place, origin, how, computed=setting.computed, unsure=spelled.unsure)


def _converted(value: Value, means: str) -> tuple[Value, str]:
    """A value as the parameter's meaning, and how it was computed."""
    kind, _, argument = means.partition(" ")
    if kind == "element":
        listed = listed_values(value)
        return (listed[int(argument)], "") if len(listed) > int(argument) else (None, "")
    if kind == "devices":
        return _counted(value)
    if kind == "not":
        return not as_switch(value), f"not {shown_value(value)}"
    number = as_number(value)
    return (None, "") if number is None else _CONVERSIONS[kind](number, shown_value(value))


def _counted(value: Value) -> tuple[Value, str]:
    """How many devices a list of their numbers names; a single number is how many there are, and 0 says nothing."""
    listed = listed_values(value)
    if len(listed) > 1:
        return float(len(listed)), f"devices {shown_value(value)}"
    return as_number(listed[0]) or None if listed else None, ""


_CONVERSIONS: dict[str, Callable[[float, str], tuple[Value, str]]] = {
    "one_minus": lambda number, text: (1.0 - number, f"1 - {text}"),
    "percent": lambda number, text: (number / 100, f"{text} / 100"),
    "power_of_two": lambda number, text: (2.0 ** min(number, 127.0), f"2^{text}"),
    "times_rate": lambda number, text: (number, f"{text} × {RATE}"),
}


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
