"""Agreement without sensitivity is no alignment: what was measured of a comparison's power joins its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.verdicts import Outcome
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from align.core.verdicts import Verdict
    from align.forward.power_result import Power


def with_power(verdict: Verdict, power: Power) -> Verdict:
    """The verdict, with "aligned" taken back where what was compared could not tell.

    That is where no output of the model moves by more than its limit if an input is replaced by an unrelated one, or
    no compared tensor at all does. Blind parameters keep it, and are counted; so is what was not measured.
    """
    if verdict.outcome is not Outcome.ALIGNED:
        return verdict
    moved = [(one, one.factor) for one in power.outputs if one.factor is not None]
    of_model = [factor for one, factor in moved if not one.module]
    judged = {
        "forward_verdict.outputs_hardly_move": of_model,
        "forward_verdict.layers_hardly_move": [factor for _, factor in moved],
    }
    for key, factors in judged.items():
        if factors and max(factors) <= 1.0:
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=sentence(key, factor=max(factors)))
    blind = sum(one.state == "blind" for one in power.parameters)
    notes = [sentence("forward_verdict.blind_parameters", count=blind)] if blind else []
    notes += [] if moved else [sentence("forward_verdict.power_unmeasured")]
    return replace(verdict, reason=joined("; ", [verdict.reason, *notes]))
