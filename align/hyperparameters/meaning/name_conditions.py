"""When a name means its parameter: the value that it asks for, and what stands beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.hyperparameters.meaning.setting_values import as_number, is_given, listed_values, same_value
from align.rules.hyperparameter_rules import fits_name, plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.hyperparameters.settings_format import Setting, Value
    from align.rules.hyperparameter_rules import Parameter, SpelledName

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
