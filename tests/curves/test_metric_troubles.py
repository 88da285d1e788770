"""Classes of what is no loss: by how much and since when it differs, and a step ahead only if the losses are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.curves.evaluate_criteria import OtherMetrics
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves

if TYPE_CHECKING:
    from align.curves.loss_log import CurveComparison

STEPS = 300
AT = np.arange(STEPS)
LOSSES = 3.0 * np.exp(-AT / 80.0) + 1.0
RATES = {
    "warm-up and cosine": 1e-3 * np.minimum((AT + 1) / 40, 0.5 + 0.5 * np.cos(np.pi * AT / STEPS)),
    "steps": 0.1 * 0.1 ** (AT // 100),
    "straight": 1e-3 * (1.0 - AT / STEPS / 1.1),
}


def _curve(values: np.ndarray, metric: str = "lr") -> Curve:
    return Curve("some.log", metric, AT[: len(values)] + 1, np.asarray(values, float), np.zeros(len(values)))


def _judge(reference: np.ndarray, candidate: np.ndarray, metric: str = "lr", losses: tuple = ()) -> CurveComparison:
    left, right = _curve(reference, metric), replace(_curve(candidate, metric), base_guessed=True)
    beside = OtherMetrics(losses=tuple(_curve(one, "loss") for one in losses) or (None, None))
    return judge_curves(left, right, pair_curves(left, right), beside=beside)


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_schedule_a_step_ahead_or_behind_is_not_counted_apart_while_the_losses_agree(noise: float) -> None:
    schedule = np.append(0.0, RATES["warm-up and cosine"])[:STEPS]
    losses = LOSSES, LOSSES * (1.0 + noise * np.random.default_rng(0).standard_normal(STEPS))
    for sides, trouble in (((schedule, schedule[1:]), "a step ahead"), ((schedule[1:], schedule), "a step behind")):
        comparison = _judge(*sides, losses=losses)
        assert comparison.trouble == trouble
        assert comparison.next_command.startswith("align lint REFERENCE CANDIDATE")
        assert "-base" not in comparison.next_command


def test_a_log_whose_losses_are_a_step_apart_as_well_is_counted_so() -> None:
    schedule = np.append(0.0, RATES["warm-up and cosine"])[:STEPS]
    for losses in ((LOSSES, LOSSES[1:]), ()):
        comparison = _judge(schedule, schedule[1:], losses=losses)
        assert comparison.trouble == "counted one step apart"
        assert comparison.next_command == "align loss REFERENCE CANDIDATE --candidate-base 0"


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_another_rate_throughout_is_another_factor(rates: str, factor: float) -> None:
    assert _judge(RATES[rates], RATES[rates] * factor).trouble == "another factor"


@pytest.mark.parametrize("metric", ["lr", "grad_norm", "loss_scale", "accuracy", "mIoU"])
def test_no_class_leads_back_to_the_metric_or_to_nothing(metric: str) -> None:
    values = 8.0 + np.cos(AT)
    later, nan = np.where(AT < 100, values, values[::-1] + 20.0), np.where(AT < 100, values, np.nan)
    for candidate, trouble in (
        (values[::-1] * 3.0, "differs from the beginning"),
        (later, "differs later"),
        (nan, "NaN"),
    ):
        comparison = _judge(values, candidate, metric)
        assert comparison.trouble == trouble
        assert comparison.next_command.startswith(("align lint", "align loss REFERENCE CANDIDATE:"))
        assert "--metric" not in comparison.next_command
    assert "step 101" in _judge(values, later, metric).next_command


def test_noise_of_what_is_measured_is_noise_and_of_what_is_set_is_not() -> None:
    source = np.random.default_rng(1)
    left, right = (8.0 * (1.0 + 0.3 * source.standard_normal(STEPS)) for _ in range(2))
    assert _judge(left, right, "grad_norm").trouble == "noise of its own"
    assert _judge(left, right, "lr").trouble == "differs from the beginning"
