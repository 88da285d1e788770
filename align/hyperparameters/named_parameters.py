"""The parameters that the settings of one side stand for, by the tables of names; what stands in none is left over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
        own, implied = (trainer.names, trainer.implied) if trainer else ({}, frozenset())
        others = (one for one in hyperparameter_rules().parameters if one.id not in implied)
        spelled = {one.id: tuple(name.name for name in (*one.names, *own.get(one.id, ()))) for one in others}
        lacking = (ident for ident, names in spelled.items() if not any(fits_one_of(name, names) for name in by_name))
        meaning.lacking = frozenset(lacking)
    return meaning


def _last_of_each(settings: list[Setting]) -> dict[str, Setting]:
    """The settings by plain name, the last of each; one that is `auto` leaves it to what stands before."""
    by_name: dict[str, Setting] = {}
    for setting in settings:
        name = plain_name(setting.name)
        if name not in by_name or str(setting.value).lower() != AUTO:
            by_name[name] = setting
    return by_name


def _hold_by_names(by_name: Mapping[str, Setting], meaning: Meaning) -> list[str]:
    """Hold what whole names give, the best rank first; returns the names that no table knows."""
    ranks: dict[str, int] = {}
    rivals: dict[str, list[tuple[Setting, Held]]] = {}
    left: list[str] = []
    for name, setting in by_name.items():
        fits = [*_parameters_of(name, by_name, meaning.trainer)]
        for rank, parameter, spelled in fits:
            value = held_value(setting, parameter, spelled, meaning.trainer)
            if value is not None and rank <= ranks.get(parameter.id, rank):
                ranks[parameter.id] = rank
                meaning.held[parameter.id] = value
            general = rank >= RANK_OF_A_GENERAL_NAME and parameter.kind == "number"
            if value is not None and general and not setting.option:
                rivals.setdefault(parameter.id, []).append((setting, value))
        if not fits and is_given(setting.value):
            left.append(name)
    for ident, several in rivals.items():
        if ranks[ident] >= RANK_OF_A_GENERAL_NAME:
            meaning.held[ident] = _with_rivals(meaning.held[ident], several)
    return left


def _with_rivals(value: Held, several: list[tuple[Setting, Held]]) -> Held:
    """What is held, with the settings of its file that give the same parameter another value."""
    file = value.place.rpartition(":")[0]
    rivals = [(setting, other) for setting, other in several if other.place.rpartition(":")[0] == file]
    if all(same_value(other.value, value.value) for _, other in rivals):
        return value
    return replace(value, rivals=tuple(f"{setting.name} = {other.text}" for setting, other in rivals))


def _take_by_ends(names: list[str], beside: Mapping[str, Setting], meaning: Meaning) -> set[str]:
    """Hold the parameters that no whole name gave by what names end with; returns the names that are so explained."""
    taken: set[str] = set()
    for several in endings(names, beside):
        parameter = several[0].parameter
        for ending in several:
            value = held_value(beside[ending.name], parameter, ending.spelled, meaning.trainer)
            known = meaning.held.get(parameter.id)
            if value is not None and (known is None or same_value(known.value, value.value)):
                meaning.held.setdefault(parameter.id, value)
                meaning.by_end.setdefault(parameter.id, {})[ending.name] = beside[ending.name]
                taken.add(ending.name)
    return taken


def _has_no_effect(name: str, trainer: Trainer | None) -> bool:
    return fits_one_of(name, (*hyperparameter_rules().without_effect, *(trainer.ignored if trainer else ())))


def _parameters_of(
    name: str, beside: Mapping[str, Setting], trainer: Trainer | None
) -> Iterator[tuple[int, Parameter, SpelledName]]:
    """All parameters that a setting speaks of, with the rank of its name; a trainer's names rule out general ones."""
    rules = hyperparameter_rules()
    named_by_trainer = False
    for ident, names in trainer.names.items() if trainer else ():
        for rank, spelled in enumerate(names):
            if fits_name(name, spelled.name):
                named_by_trainer = True
                if holds(spelled, rules.parameter(ident), name, beside):
                    yield rank, rules.parameter(ident), spelled
    if named_by_trainer:
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
    for name, value in [*meaning.held.items()]:
        if value.how.endswith(f"× {RATE}"):
            share = as_number(value.value)
            if rate is None or share is None:
                del meaning.held[name]
            else:
                how = f"{shown_value(share)} × {shown_value(rate)}"
                rivals = meaning.held[RATE].rivals or value.rivals
                meaning.held[name] = Held(share * rate, value.text, value.place, "derived", how, share, rivals)


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
    by_parameter: dict[str, list[Ending]] = {}
    constructed = {name.rpartition(".")[0] for name in names if _is_made(name, beside[name], rules)}
    constructed |= {plain_name(str(setting.value)) for name, setting in beside.items() if _chooses(name, rules)}
    for name in names:
        # All words of the parts that a name stands under; of a name without parts its own.
        if rules.apart.isdisjoint(_WORD.findall(name.rpartition(".")[0] or name)):
            for ending in _endings_of(name, beside, constructed, rules):
                by_parameter.setdefault(ending.parameter.id, []).append(ending)

    def agrees(one: Ending, several: list[Ending]) -> bool:
        alike = (beside[other.name].value for other in several if other.rank == one.rank)
        return all(same_value(value, beside[one.name].value) for value in alike)

    for several in by_parameter.values():
        agreeing = sorted((ending for ending in several if agrees(ending, several)), key=lambda one: one.rank)
        if agreeing:
            yield agreeing


