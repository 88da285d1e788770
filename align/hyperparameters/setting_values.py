"""The value that a setting gives a parameter: in its common form, converted as its name says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite, isnan
from typing import TYPE_CHECKING, Literal

from align.hyperparameters.nested_settings import printed_value
from align.hyperparameters.thresholds import ENDLESS_DIGITS, LARGEST_COLOUR, LEAST_DIGITS_ROUNDED, SAME_NUMBER
from align.rules.hyperparameter_rules import plain_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.hyperparameters.settings_format import Scalar, Setting, Value
    from align.rules.hyperparameter_rules import Parameter, ParameterKind, Policy, SpelledName, Trainer


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


# Values in one form: 1e-4 and 0.0001, True and on, 10 % and 0.1, adamw_torch and AdamW are each one value.

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NOTHING = ("", "none", "null", "auto", "~")
PERCENT = "%"


def is_given(value: Value) -> bool:
    """Tell whether a value says anything: None, an empty text and DeepSpeed's "auto" leave it to the program."""
    return value is not None and not (isinstance(value, str) and value.strip().lower() in NOTHING)


def in_one_form(value: Value, kind: ParameterKind, same: Mapping[str, str]) -> Value:
    """A value as its kind has it; what is none of that kind stays a text.

    >>> in_one_form("1e-4", "number", {}), in_one_form("on", "switch", {}), in_one_form("10%", "number", {})
    (0.0001, True, 0.1)
    """
    if kind == "number":
        return _as_number(value)
    if kind == "switch":
        found = as_switch(value)
        return str(value) if found is None else found
    if kind in ("choice", "own name"):
        return _choice(str(value), same)
    if kind == "pixels":
        return _pixels(value)
    if kind in ("numbers", "shares"):
        return _numbers(value) if kind == "numbers" else _shares(value)
    return shown_value(value).strip()


def _pixels(value: Value) -> Value:
    """Numbers of colours as shares of 1, rounded as far as those that are written with three digits go."""
    numbers = [as_number(one) for one in listed_values(value)]
    known = [one for one in numbers if one is not None]
    if not known or len(known) < len(numbers):
        return shown_value(value)
    whole = LARGEST_COLOUR if max(map(abs, known)) > 1 else 1.0
    shares = [round(one / whole, 3) for one in known]
    return tuple(shares[:1] if len({*shares}) == 1 else shares)  # one number stands for all channels


def _numbers(value: Value) -> Value:
    listed = listed_values(value)
    numbers = [as_number(one) for one in listed]
    return tuple(one if one is not None else str(given) for one, given in zip(numbers, listed, strict=True))


def _shares(value: Value) -> Value:
    """Numbers as parts of their sum: 100,0,0 is 1, 0, 0."""
    numbers = [as_number(one) for one in listed_values(value)]
    known = [one for one in numbers if one is not None and isfinite(one)]
    whole = sum(known)
    if len(known) < 2 or len(known) < len(numbers) or whole <= 0:
        return shown_value(value).strip()
    return tuple(round(one / whole, 6) for one in known)


def _choice(value: str, same: Mapping[str, str]) -> str:
    """The common name of a choice; of a class with its module, `a.optim.AdamW`, the class says it."""
    name, last = plain_choice(value), plain_choice(value.rpartition(".")[2])
    return same.get(name) or same.get(last) or name


def as_number(value: Value) -> float | None:
    """The number that a value is, also in a text and as a share in percent; None for what is none."""
    if isinstance(value, bool) or value is None or isinstance(value, tuple):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e308 else None
    text = value.strip().rstrip(",").replace("_", "")
    share = text.endswith(PERCENT)
    try:
        number = float(text.removesuffix(PERCENT))
    except ValueError:
        return None
    return number / 100 if share else number


