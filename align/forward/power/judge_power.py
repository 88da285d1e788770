"""Agreement without sensitivity is no alignment: what was measured of a comparison's power joins its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.core.verdicts import Outcome

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
    for what, factors in (("the model's outputs", of_model), ("all compared layers", [factor for _, factor in moved])):
        if factors and max(factors) <= 1.0:
            reason = (
                f"could not tell: {what} agree, but other inputs move them by {max(factors):.2g} of their limit only"
            )
            return replace(verdict, outcome=Outcome.NOT_COMPARED, reason=reason)
    blind = sum(one.state == "blind" for one in power.parameters)
    notes = [f"{counted(blind, 'parameter')} of the reference show in none of them"] if blind else []
    notes += [] if moved else ["whether they depend on the inputs could not be measured"]
    return replace(verdict, reason="; ".join([verdict.reason, *notes]))
