"""What two trainings are set to, side by side: what differs, what cannot be told, and what only one side gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.core.verdicts import ShownResult

if TYPE_CHECKING:
    from align.core.verdicts import Verdict

ValueOrigin = Literal["given", "default", "derived", "not given"]


@dataclass(frozen=True, slots=True)
class SideValue:
    """The value of one side: as it is shown, as it is spelled there, `file:line` or the address of a default.

    `how` says how a derived value was computed.
    """

    value: str
    spelled: str
    place: str
    origin: ValueOrigin
    how: str


@dataclass(frozen=True, slots=True)
class ComparedHyperparameter:
    """One parameter on both sides; `why` says what it does to a loss, or why it cannot be compared."""

    parameter: str
    title: str
    group: str
    reference: SideValue
    candidate: SideValue
    why: str


@dataclass(frozen=True, slots=True)
class OneSidedHyperparameter:
    """A setting that one side alone gives, and for which no default of the other is known."""

    side: Literal["reference", "candidate"]
    parameter: str
    title: str
    known: bool
    value: SideValue


@dataclass(frozen=True, slots=True)
class SettingsSide:
    """What was read of a side: forms of its files, the trainer that its names tell ("" if none), how many settings."""

    label: str
    formats: tuple[str, ...]
    trainer: str
    settings: int


@dataclass(frozen=True, slots=True)
class HyperparameterComparison(ShownResult):
    """Both sides' settings; `differences` stand in the order of what they do to a loss.

    `without_effect` differ and change rounding, speed or what is printed; `unsettled` cannot be compared as they stand.
    """

    result_kind = "hyperparameters"
    reference: SettingsSide
    candidate: SettingsSide
    differences: tuple[ComparedHyperparameter, ...]
    unsettled: tuple[ComparedHyperparameter, ...]
    without_effect: tuple[ComparedHyperparameter, ...]
    one_sided: tuple[OneSidedHyperparameter, ...]
    equal: tuple[ComparedHyperparameter, ...]
    verdict: Verdict