def as_switch(value: Value) -> bool | None:
    """True or False for the words of a switch, None for others."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def listed_values(value: Value) -> tuple[Scalar, ...]:
    """The values of a list, also of one in a text: `0.9,0.95`, `[0.9, 0.95]`, `0.9 0.95`."""
    if isinstance(value, tuple):
        return tuple(one.rstrip(",") if isinstance(one, str) else one for one in value)
    found = printed_value(value) if isinstance(value, str) else value
    if isinstance(found, tuple):
        return found
    return tuple(str(value).replace(",", " ").split()) if isinstance(value, str) else (value,)


def same_value(one: Value, other: Value) -> bool:
    """Tell whether two values are the same, numbers up to their last bits, whatever they are spelled like."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        both = listed_values(one), listed_values(other)
        return len(both[0]) == len(both[1]) and all(map(same_value, *both))
    if isinstance(one, bool) or isinstance(other, bool):
        return as_switch(one) == as_switch(other) is not None
    numbers = as_number(one), as_number(other)
    if numbers[0] is not None and numbers[1] is not None:
        return _same_number(*numbers)  # type: ignore[arg-type]
    return str(one).strip().casefold() == str(other).strip().casefold()


def _same_number(one: float, other: float) -> bool:
    """Tell equal numbers, also 4/3 and 1.333: a fraction without end, and the same one written in some digits."""
    if one == other or (isnan(one) and isnan(other)) or abs(one - other) <= SAME_NUMBER * max(abs(one), abs(other)):
        return True
    if not (isfinite(one) and isfinite(other)):
        return False
    short, long = sorted((one, other), key=lambda number: len(repr(number)))
    if "e" in repr(short) + repr(long) or len(repr(long)) < ENDLESS_DIGITS:
        return False
    digits, decimals = repr(short).replace(".", "").lstrip("-0"), len(repr(short).partition(".")[2])
    return len(digits) >= LEAST_DIGITS_ROUNDED and round(long, decimals) == short


def shown_value(value: Value) -> str:
    """A value as a table shows it.

    >>> shown_value(0.0001), shown_value(512.0), shown_value((0.9, 0.95))
    ('0.0001', '512', '0.9, 0.95')
    """
    if isinstance(value, tuple):
        return ", ".join(map(shown_value, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _as_number(value: Value) -> Value:
    """A number, 0 for False; of a list of equal ones, such as both sides of an image, the one; else the text."""
    if value is False or (isinstance(value, str) and value.strip().lower() == "false"):
        return 0.0
    if isinstance(value, tuple) and len({*value}) == 1:
        value = value[0]
    number = as_number(value)
    return shown_value(value) if number is None else number


# Policies of augmentation written as texts: `rand-m9-mstd0.5-inc1` of timm is `randaug-inc1-m9` of MindCV.

_PART = re.compile(r"([A-Za-z]+)(\d.*)?$")


def plain_policy(text: str, policies: Iterable[Policy]) -> str:
    """A policy in one form: its common name, then its parts in order, those too that its program fills in.

    A text of no known policy, or with a part that is not understood, stays as it is.

    >>> from align.rules.hyperparameter_rules import hyperparameter_rules
    >>> plain_policy("randaug-m7", hyperparameter_rules().parameter("auto_augment").policies)
    'rand-m7-mmax10-mstd0.5-n2-p0.5'
    """
    name, *parts = text.strip().lower().split("-")
    policy = next((one for one in policies if one.name == name), None)
    given = [_PART.match(part) for part in parts]
    if policy is None or not all(given):
        return text
    held: dict[str, str] = {key: _number(str(value)) for key, value in policy.parts.items()}
    held |= {found[1]: "" if found[1] in policy.flags else _number(found[2] or "") for found in given if found}
    return "-".join([policy.same, *_joined(held)])


def _joined(held: dict[str, str]) -> Iterator[str]:
    return (key + value for key, value in sorted(held.items()))


def _number(text: str) -> str:
    """A number in its shortest form: 0.50 is 0.5, 9.0 is 9."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text
