"""The settings of live layers and optimizers: what was chosen when they were built, as plain values.

An optimizer treats its parameters in groups, each with settings and with learning rates step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from align.core.thresholds import LONGEST_SETTING, SETTING_DEPTH
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array


Setting: TypeAlias = "bool | int | float | str | tuple[Setting, ...] | None"


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """One layer or optimizer: its path, its public classes as in Module, and its public attributes of plain types.

    A tensor stands as True; what is no plain value (a function, another layer) is left out. A setting that only an
    operator inside the layer keeps has the operator's name before it: `elu.alpha`.
    """

    path: str
    classes: tuple[str, ...]
    values: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rate at each of the first steps, a single one if it stays.

    `steps` is for how many steps the schedule was made, None if it has no end; `reach` is the largest number of steps
    that it names, 0 if none. `problem` is why the rates could not be had, `by` the class of what changes them.
    """

    values: tuple[float, ...] = ()
    steps: int | None = None
    problem: str = ""
    by: str = ""
    reach: int = 0

    @property
    def scheduled(self) -> bool:
        """Tell whether the rate is changed from step to step, or may be."""
        return bool(self.by or self.problem)

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0; a single one holds for all."""
        return self.values[step if len(self.values) > 1 else 0]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that are trained alike: the settings that are in force for them, and their learning rates.

    `names` are as in ParameterSet, None where no model is known that holds them; frozen parameters, which no step
    moves, are left out. `count` is their number all the same. `problems` say what of the settings could not be read.
    """

    settings: LayerSettings
    names: tuple[str, ...] | None
    count: int
    rates: LearningRates = field(default_factory=LearningRates)
    problems: tuple[str, ...] = ()


def group_paths(count: int) -> tuple[str, ...]:
    """Names of so many groups: "" for a single one, that is the optimizer itself."""
    return tuple(f"group {number}" for number in range(count)) if count > 1 else ("",) * count


def plain_settings(attributes: Mapping[str, object]) -> dict[str, Setting]:
    """Return the public attributes that are plain, lists as tuples; long and deep lists are no settings."""
    public = {name: value for name, value in attributes.items() if not name.startswith("_")}
    return {name: _plain(value) for name, value in public.items() if _is_plain(value)}


def weights_as_setting(numbers: Array | None) -> Setting:
    """Weights of classes as a setting: the numbers, or of more than LONGEST_SETTING how many and a checksum."""
    if numbers is None:
        return None
    flat = numbers.astype("float32").reshape(-1)
    if len(flat) <= LONGEST_SETTING:
        return tuple(float(f"{number:.7g}") for number in flat)
    return sentence("setting_note.checksum", count=len(flat), checksum=crc32(flat.tobytes()))


def _is_plain(value: object, depth: int = SETTING_DEPTH) -> bool:
    if isinstance(value, (list, tuple)):
        return depth > 0 and len(value) <= LONGEST_SETTING and all(_is_plain(item, depth - 1) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _plain(value: object) -> Setting:
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value  # type: ignore[return-value]
