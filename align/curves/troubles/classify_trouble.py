"""The first class of trouble that applies to two curves, and what to run next as far as their logs allow it.

A learning rate that differs comes before all that it may have caused: it is known to be wrong, and cheap to look at.
A small difference of the first loss is as a rule the cause of what differs later: unless the first losses agree to
rounding, the forward pass comes next. Runs of the reference with other seeds never agree at first, so there that says
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.criteria.loss_commands import compare_logs
from align.curves.troubles import event_rules as events
from align.curves.troubles.loss_troubles import TROUBLES
from align.curves.troubles.metric_troubles import METRIC_TROUBLES
from align.curves.troubles.next_commands import RATES, forward_first, rates_differ
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.troubles.curve_evidence import CurveEvidence
    from align.curves.troubles.loss_troubles import Trouble


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
    told = [one for one in commands if one.startswith(f"{looked_at} #")] or [rates_differ(rate)]
    others = [one for one in commands if not one.startswith(looked_at)]
    return [*told[:1], *_forward_first(trouble, evidence), *others]


def _forward_first(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return the forward pass as the command, unless the first losses are known to agree or say nothing."""
    if not trouble.forward_first or not evidence.of_loss or evidence.first_agrees or evidence.run_noise is not None:
        return []
    return [forward_first(compared=evidence.first_compared)]
