"""What a comparison has found so far, and how a side of a row is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.hyperparameters.hyperparameter_result import ComparedHyperparameter, OneSidedHyperparameter, SideValue
from align.hyperparameters.meaning.setting_values import shown_value

if TYPE_CHECKING:
    from align.hyperparameters.meaning.held_values import Held

NOT_GIVEN = SideValue("", "", "", "not given", "")


@dataclass(slots=True)
class Comparison:
    """What a comparison has found so far, by kind, with the order of each."""

    differs: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    unsettled: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    without_effect: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    equal: list[tuple[int, ComparedHyperparameter]] = field(default_factory=list)
    one_sided: list[tuple[int, OneSidedHyperparameter]] = field(default_factory=list)


def side_value(held: Held | None, unit: str = "") -> SideValue:
    """What is shown of a side; names of choices as they are spelled, since the common form is for comparing only."""
    if held is None:
        return NOT_GIVEN
    is_name = isinstance(held.value, str) and not held.how
    value = f"{held.text if is_name else shown_value(held.value)} {unit}".strip()
    return SideValue(value, held.text, held.place, held.origin, held.how)
