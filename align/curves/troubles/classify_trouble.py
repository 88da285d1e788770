"""The first class of trouble that applies to two curves, and what to run next as far as their logs allow it.

A learning rate that differs comes before all that it may have caused: it is known to be wrong, and cheap to look at.
A small difference of the first loss is as a rule the cause of what differs later: unless the first losses agree to
rounding, the forward pass comes next. Runs of the reference with other seeds never agree at first, so there that says
nothing.

The first class that applies is the answer, so the order of a table is that of the search: a curve with NaN says
nothing about drift. A new class is one more row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.loss_commands import compare_logs
from align.curves.metric_names import same_metric
from align.curves.trouble_thresholds import ANOTHER_FACTOR, COURSE_POINTS, SAME_FACTOR
from align.curves.troubles import difference_rules as gaps
from align.curves.troubles import event_rules as events
from align.curves.troubles import next_commands as commands
from align.curves.troubles import noise_rules as noise
from align.curves.troubles import shape_rules as rules
from align.curves.troubles.next_commands import RATES, forward_first, rates_differ
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.curve_result import TroubleName
    from align.curves.troubles.curve_evidence import CurveEvidence

# Metrics that are set, not measured.
SET = frozenset({"lr", "loss_scale"})


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


def classify_trouble(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    table = TROUBLES if evidence.of_loss else METRIC_TROUBLES
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usable = (one for one in table if not one.of_values or not evidence.failed <= {"holes", "length"})
        found = ((trouble, trouble.shows_at(evidence)) for trouble in usable)
        trouble, step = next((trouble, step) for trouble, step in found if step is not None)
    parts = _in_order(trouble, trouble.next_commands(evidence, step), evidence)
    command = sentence("loss_next.one_after_another", parts=parts) if len(parts) > 1 else parts[0] if parts else ""
    return trouble.name, command


def _in_order(trouble: Trouble, commands: list[str], evidence: CurveEvidence) -> list[str]:
    """Put before a class's own commands what may have caused it: learning rates that differ, and the forward pass."""
    rate = events.differing_rate(evidence) if evidence.of_loss and trouble.rates_first else None
    if rate is None:
        return [*_forward_first(trouble, evidence), *commands]
    looked_at = compare_logs(RATES)
    of_rates = [one for one in commands if one.startswith(f"{looked_at} #")] or [rates_differ(rate)]
    others = [one for one in commands if not one.startswith(looked_at)]
    return [*of_rates[:1], *_forward_first(trouble, evidence), *others]


def _forward_first(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return the forward pass as the command, unless the first losses are known to agree or say nothing."""
    if not trouble.forward_first or not evidence.of_loss or evidence.first_agrees or evidence.run_noise is not None:
        return []
    return [forward_first(compared=evidence.first_compared)]


def _if(key: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that only one criterion has to fail."""
    return lambda evidence: 1 if key in evidence.failed else None


def _unlike_epochs(evidence: CurveEvidence) -> int | None:
    return evidence.parted_at if evidence.unlike_epochs else None


def _behind(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.update_behind and evidence.failed & {"first", "mean"} else None


def _ratio(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.steps_per else None


def _unsaid_means(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.window and evidence.failed & {"first", "mean", "every", "drift"} else None


def _shifted(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.shift_option and evidence.failed & {"first", "mean"} else None


TROUBLES = (
    Trouble("persistent overflow", events.overflows, commands.of_overflow, rates_first=False, of_values=False),
    Trouble("NaN", events.not_finite, commands.of_nan, forward_first=False, of_values=False),
    Trouble("a multiple of the reference", gaps.is_multiple, commands.of_multiple, forward_first=False),
    Trouble("counted one step apart", _shifted, commands.of_shift, forward_first=False, rates_first=False),
    Trouble("an update behind", _behind, commands.of_update_behind, forward_first=False, rates_first=False),
    Trouble("steps of unlike batches", _ratio, commands.of_ratio, forward_first=False, rates_first=False),
    Trouble(
        "means against single steps", _unsaid_means, commands.of_unsaid_means, forward_first=False, rates_first=False
    ),
    Trouble("gradients not finite", events.gradients_not_finite, commands.of_gradients, forward_first=False),
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
    Trouble("epochs of unlike length", _unlike_epochs, commands.of_unlike_epochs, forward_first=False),
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


def _ahead(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.ahead == "candidate" and _differs(evidence) else None


def _metric_behind(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.ahead == "reference" and _differs(evidence) else None


def _another_factor(evidence: CurveEvidence) -> int | None:
    """All values are the reference's times one factor, but for their digits."""
    points = evidence.points
    size = np.abs(points.reference)
    if len(size) < COURSE_POINTS or not size.all():
        return None
    factors = points.candidate / points.reference
    middle = float(np.median(factors))
    same = np.abs(factors - middle) <= SAME_FACTOR * abs(middle) + points.widening / size
    return int(points.steps[0]) if same.all() and abs(middle - 1.0) > ANOTHER_FACTOR else None


def _metric_noise(evidence: CurveEvidence) -> int | None:
    return None if same_metric(evidence.metric) in SET else noise.other_noise(evidence)


def _from_the_first(evidence: CurveEvidence) -> int | None:
    return evidence.parted_at if evidence.parted_at == evidence.pairs.steps[0] and _differs(evidence) else None


def _later(evidence: CurveEvidence) -> int | None:
    return evidence.parted_at if _differs(evidence) else None


def _differs(evidence: CurveEvidence) -> bool:
    return not evidence.failed <= {"non-finite", "holes", "length"}


_BY_NAME = {trouble.name: trouble for trouble in TROUBLES}


# A learning rate is set and not found by training, so it has no plateau and no noise. The next command leads on to what
# such a metric comes from, and never is the one that was just run.
METRIC_TROUBLES = (
    Trouble("NaN", events.not_finite, commands.metric_nan, of_values=False),
    _BY_NAME["counted one step apart"],
    Trouble("a step ahead", _ahead, commands.metric_ahead),
    Trouble("a step behind", _metric_behind, commands.metric_behind),
    Trouble("another factor", _another_factor, commands.metric_factor),
    Trouble("noise of its own", _metric_noise, commands.metric_noise),
    Trouble("differs from the beginning", _from_the_first, commands.metric_source),
    Trouble("differs later", _later, commands.metric_later),
    _BY_NAME["points missing"],
    _BY_NAME["broken off"],
    Trouble("differs", lambda _: 1, commands.metric_source),
)
