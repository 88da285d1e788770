"""What is told of a trouble beside its class: steps that logs really show, commands that they allow, runs as judges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.curves.evaluate_criteria import OtherMetrics
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve, OtherMetric, Window
from align.curves.place_on_axis import pair_curves

if TYPE_CHECKING:
    from align.curves.loss_log import CurveComparison

Values = np.ndarray
STEPS = 600
DONE = np.arange(STEPS) / STEPS
SHAPES = {
    "exponential": 2.0 * np.exp(-4.0 * DONE) + 1.0,
    "power law": 9.0 / np.sqrt(1.0 + 40.0 * DONE) + 1.0,
    "straight": 3.0 - 2.0 * DONE,
}
NOTHING = OtherMetrics()


def _noise(seed: int, size: float) -> Values:
    return size * np.random.default_rng(seed).standard_normal(STEPS)


def _curve(values: Values, metric: str = "loss", label: str = "some.log") -> Curve:
    return Curve(label, metric, np.arange(1, len(values) + 1), np.asarray(values, float), np.zeros(len(values)))


def _every(curve: Curve, every: int, *, means: bool = False) -> Curve:
    """Print every n-th point, or the means of the points since the last print."""
    kept = curve.take(slice(every - 1, None, every))
    if not means:
        return kept
    return replace(kept, values=curve.values.reshape(-1, every).mean(1), window=Window("mean of last", every))


def _judge(
    reference: Curve, candidate: Curve, runs: tuple[Curve, ...] = (), beside: OtherMetrics = NOTHING
) -> CurveComparison:
    return judge_curves(reference, candidate, pair_curves(reference, candidate), reference_runs=runs, beside=beside)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.02, 0.1])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("planted", "troubles"),
    [
        (lambda done: 0.0 * done + 0.8, {"plateau above the reference"}),
        (lambda done: 0.0 * done - 0.8, {"stays below the reference"}),
        (lambda done: 1.6 * (done - 0.5), {"slow drift"}),
    ],
)
def test_a_drift_against_runs_is_no_noise_whatever_the_mean_of_the_runs_averages_out(
    planted, troubles: set[str], seed: int, size: float, shape: str
) -> None:
    runs = tuple(_curve(SHAPES[shape] + _noise(9 * seed + i, size), label=f"run{i}.log") for i in range(6))
    candidate = _curve(SHAPES[shape] + _noise(9 * seed + 8, size) + size * planted(DONE))
    comparison = _judge(runs[0], candidate, runs)
    assert comparison.trouble in troubles
    assert "align forward" not in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_compared_with_that_of_a_run(shape: str, seed: int) -> None:
    runs = tuple(_curve(SHAPES[shape] + _noise(4 * seed + i, 0.02), label=f"run{i}.log") for i in range(3))
    larger = _judge(runs[0], _curve(SHAPES[shape] + _noise(4 * seed + 3, 0.06)), runs)
    assert larger.trouble == "noise of another size"
    assert not larger.next_command.startswith("align forward")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [205, 207, 210])
@pytest.mark.parametrize("planted", ["NaN", "spike"])
def test_the_step_of_a_trouble_is_that_of_the_log_that_prints_single_steps(planted: str, at: int, shape: str) -> None:
    losses = SHAPES[shape]
    spoiled = losses.copy()
    spoiled[at - 1 : None if planted == "NaN" else at + 2] = np.nan if planted == "NaN" else 500.0
    for reference in (_every(_curve(losses), 10, means=True), _every(_curve(losses), 10)):
        comparison = _judge(reference, _curve(spoiled))
        if reference.window.length == 10 or planted == "NaN":
            assert comparison.trouble == planted
            assert f"weights after step {at - 1} on both sides" in comparison.next_command
            assert f"the batch of step {at}" in comparison.next_command


@pytest.mark.parametrize("means", [True, False])
def test_where_no_log_prints_single_steps_the_batches_are_a_range(means: bool) -> None:
    spoiled = SHAPES["straight"].copy()
    spoiled[204:] = np.nan
    both = (_every(_curve(values), 10, means=means) for values in (SHAPES["straight"], spoiled))
    comparison = _judge(*both)
    assert "weights after step 200 on both sides" in comparison.next_command
    assert "the batches of the steps 201 to 210" in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("jitter", [1e-7, 1e-4])
def test_an_explosion_begins_where_the_curves_part_and_not_where_it_leaves_the_noise(shape: str, jitter: float) -> None:
    batches = 1.0 + _noise(1, 0.05)
    grown = 0.02 * 1.5 ** np.clip(np.arange(STEPS) - 300, 0, 20) * (np.arange(STEPS) >= 300)
    candidate = _curve((SHAPES[shape] * (1.0 + _noise(2, jitter)) + grown * SHAPES[shape][0]) * batches)
    comparison = _judge(_curve(SHAPES[shape] * batches), candidate)
    assert comparison.trouble == "explosion"
    assert comparison.first_divergent_step == 301
    assert "weights after step 300 on both sides, and the batch of step 301" in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("since", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("jitter", [1e-7, 5e-4, 2e-3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_sets_in_at_once_differs_later_whenever_it_does(
    shape: str, since: float, jitter: float, sign: float
) -> None:
    apart = sign * 0.09 * SHAPES[shape] * (since <= DONE)
    comparison = _judge(_curve(SHAPES[shape]), _curve(SHAPES[shape] * (1.0 + _noise(3, jitter)) + apart))
    first = int(np.argmax(since <= DONE)) + 1
    assert (comparison.trouble, comparison.first_divergent_step) == ("differs later", first)
    assert f"the batches from step {first} on" in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("points", [1, 5, 100])
@pytest.mark.parametrize("count", [100, STEPS])
def test_a_beginning_that_differs_and_comes_together_is_no_noise(shape: str, points: int, count: int) -> None:
    losses = SHAPES[shape][:count]
    factors = np.where(np.arange(count) < min(points, count // 2), 1.05, 1.0) + _noise(4, 1e-7)[:count]
    assert _judge(_curve(losses), _curve(losses * factors)).trouble == "first loss differs"


def _shared(*metrics: str) -> OtherMetrics:
    return OtherMetrics(tuple(OtherMetric(metric, STEPS, STEPS, None, 0.0, None) for metric in metrics))


def test_a_command_compares_only_what_both_logs_have() -> None:
    reference, candidate = _curve(SHAPES["straight"]), _curve(SHAPES["straight"] + 0.2 * (DONE > 0.5))
    lacking = _judge(reference, candidate).next_command
    assert lacking.startswith("log the learning rate on both sides, then align loss REFERENCE CANDIDATE --metric lr")
    told = _judge(reference, candidate, beside=_shared("lr")).next_command
    assert told.startswith("align loss REFERENCE CANDIDATE --metric lr;")
    assert "log the" not in told


def test_a_learning_rate_that_agrees_again_is_said_to_differ_up_to_there() -> None:
    rates = OtherMetrics((OtherMetric("lr", STEPS, STEPS - 39, 1, 0.1, 1, 39),))
    candidate = _curve(SHAPES["straight"] + 0.2 * (DONE > 0.5))
    assert (
        "--metric lr # they differ from step 1 to 39; then"
        in _judge(_curve(SHAPES["straight"]), candidate, beside=rates).next_command
    )


def test_a_loss_that_stays_below_sends_to_the_learning_rate_first() -> None:
    gap = 0.3 * (1.0 - np.exp(-DONE / 0.1))
    comparison = _judge(_curve(SHAPES["straight"]), _curve(SHAPES["straight"] - gap), beside=_shared("lr"))
    assert comparison.trouble == "stays below the reference"
    assert comparison.next_command.startswith("align loss REFERENCE CANDIDATE --metric lr; then")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("first", "trouble"), [(0.0, "differs from the second step"), (0.03, "first loss differs")])
def test_a_fault_that_shows_at_once_is_not_hidden_by_the_noise_that_it_makes(
    first: float, trouble: str, seed: int, shape: str
) -> None:
    noise = _noise(seed, 0.1)
    noise[:25] = np.abs(noise[:25])
    noise[0] = first
    difference = SHAPES[shape][0] * (noise + 0.1 * np.sqrt(DONE))
    assert _judge(_curve(SHAPES[shape]), _curve(SHAPES[shape] + difference)).trouble == trouble


def _grown(late: float, most: float) -> Values:
    """Grow from rounding to `most` e-fold by e-fold, and no more from the share `late` of the training on."""
    return np.minimum(1e-6 * np.exp(np.log(most / 1e-6) * DONE / late), most)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("late", [0.5, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_rounding_that_grows_as_chaos_does_sends_to_other_runs_of_the_reference(
    shape: str, late: float, seed: int
) -> None:
    batches = SHAPES[shape] * (1.0 + _noise(9, 0.05))
    apart = _grown(late, 0.06) * _noise(seed, 1.0)
    comparison = _judge(_curve(batches), _curve(batches * (1.0 + apart)))
    assert comparison.trouble == "rounding that grows"
    assert comparison.next_command.startswith("align loss REFERENCE CANDIDATE --reference-runs RUN")
    assert f"the batches from step {comparison.first_divergent_step} on" in comparison.next_command


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_what_grows_to_one_side_or_sets_in_at_once_is_no_rounding_that_grows(shape: str, seed: int) -> None:
    noise, losses = _noise(seed, 1.0), SHAPES[shape]
    for factors in (0.06 * (noise + 1.5) * _grown(0.8, 1.0), 0.06 * noise * np.where(DONE < 0.5, 1e-6, 1.0)):
        assert _judge(_curve(losses), _curve(losses * (1.0 + factors))).trouble not in {"", "rounding that grows"}


DIFFERING = OtherMetrics((OtherMetric("lr", STEPS, 0, 1, 0.1, 1),))
AS_IN_PARTS = {
    "differs later": 0.2 * (DONE > 0.5),
    "first loss differs": 0.3 + 0.0 * DONE,
    "slow drift": 0.5 * DONE,
    "stays below the reference": -0.3 * (1.0 - np.exp(-DONE / 0.1)),
    "plateau above the reference": 0.3 * (1.0 - np.exp(-DONE / 0.1)),
    "slower than the reference": SHAPES["exponential"] - SHAPES["straight"] - 0.2,
}


@pytest.mark.parametrize("apart", AS_IN_PARTS)
@pytest.mark.parametrize("first", [0.0, 1e-3])
def test_a_wrong_learning_rate_comes_first_and_once_and_an_equal_one_does_not(apart: str, first: float) -> None:
    reference, values = _curve(SHAPES["straight"]), SHAPES["straight"] + AS_IN_PARTS[apart]
    values[0] += first
    said = _judge(reference, _curve(values), beside=DIFFERING).next_command
    assert said.startswith("align loss REFERENCE CANDIDATE --metric lr # they differ from step 1 on; then ")
    assert said.count("--metric lr") == 1
    equal = _judge(reference, _curve(values), beside=_shared("lr")).next_command
    assert "they differ" not in equal


def test_a_first_loss_names_all_that_may_stand_behind_it() -> None:
    comparison = _judge(_curve(SHAPES["straight"]), _curve(SHAPES["straight"] + 0.3))
    assert comparison.trouble == "first loss differs"
    for cause in ("align forward", "the order of the batches", "seed", "dropout"):
        assert cause in comparison.next_command
    later = _judge(_curve(SHAPES["straight"]), _curve(SHAPES["straight"] + 0.3 * (DONE > 0.5)))
    assert "dropout" not in later.next_command
