"""The loss of a fixed batch: `align step` compares it first."""

from __future__ import annotations

from align.runs.rung import Rung
from align.runs.training_steps import judge_loss, plan_steps

PLUGIN = Rung(
    "loss",
    80,
    plan=plan_steps,
    kinds=("step",),
    summary="the loss of a fixed batch",
    judge=judge_loss,
    needs=("parameters",),
)
