"""What an emulated chip is expected to do, in a sentence, and how much of the model was emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.json_data import own_fields, to_json_data
from align.core.traces import capture_key
from align.core.verdicts import Coverage
from align.report.rendering.format_values import format_number
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping


def emulated_reason(document: dict[str, Any]) -> str:
    """Say what a `mindalign.emulate` document foresees."""
    overflows, target = document["overflows"], document["target"]
    if overflows:
        first = overflows[0]["module"] or say("emulation.output")
        return say("emulation.overflows", count=len(overflows), target=target, first=first)
    by_key = {capture_key(one["module"], one["call"], one["output"]): one for one in document["layers"]}
    worst = next((by_key[key] for key in document["at_risk"] if key in by_key), None)
    layer = (worst["module"] or say("emulation.output")) if worst else ""
    return say(
        "emulation.sound", target=target, layer=layer, error=relative_error(worst["accumulated"] if worst else None)
    )


def relative_error(figures: dict[str, Any] | None) -> str:
    """The relative error; what is NaN or Inf on one side alone has none."""
    if figures is None:
        return ""
    return "inf" if figures["non_finite_mismatch"] else format_number(figures["relative_l2"])


def emulated_coverage(document: dict[str, Any]) -> Mapping[str, Any]:
    """How many calls of layers were looked at."""
    calls = {(one["module"], one["call"]) for one in document["layers"]}
    return own_fields(to_json_data(Coverage("layers", len(calls))))
