"""Why the loss gives another gradient for the same outputs: a setting that is tried, or one factor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.protocols import LayerRebuilder
from align.errors import CannotRunError, UserCodeError
from align.lint.compare_losses import compare_loss_settings
from align.rules.pitfalls import pitfalls
from align.training.faults.explain_cross_entropy import explain_cross_entropy
from align.training.faults.find_step_faults import LayerFaults
from align.training.steps.judge_step import StepJudge
from align.training.steps.replace_step import PairedLayers, ReplacedStep
from align.training.thresholds import SAMPLES_TOLERANCE

if TYPE_CHECKING:
    from align.core.protocols import Model
    from align.lint.lint_result import SettingFinding
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.recorded_steps import RecordedSteps


def explain_loss(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name the settings that differ, "confirmed" if the candidate's loss agrees once it is built with the reference's.

    That is tried with a live candidate: its loss takes the step on the reference's tensors.
    """
    findings = _settings(seen.sides)
    batch = seen.sides[0].batches[0]
    samples = max((value.shape[0] for value in batch.values() if value.ndim), default=0)
    if findings:
        confirmed = seen.live is not None and _agrees(seen, seen.live, findings)
        if not confirmed and (named := explain_cross_entropy(culprit, seen)) is not culprit:
            return named
        settings = {one.setting: f"{one.reference_setting} vs {one.candidate_setting}" for one in findings}
        return replace(
            culprit,
            cause=" + ".join(one.rule for one in findings),
            facts={**culprit.facts, **settings},
            change="; ".join(one.change for one in findings),
            sureness="confirmed" if confirmed else "suspected",
        )
    factor = culprit.facts.get("factor")
    if isinstance(factor, (int, float)) and samples > 1 and _is_one_of(float(factor), samples):
        return replace(culprit, cause="mean-against-sum", facts={**culprit.facts, "samples": samples})
    return culprit if culprit.cause else explain_cross_entropy(culprit, seen)


def _is_one_of(factor: float, samples: int) -> bool:
    return abs(factor / samples - 1.0) < SAMPLES_TOLERANCE or abs(factor * samples - 1.0) < SAMPLES_TOLERANCE


def _settings(sides: tuple[RecordedSteps, RecordedSteps]) -> list[SettingFinding]:
    """Settings that differ, of losses that both are modules of a framework."""
    losses = sides[0].loss, sides[1].loss
    if losses[0] is None or losses[1] is None:
        return []
    return [
        one for one in compare_loss_settings((losses[0], losses[1]), pitfalls()).findings if one.severity == "error"
    ]


def _agrees(seen: SeenSteps, candidate: TrainingSide, findings: list[SettingFinding]) -> bool:
    """Tell whether the loss with the reference's settings is right."""
    loss = _rebuilt(candidate, findings)
    if loss is None:
        return False
    judge, trace, pairs = StepJudge(seen.noise, seen.precision), seen.traces[0], seen.calls.pairs
    sink = ReplacedStep(trace, PairedLayers(trace, pairs), judge, seen.start)
    try:
        candidate.trainer.take_steps(replace(candidate.training, loss=loss), seen.sides[0].batches[:1], sink)
    except UserCodeError:
        return False
    faults = LayerFaults(pairs, {})
    faults.take(judge.seen)
    return all(one.part != "loss" for one in faults.culprits())


def _rebuilt(side: TrainingSide, findings: list[SettingFinding]) -> Model | None:
    """The candidate's loss with the reference's settings; None if it cannot be built so."""
    reader = side.side.reader
    changes = {name: value for one in findings for name, value in one.arguments.items()}
    if not isinstance(reader, LayerRebuilder) or not changes:
        return None
    try:
        return reader.rebuilt(side.training.loss, "", changes)
    except (CannotRunError, UserCodeError):
        return None
