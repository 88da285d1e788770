"""The batches of both data pipelines: no command compares them yet."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from align.runs.rung import (
    Culprit,
    Judgement,
    Missing,
    Plan,
    Rung,
    explain_steps,
    first_missing,
    judge_loss,
    judge_steps,
    judged_by_verdict,
    plan_steps,
    shown,
    source,
    trainings,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.runs.project_file import Project


def _plan_data(_project: Project, _run: Path) -> Missing:
    return Missing(sentence("ladder.no_data"))


DATA = Rung("data", 50, plan=_plan_data, judge=judged_by_verdict, summary="batches of both data pipelines")


# The loss of a fixed batch: `align step` compares it first.

LOSS = Rung(
    "loss",
    80,
    plan=plan_steps,
    kinds=("step",),
    summary="the loss of a fixed batch",
    judge=judge_loss,
    needs=("parameters",),
)


# Gradients of every layer and parameter: `align step`.

GRADIENTS = Rung(
    "gradients",
    90,
    plan=plan_steps,
    kinds=("step",),
    summary="gradients of every layer and parameter",
    judge=partial(judge_steps, kinds=("forward", "backward", "gradients", "buffer"), compared="gradients"),
    needs=("parameters",),
    explain=explain_steps,
)


# What the optimizer does with right gradients: `align step`.

OPTIMIZER = Rung(
    "optimizer",
    100,
    plan=plan_steps,
    kinds=("step",),
    summary="what the optimizer makes of them",
    judge=partial(judge_steps, kinds=("update",), compared="updates"),
    needs=("parameters",),
    explain=explain_steps,
)


# Whether a side gives the same twice: `align check-determinism`.


def _plan_determinism(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference training", "candidate training", "training batch"):
        return missing
    read = {"reference": str(project.reference.training), "candidate": str(project.candidate.training)}
    batch = project.batches[0]
    command = ("check-determinism", *trainings(project), "--batch", source(batch), "--run", shown(run))
    return Plan("determinism", (command,), {**read, "batch": batch})


DETERMINISM = Rung(
    "determinism",
    12,
    plan=_plan_determinism,
    judge=judged_by_verdict,
    optional=True,
    kinds=("determinism",),
    summary="whether each side repeats itself",
)


# Two loss logs on one axis: `align loss`.


def _plan_curve(project: Project, run: Path) -> Plan | Missing:
    if missing := first_missing(project, "reference log", "candidate log"):
        return missing
    logs = {side: getattr(project, side).log for side in ("reference", "candidate")}
    own = ["--project", shown(project.file)] if project.file else []
    command = ("loss", *map(shown, logs.values()), *own, "--run", shown(run))
    read: dict[str, Path | str] = {f"{side} log": log for side, log in logs.items()}
    return Plan("loss", (command,), read | ({"project": project.file} if project.file else {}))


def _judge(document: Mapping[str, Any]) -> Judgement:
    step = document["first_divergent_step"]
    place = "" if step is None else sentence("ladder.step", step=step)
    found = (Culprit(place, str(document["trouble"] or "")),) if place else ()
    return judged_by_verdict(document, found)


CURVE = Rung("curve", 110, plan=_plan_curve, judge=_judge, kinds=("loss",), summary="the loss curves of two trainings")

PLUGINS = (
    DATA,
    LOSS,
    GRADIENTS,
    OPTIMIZER,
    DETERMINISM,
    CURVE,
)
