"""What the optimizer does with right gradients: `align step`."""

from __future__ import annotations

from functools import partial

from align.runs.rung import Rung
from align.runs.training_steps import explain_steps, judge_steps, plan_steps

PLUGIN = Rung(
    "optimizer",
    100,
    plan=plan_steps,
    kinds=("step",),
    summary="what the optimizer makes of them",
    judge=partial(judge_steps, kinds=("update",), compared="updates"),
    needs=("parameters",),
    explain=explain_steps,
)
