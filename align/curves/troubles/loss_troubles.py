"""Classes of trouble of two loss curves: what tells each, and what to run next.

The first class that applies is the answer, so the order is that of the search: a curve with NaN says nothing about
drift. A new class is one more row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from align.curves.troubles import difference_rules as gaps
from align.curves.troubles import event_rules as events
from align.curves.troubles import next_commands as commands
from align.curves.troubles import noise_rules as noise
from align.curves.troubles import shape_rules as rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.curve_result import TroubleName
    from align.curves.troubles.curve_evidence import CurveEvidence


class Trouble(NamedTuple):
    """One class: its name, the rule that returns the step at which it shows (or None), what to run next then.

    `forward_first` and `rates_first`: it can come from the forward pass, or from the learning rate, which are looked
    at first where they are not known to agree. `of_values`: it needs values that differ, not only steps that one log
    lacks.
    """

    name: TroubleName
    shows_at: Callable[[CurveEvidence], int | None]
    next_commands: Callable[[CurveEvidence, int], list[str]]
    forward_first: bool = True
    rates_first: bool = True
    of_values: bool = True


def _if(key: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that only one criterion has to fail."""
    return lambda evidence: 1 if key in evidence.failed else None


def _behind(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.update_behind and evidence.failed & {"first", "mean"} else None


def _ratio(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.steps_per else None


def _unsaid_means(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.window and evidence.failed & {"first", "mean", "every", "drift"} else None


def _shifted(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.shift_option and evidence.failed & {"first", "mean"} else None


TROUBLES = (
    Trouble("persistent overflow", events.overflows, commands.of_overflow, of_values=False),
    Trouble("NaN", events.not_finite, commands.of_nan, of_values=False),
    Trouble("counted one step apart", _shifted, commands.of_shift, forward_first=False, rates_first=False),
    Trouble("an update behind", _behind, commands.of_update_behind, forward_first=False, rates_first=False),
    Trouble("steps of unlike batches", _ratio, commands.of_ratio, forward_first=False, rates_first=False),
    Trouble(
        "means against single steps", _unsaid_means, commands.of_unsaid_means, forward_first=False, rates_first=False
    ),
    Trouble("noise of another size", noise.noise_of_other_size, commands.of_noise_size),
    Trouble("noise of its own", noise.other_noise, commands.of_other_noise),
    Trouble("first loss differs", rules.first_differs, commands.of_first_loss, forward_first=False),
    Trouble("constant loss", rules.stands_still, commands.of_constant_loss),
    Trouble("not descending", rules.does_not_descend, commands.of_no_descent),
    Trouble("differs from the second step", rules.parts_at_once, commands.of_second_step),
    Trouble("explosion", rules.explodes, commands.of_explosion),
    Trouble("spike", rules.spikes, commands.of_spike),
    Trouble("differs from a change of the learning rate", events.boundary, commands.of_rate_change),
    Trouble("rising", rules.rises, commands.of_rise),
    Trouble("slower than the reference", gaps.converges_slower, commands.of_slower),
    Trouble("plateau above the reference", gaps.stays_above, commands.of_plateau),
    Trouble("stays below the reference", gaps.stays_below, commands.of_below),
    Trouble("slow drift", gaps.drifts, commands.of_drift),
    Trouble("rounding that grows", noise.rounding_that_grows, commands.of_rounding),
    Trouble("differs later", rules.differs_later, commands.of_later),
    Trouble(
        "points missing", _if("holes"), commands.of_missing, forward_first=False, rates_first=False, of_values=False
    ),
    Trouble("broken off", _if("length"), commands.of_length, forward_first=False, rates_first=False, of_values=False),
    Trouble("differs", lambda _: 1, commands.of_nothing, forward_first=False, rates_first=False, of_values=False),
)
