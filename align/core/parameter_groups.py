"""How an optimizer treats its parameters: groups that it treats alike, and their learning rates step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.core.layer_settings import LayerSettings


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rate at each of the first steps, a single one if it stays.

    `steps` is for how many steps the schedule was made, None if it does not say; `problem` is why the rates could not
    be had, `by` the class of what changes them.
    """

    values: tuple[float, ...] = ()
    steps: int | None = None
    problem: str = ""
    by: str = ""

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
