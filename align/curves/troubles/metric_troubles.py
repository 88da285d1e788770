"""Classes of trouble of what is no loss: learning rate, gradient norm, loss scale, accuracy.

A learning rate is set and not found by training, so it has no plateau and no noise. What is told is how such a metric
differs and since when; the next command leads on to what it comes from, and never is the one that was just run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.metric_names import same_metric
from align.curves.trouble_thresholds import ANOTHER_FACTOR, COURSE_POINTS, SAME_FACTOR
from align.curves.troubles import event_rules as events
from align.curves.troubles import next_commands as commands
from align.curves.troubles import noise_rules as noise
from align.curves.troubles.loss_troubles import TROUBLES, Trouble

if TYPE_CHECKING:
    from align.curves.troubles.curve_evidence import CurveEvidence

# Metrics that are set, not measured.
SET = frozenset({"lr", "loss_scale"})


def _ahead(evidence: CurveEvidence) -> int | None:
    return 1 if evidence.ahead == "candidate" and _differs(evidence) else None


def _behind(evidence: CurveEvidence) -> int | None:
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


def _noise(evidence: CurveEvidence) -> int | None:
    return None if same_metric(evidence.metric) in SET else noise.other_noise(evidence)


def _from_the_first(evidence: CurveEvidence) -> int | None:
    return evidence.parted_at if evidence.parted_at == evidence.pairs.steps[0] and _differs(evidence) else None


def _later(evidence: CurveEvidence) -> int | None:
    return evidence.parted_at if _differs(evidence) else None


def _differs(evidence: CurveEvidence) -> bool:
    return not evidence.failed <= {"non-finite", "holes", "length"}


_BY_NAME = {trouble.name: trouble for trouble in TROUBLES}
METRIC_TROUBLES = (
    Trouble("NaN", events.not_finite, commands.metric_nan, of_values=False),
    _BY_NAME["counted one step apart"],
    Trouble("a step ahead", _ahead, commands.metric_ahead),
    Trouble("a step behind", _behind, commands.metric_behind),
    Trouble("another factor", _another_factor, commands.metric_factor),
    Trouble("noise of its own", _noise, commands.metric_noise),
    Trouble("differs from the beginning", _from_the_first, commands.metric_source),
    Trouble("differs later", _later, commands.metric_later),
    _BY_NAME["points missing"],
    _BY_NAME["broken off"],
    Trouble("differs", lambda _: 1, commands.metric_source),
)