def _endings_of(
    name: str, beside: Mapping[str, Setting], constructed: set[str], rules: HyperparameterRules
) -> Iterator[Ending]:
    """What a name may speak of; of two parts, such as `optimizer.type`, the end says enough."""
    for folder, tail, whole in _ends(name):
        for rank, parameter, spelled in rules.by_name.get(tail, ()):
            fits = whole or _stands_within(folder, parameter, constructed, rules)
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


def hold_transforms(by_name: Mapping[str, Setting], trainer: Trainer | None, values: dict[str, Held]) -> None:
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
        values[TRANSFORMS] = Held(", ".join(map(plain_choice, called_so)), text, first.place)


def _entry(setting: Setting, patterns: tuple[str, ...]) -> tuple[str, str]:
    """The place in the list and the name there: `transforms.1.Flip.prob` and `pipeline.1.type = Flip` are such."""
    place, _, last = setting.name.rpartition(".")
    if any(one.endswith((f".{last.lower()}", f"*{last.lower()}")) for one in patterns):
        return place, str(setting.value)
    parts, depth = setting.name.split("."), max(one.count(".") for one in patterns) + 1
    return ".".join(parts[: depth - 1]), parts[depth - 1]


# What follows from several settings: the global batch, the duration in steps, the warm-up; each says how.
#
# A quantity has several forms (a warm-up in steps, in epochs, as a share of the run). Two sides are compared in a
# form that both have, which may be computed; where there is none, that is said and nothing is guessed.

