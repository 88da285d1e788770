"""What two curves of a metric may differ by, as named presets with their source.

The loss limits are those that the migration guide of MindSpore Transformers publishes. They were made for losses of
about 1 to 10: an absolute limit that is a good part of the loss itself would pass anything, so it is held to a tenth
of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

GUIDE = "MindSpore Transformers migration guide"
SHARE_OF_LOSS = 0.1


@dataclass(frozen=True, slots=True)
class CurveLimits:
    """A difference passes below the absolute or the relative limit; an absolute limit of 0 leaves only the relative.

    `points` is how many common points the source asks for before the mean means much.
    """

    source: str
    first_abs: float
    first_rel: float
    mean_abs: float
    mean_rel: float
    points: int


LOSS = CurveLimits(GUIDE, first_abs=0.005, first_rel=0.005, mean_abs=0.01, mean_rel=0.01, points=1000)
GRADIENT_NORM = CurveLimits(GUIDE, first_abs=0.0, first_rel=0.1, mean_abs=0.0, mean_rel=0.1, points=1000)
OTHER = CurveLimits("mindalign's own default", first_abs=0.0, first_rel=0.01, mean_abs=0.0, mean_rel=0.01, points=1)
GRADIENT_NORM_NAMES = ("grad_norm", "global_norm", "gradient_norm", "train/grad_norm")


def is_loss(metric: str) -> bool:
    """Tell by its name whether a metric is a loss; `loss_scale` is none."""
    return "loss" in metric.lower() and "scale" not in metric.lower()


def limits_for(metric: str, loss_scale: float) -> CurveLimits:
    """Return the limits for a metric whose reference is `loss_scale` large on average (in the metric's unit)."""
    if metric.lower() in GRADIENT_NORM_NAMES:
        return GRADIENT_NORM
    if not is_loss(metric):
        return OTHER
    largest = SHARE_OF_LOSS * loss_scale
    if largest >= LOSS.mean_abs:
        return LOSS
    held = f"{GUIDE}, absolute limits held to {SHARE_OF_LOSS:.0%} of the mean loss"
    return replace(LOSS, source=held, first_abs=min(LOSS.first_abs, largest), mean_abs=largest)
