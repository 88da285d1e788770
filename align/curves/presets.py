"""What two curves of a metric may differ by, as named presets with their source.

Published limits were made for losses of about 1 to 10: an absolute limit that is a good part of the loss itself would
pass anything, so it is held to a tenth of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isinf
from typing import TYPE_CHECKING

from align.curves.criteria_thresholds import SHARE_OF_LOSS
from align.curves.metric_names import is_loss, same_metric
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_ASKED = inf


@dataclass(frozen=True, slots=True)
class CurveLimits:
    """Bounds on the first difference, on the mean and on every single one; each passes below its absolute or relative.

    `source` is a text of the user's, or the key of one of `SOURCES`, which `limits_for` puts in its place.
    A bound of 0 leaves only the other one, both 0 ask for equality, both infinite for nothing. `points` is how many
    common points the source asks for before the mean means much. `drift`: a drift fails, however small it is.
    """

    source: str
    first_abs: float = NOT_ASKED
    first_rel: float = NOT_ASKED
    mean_abs: float = NOT_ASKED
    mean_rel: float = NOT_ASKED
    every_abs: float = NOT_ASKED
    every_rel: float = NOT_ASKED
    points: int = 1
    drift: bool = False

    def asks(self, what: str) -> bool:
        """Tell whether there are bounds for "first", "mean" or "every"."""
        return not (isinf(getattr(self, f"{what}_abs")) and isinf(getattr(self, f"{what}_rel")))

    def of_each(self) -> tuple[float, float]:
        """Return the absolute and the relative bound that a single point is shown against."""
        return (self.every_abs, self.every_rel) if self.asks("every") else (self.mean_abs, self.mean_rel)


SOURCES = frozenset(
    {
        "limits_source.own_default",
        "limits_source.mindformers",
        "limits_source.printed_digits",
        "limits_source.openrlhf",
        "limits_source.megatron",
        "limits_source.reprod_log",
    }
)
OTHER = CurveLimits("limits_source.own_default", first_abs=0.0, first_rel=0.01, mean_abs=0.0, mean_rel=0.01)
_MINDFORMERS = "limits_source.mindformers"
GRADIENT_NORM = CurveLimits(_MINDFORMERS, first_abs=0.0, first_rel=0.1, mean_abs=0.0, mean_rel=0.1, points=1000)


@dataclass(frozen=True, slots=True)
class Preset:
    """Limits under a name: those of a loss, of metrics by the name under which they are compared, of all others."""

    name: str
    loss: CurveLimits
    metrics: Mapping[str, CurveLimits] = field(default_factory=lambda: {"grad_norm": GRADIENT_NORM})
    other: CurveLimits = OTHER


GUIDE = Preset(
    "guide",
    CurveLimits(_MINDFORMERS, first_abs=0.005, first_rel=0.005, mean_abs=0.01, mean_rel=0.01, points=1000),
)
_EXACT = CurveLimits("limits_source.printed_digits", first_abs=0.0, first_rel=0.0, every_abs=0.0, every_rel=0.0)
PRESETS: Mapping[str, Preset] = {
    one.name: one
    for one in (
        GUIDE,
        Preset("exact", _EXACT, metrics={}, other=_EXACT),
        # Its formula takes the mean of absolute differences and calls it 2 %.
        Preset("openrlhf", CurveLimits("limits_source.openrlhf", mean_abs=0.02, mean_rel=0.0)),
        Preset("megatron", CurveLimits("limits_source.megatron", every_abs=0.0, every_rel=0.05)),
        Preset("reprod_log", CurveLimits("limits_source.reprod_log", every_abs=1e-6, every_rel=0.0)),
    )
}


def find_preset(name: str, own: Mapping[str, Preset] | None = None) -> Preset:
    """Return a preset by its name, one of the user's `own` or a known one; raises UsageError."""
    known = {**PRESETS, **(own or {})}
    if name not in known:
        raise UsageError.of("log_usage.preset", name=name, known=sorted(known))
    return known[name]


def limits_for(metric: str, loss_scale: float, preset: Preset = GUIDE) -> CurveLimits:
    """Return the limits for a metric whose reference is `loss_scale` large on average (in the metric's unit)."""
    named = preset.metrics.get(same_metric(metric))
    if named is not None:
        return _worded(named)
    return _held(_worded(preset.loss), SHARE_OF_LOSS * loss_scale) if is_loss(metric) else _worded(preset.other)


def _worded(limits: CurveLimits) -> CurveLimits:
    return replace(limits, source=sentence(limits.source)) if limits.source in SOURCES else limits


def _held(limits: CurveLimits, largest: float) -> CurveLimits:
    first, mean, every = (
        largest if largest < bound < NOT_ASKED else bound
        for bound in (limits.first_abs, limits.mean_abs, limits.every_abs)
    )
    held = replace(limits, first_abs=first, mean_abs=mean, every_abs=every)
    if held == limits:
        return limits
    return replace(held, source=sentence("limits_source.held", source=limits.source, share=SHARE_OF_LOSS))
