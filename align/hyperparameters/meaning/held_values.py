"""The value that a setting gives a parameter: in its common form, converted as its name says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.meaning.augment_policy import plain_policy
from align.hyperparameters.meaning.setting_values import (
    as_number,
    as_switch,
    in_one_form,
    is_given,
    listed_values,
    same_value,
    shown_value,
)
from align.rules.hyperparameter_rules import plain_choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.hyperparameters.settings_format import Setting, Value
    from align.rules.hyperparameter_rules import Parameter, SpelledName, Trainer

Origin = Literal["given", "default", "derived"]
RATE, DEVICES = "learning_rate", "world_size"


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


def held_value(setting: Setting, parameter: Parameter, spelled: SpelledName, trainer: Trainer | None) -> Held | None:
    """The value that a setting gives a parameter; None where it leaves it to the program."""
    value, how = setting.value, ""
    if not is_given(value) or (parameter.id == DEVICES and setting.option and same_value(value, 1)):
        return None  # one device as an option's default is what a program has before its launcher says more
    if spelled.gives:
        value = spelled.gives if spelled.only or as_switch(value) is not False else None
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
    return Held(
        found, shown_value(setting.value), setting.place, origin, how, computed=setting.computed, unsure=spelled.unsure
    )


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
    "minus_one": lambda number, text: (number - 1, f"{text} - 1"),
    "percent": lambda number, text: (number / 100, f"{text} / 100"),
    "power_of_two": lambda number, text: (2.0 ** min(number, 127.0), f"2^{text}"),
    "times_rate": lambda number, text: (number, f"{text} × {RATE}"),
}
