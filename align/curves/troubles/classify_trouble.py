"""The first class of trouble that applies to two curves, and what to run next as far as their logs allow it.

A learning rate that differs comes before all that it may have caused: it is known to be wrong, and cheap to look at.
A small difference of the first loss is as a rule the cause of what differs later: unless the first losses agree to
rounding, the forward pass comes next. Runs of the reference with other seeds never agree at first, so there that says
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.metric_names import same_metric
from align.curves.troubles import event_rules as events
from align.curves.troubles.loss_troubles import RATES, TROUBLES
from align.curves.troubles.metric_troubles import METRIC_TROUBLES, comes_from
from align.curves.troubles.trouble_start import find_trouble_start

if TYPE_CHECKING:
    from align.curves.curve_result import OtherMetric
    from align.curves.troubles.curve_evidence import CurveEvidence
    from align.curves.troubles.loss_troubles import Trouble

THEN = "; then "
SPOKEN = {"lr": "the learning rate", "grad_norm": "the gradient norm", "loss_scale": "the loss scale"}


def classify_trouble(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    table = TROUBLES if evidence.of_loss else METRIC_TROUBLES
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usable = (one for one in table if not one.of_values or not evidence.failed <= {"holes", "length"})
        found = ((trouble, trouble.shows_at(evidence)) for trouble in usable)
        trouble, step = next((trouble, step) for trouble, step in found if step is not None)
    command = _as_logs_allow(_filled(trouble.next_command, evidence, step), evidence)
    return trouble.name, THEN.join(_in_order(trouble, command.split(THEN), evidence))


def _in_order(trouble: Trouble, commands: list[str], evidence: CurveEvidence) -> list[str]:
    """Put before a class's own commands what may have caused it: learning rates that differ, and the forward pass."""
    rate = events.differing_rate(evidence) if evidence.of_loss and trouble.rates_first else None
    if rate is None:
        return [*_forward_first(trouble, evidence), *commands]
    told = [one for one in commands if one.startswith(f"{RATES} #")] or [f"{RATES} # they differ{_where(rate)}"]
    others = [one for one in commands if not one.startswith(RATES)]
    return [*told[:1], *_forward_first(trouble, evidence), *others]


def _forward_first(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return the forward pass as the command, unless the first losses are known to agree or say nothing."""
    if not trouble.forward_first or not evidence.of_loss or evidence.first_agrees or evidence.run_noise is not None:
        return []
    reason = "differ by more than rounding" if evidence.first_compared else "could not be compared"
    return [f"align forward REFERENCE CANDIDATE, as the losses of step 1 {reason}"]


def _where(rate: OtherMetric) -> str:
    first, last = rate.first_divergent_step, rate.last_divergent_step
    if first is None:
        return ""
    return f" from step {first} on" if last is None else f" from step {first} to {last}"


def _filled(command: str, evidence: CurveEvidence, step: int) -> str:
    """Put in the steps and options that a command names."""
    named = {
        "step": str(step),
        "before": str(step - 1),
        "shift_option": evidence.shift_option,
        "behind": evidence.update_behind or "",
        "steps_per": evidence.steps_per,
        "window": evidence.window,
        "comes_from": comes_from(evidence.metric),
    }
    if "{batches}" in command:
        beginning = find_trouble_start(evidence, step)
        named |= {"well": str(beginning.before), "batches": beginning.batches}
    for name, text in named.items():
        command = command.replace(f"{{{name}}}", text)
    return command


def _as_logs_allow(command: str, evidence: CurveEvidence) -> str:
    """Say what both logs would have to hold where a command compares what they do not."""
    shared = {same_metric(one.metric) for one in evidence.beside.others}
    for metric, spoken in SPOKEN.items():
        if metric not in shared:
            compared = f"align loss REFERENCE CANDIDATE --metric {metric}"
            command = command.replace(compared, f"log {spoken} on both sides for {compared}")
    return command
