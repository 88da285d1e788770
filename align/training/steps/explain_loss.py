"""Why the loss gives another gradient for the same outputs: a setting that is tried, or one factor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.protocols import LayerRebuilder
from align.errors import CannotRunError, UserCodeError
from align.lint.compare_losses import compare_losses
from align.models.open_side import Side
from align.rules.pitfalls import pitfalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.protocols import Model
    from align.lint.lint_result import SettingFinding
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit

LEFT = 1e-3  # of a factor: far above rounding, far below the next number of samples


def explain_loss(
    culprit: StepCulprit,
    sides: tuple[TrainingSide, TrainingSide],
    samples: int,
    agrees_with: Callable[[Model], bool],
) -> StepCulprit:
    """Name the settings that differ, "confirmed" if the candidate's loss agrees once it is built with the reference's.

    `samples` is the length of the batch, `agrees_with(loss)` takes the step with another loss.
    """
    findings = _settings(sides)
    if findings:
        rebuilt = _rebuilt(sides[1], findings)
        confirmed = rebuilt is not None and agrees_with(rebuilt)
        told = {one.setting: f"{one.reference_setting} vs {one.candidate_setting}" for one in findings}
        return replace(
            culprit,
            cause=" + ".join(one.rule for one in findings),
            facts={**culprit.facts, **told},
            change="; ".join(one.change for one in findings),
            sureness="confirmed" if confirmed else "suspected",
        )
    factor = culprit.facts.get("factor")
    if isinstance(factor, (int, float)) and samples > 1 and _is_one_of(float(factor), samples):
        return replace(culprit, cause="mean-against-sum", facts={**culprit.facts, "samples": samples})
    return culprit


def _is_one_of(factor: float, samples: int) -> bool:
    return abs(factor / samples - 1.0) < LEFT or abs(factor * samples - 1.0) < LEFT


def _settings(sides: tuple[TrainingSide, TrainingSide]) -> list[SettingFinding]:
    """Settings that differ, of losses that both are modules of a framework."""
    losses = [Side(side.label, side.training.loss, side.side.reader) for side in sides]
    if not all(side.side.reader.owns(side.training.loss) for side in sides):
        return []
    return [one for one in compare_losses((losses[0], losses[1]), pitfalls()).findings if one.severity == "error"]


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
