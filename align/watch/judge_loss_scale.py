"""From what a loss scale did to what it means: coming down, overflowing on and on, or a loss that is no number."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from align.watch.dump_thresholds import PERSISTENT_OVERFLOWS, SMALLEST_USEFUL_SCALE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.models.loop_watcher import ScaleFlow
    from align.watch.loss_scale_result import OverflowPlace, ScaleStep, ScaleTrouble


def judge_loss_scale(
    steps: Sequence[ScaleStep], flow: ScaleFlow, place: OverflowPlace | None
) -> tuple[ScaleTrouble, str]:
    """The trouble, and what is said of it with what to do."""
    trouble = _trouble(steps)
    overflowed = [one for one in steps if one.overflow]
    first = overflowed[0] if overflowed else next((one for one in steps if _lost(one)), None)
    facts = {
        "flow": flow.name,
        "count": len(overflowed),
        "total": len(steps),
        "run": _last_run(steps),
        "first": first.iteration if first else 0,
        "scale": steps[-1].scale if steps else 1.0,
        "first_scale": first.scale if first else 1.0,
        "where": _where(place),
    }
    key = trouble
    if trouble == "persistent":
        key = "persistent_at_floor" if steps[-1].scale <= SMALLEST_USEFUL_SCALE else trouble  # type: ignore[assignment]
        key = key if flow.dynamic or steps[-1].scale <= SMALLEST_USEFUL_SCALE else "persistent_fixed"  # type: ignore[assignment]
    return trouble, sentence(f"scale_trouble.{key}", **facts)


def _trouble(steps: Sequence[ScaleStep]) -> ScaleTrouble:
    overflowed = [one for one in steps if one.overflow]
    if any(_lost(one) for one in steps) and (not overflowed or _lost(overflowed[0])):
        return "diverged"
    if not overflowed:
        return "none"
    if any(one.updated for one in overflowed):
        return "applied"
    if _last_run(steps) >= PERSISTENT_OVERFLOWS:
        return "diverged" if _lost(steps[-1]) else "persistent"
    leading = next((number for number, one in enumerate(steps) if not one.overflow), len(steps))
    return "settling" if leading == len(overflowed) else "occasional"


def _lost(one: ScaleStep) -> bool:
    return one.loss is not None and not isfinite(one.loss)


def _last_run(steps: Sequence[ScaleStep]) -> int:
    """How many iterations overflowed one after another at the end."""
    return next((number for number, one in enumerate(reversed(steps)) if not one.overflow), len(steps))


def _where(place: OverflowPlace | None) -> str:
    if place is None:
        return ""
    if place.layer is None:
        return sentence("scale_trouble.in_parameters", names=[*place.parameters])
    layer = place.layer or sentence("model_part.model_itself")
    facts = {"layer": layer, "class_name": place.class_name, "before": place.before}
    return sentence(f"scale_trouble.in_{place.direction}", **facts)