Form = Literal["batch", "batch of a rank", "steps", "epochs", "samples", "share", "nothing"]
PARALLEL = ("tensor_parallel", "pipeline_parallel", "context_parallel")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of one side in all forms that it can be told in; the first is the one that is given."""

    forms: dict[Form, Held]

    @property
    def first(self) -> Held | None:
        """What is given, or the best that is known."""
        return next(iter(self.forms.values()), None)


def batch_quantity(meaning: Meaning) -> Quantity:
    """The global batch: as given, or micro batch x accumulation x data-parallel ranks; else what one rank takes."""
    forms: dict[Form, Held] = {}
    if "global_batch" in meaning.held:
        forms["batch"] = meaning.held["global_batch"]
    micro, steps = meaning.number("micro_batch"), meaning.number("accumulation")
    if micro is not None:
        parts = [micro] if steps is None else [micro, steps]
        origin = "default" if meaning.held["micro_batch"].origin == "default" else "derived"
        ranks = data_ranks(meaning)
        shared = ranks is not None and ranks.value != 1 and _may_be_shared(meaning)
        if ranks is not None and not shared:
            forms.setdefault("batch", _product([*parts, ranks.value], meaning, "micro_batch", ranks.how))
        forms["batch of a rank"] = replace(_product(parts, meaning, "micro_batch", "", origin), unsure=shared)
    return Quantity(forms)


def _may_be_shared(meaning: Meaning) -> bool:
    """Tell a `batch_size` beside `gpus` of a program that no table knows: it may be that of all of them."""
    held = [meaning.held.get(name) for name in ("micro_batch", "world_size")]
    return meaning.trainer is None and all(one is not None and one.unsure for one in held)


def data_ranks(meaning: Meaning) -> Held | None:
    """Data-parallel ranks: as given, or all devices by those that share one copy of the model."""
    if "data_parallel" in meaning.held:
        return meaning.held["data_parallel"]
    devices = all_devices(meaning)
    if devices is None or not isinstance(devices.value, float):
        return None
    shared, how = 1.0, [devices.how or shown_value(devices.value)]
    for name in PARALLEL:
        number = meaning.number(name)
        if number is not None and number > 1:
            shared *= number
            how.append(shown_value(number))
    ranks = devices.value / shared
    text = how[0] if len(how) == 1 else f"{shown_value(ranks)} = {' / '.join([shown_value(devices.value), *how[1:]])}"
    return Held(ranks, shown_value(ranks), devices.place, "derived", text) if ranks >= 1 else None


def all_devices(meaning: Meaning) -> Held | None:
    """All devices: as given, or nodes x devices of a node.

    One device beside several of a node is what a program has before its launcher says more.
    """
    each, nodes = meaning.number("ranks_per_node"), meaning.number("nodes")
    alone = meaning.number("world_size") == 1 and (each or 1) > 1
    if "world_size" in meaning.held and not alone:
        return meaning.held["world_size"]
    if each is None:
        return None
    nodes = 1.0 if nodes is None else nodes
    how = f"{shown_value(nodes)} × {shown_value(each)}" if nodes != 1 else shown_value(each)
    return Held(nodes * each, shown_value(nodes * each), meaning.place("ranks_per_node"), "derived", how)


def duration_quantity(meaning: Meaning) -> Quantity:
    """The duration in steps, epochs or samples; the others follow where batch and length of the dataset are known."""
    forms: dict[Form, Held] = {}
    for name, form in _DURATIONS:
        if name in meaning.held:
            forms[form] = meaning.held[name]
    batch, length = _global_batch(meaning), meaning.number("samples")
    if "steps" not in forms and batch:
        if "samples" in forms:
            forms["steps"] = _quotient(forms["samples"], batch)
        elif "epochs" in forms and length:
            each = max(1.0, length // batch)
            how = f"{shown_value(forms['epochs'].value)} × ({shown_value(length)} // {shown_value(batch)})"
            total = float(forms["epochs"].value) * each  # type: ignore[arg-type]
            forms["steps"] = Held(total, forms["epochs"].text, forms["epochs"].place, "derived", how)
    return Quantity(forms)


_DURATIONS: tuple[tuple[str, Form], ...] = (("max_steps", "steps"), ("epochs", "epochs"), ("train_samples", "samples"))


def warmup_quantity(meaning: Meaning) -> Quantity:
    """The warm-up in steps, in epochs or as a share; none in any form is none in all."""
    forms: dict[Form, Held] = {}
    for name, form in _WARMUPS:
        if name in meaning.held and (meaning.number(name) or not forms):
            forms[form] = meaning.held[name]
    batch = _global_batch(meaning)
    if "samples" in forms and batch:
        forms = {"steps": _quotient(forms.pop("samples"), batch), **forms}
    given = {form: held for form, held in forms.items() if held.value}
    if forms and not given:
        return Quantity({"nothing": next(iter(forms.values())), **forms})
    forms = given
    duration = duration_quantity(meaning).forms
    for form in ("steps", "epochs"):
        if form in forms and form in duration and duration[form].value and "share" not in forms:
            forms["share"] = _share(forms[form], duration[form])
    if "share" in forms and "steps" in duration and "steps" not in forms:
        steps = float(forms["share"].value) * float(duration["steps"].value)  # type: ignore[arg-type]
        how = f"{shown_value(forms['share'].value)} × {shown_value(duration['steps'].value)}"
        forms["steps"] = Held(float(round(steps)), forms["share"].text, forms["share"].place, "derived", how)
    return Quantity(forms)


_WARMUPS: tuple[tuple[str, Form], ...] = (
    ("warmup_steps", "steps"),
    ("warmup_ratio", "share"),
    ("warmup_epochs", "epochs"),
    ("warmup_samples", "samples"),
)


def common_forms(one: Quantity, other: Quantity) -> Iterator[Form]:
    """Forms that both sides have, those that are given before those that are computed."""
    both = [form for form in one.forms if form in other.forms]
    derived = {form: (one.forms[form].how != "") + (other.forms[form].how != "") for form in both}
    derived |= {form: 0 for form in both if form == "batch"}
    yield from sorted(both, key=lambda form: derived[form])


def _global_batch(meaning: Meaning) -> float | None:
    held = batch_quantity(meaning).forms.get("batch")
    return float(held.value) if held is not None and isinstance(held.value, float) else None


def _product(numbers: Sequence[Value], meaning: Meaning, name: str, ranks: str, origin: str = "derived") -> Held:
    total = 1.0
    for number in numbers:
        total *= float(number)  # type: ignore[arg-type]
    several = len(numbers) > 1
    how = " × ".join(shown_value(one) for one in numbers) if several else ""
    how += f" ({ranks})" if " " in ranks else ""
    held = meaning.held[name]
    kind = origin if several or origin == "default" else held.origin
    return Held(total, held.text, held.place, kind, how, rivals=held.rivals)  # type: ignore[arg-type]


def _quotient(held: Held, divisor: float) -> Held:
    how = f"{shown_value(held.value)} / {shown_value(divisor)}"
    return Held(float(held.value) / divisor, held.text, held.place, "derived", how)  # type: ignore[arg-type]


def _share(part: Held, whole: Held) -> Held:
    how = f"{shown_value(part.value)} / {shown_value(whole.value)}"
    return Held(float(part.value) / float(whole.value), part.text, part.place, "derived", how)  # type: ignore[arg-type]
