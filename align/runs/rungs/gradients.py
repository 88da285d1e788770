"""Gradients of every layer and parameter: `align step`."""

from __future__ import annotations

from functools import partial

from align.runs.rung import Rung
from align.runs.training_steps import explain_steps, judge_steps, plan_steps

PLUGIN = Rung(
    "gradients",
    90,
    plan=plan_steps,
    kinds=("step",),
    summary="gradients of every layer and parameter",
    judge=partial(judge_steps, kinds=("forward", "backward", "gradients", "buffer"), compared="gradients"),
    needs=("parameters",),
    explain=explain_steps,
)
