"""The parameters that the settings of one side stand for, by the tables of names; what stands in none is left over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.hyperparameters.meaning.ends_of_names import endings
from align.hyperparameters.meaning.held_values import RATE, Held, held_value
from align.hyperparameters.meaning.listed_transforms import hold_transforms
from align.hyperparameters.meaning.name_conditions import holds
from align.hyperparameters.meaning.setting_values import as_number, is_given, same_value, shown_value
from align.hyperparameters.thresholds import LEAST_OPTIONS, RANK_OF_A_GENERAL_NAME
from align.rules.hyperparameter_rules import fits_name, fits_one_of, hyperparameter_rules, plain_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from align.hyperparameters.settings_format import Setting
    from align.rules.hyperparameter_rules import Parameter, SpelledName, Trainer

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
